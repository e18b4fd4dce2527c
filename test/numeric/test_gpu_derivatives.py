"""Derivatives of attention on an NVIDIA GPU, against float64. Without one: test_derivatives.py."""

import pytest
from attn_opt.compiler import compile
from derivative_graphs import LEARNED, Case
from gpu import needs_gpu
from gpu import poisoned as poisoned
from harness import crossed, relative_error
from probability_graphs import TOLERANCE

SIZES = {
    "several tiles": {"h": 3, "m": 700, "k": 700, "d": 64, "n": 64},
    "odd": {"h": 2, "m": 333, "k": 517, "d": 36, "n": 20},
    "wide": {"h": 2, "m": 512, "k": 640, "d": 128, "n": 128},
    "few queries": {"h": 4, "m": 5, "k": 1000, "d": 64, "n": 64},
    "many rows": {"h": 8, "m": 2048, "k": 300, "d": 64, "n": 72},
}
MASKS, MODIFIED = ["", "causal", "low", "loaded"], ["", "capped", "dropped"]


@needs_gpu
@pytest.mark.parametrize("kind", ["bf16", "f32"])
@pytest.mark.parametrize("way, sizes, masked, modified", crossed(["torch", "jax"], list(SIZES), MASKS, MODIFIED))
def test_against_float64(way, sizes, masked, modified, kind, poisoned):
    check(Case(SIZES[sizes], kind, way, masked, modified))


@needs_gpu
@pytest.mark.parametrize("kind", ["bf16", "f32"])
@pytest.mark.parametrize(
    ("learned", "way", "sizes", "masked", "modified"),
    crossed(list(LEARNED), ["torch", "jax"], ["several tiles", "odd", "few queries"], MASKS, ["", "capped"]),
)
def test_by_what_is_learned(learned, way, sizes, masked, modified, kind, poisoned):
    check(Case(SIZES[sizes], kind, way, masked, modified, learned))


@needs_gpu
@pytest.mark.parametrize("arch", ["sm_90a", "sm_80"])
@pytest.mark.parametrize(("way", "sizes", "masked"), crossed(["torch", "jax"], list(SIZES), MASKS))
def test_wide_derivatives_of_scores(way, sizes, masked, arch, poisoned):
    """In f32, beside keys and queries of bf16."""
    check(Case(SIZES[sizes], "bf16", way, masked, wide=True), arch=arch)


def check(case: Case, **options) -> None:
    text, inputs = case.graph()
    kernel = compile(text, target="nvidia", **options)
    assert kernel.explain().count("attention without a softmax") == 3
    assert kernel.ir("fused").count("__pairwise__") == bool(case.learned)
    for found, wanted in zip(kernel(*inputs), case.expected(inputs), strict=True):
        # What temperatures sum is mostly cancelled, but for the rounding of the output.
        more = 3 if case.kind == "f32" or case.is_factor else 1
        assert relative_error(found, wanted) < TOLERANCE[case.kind] * more
