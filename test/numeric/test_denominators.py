"""What exponentials are divided by: their sum with something added, bounded, or of those times weights; against
float64."""

from __future__ import annotations

import numpy as np
import pytest
from attn_opt.compiler import compile
from crossed import crossed
from gpu_modules import run_module
from probability_graphs import SIZES, Graph, check, check_on_gpu, softmax

ADDED = 0.75  # large, so that it shows whether it is relative to the right maximum


def scores(graph: Graph) -> str:
    return graph.scores("s", graph.argument("q", "hmd"), graph.argument("k", "hkd"))


def divided(graph: Graph, e: str, of: str, body: list[str], more: tuple[tuple[str, str], ...] = ()) -> str:
    """e / %d, where the body makes %d of the sum, %in1, of `of`."""
    total = graph.reduced("total", of, "hmk", "k", "addf")
    body = [*body, "%r = arith.divf %in0, %d : f32"]
    return graph.elementwise("quotient", "hmk", [(e, "hmk"), (total, "hm"), *more], body)


PLUS = [f"%c = arith.constant {ADDED} : f32", "%d = arith.addf %in1, %c : f32"]
PLUS_SIZE = ["%z = math.absf %in1 : f32", *(line.replace("%in1", "%z") for line in PLUS)]
PLUS_GIVEN = ["%d = arith.addf %in1, %in2 : f32"]
AT_LEAST = ["%c = arith.constant 2.0 : f32", "%d = arith.maximumf %in1, %c : f32"]
AT_LEAST_ONE = ["%c = arith.constant 1.0 : f32", "%d = arith.maximumf %in1, %c : f32"]
PLAIN = ["%d = arith.addf %in1, %zero : f32"]
SIGMOID = [
    "%one = arith.constant 1.0 : f32",
    "%n = arith.negf %in1 : f32",
    "%ex = math.exp %n : f32",
    "%de = arith.addf %ex, %one : f32",
    "%g = arith.divf %one, %de : f32",
]


def shifted(graph: Graph, body: list[str], given: str | None = None) -> str:
    e = graph.exponentials("e", scores(graph))
    more = ((graph.argument("w", given, "f32"), given),) if given is not None else ()
    return divided(graph, e, e, body, more)


def shifted_by(graph: Graph, body: list[str], change: list[str]) -> str:
    """Exponentials less what `change` makes of the maximum."""
    s = scores(graph)
    m = graph.reduced("highest", s, "hmk", "k", "maximumf")
    m = graph.elementwise("changed", "hm", [(m, "hm")], change)
    shift = ["%y = arith.subf %in0, %in1 : f32", "%r = math.exp %y : f32"]
    e = graph.elementwise("e", "hmk", [(s, "hmk"), (m, "hm")], shift)
    return divided(graph, e, e, body)


FLOOR = 1.5  # above some maxima, below others
FLOORED = [f"%f = arith.constant {FLOOR} : f32", "%r = arith.maximumf %in0, %f : f32"]
FINITE = [
    *("%hi = arith.constant 0x7F800000 : f32", "%abs = math.absf %in0 : f32"),
    *("%is = arith.cmpf one, %abs, %hi : f32", "%r = arith.select %is, %in0, %zero : f32"),
]
TWICE = ["%r = arith.addf %in0, %in0 : f32"]


def plain(graph: Graph, body: list[str], weights: str | None = None) -> str:
    e = graph.elementwise("e", "hmk", [(scores(graph), "hmk")], ["%r = math.exp %in0 : f32"])
    if weights is not None:
        w = graph.argument("w", weights, "f32")
        e = graph.elementwise("gated", "hmk", [(e, "hmk"), (w, weights)], ["%r = arith.mulf %in0, %in1 : f32"])
    return divided(graph, e, e, body)


def masked(graph: Graph, x: str) -> str:
    w = graph.argument("w", "mk", "i1")
    return graph.elementwise("masked", "hmk", [(x, "hmk"), (w, "mk")], ["%r = arith.select %in1, %in0, %zero : f32"])


