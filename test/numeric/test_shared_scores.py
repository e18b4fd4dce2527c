"""Attentions of the same scores: each is fused, and computes them in its own loop; against float64."""

from __future__ import annotations

import numpy as np
import pytest
from crossed import crossed
from probability_graphs import Graph, check, check_on_gpu, softmax

TWICE = ["%r = arith.addf %in0, %in0 : f32"]
HIDE = ["%r = arith.select %in1, %in0, %lowest : f32"]
PRODUCT = ["%r = arith.mulf %in0, %in1 : f32"]


def scores(graph: Graph) -> str:
    return graph.scores("s", graph.argument("q", "hmd"), graph.argument("k", "hkd"))


def multiplied(graph: Graph, *probabilities: str) -> str:
    """The function that returns the product of attentions, each of which has values of its own."""
    outputs = []
    for i, p in enumerate(probabilities):
        v = graph.argument(f"v{i}", "hkn")
        if graph.kind == "bf16":
            p = graph.elementwise(f"narrow{i}", "hmk", [(p, "hmk")], ["%r = arith.addf %in0, %zero : f32"], graph.kind)
        outputs.append(graph.matmul(f"o{i}", (p, "hmk", graph.kind), (v, "hkn", graph.kind), "hmn", "k"))
    return graph.function(graph.elementwise("o", "hmn", [(o, "hmn") for o in outputs], PRODUCT))


def values(graph: Graph) -> str:
    p = graph.softmax("p0", scores(graph))
    return multiplied(graph, p, p)


def temperatures(graph: Graph) -> str:
    s = scores(graph)
    twice = graph.elementwise("twice", "hmk", [(s, "hmk")], TWICE)
    return multiplied(graph, graph.softmax("p0", s), graph.softmax("p1", twice))


def masks(graph: Graph) -> str:
    s, w = scores(graph), graph.argument("w", "mk", "i1")
    live = graph.elementwise("live", "hmk", [(s, "hmk"), (w, "mk")], HIDE)
    return multiplied(graph, graph.softmax("p0", s), graph.softmax("p1", live))


def of(q: np.ndarray, k: np.ndarray) -> np.ndarray:
    return q @ k.swapaxes(-1, -2) * 0.25


CASES = {
    "values": (values, lambda q, k, v, u: (softmax(of(q, k)) @ v) * (softmax(of(q, k)) @ u)),
    "temperatures": (temperatures, lambda q, k, v, u: (softmax(of(q, k)) @ v) * (softmax(2 * of(q, k)) @ u)),
    "masks": (
        masks,
        lambda q, k, w, v, u: (softmax(of(q, k)) @ v) * (softmax(np.where(w, of(q, k), -np.inf)) @ u),
    ),
}


def made(name: str, kind: str) -> tuple[Graph, str, np.ndarray, list[np.ndarray]]:
    function, formula = CASES[name]
    graph = Graph(kind)
    text = function(graph)
    inputs = graph.inputs()
    return graph, text, formula(*(x if x.dtype == bool else x.astype(np.float64) for x in inputs)), inputs


@pytest.mark.sampled(5)
@pytest.mark.parametrize("name, kind", crossed(list(CASES), ["f32", "bf16"]))
def test_shared_scores(name, kind):
    graph, text, expected, inputs = made(name, kind)
    check(graph, text, expected, 2, inputs)


@pytest.mark.parametrize("arch", ["sm_90a", "sm_80"])
def test_on_gpus(arch):
    _, text, expected, inputs = made("values", "bf16")
    check_on_gpu(text, expected, inputs, "bf16", arch)
