"""Blocks that go through a matmul's tiles by panels of columns: each tile is computed, of any number of them."""

import gpu_modules  # noqa: F401  # what loads and stores of tiles mean
import numpy as np
import pytest
from attn_opt.compiler import pipelines
from attn_opt.dialects.assembly import parse_module
from attn_opt.dialects.build import constant_value
from attn_opt.dialects.reference.evaluator import Frame
from attn_opt.transforms.nvidia.schedule import panels
from attn_opt.transforms.rewriting import defining_op, ops_in
from gpu_threads import Threads
from harness import CONTEXT, run_passes
from hypothesis import given, settings
from hypothesis import strategies as st
from test_gpu_matmuls import arguments, check, graph

NEXT = "specialize-warps"  # the pass before which kernels are run


def run(inputs, out, text, multiprocessors):
    """Fills `out` by the kernel of a matmul; whether its blocks go by panels."""
    with CONTEXT:
        module = parse_module(text, "test.mlir", CONTEXT)
        passes = pipelines.nvidia(multiprocessors=multiprocessors)
        run_passes(passes[: [p.partition("{")[0] for p in passes].index(NEXT)], module)
        (kernel,), (launch,) = (ops_in(module.operation, name) for name in ("gpu.func", "gpu.launch_func"))

        def argument(value):
            op = defining_op(value)
            if op.name == "bufferization.to_buffer":
                return inputs[op.operands[0].arg_number]
            return out if op.name == "memref.cast" else np.int64(constant_value(value))

        passed = list(launch.operands)[-len(kernel.regions[0].blocks[0].arguments) :]
        body = Frame(round_values=True).region(kernel.regions[0])
        Threads.blocks = constant_value(launch.operands[0])
        for number in range(Threads.blocks):
            Threads.block = number
            body([*map(argument, passed)])
        return bool(ops_in(kernel, "arith.minui"))


@given(
    b=st.integers(0, 3),
    m=st.integers(16, 700),
    n=st.integers(2, 90).map(lambda n: 8 * n),
    left=st.sampled_from(["mk", "km"]),
    multiprocessors=st.integers(2, 6),
)
@settings(deadline=None, max_examples=12)
def test_each_tile_is_computed(b, m, n, left, multiprocessors):
    m += -m % 8 if left == "km" else 0
    inputs, exact = arguments("f16", b, m, n, 64, left, "nk")
    out = np.full(exact.shape, np.nan)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(panels, "STAYS", 0)
        run(inputs, out, graph("f16", b, m, n, 64, left, "nk"), multiprocessors)
    check(out, exact, "f16")


@pytest.mark.parametrize(("stays", "expected"), [(0, True), (1 << 20, False)])
def test_panels_are_of_what_does_not_stay_in_the_cache(stays, expected, monkeypatch):
    monkeypatch.setattr(panels, "STAYS", stays)
    inputs, exact = arguments("f16", 0, 600, 640, 64, "mk", "nk")
    out = np.full(exact.shape, np.nan)
    assert run(inputs, out, graph("f16", 0, 600, 640, 64, "mk", "nk"), 3) == expected
    check(out, exact, "f16")