def masked_scores(graph: Graph, body: list[str]) -> str:
    """The maximum is that of scores that are −∞ under a mask."""
    hide = ["%r = arith.select %in1, %in0, %lowest : f32"]
    s, w = scores(graph), graph.argument("w", "mk", "i1")
    s = graph.elementwise("masked", "hmk", [(s, "hmk"), (w, "mk")], hide)
    m = graph.reduced("highest", s, "hmk", "k", "maximumf")
    guard = ["%is = arith.cmpf oeq, %in0, %lowest : f32", "%r = arith.select %is, %zero, %in0 : f32"]
    m = graph.elementwise("safe", "hm", [(m, "hm")], guard)
    shift = ["%y = arith.subf %in0, %in1 : f32", "%r = math.exp %y : f32"]
    e = graph.elementwise("e", "hmk", [(s, "hmk"), (m, "hm")], shift)
    return divided(graph, e, e, body)


OR_ONE = ["%one = arith.constant 1.0 : f32", "%is = arith.cmpf oeq, %in1, %zero : f32"]
OR_ONE = [*OR_ONE, "%d = arith.select %is, %one, %in1 : f32"]
IF_NUMBER = ["%y = arith.divf %in0, %in1 : f32", "%nan = arith.cmpf uno, %y, %y : f32"]
IF_NUMBER = [*IF_NUMBER, "%r = arith.select %nan, %zero, %y : f32"]


def far(graph: Graph, shift: list[str], is_tested: bool = False, of_live: bool = True) -> str:
    """Masked by a large negative number, less what `shift` makes of the maximum: of a row that is masked as a whole,
    exponentials are 0, and so is the result."""
    hide = ["%far = arith.constant -1.0e4 : f32", "%r = arith.select %in1, %in0, %far : f32"]
    given, w = scores(graph), graph.argument("w", "mk", "i1")
    s = graph.elementwise("masked", "hmk", [(given, "hmk"), (w, "mk")], hide)
    m = graph.reduced("highest", s if of_live else given, "hmk", "k", "maximumf")
    body = [*shift, "%y = arith.subf %in0, %f : f32", "%r = math.exp %y : f32"]
    e = graph.elementwise("e", "hmk", [(s, "hmk"), (m, "hm")], body)
    if not is_tested:
        return divided(graph, e, e, OR_ONE)
    total = graph.reduced("total", e, "hmk", "k", "addf")
    return graph.elementwise("quotient", "hmk", [(e, "hmk"), (total, "hm")], IF_NUMBER)


AS_IT_IS = ["%f = arith.addf %zero, %zero : f32"]
AT_LEAST_LOW = ["%low = arith.constant -20.0 : f32", "%f = arith.maximumf %in1, %low : f32"]
OF_ROW = ["%f = arith.addf %in1, %zero : f32"]


def renormalised(graph: Graph, body: list[str]) -> str:
    p = masked(graph, graph.softmax("p0", scores(graph)))
    return divided(graph, p, p, body)


def gated(graph: Graph, body: list[str], dims: str = "hk") -> str:
    """Gates of either sign."""
    p, w = graph.softmax("p0", scores(graph)), graph.argument("w", dims, "f32")
    p = graph.elementwise("gated", "hmk", [(p, "hmk"), (w, dims)], ["%r = arith.mulf %in0, %in1 : f32"])
    return divided(graph, p, p, body)


def norm(graph: Graph) -> str:
    """Over the sum of absolute values, which these are."""
    p = masked(graph, graph.softmax("p0", scores(graph)))
    size = graph.elementwise("size", "hmk", [(p, "hmk")], ["%r = math.absf %in0 : f32"])
    return divided(graph, p, size, ["%c = arith.constant 0.5 : f32", "%d = arith.maximumf %in1, %c : f32"])


def weighted(graph: Graph) -> str:
    """Softmax's results are multiplied by gates of keys, and divided by their sum again."""
    p, w = graph.softmax("p0", scores(graph)), graph.argument("w", "hk", "f32")
    p = graph.elementwise("gated", "hmk", [(p, "hmk"), (w, "hk")], [*SIGMOID, "%r = arith.mulf %in0, %g : f32"])
    return divided(graph, p, p, PLAIN)


