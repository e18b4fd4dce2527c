"""Random programs of torch around attention, compiled for the CPU and for GPUs, against float64: there to PTX, and run
without a GPU at the level of tiles, where numbers are rounded as on one."""

import re
import warnings

import pytest

torch = pytest.importorskip("torch", reason="needs the extra attn_opt[torch]")

from attn_opt.compiler import CompileError, compile  # noqa: E402
from gpu_modules import lowered  # noqa: E402
from hypothesis import HealthCheck, given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from random_programs import DTYPES, FLAVOURS, RandomProgram  # noqa: E402
from torch_harness import run_as_on_gpu  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::UserWarning")
TOO_SLOW = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow, HealthCheck.data_too_large]}
F32 = torch.finfo(torch.float32).eps
ON_GPUS = ("f16", "bf16", "f32")  # tensor cores have no f64 here
# What no kernel for a GPU is made of yet, so that scores are kept in memory, or that is refused: others are failures.
NOT_YET = re.compile(
    "'scf.for' stands outside|a dimension of a tile (has no constant bound|is split)"
    "|a dimension is rows of one matmul together with others"
)
OTHER_SIZES = ({}, {"b": 1, "m": 1, "n": 70}, {"b": 2, "m": 67, "n": 9}, {"b": 1, "m": 20, "n": 1})


@st.composite
def programs(draw, **options):
    return RandomProgram(lambda choices: draw(st.sampled_from(list(choices))), **options)


def results_of(function, args) -> list[torch.Tensor]:
    with torch.no_grad():
        found = function(*args)
    return list(found) if isinstance(found, tuple) else [found]


def check_results(program: RandomProgram, found: list[torch.Tensor], args: tuple[torch.Tensor, ...]) -> None:
    """Against the program in float64. Allowed are a few times the error of eager torch in the same type, and of
    arguments that are rounded once more to it, and the result's own roundings; float64 has none of torch's to go by.

    Where there is no number in float64 (rows without a key), or none in torch's own type, none is asked for.
    """
    epsilon = torch.finfo(DTYPES[program.dtype]).eps
    wide = [x.double() if x.is_floating_point() else x for x in args]
    generator = torch.Generator().manual_seed(0)
    noise = [torch.rand(x.shape, generator=generator, dtype=torch.float64) - 0.5 for x in args]
    moved = [x + epsilon * x * more if x.is_floating_point() else x for x, more in zip(wide, noise, strict=True)]
    right, rounded, eager = (results_of(program.function, given) for given in (wide, moved, args))
    for one, a, b, c in zip(found, right, rounded, eager, strict=True):
        assert one.shape == a.shape and one.dtype == c.dtype, f"{one.shape}, {one.dtype}\n{program!r}"
        own = 2 * torch.finfo(one.dtype).eps + (16 * F32 if program.dtype != "f64" else F32 / 4096)
        is_known = a.isfinite() & (one.isfinite() | c.isfinite())
        if not is_known.any():
            continue
        error, torchs, arguments = ((x.double() - a)[is_known].nan_to_num(0, 0, 0).abs().max() for x in (one, c, b))
        is_finite = bool(one[is_known].isfinite().all())
        scale = a[is_known].abs().max()
        allowed = 8 * torchs + 2 * arguments + own * scale
        problem = f"error {error:.3g}, where {allowed:.3g} is allowed, of {scale:.3g}"
        assert is_finite and error <= allowed, f"{problem}{'' if is_finite else ', NaN'}\n{program!r}"


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
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            kernel = compile(program.function, program.inputs(), target="nvidia", arch=arch)
        except CompileError as error:
            assert NOT_YET.search(str(error)), f"{error}\n{program!r}"
            return
    assert ".entry" in kernel.ir("ptx")
    module = lowered(kernel.ir("fused"), is_fused=True, arch=arch)
    for flavour in FLAVOURS:
        args = program.inputs(flavour)
        dtypes = [x.dtype for x in results_of(program.function, args)]
        check_results(program, run_as_on_gpu(module, args, dtypes), args)
    left = [text for one in said if "no kernel can be made of it" in (text := str(one.message))]
    assert all(map(NOT_YET.search, left)), f"{left}\n{program!r}"


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
