"""Fused against unfused, both evaluated in float64: any shape, tile sizes, interchange and variant."""

import numpy as np
import pytest
from attention_graph import Attention
from attn_opt.dialects.assembly import parse_module, print_module
from attn_opt.dialects.reference import evaluate
from attn_opt.transforms.fuse_attention import FuseAttention
from attn_opt.transforms.passes import listening
from harness import CONTEXT
from hypothesis import given
from hypothesis import strategies as st
from properties import examples

EXTENT, MAYBE_NONE = st.integers(1, 9), st.integers(0, 9)


def fuse(text: str, sizes, interchange=(), reports=None):
    module = parse_module(text, "graph.mlir", CONTEXT)
    with CONTEXT, listening(reports.append if reports is not None else lambda report: None):
        FuseAttention(tuple(sizes), tuple(interchange)).run(module.operation)
    assert module.operation.verify()
    return module


def check(graph: Attention, sizes, interchange=(), seed=0):
    inputs = graph.inputs(seed)
    with CONTEXT:
        expected = evaluate(parse_module(graph.text(), "graph.mlir", CONTEXT), inputs)
        module = fuse(graph.text(), sizes, interchange)
        found = evaluate(module, inputs)
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12, err_msg=print_module(module))
    return print_module(module)


@st.composite
def graphs(draw):
    matmul = draw(st.sampled_from(["ext", "generic", "matmul", "batch_matmul"]))
    rank = {"matmul": 0, "batch_matmul": 1}.get(matmul, draw(st.integers(0, 2)))
    named = matmul in ("matmul", "batch_matmul")
    softmax = draw(st.sampled_from(["softmax", "softmax", "unnorm_softmax"]))
    dynamic = draw(st.booleans())  # of static sizes none is zero: such attention is not tiled
    return Attention(
        *(draw(MAYBE_NONE if dynamic else EXTENT) for _ in range(4)),
        batch=tuple(draw(st.integers(1, 3)) for _ in range(rank)),
        matmul=matmul,
        layout="nn" if named else draw(st.sampled_from(["nn", "nt", "tn", "tt"])),
        modify=draw(st.sampled_from(["none", "scale", "causal"])),
        softmax=softmax,
        dynamic=dynamic,
        returns=tuple(draw(st.sets(st.sampled_from(["max", "accum", "scores", "result"]), max_size=2))),
    )


@st.composite
def schedules(draw):
    graph = draw(graphs())
    loops = len(graph.batch) + 3
    sizes = [draw(st.integers(0, 6)) for _ in range(draw(st.integers(1, loops)))]
    return graph, sizes, draw(st.permutations(range(loops)))


@given(schedules())
@examples(150)
def test_fused_equals_unfused(case):
    graph, sizes, order = case
    if not any(sizes):
        sizes[0] = 1
    check(graph, sizes, order)


@pytest.mark.parametrize("columns_first", [False, True])
def test_columns_of_the_output_tiled(columns_first):
    """A loop over columns visits every row again: the statistics are kept per tile of columns."""
    text = check(Attention(7, 9, 4, 6), [3, 2, 4], [1, 0, 2] if columns_first else [0, 2, 1])
    assert text.count("linalg_ext.softmax") == 1


@pytest.mark.parametrize("returns", ["max", "accum", "scores"])
def test_what_others_need_is_computed_where_loops_have_no_iteration(returns):
    """A loop over columns of values, or over keys, computes none of what it would have to leave behind."""
    check(Attention(7, 9, 4, 0, dynamic=True, returns=(returns,)), [3, 2, 4])
    check(Attention(7, 0, 4, 6, dynamic=True, returns=(returns,)), [3, 2, 4])
    text = check(Attention(7, 9, 4, 6, returns=(returns,)), [3, 2, 4])
    assert text.index("scf.for") < text.index("linalg_ext.softmax"), "where all loops run, it is fused"


def test_scores_are_never_whole():
    """Fused, no tensor is as large as all scores."""
    text = check(Attention(64, 96, 4, 4), [8, 0, 16])
    assert "64x96" not in text