def logarithms(graph: Graph) -> str:
    """The logarithm of gates is added to scores."""
    body = [*SIGMOID, "%l = math.log %g : f32", "%r = arith.addf %in0, %l : f32"]
    s, w = scores(graph), graph.argument("w", "hk", "f32")
    return graph.softmax("p0", graph.elementwise("biased", "hmk", [(s, "hmk"), (w, "hk")], body))


def renormalised_exactly(q, k, v, w, added=0.0, least=-np.inf, of=softmax) -> np.ndarray:
    """`w` of keys, or of queries and keys."""
    p = of(of_scores(q, k)) * (w[:, None] if w.shape[0] == q.shape[0] else w)
    return p / np.maximum(p.sum(-1, keepdims=True) + added, least) @ v


def exponentials(s: np.ndarray) -> np.ndarray:
    return np.exp(s - s.max(-1, keepdims=True))


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def of_scores(q: np.ndarray, k: np.ndarray) -> np.ndarray:
    return q @ k.swapaxes(-1, -2) * 0.25


def exact(q, k, v, w=None, least=-np.inf, added=0.0, is_shifted=True, live=None, floor=-np.inf) -> np.ndarray:
    s = of_scores(q, k)
    s = s if live is None else np.where(live, s, -np.inf)
    highest = np.maximum(s.max(-1, keepdims=True), floor) if is_shifted else 0
    e = np.exp(s - np.where(np.isinf(highest), 0, highest))
    return e / np.maximum(e.sum(-1, keepdims=True) + added, least) @ v


CASES = {
    "shifted": (lambda g: shifted(g, PLUS), lambda q, k, v: exact(q, k, v, added=ADDED)),
    "given": (
        lambda g: shifted(g, PLUS_GIVEN, "hm"),
        lambda q, k, w, v: exact(q, k, v, added=w[..., None]),
    ),
    "plain": (lambda g: plain(g, PLUS), lambda q, k, v: exact(q, k, v, added=ADDED, is_shifted=False)),
    "at least": (lambda g: shifted(g, AT_LEAST), lambda q, k, v: exact(q, k, v, least=2.0)),
    "plain, at least": (lambda g: plain(g, AT_LEAST), lambda q, k, v: exact(q, k, v, least=2.0, is_shifted=False)),
    "masked": (lambda g: masked_scores(g, PLUS), lambda q, k, w, v: exact(q, k, v, added=ADDED, live=w)),
    "far": (lambda g: far(g, AS_IT_IS), lambda q, k, w, v: exact(q, k, v, live=w, least=1e-300)),
    "far, floored": (lambda g: far(g, AT_LEAST_LOW), lambda q, k, w, v: exact(q, k, v, live=w, least=1e-300)),
    "far, tested": (lambda g: far(g, AS_IT_IS, True), lambda q, k, w, v: exact(q, k, v, live=w, least=1e-300)),
    "floored": (
        lambda g: shifted_by(g, PLUS, FLOORED),
        lambda q, k, v: exact(q, k, v, added=ADDED, floor=FLOOR),
    ),
    "floored, at least": (
        lambda g: shifted_by(g, AT_LEAST_ONE, FLOORED),
        lambda q, k, v: exact(q, k, v, least=1.0, floor=FLOOR),
    ),
    "finite": (lambda g: shifted_by(g, PLUS, FINITE), lambda q, k, v: exact(q, k, v, added=ADDED)),
    "twice, at least": (
        lambda g: shifted_by(g, AT_LEAST_ONE, TWICE),
        lambda q, k, v: (lambda e: e / np.maximum(e.sum(-1, keepdims=True), 1) @ v)(
            (lambda s: np.exp(s - 2 * s.max(-1, keepdims=True)))(of_scores(q, k))
        ),
    ),
    "renormalised": (
        lambda g: renormalised(g, PLAIN),
        lambda q, k, w, v: softmax(np.where(w, of_scores(q, k), -np.inf)) @ v,
    ),
    "renormalised, more": (
        lambda g: renormalised(g, PLUS),
        lambda q, k, w, v: renormalised_exactly(q, k, v, w, ADDED),
    ),
    "norm": (norm, lambda q, k, w, v: renormalised_exactly(q, k, v, w, least=0.5)),
    "gated": (
        lambda g: gated(
            g, ["%z = arith.mulf %in1, %in1 : f32", "%c = arith.constant 1.0 : f32", "%d = arith.addf %z, %c : f32"]
        ),
        lambda q, k, w, v: (lambda p: p / (1 + p.sum(-1, keepdims=True) ** 2) @ v)(
            softmax(of_scores(q, k)) * w[:, None]
        ),
    ),
    "gated per query": (
        lambda g: gated(g, PLUS_SIZE, "hmk"),
        lambda q, k, w, v: (lambda p: p / (np.abs(p.sum(-1, keepdims=True)) + ADDED) @ v)(softmax(of_scores(q, k)) * w),
    ),
    "plain, gated": (
        lambda g: plain(g, PLUS_SIZE, "hk"),
        lambda q, k, w, v: (lambda p: p / (np.abs(p.sum(-1, keepdims=True)) + ADDED) @ v)(
            np.exp(of_scores(q, k)) * w[:, None]
        ),
    ),
    # The maximum is that of all scores, the sum that of some.
    "other maximum": (
        lambda g: (lambda e: divided(g, e, e, PLUS))(masked(g, g.exponentials("e", scores(g)))),
        lambda q, k, w, v: renormalised_exactly(q, k, v, w, ADDED, of=exponentials),
    ),
    "weighted": (weighted, lambda q, k, w, v: softmax(of_scores(q, k) + np.log(sigmoid(w))[:, None]) @ v),
    "logarithms": (logarithms, lambda q, k, w, v: softmax(of_scores(q, k) + np.log(sigmoid(w))[:, None]) @ v),
}
LEFT = {
    # Shifted by something of the row that is no maximum.
    "no maximum": lambda g: no_maximum(g),
    # Whether rows are masked as a whole is told by the maximum of other scores.
    "far, other maximum": lambda g: far(g, OF_ROW, of_live=False),
}


