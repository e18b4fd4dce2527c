"""Attention without a softmax on an NVIDIA GPU, against float64. Without one: test_unnormalised.py."""

import pytest
from attn_opt.compiler import compile
from gpu import needs_gpu
from gpu import poisoned as poisoned
from harness import crossed, relative_error
from probability_graphs import TOLERANCE
from test_inner_softmax import FUNCTIONS as OF_PROBABILITIES
from test_inner_softmax import case as case_of_probabilities
from test_unnormalised import FUNCTIONS, case

SIZES = {
    "causal tiles": {"h": 3, "m": 700, "k": 700, "d": 64, "n": 64},
    "odd": {"h": 2, "m": 333, "k": 517, "d": 36, "n": 20},
    "wide": {"h": 2, "m": 300, "k": 300, "d": 128, "n": 256},
    "decoding": {"h": 4, "m": 1, "k": 3000, "d": 64, "n": 64},
}
MASKS = ("", "weights", "window", "loaded")


@needs_gpu
@pytest.mark.parametrize("kind", ["bf16", "f32"])
@pytest.mark.parametrize("function, sizes, mask", crossed([*FUNCTIONS, "decay"], list(SIZES), MASKS))
def test_against_float64(function, sizes, mask, kind, poisoned):
    text, inputs, wanted = case(function, "" if function == "decay" else mask, kind, SIZES[sizes])
    found = compile(text, target="nvidia")(*inputs)
    assert relative_error(found, wanted) < TOLERANCE[kind] * (2 if kind == "f32" else 1)


@needs_gpu
@pytest.mark.parametrize("arch", ["sm_90a", "sm_80"])
@pytest.mark.parametrize("function, sizes, mask", crossed(["squared relu", "gaussian"], list(SIZES), MASKS))
def test_wide_weights(function, sizes, mask, arch, poisoned):
    """Weights of f32 beside values of bf16 are multiplied as two numbers of bf16, not as one."""
    text, inputs, wanted = case(function, mask, "bf16", SIZES[sizes], wide=True)
    assert relative_error(compile(text, target="nvidia", arch=arch)(*inputs), wanted) < 2e-5


@needs_gpu
@pytest.mark.parametrize("sizes", SIZES)
def test_divided_by_their_sum(sizes, poisoned):
    text, inputs, wanted = case("sigmoid", "weights", "bf16", SIZES[sizes], total="before")
    assert relative_error(compile(text, target="nvidia")(*inputs), wanted) < TOLERANCE["bf16"]


@needs_gpu
@pytest.mark.parametrize("kind", ["bf16", "f32"])
@pytest.mark.parametrize(
    "function, sizes, causal, renormalised", crossed(list(OF_PROBABILITIES), list(SIZES), [False, True], [False, True])
)
def test_functions_of_probabilities(function, sizes, causal, renormalised, kind, poisoned):
    _, text, wanted, inputs = case_of_probabilities(function, kind, SIZES[sizes], causal, renormalised)
    assert relative_error(compile(text, target="nvidia")(*inputs), wanted) < TOLERANCE[kind]
