"""Random programs of torch around attention, compiled for the CPU and for GPUs, against float64: there to PTX, and run
without a GPU at the level of tiles, where numbers are rounded as on one."""

import re

import pytest

torch = pytest.importorskip("torch", reason="needs the extra attn_opt[torch]")

from attn_opt.compiler import CompileError, compile  # noqa: E402
from gpu_modules import lowered  # noqa: E402
from hypothesis import HealthCheck, given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from random_programs import DTYPES, RandomProgram  # noqa: E402
from random_source import F32, FLAVOURS, check_code, check_error  # noqa: E402
from torch_harness import run_as_on_gpu  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::UserWarning")
TOO_SLOW = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow, HealthCheck.data_too_large]}
ON_GPUS = ("f16", "bf16", "f32")  # tensor cores have no f64 here
OTHER_SIZES = ({}, {"b": 1, "m": 1, "n": 70}, {"b": 2, "m": 67, "n": 9}, {"b": 1, "m": 20, "n": 1})


@st.composite
def programs(draw, **options):
    return RandomProgram(lambda choices: draw(st.sampled_from(list(choices))), **options)


def results_of(function, args) -> list[torch.Tensor]:
    with torch.no_grad():
        found = function(*args)
    return list(found) if isinstance(found, tuple) else [found]


def check_results(program: RandomProgram, found: list[torch.Tensor], args: tuple[torch.Tensor, ...]) -> None:
    """Against the program in float64, which itself has no roundings of torch's to go by."""
    epsilon = torch.finfo(DTYPES[program.dtype]).eps
    wide = [x.double() if x.is_floating_point() else x for x in args]
    generator = torch.Generator().manual_seed(0)
    noise = [torch.rand(x.shape, generator=generator, dtype=torch.float64) - 0.5 for x in args]
    moved = [x + epsilon * x * more if x.is_floating_point() else x for x, more in zip(wide, noise, strict=True)]
    right, rounded, eager = (results_of(program.function, given) for given in (wide, moved, args))
    for one, a, b, c in zip(found, right, rounded, eager, strict=True):
        assert one.shape == a.shape and one.dtype == c.dtype, f"{one.shape}, {one.dtype}\n{program!r}"
        own = 2 * torch.finfo(one.dtype).eps + (16 * F32 if program.dtype != "f64" else F32 / 4096)
        check_error(*(x.double().numpy() for x in (one, a, b, c)), own, program)


def check_on_cpu(program: RandomProgram) -> None:
    shapes = program.dynamic_shapes() if program.open else None
    kernel = compile(program.function, program.inputs(), dynamic_shapes=shapes)
    for flavour in FLAVOURS:
        args = program.inputs(flavour)
        check_results(program, results_of(kernel, args), args)
    for sizes in OTHER_SIZES if program.open else ():
        args = program.inputs(**{letter: size for letter, size in sizes.items() if letter in program.open})
        try:
            found = results_of(kernel, args)
        except CompileError as error:
            assert re.search("was traced for sizes with|must be", str(error)), f"{error}\n{program!r}"
            continue
        check_results(program, found, args)


def check_for_gpus(program: RandomProgram, arch: str) -> None:
    kernel = check_code(lambda: compile(program.function, program.inputs(), target="nvidia", arch=arch), program)
    module = lowered(kernel.ir("fused"), is_fused=True, arch=arch)
    for flavour in FLAVOURS:
        args = program.inputs(flavour)
        dtypes = [x.dtype for x in results_of(program.function, args)]
        check_results(program, run_as_on_gpu(module, args, dtypes), args)


ARCHITECTURES = st.sampled_from(["sm_90a", "sm_80"])


@given(programs())
@settings(max_examples=8, **TOO_SLOW)
def test_programs(program):
    check_on_cpu(program)


@given(programs(dtypes=ON_GPUS), ARCHITECTURES)
@settings(max_examples=6, **TOO_SLOW)
def test_programs_for_gpus(program, arch):
    check_for_gpus(program, arch)


@pytest.mark.slow
@given(programs())
@settings(max_examples=100, **TOO_SLOW)
def test_many_programs(program):
    check_on_cpu(program)


@pytest.mark.slow
@given(programs(dtypes=ON_GPUS), ARCHITECTURES)
@settings(max_examples=50, **TOO_SLOW)
def test_many_programs_for_gpus(program, arch):
    check_for_gpus(program, arch)


@pytest.mark.slow
@given(programs(is_open=True))
@settings(max_examples=30, **TOO_SLOW)
def test_open_sizes(program):
    check_on_cpu(program)