def no_maximum(graph: Graph) -> str:
    s = scores(graph)
    total = graph.reduced("sums", s, "hmk", "k", "addf")
    body = ["%y = arith.subf %in0, %in1 : f32", "%r = math.exp %y : f32"]
    e = graph.elementwise("e", "hmk", [(s, "hmk"), (total, "hm")], body)
    return divided(graph, e, e, PLUS)


def made(name: str, kind: str) -> tuple[Graph, str, np.ndarray, list[np.ndarray]]:
    probabilities, formula = CASES[name]
    graph = Graph(kind)
    p = probabilities(graph)
    text = graph.text(p, graph.argument("v", "hkn"))
    inputs = graph.inputs()
    inputs[1] *= np.linspace(0.2, 3, inputs[1].shape[1])[:, None].astype(inputs[1].dtype)  # maxima come late
    if name in ("given", "plain, gated"):
        inputs[2] = np.abs(inputs[2])
    if name == "masked" or name.startswith("far"):
        inputs[2][5] = False  # a row without a key
    return graph, text, formula(*(x if x.dtype == bool else x.astype(np.float64) for x in inputs)), inputs


@pytest.mark.sampled(30)
@pytest.mark.parametrize("name, kind", crossed(list(CASES), ["f32", "bf16"]))
def test_denominators(name, kind):
    graph, text, expected, inputs = made(name, kind)
    check(graph, text, expected, 1, inputs)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("name", ["shifted", "masked", "other maximum"])
def test_split_keys(name):
    graph, text, expected, inputs = made(name, "f32")
    check(graph, text, expected, 1, inputs, split_keys=3)


@pytest.mark.parametrize("name", LEFT)
def test_left(name):
    """What would be relative to another number is not fused."""
    graph = Graph("f32")
    text = graph.text(LEFT[name](graph), graph.argument("v", "hkn"))
    assert "linalg_ext" not in compile(text, threads=1).ir("raised")


@pytest.mark.sampled(2, 1)
@pytest.mark.parametrize("arch", ["sm_90a", "sm_80"])
@pytest.mark.parametrize(
    "name, kind", [("shifted", "f32"), ("shifted", "bf16"), ("plain", "f32"), ("gated", "bf16"), ("far", "f32")]
)
def test_on_gpus(name, kind, arch):
    _, text, expected, inputs = made(name, kind)
    check_on_gpu(text, expected, inputs, kind, arch)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", ["shifted", "weighted", "gated", "other maximum"])
