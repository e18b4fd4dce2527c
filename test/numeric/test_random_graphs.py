"""Random graphs around attention: as they are, raised, fused with any tile sizes, and compiled, against numpy."""

import random

import numpy as np
import pytest
from attn_opt.compiler import compile, pass_manager
from attn_opt.dialects.assembly import parse_module, print_module
from attn_opt.dialects.reference import evaluate
from attn_opt.transforms.fuse_attention import FuseAttention
from attn_opt.transforms.passes import PassError
from attn_opt.transforms.raise_attention import RaiseAttention
from gpu_modules import lowered, run
from harness import CONTEXT
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from properties import examples
from random_graphs import RandomGraph

# Evaluated in float64, where constants are rounded to the graph's types (log2(e) is), and as compiled.
EVALUATED = {"f64": 1e-9, "f32": 1e-6, "f16": 5e-3, "bf16": 4e-2}
COMPILED = {"f64": 1e-9, "f32": 1e-3, "f16": 3e-2, "bf16": 1.5e-1, "f8E4M3FN": 3e-1, "f8E5M2": 5e-1}


@st.composite
def graphs(draw):
    with np.errstate(all="ignore"):
        return RandomGraph(lambda options: draw(st.sampled_from(list(options))))


def check(found, graph: RandomGraph, tolerance: float, text: str = "") -> None:
    for a, b in zip(found, graph.expected, strict=True):
        assert a.shape == b.shape
        if b.size and np.isfinite(b).all():
            error = np.abs(np.asarray(a, np.float64) - b).max() / max(1e-3, np.abs(b).max())
            assert error <= tolerance, f"error {error}\n{graph.text}\n{text}"


def check_fused(graph: RandomGraph, sizes: list[int], order: list[int]) -> None:
    tolerance = EVALUATED[graph.wide]
    with CONTEXT:
        module = parse_module(graph.text, "graph.mlir", CONTEXT)
        check(evaluate(module, graph.inputs), graph, 1e-9)
        RaiseAttention().run(module.operation)
        assert module.operation.verify()
        raised = print_module(module)
        check(evaluate(module, graph.inputs), graph, tolerance, raised)
        if "linalg_ext.softmax" not in raised:
            return
        try:
            FuseAttention(tuple(sizes), tuple(order)).run(module.operation)
        except PassError as error:
            assert sizes and "tile" in error.message
            return
        assert module.operation.verify()
        check(evaluate(module, graph.inputs), graph, tolerance, print_module(module))


def check_compiled(graph: RandomGraph) -> None:
    found = compile(graph.text)(*graph.inputs)
    tolerance = max(COMPILED[graph.element], COMPILED[graph.wide])
    check(found if isinstance(found, tuple | list) else [found], graph, tolerance)


TOO_SLOW = {"suppress_health_check": [HealthCheck.too_slow, HealthCheck.data_too_large]}
SIZES = st.lists(st.sampled_from([0, 1, 2, 3, 4, 8]), min_size=3, max_size=6).filter(any)
# Chosen by rule, or sizes of loops, of which the root may have fewer or more, and their order.
SCHEDULES = st.just(([], [])) | SIZES.flatmap(
    lambda sizes: st.tuples(st.just(sizes), st.just([]) | st.permutations(range(len(sizes))))
)


@given(graphs(), SCHEDULES)
@examples(30, **TOO_SLOW)
def test_fused(graph, schedule):
    check_fused(graph, *schedule)


@pytest.mark.slow
@given(graphs(), SCHEDULES)
@examples(600, **TOO_SLOW)
def test_many_fused(graph, schedule):
    check_fused(graph, *schedule)


@pytest.mark.slow
@given(graphs())
@examples(60, **TOO_SLOW)
def test_compiled(graph):
    check_compiled(graph)


@pytest.mark.slow
@given(graphs(), st.sampled_from(["sm_80", "sm_90a"]))
@examples(60, **TOO_SLOW)
def test_compiled_for_gpus(graph, arch):
    """Run without a GPU at the level of tiles, attention that no kernel can be made of, too."""
    kernel = compile(graph.text, target="nvidia", arch=arch)
    module = lowered(kernel.ir("fused"), is_fused=True, arch=arch)
    wide = [x if x.dtype.kind in "biu" else np.asarray(x, float) for x in graph.inputs]
    check(run(module, wide, "attention"), graph, max(COMPILED[graph.element], COMPILED[graph.wide]))


@pytest.mark.parametrize("seed", [1, 4, 11])  # with maxima and sums of rows as results
def test_raising_again_gives_the_same(seed):
    chosen = random.Random(seed)
    with np.errstate(all="ignore"):
        graph = RandomGraph(lambda options: chosen.choice(list(options)))
    texts = set()
    with CONTEXT:
        for _ in range(8):
            module = parse_module(graph.text, "graph.mlir", CONTEXT)
            pass_manager.run([RaiseAttention()], module)
            texts.add(print_module(module))
    assert len(texts) == 1
