"""Blocks that go through a matmul's tiles by panels of columns: each tile is computed, of any number of them."""

import pytest
from attn_opt.transforms.nvidia.schedule import panels
from attn_opt.transforms.rewriting import ops_in
from gpu_modules import lowered, run
from hypothesis import given
from hypothesis import strategies as st
from properties import examples
from test_gpu_matmuls import arguments, check, graph

NEXT = "specialize-warps"  # the pass before which kernels are run


@given(
    b=st.integers(0, 3),
    m=st.integers(16, 700),
    n=st.integers(2, 90).map(lambda n: 8 * n),
    left=st.sampled_from(["mk", "km"]),
    is_open=st.booleans(),
    multiprocessors=st.integers(2, 6),
)
@examples(12)
def test_each_tile_is_computed(b, m, n, left, is_open, multiprocessors):
    m += -m % 8 if left == "km" else 0
    inputs, exact = arguments("f16", b, m, n, 64, left, "nk")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(panels, "STAYS", 0)
        module = lowered(graph("f16", b, m, n, 64, left, "nk", is_open), last=NEXT, multiprocessors=multiprocessors)
    (found,) = run(module, inputs)
    check(found, exact, "f16")


@pytest.mark.parametrize(("stays", "expected"), [(0, True), (1 << 20, False)])
def test_panels_are_of_what_does_not_stay_in_the_cache(stays, expected, monkeypatch):
    monkeypatch.setattr(panels, "STAYS", stays)
    inputs, exact = arguments("f16", 0, 600, 640, 64, "mk", "nk")
    module = lowered(graph("f16", 0, 600, 640, 64, "mk", "nk"), last=NEXT, multiprocessors=3)
    (kernel,) = ops_in(module.operation, "gpu.func")
    assert bool(ops_in(kernel, "arith.minui")) == expected
    (found,) = run(module, inputs)
    check(found, exact, "f16")
