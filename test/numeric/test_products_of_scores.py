"""Products of scores and of probabilities with themselves, as in iterations for an inverse, against float64."""

from __future__ import annotations

import numpy as np
import pytest
from attn_opt.compiler import compile
from harness import relative_error
from probability_graphs import TOLERANCE, Graph, check_on_gpu, softmax

pytestmark = pytest.mark.filterwarnings("ignore:attn_opt")

SIZES = dict.fromkeys("mkdn", 8) | {"h": 2}


def product(graph: Graph, name: str, a: str, b: str, left: str = "mk", right: str = "kn") -> str:
    return graph.matmul(name, (a, "h" + left, "f32"), (b, "h" + right, "f32"), "hmn", "k")


def less(graph: Graph, name: str, number: int, a: str) -> str:
    body = [f"%c = arith.constant {number}.0 : f32", "%r = arith.subf %c, %in0 : f32"]
    return graph.elementwise(name, "hmn", [(a, "hmn")], body)


def of_probabilities(graph: Graph, s: str) -> str:
    p = graph.softmax("p", s)
    a = product(graph, "a", p, p, right="nk")
    return product(graph, "o", a, less(graph, "b", 7, a))


def inverse(graph: Graph, s: str) -> str:
    """As in Nyströmformer."""
    p = graph.softmax("p", s)
    v = graph.elementwise("v", "hkm", [(p, "hmk")], ["%c = arith.constant 0.1 : f32", "%r = arith.mulf %in0, %c : f32"])
    for i in range(2):
        a = product(graph, f"a{i}", p, v)
        b = product(graph, f"b{i}", a, less(graph, f"l{i}", 7, a))
        v = product(graph, f"v{i}", v, less(graph, f"m{i}", 13, b))
    return v


def inverse_of(s: np.ndarray) -> np.ndarray:
    p = softmax(s)
    v = 0.1 * p.swapaxes(-1, -2)
    for _ in range(2):
        a = p @ v
        v = v @ (13 - a @ (7 - a))
    return v


def polynomial(graph: Graph, s: str) -> str:
    """As of Newton and Schulz."""
    b = product(graph, "b", s, less(graph, "l", 7, s))
    return product(graph, "o", s, less(graph, "m", 5, b))


def by_keys(graph: Graph, s: str) -> str:
    return product(graph, "o", s, less(graph, "b", 7, s), left="km")


CASES = {
    "of probabilities": (of_probabilities, lambda s: (a := softmax(s) @ softmax(s).swapaxes(-1, -2)) @ (7 - a)),
    "inverse": (inverse, inverse_of),
    "polynomial": (polynomial, lambda s: s @ (5 - s @ (7 - s))),
    "by keys": (by_keys, lambda s: s.swapaxes(-1, -2) @ (7 - s)),
}


@pytest.mark.sampled(3, 2)
@pytest.mark.parametrize("name", CASES)
def test_products(name):
    make, formula = CASES[name]
    graph = Graph("f32", SIZES)
    s = graph.scores("s", graph.argument("q", "hmd"), graph.argument("k", "hkd"))
    text, inputs = graph.function(make(graph, s)), graph.inputs()
    q, k = (x.astype(np.float64) for x in inputs)
    expected = formula(0.25 * q @ k.swapaxes(-1, -2))
    assert relative_error(compile(text, threads=1)(*inputs), expected) < TOLERANCE["f32"]
    for arch in ("sm_90a", "sm_80"):
        check_on_gpu(text, expected, inputs, "f32", arch)
        assert compile(text, target="nvidia", arch=arch).ir("ptx")
