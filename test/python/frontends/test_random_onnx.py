"""Random models of ONNX around attention, compiled for the CPU and for GPUs, against float64: there to PTX, and run
without a GPU at the level of tiles, where numbers are rounded as on one."""

import numpy as np
import pytest

reference = pytest.importorskip("onnx.reference", reason="needs the extra attn_opt[onnx]")

from attn_opt.compiler import compile  # noqa: E402
from gpu_modules import lowered, run  # noqa: E402
from hypothesis import HealthCheck, assume, given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from ml_dtypes import finfo  # noqa: E402
from onnx_numpy import evaluate, is_float  # noqa: E402
from random_onnx import DTYPES, RandomOnnxProgram  # noqa: E402
from random_source import F32, FLAVOURS, check_code, check_error  # noqa: E402

TOO_SLOW = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow, HealthCheck.data_too_large]}
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::RuntimeWarning")
OTHER_SIZES = ({}, {"b": 1, "m": 1, "n": 70}, {"b": 2, "m": 67, "n": 9, "p": 3}, {"b": 1, "m": 20, "n": 1, "p": 40})


@st.composite
def programs(draw, **options):
    return RandomOnnxProgram(lambda choices: draw(st.sampled_from(list(choices))), **options)


def listed(found) -> list[np.ndarray]:
    return list(found) if isinstance(found, tuple) else [found]


def check_results(program: RandomOnnxProgram, found: list[np.ndarray], args: list[np.ndarray]) -> None:
    """Against the model in float64."""
    epsilon = float(finfo(DTYPES[program.dtype]).eps)
    rng = np.random.default_rng(0)
    noise = [rng.random(x.shape) - 0.5 for x in args]
    moved = [x + epsilon * x.astype(float) * n if is_float(x) else x for x, n in zip(args, noise, strict=True)]
    right, rounded = (evaluate(program.model, x, is_wide=True) for x in (args, moved))
    eager = evaluate(program.model, args, is_wide=False)
    for one, a, b, c in zip(found, right, rounded, eager, strict=True):
        assert one.shape == a.shape and one.dtype == c.dtype, f"{one.shape}, {one.dtype}\n{program!r}"
        own = 2 * float(finfo(one.dtype).eps) + 16 * F32
        check_error(*(x.astype(float) for x in (one, a, b, c)), own, program)


def check_on_cpu(program: RandomOnnxProgram) -> None:
    kernel = compile(program.model)
    for flavour in FLAVOURS:
        args = program.inputs(flavour)
        check_results(program, listed(kernel(*args)), args)
    for sizes in OTHER_SIZES if program.open else ():
        args = program.inputs(**{letter: size for letter, size in sizes.items() if letter in program.open})
        check_results(program, listed(kernel(*args)), args)


def check_for_gpus(program: RandomOnnxProgram, arch: str) -> None:
    kernel = check_code(lambda: compile(program.model, target="nvidia", arch=arch), program)
    if kernel is None:
        return
    module = lowered(kernel.ir("fused"), is_fused=True, arch=arch)
    for flavour in FLAVOURS:
        args = program.inputs(flavour)
        wide = [x.astype(float) if is_float(x) else x for x in (*args, *kernel._weights)]
        dtypes = [x.dtype for x in evaluate(program.model, args, is_wide=False)]
        found = [np.asarray(x).astype(dtype) for x, dtype in zip(run(module, wide), dtypes, strict=True)]
        check_results(program, found, args)


ARCHITECTURES = st.sampled_from(["sm_90a", "sm_80"])


@given(programs())
@settings(max_examples=4, **TOO_SLOW)
def test_programs(program):
    check_on_cpu(program)


@given(programs(), ARCHITECTURES)
@settings(max_examples=2, **TOO_SLOW)
def test_programs_for_gpus(program, arch):
    check_for_gpus(program, arch)


@given(programs(dtypes=("f32",)))
@settings(max_examples=6, **TOO_SLOW)
def test_what_they_are_compared_with(program):
    """onnx's own evaluation comes to the same; it knows no operators of onnxruntime's."""
    assume(not any(node.domain or node.op_type == "Attention" for node in program.model.graph.node))
    args = program.inputs()
    names = [value.name for value in program.model.graph.input]
    found = reference.ReferenceEvaluator(program.model).run(None, dict(zip(names, args, strict=True)))
    check_results(program, list(map(np.asarray, found)), args)


@pytest.mark.slow
@given(programs())
@settings(max_examples=100, **TOO_SLOW)
def test_many_programs(program):
    check_on_cpu(program)


@pytest.mark.slow
@given(programs(), ARCHITECTURES)
@settings(max_examples=50, **TOO_SLOW)
def test_many_programs_for_gpus(program, arch):
    check_for_gpus(program, arch)


@pytest.mark.slow
@given(programs(is_open=True))
@settings(max_examples=30, **TOO_SLOW)
def test_open_sizes(program):
    check_on_cpu(program)


@pytest.mark.slow
@given(programs(dtypes=("f32",)))
@settings(max_examples=100, **TOO_SLOW)
def test_what_onnxruntime_computes(program):
    """With operators of its own, of which it does not know all that programs ask for; what is in a buffer behind the
    last key is not defined."""
    onnxruntime = pytest.importorskip("onnxruntime")
    assume(not any(node.op_type == "GroupQueryAttention" and node.input[3] for node in program.model.graph.node))
    try:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        session = onnxruntime.InferenceSession(program.model.SerializeToString(), options)
        args = program.inputs()
        names = [value.name for value in program.model.graph.input]
        found = session.run(None, dict(zip(names, args, strict=True)))
    except Exception:  # it has several classes of them, of no common one
        assume(False)
    check_results(program, found, args)
