"""Scores whose rows each have a matrix of their own in the first matmul: kernels for NVIDIA GPUs at the level of tiles,
without a GPU; the scores are computed before."""

import numpy as np
import pytest
from probability_graphs import Graph, check_on_gpu, softmax


def talking_heads(graph: Graph) -> str:
    """Heads are mixed before softmax."""
    s = graph.scores("s", graph.argument("q", "cmd"), graph.argument("k", "ckd"), "c")
    return graph.matmul("mixed", (s, "cmk", "f32"), (graph.argument("w", "hc", "f32"), "hc", "f32"), "hmk", "c")


def keys_of_positions(graph: Graph) -> str:
    """Each query has keys of its own."""
    q, k = graph.argument("q", "hmd"), graph.argument("k", "mkd")
    return graph.matmul("s", (q, "hmd", graph.kind), (k, "mkd", graph.kind), "hmk", "d")


def of_heads(q, k, w, v):
    return softmax(np.einsum("cmd,ckd,hc->hmk", q, k, w) * 0.25) @ v


def of_positions(q, k, v):
    return softmax(np.einsum("hmd,mkd->hmk", q, k)) @ v


@pytest.mark.parametrize("arch", ["sm_90a", "sm_80"])
@pytest.mark.parametrize("made, exact", [(talking_heads, of_heads), (keys_of_positions, of_positions)])
def test_mixed_rows(made, exact, arch):
    graph = Graph("f32")
    p = graph.softmax("p", made(graph))
    text, inputs = graph.text(p, graph.argument("v", "hkn")), graph.inputs()
    check_on_gpu(text, exact(*(x.astype(np.float64) for x in inputs)), inputs, "f32", arch)
