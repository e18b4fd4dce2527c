"""Random programs of JAX around attention: compiled for the CPU against float64, and for GPUs to PTX."""

import numpy as np
import pytest

jax = pytest.importorskip("jax", reason="needs the extra attn_opt[jax]")

import jax.numpy as jnp  # noqa: E402
from attn_opt.compiler import compile  # noqa: E402
from hypothesis import HealthCheck, given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from random_jax import DTYPES, RandomJaxProgram  # noqa: E402
from random_source import F32, FLAVOURS, check_code, check_error  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")
TOO_SLOW = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow, HealthCheck.data_too_large]}
ARCHITECTURES = st.sampled_from(["sm_90a", "sm_80"])


@st.composite
def programs(draw, **options):
    return RandomJaxProgram(lambda choices: draw(st.sampled_from(list(choices))), **options)


def results_of(function, args) -> list:
    found = function(*args)
    return list(found) if isinstance(found, tuple) else [found]


def check_results(program: RandomJaxProgram, found: list, args: tuple) -> None:
    """Against the program in float64, by JAX."""
    epsilon = float(jnp.finfo(DTYPES[program.dtype]).eps)
    rng = np.random.default_rng(0)
    whole = jax.jit(program.function)
    eager = results_of(whole, args)
    with jax.enable_x64(True):
        is_float = [jnp.issubdtype(x.dtype, jnp.floating) for x in args]
        wide = [
            np.asarray(x).astype(float) if floats else np.asarray(x) for x, floats in zip(args, is_float, strict=True)
        ]
        moved = [
            x + epsilon * x * (rng.random(x.shape) - 0.5) if floats else x
            for x, floats in zip(wide, is_float, strict=True)
        ]
        right, rounded = (
            [np.asarray(x) for x in results_of(whole, map(jnp.asarray, given))] for given in (wide, moved)
        )
    for one, a, b, c in zip(found, right, rounded, eager, strict=True):
        assert one.shape == a.shape and one.dtype == c.dtype, f"{one.shape}, {one.dtype}\n{program!r}"
        own = 2 * float(jnp.finfo(one.dtype).eps) + 16 * F32
        check_error(*(np.asarray(x).astype(float) for x in (one, a, b, c)), own, program)


def check_on_cpu(program: RandomJaxProgram) -> None:
    kernel = compile(program.function, program.inputs())
    for flavour in FLAVOURS:
        args = program.inputs(flavour)
        check_results(program, results_of(kernel, args), args)


def check_for_gpus(program: RandomJaxProgram, arch: str) -> None:
    check_code(lambda: compile(program.function, program.inputs(), target="nvidia", arch=arch), program)


@given(programs())
@settings(max_examples=4, **TOO_SLOW)
def test_programs(program):
    check_on_cpu(program)


@given(programs(), ARCHITECTURES)
@settings(max_examples=3, **TOO_SLOW)
def test_programs_for_gpus(program, arch):
    check_for_gpus(program, arch)


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
