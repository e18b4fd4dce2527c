"""(p₁ − λ·p₂)·V, (p + w)·V and the like, an attention per softmax, against float64."""

from __future__ import annotations

import numpy as np
import pytest
from attn_opt.compiler import compile
from crossed import crossed
from probability_graphs import Graph, check, check_on_gpu, softmax

MINUS = ["%y = arith.mulf %in1, %in2 : f32", "%r = arith.subf %in0, %y : f32"]
PLUS = ["%r = arith.addf %in0, %in1 : f32"]


def two(graph: Graph) -> tuple[str, str]:
    pairs = [(graph.argument(f"q{i}", "hmd"), graph.argument(f"k{i}", "hkd")) for i in (1, 2)]
    a, b = (graph.softmax(f"p{i}", graph.scores(f"s{i}", *pair)) for i, pair in enumerate(pairs))
    return a, b


def difference(graph: Graph, dims: str) -> str:
    """λ over `dims`."""
    a, b = two(graph)
    return graph.elementwise("sum", "hmk", [(a, "hmk"), (b, "hmk"), (graph.argument("w", dims, "f32"), dims)], MINUS)


def halves(graph: Graph) -> str:
    """Of one softmax over pairs of heads, as [h, c, m, k]."""
    q, k = graph.argument("q", "hcmd"), graph.argument("k", "hckd")
    p = graph.softmax("p0", graph.scores("s", q, k, "hc"), "hc")
    kind, part, row = graph.type("hcmk", "f32"), graph.type("hmk", "f32"), graph.type("hmk", "f32").replace("x", ", ")
    sizes = ", ".join(row.removeprefix("tensor<").split(", ")[:3])
    h, m, n = sizes.split(", ")
    for i in (0, 1):
        graph.lines.append(
            f"%part{i} = tensor.extract_slice {p}[0, {i}, 0, 0] [{h}, 1, {m}, {n}] [1, 1, 1, 1] : {kind} to {part}"
        )
    w = graph.argument("w", "h", "f32")
    return graph.elementwise("d", "hmk", [("%part0", "hmk"), ("%part1", "hmk"), (w, "h")], MINUS)


def one(graph: Graph) -> str:
    return graph.softmax("p0", graph.scores("s", graph.argument("q", "hmd"), graph.argument("k", "hkd")))


def plus(graph: Graph, dims: str) -> str:
    """Something else is added."""
    return graph.elementwise("sum", "hmk", [(one(graph), "hmk"), (graph.argument("w", dims, "f32"), dims)], PLUS)


def mixed(graph: Graph) -> str:
    """p·(1 + w) − 1/131: one attention with weights, and a sum of values."""
    body = [
        "%n = arith.constant 0.0076335877862595417 : f32",
        "%y = arith.mulf %in0, %in1 : f32",
        "%z = arith.addf %in0, %y : f32",
        "%r = arith.subf %z, %n : f32",
    ]
    return graph.elementwise("sum", "hmk", [(one(graph), "hmk"), (graph.argument("w", "hk", "f32"), "hk")], body)


def chosen(graph: Graph) -> str:
    """Some rows of one softmax, some of another."""
    a, b = two(graph)
    w = graph.argument("w", "m", "i1")
    return graph.elementwise(
        "sum", "hmk", [(a, "hmk"), (b, "hmk"), (w, "m")], ["%r = arith.select %in2, %in0, %in1 : f32"]
    )


def scores(q: np.ndarray, k: np.ndarray) -> np.ndarray:
    return np.einsum("...md,...kd->...mk", q, k) * 0.25


def of_two(q1, k1, q2, k2, w, v):
    w = w.reshape(*w.shape, *(1,) * (3 - w.ndim))
    return (softmax(scores(q1, k1)) - w * softmax(scores(q2, k2))) @ v


def of_halves(q, k, w, v):
    p = softmax(scores(q, k))
    return (p[:, 0] - w[:, None, None] * p[:, 1]) @ v


CASES = {
    "scalar": (2, lambda g: difference(g, ""), of_two),
    "heads": (2, lambda g: difference(g, "h"), of_two),
    "rows": (2, lambda g: difference(g, "hm"), of_two),
    "halves": (2, halves, of_halves),
    "plus a matrix": (1, lambda g: plus(g, "hmk"), lambda q, k, w, v: (softmax(scores(q, k)) + w) @ v),
    "plus a row": (1, lambda g: plus(g, "k"), lambda q, k, w, v: (softmax(scores(q, k)) + w) @ v),
    "mixed": (1, mixed, lambda q, k, w, v: (softmax(scores(q, k)) * (1 + w[:, None]) - 1 / 131) @ v),
    "chosen": (
        2,
        chosen,
        lambda q1, k1, q2, k2, w, v: np.where(w[:, None], softmax(scores(q1, k1)), softmax(scores(q2, k2))) @ v,
    ),
}


def made(name: str, kind: str) -> tuple[Graph, str, np.ndarray, int, list[np.ndarray]]:
    softmaxes, probabilities, formula = CASES[name]
    graph = Graph(kind)
    p = probabilities(graph)
    text = graph.text(p, graph.argument("v", "hkn"))
    inputs = graph.inputs()
    exact = formula(*(x if x.dtype == bool else x.astype(np.float64) for x in inputs))
    return graph, text, exact, softmaxes, inputs


@pytest.mark.sampled(12)
@pytest.mark.parametrize("name, kind", crossed(list(CASES), ["f32", "bf16"]))
def test_sums(name, kind):
    graph, text, exact, softmaxes, inputs = made(name, kind)
    check(graph, text, exact, softmaxes, inputs)


def test_split_keys():
    graph, text, exact, softmaxes, inputs = made("rows", "f32")
    check(graph, text, exact, softmaxes, inputs, split_keys=3)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("arch", ["sm_90a", "sm_80"])
@pytest.mark.parametrize("name, kind", [("rows", "f32"), ("halves", "bf16"), ("mixed", "f32")])
def test_on_gpus(name, kind, arch):
    _, text, exact, _, inputs = made(name, kind)
    check_on_gpu(text, exact, inputs, kind, arch)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", ["heads", "halves", "plus a row"])
def test_code_for_gpus(name):
    _, text, _, softmaxes, _ = made(name, "bf16")
    kernel = compile(text, target="nvidia", arch="sm_90a")
    assert kernel.ir("fused").count("linalg_ext.softmax") == softmaxes
    assert "wgmma" in kernel.ir("ptx")