def test_code_for_gpus(name):
    _, text, _, _ = made(name, "bf16")
    kernel = compile(text, target="nvidia", arch="sm_90a")
    assert "linalg_ext.softmax" in kernel.ir("fused") and "wgmma" in kernel.ir("ptx")


@pytest.mark.sampled(2, 2)
@pytest.mark.parametrize("low, high", [(0, 1), (2, 0), (1, 3)])
def test_padded(low, high):
    """A softmax of scores that are padded, of which the values meet those of the keys."""
    graph = Graph("f32")
    s, wide = scores(graph), SIZES["k"] + low + high
    heads, rows, keys = (SIZES[d] for d in "hmk")
    kind, part = f"tensor<{heads}x{rows}x{wide}xf32>", graph.type("hmk", "f32")
    graph.lines += [
        f"%pad = tensor.pad {s} low[0, 0, {low}] high[0, 0, {high}] {{",
        "^bb0(%i: index, %j: index, %l: index):",
        "tensor.yield %zero : f32",
        f"}} : {part} to {kind}",
        f"%wide_empty = tensor.empty() : {kind}",
        f"%wide = linalg.softmax dimension(2) ins(%pad : {kind}) outs(%wide_empty : {kind}) -> {kind}",
        f"%p = tensor.extract_slice %wide[0, 0, {low}] [{heads}, {rows}, {keys}] [1, 1, 1] : {kind} to {part}",
    ]
    text, inputs = graph.text("%p", graph.argument("v", "hkn")), graph.inputs()
    q, k, v = (x.astype(np.float64) for x in inputs)
    check(graph, text, exact(q, k, v, added=low + high, is_shifted=False), 1, inputs)


NAN_AS_ZERO = ["%nan = arith.cmpf une, %in0, %in0 : f32", "%r = arith.select %nan, %zero, %in0 : f32"]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("arch", ["", "sm_80", "sm_90a"])
@pytest.mark.parametrize("is_of_result", [False, True])
def test_what_is_no_number_is_0(is_of_result, arch):
    """Rows with a score that is +∞ or NaN, where NaN is replaced, as `nan_to_num` does: of the probabilities, whose
    values may be NaN all the same, or of the result."""
    graph = Graph("f32")
    s = scores(graph)
    s = graph.elementwise(
        "biased", "hmk", [(s, "hmk"), (graph.argument("b", "hmk"), "hmk")], ["%r = arith.addf %in0, %in1 : f32"]
    )
    e = graph.exponentials("e", s)
    total = graph.reduced("total", e, "hmk", "k", "addf")
    body = ["%r = arith.divf %in0, %in1 : f32"] if is_of_result else IF_NUMBER
    p = graph.elementwise("quotient", "hmk", [(e, "hmk"), (total, "hm")], body)
    o = graph.product(p, graph.argument("v", "hkn"))
    text = graph.function(graph.elementwise("tested", "hmn", [(o, "hmn")], NAN_AS_ZERO) if is_of_result else o)
    q, k, b, v = graph.inputs()
    b[0, 3, 5], b[1, 7, [0, -1]], b[2, 36, 64], b[2, 4, :100] = np.inf, np.inf, np.nan, -np.inf
    v[1, 9, 2] = np.nan
    bad = np.zeros(b.shape[:2], bool)
    bad[[0, 1, 2], [3, 7, 36]] = True
    with np.errstate(invalid="ignore"):
        expected = softmax(of_scores(*(x.astype(np.float64) for x in (q, k))) + b) @ v
    expected[bad] = 0
    assert np.isnan(expected[1, :, 2]).sum() == len(expected[1]) - 1
    if is_of_result:
        expected = np.nan_to_num(expected)
    if arch:
        (found,) = run_module(text, [np.asarray(x, np.float64) for x in (q, k, b, v)], arch=arch)
    else:
        kernel = compile(text, threads=1)
        found = kernel(q, k, b, v)
        assert kernel.ir("raised").count("linalg_ext.softmax") == 1
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
