"""Attention whose weights are any function of its probabilities, in two loops over the keys, against float64."""

import numpy as np
import pytest
from attn_opt.compiler import compile
from gpu_modules import run_module
from harness import crossed
from hypothesis import given
from hypothesis import strategies as st
from probability_graphs import SIZES, Graph, check, check_on_gpu, softmax
from properties import examples

# What makes weights %r of probabilities %in0, and the same in numpy.
FUNCTIONS = {
    "clipped": (
        [
            "%stretch = arith.constant 1.2 : f32",
            "%below = arith.constant -0.002 : f32",
            "%one = arith.constant 1.0 : f32",
            "%wide = arith.mulf %in0, %stretch : f32",
            "%moved = arith.addf %wide, %below : f32",
            "%least = arith.maximumf %moved, %zero : f32",
            "%r = arith.minimumf %least, %one : f32",
        ],
        lambda p: np.clip(1.2 * p - 0.002, 0, 1),
    ),
    "squares": (["%r = arith.mulf %in0, %in0 : f32"], lambda p: p * p),
    "roots": (["%r = math.sqrt %in0 : f32"], np.sqrt),
    "entropy": (
        [
            "%little = arith.constant 1.0e-9 : f32",
            "%more = arith.addf %in0, %little : f32",
            "%log = math.log %more : f32",
            "%one = arith.constant 1.0 : f32",
            "%less = arith.subf %log, %one : f32",
            "%r = arith.mulf %in0, %less : f32",
        ],
        lambda p: p * (np.log(p + 1e-9) - 1),
    ),
}
CAUSAL = [
    "%i = linalg.index 1 : index",
    "%j = linalg.index 2 : index",
    "%is = arith.cmpi sle, %j, %i : index",
    "%r = arith.select %is, %in0, %lowest : f32",
]
RENORMALISED = ["%r = arith.divf %in0, %in1 : f32"]


def case(function: str, kind: str, sizes: dict[str, int], causal: bool = False, renormalised: bool = False):
    """A graph, its text, what it gives, and its inputs."""
    graph = Graph(kind, sizes)
    q, k, v = (graph.argument(name, dims) for name, dims in (("q", "hmd"), ("k", "hkd"), ("v", "hkn")))
    s = graph.scores("s", q, k)
    if causal:
        s = graph.elementwise("masked", "hmk", [(s, "hmk")], CAUSAL)
    w = graph.elementwise("w", "hmk", [(graph.softmax("p", s), "hmk")], FUNCTIONS[function][0])
    if renormalised:
        total = graph.reduced("total", w, "hmk", "k", "addf")
        w = graph.elementwise("share", "hmk", [(w, "hmk"), (total, "hm")], RENORMALISED)
    text, inputs = graph.text(w, v), graph.inputs()
    q, k, v = (x.astype(np.float64) for x in inputs)
    s = 0.25 * q @ k.swapaxes(1, 2)
    if causal:
        s = np.where(np.arange(s.shape[2]) <= np.arange(s.shape[1])[:, None], s, -np.inf)
    w = FUNCTIONS[function][1](softmax(s))
    return graph, text, (w / w.sum(-1, keepdims=True) if renormalised else w) @ v, inputs


def test_large_numbers_among_scores_of_narrow_products():
    """Both loops are to make the same of them, whatever their last place is: squares of a mask's number, here."""
    graph = Graph("bf16")
    q, k, v = (graph.argument(name, dims) for name, dims in (("q", "hmd"), ("k", "hkd"), ("v", "hkn")))
    body = [*CAUSAL[:-1], "%mask = arith.constant -3.0e4 : f32", "%a = arith.select %is, %in0, %mask : f32"]
    body += ["%tenth = arith.constant 0.1 : f32", "%b = arith.mulf %a, %a : f32", "%r = arith.mulf %b, %tenth : f32"]
    s = graph.elementwise("squared", "hmk", [(graph.scores("s", q, k), "hmk")], body)
    w = graph.elementwise("w", "hmk", [(graph.softmax("p", s), "hmk")], FUNCTIONS["clipped"][0])
    text, inputs = graph.text(w, v), graph.inputs()
    q, k, v = (x.astype(np.float64) for x in inputs)
    s = 0.25 * q @ k.swapaxes(1, 2)
    s = np.where(np.tri(*s.shape[1:], dtype=bool), s, -3e4) ** 2 * 0.1
    expected = FUNCTIONS["clipped"][1](softmax(s)) @ v
    check(graph, text, expected, 1, inputs)
    check_on_gpu(text, expected, inputs, "bf16", "sm_80")


@pytest.mark.sampled(5)
@pytest.mark.parametrize("function, causal, renormalised", crossed(list(FUNCTIONS), [False, True], [False, True]))
def test_functions(function, causal, renormalised):
    graph, text, expected, inputs = case(function, "f32", SIZES | {"m": 131}, causal, renormalised)
    check(graph, text, expected, 1, inputs)
    assert ("skips dead tiles" in compile(text, threads=1).explain()) == causal


@examples(12)
@given(
    function=st.sampled_from(["squares", "roots"]),  # others differ by more than they are where p is about 0.002
    causal=st.booleans(),
    kind=st.sampled_from(["f32", "bf16"]),
    sizes=st.fixed_dictionaries({d: st.integers(1, most) for d, most in (("m", 90), ("d", 40), ("n", 40))}),
    keys=st.integers(2, 200),  # the probability of a single one is 1
    heads=st.integers(2, 4),
    parts=st.integers(1, 4),
)
def test_shapes(function, causal, kind, sizes, keys, heads, parts):
    graph, text, expected, inputs = case(function, kind, sizes | {"k": keys, "h": heads}, causal)
    check(graph, text, expected, 1, inputs, split_keys=parts)


@pytest.mark.sampled(3, 2)
@pytest.mark.parametrize("arch", ["sm_90a", "sm_80"])
@pytest.mark.parametrize("function, kind, renormalised", [("clipped", "bf16", False), ("squares", "f32", True)])
def test_on_gpus(function, kind, renormalised, arch):
    """At the level of tiles, without a GPU."""
    sizes = SIZES | {"m": 150, "k": 150, "n": 16}
    _, text, expected, inputs = case(function, kind, sizes, True, renormalised)
    check_on_gpu(text, expected, inputs, kind, arch)
    assert compile(text, target="nvidia", arch=arch).ir("ptx").count("ex2") > 1


@pytest.mark.parametrize("arch", ["", "sm_90a", "sm_80"])
def test_scores_of_both_loops_are_the_same_numbers(arch):
    """Where one key has all the weight, that is 1, however large its score, a product that is rounded."""
    graph = Graph("f32", SIZES | {"m": 40, "k": 70})
    q, k, v = (graph.argument(name, dims) for name, dims in (("q", "hmd"), ("k", "hkd"), ("v", "hkn")))
    factors = graph.argument("t", "m")
    s = graph.elementwise(
        "scaled", "hmk", [(graph.scores("s", q, k), "hmk"), (factors, "m")], ["%r = arith.mulf %in0, %in1 : f32"]
    )
    w = graph.elementwise("w", "hmk", [(graph.softmax("p", s), "hmk")], FUNCTIONS["squares"][0])
    text, (q, k, v, factors) = graph.text(w, v), graph.inputs()
    k /= np.linalg.norm(k, axis=-1, keepdims=True)
    q[:] = 2000 * k[:, :40]
    factors[:] = 1 + abs(factors)
    inputs = [q, k, v, factors]
    found = run_module(text, inputs, arch=arch)[0] if arch else compile(text, threads=1)(*inputs)
    np.testing.assert_allclose(found, v[:, :40], rtol=1e-6, atol=1e-6)


def test_rows_that_are_masked_as_a_whole():
    """Their probabilities are 0, and what is made of them is as the function says: here 1 each."""
    graph = Graph("f32", SIZES)
    q, k, v = (graph.argument(name, dims) for name, dims in (("q", "hmd"), ("k", "hkd"), ("v", "hkn")))
    live = graph.argument("live", "mk", "i1")
    s = graph.scores("s", q, k)
    s = graph.elementwise("masked", "hmk", [(s, "hmk"), (live, "mk")], ["%r = arith.select %in1, %in0, %lowest : f32"])
    body = ["%one = arith.constant 1.0 : f32", "%y = arith.subf %one, %in0 : f32", "%r = arith.mulf %y, %y : f32"]
    w = graph.elementwise("w", "hmk", [(graph.softmax("p", s), "hmk")], body)
    text, (q, k, v, live) = graph.text(w, v), graph.inputs()
    live[3], live[5, 1:] = False, False
    s = np.where(live, 0.25 * q.astype(np.float64) @ k.astype(np.float64).swapaxes(1, 2), -np.inf)
    with np.errstate(invalid="ignore"):
        p = np.where(live.any(-1, keepdims=True), softmax(s), 0)
    check(graph, text, (1 - p) ** 2 @ v, 1, [q, k, v, live])


@pytest.mark.sampled(3, 5)
@pytest.mark.parametrize("arch", ["", "sm_90a", "sm_80"])
@pytest.mark.parametrize("low", [-3.0e38, -1.0e4])
def test_rows_that_are_masked_by_a_number(low, arch):
    """All of a row's keys have the same probability there, whose logarithm is nothing beside the number."""
    graph = Graph("f32", SIZES)
    q, k, v = (graph.argument(name, dims) for name, dims in (("q", "hmd"), ("k", "hkd"), ("v", "hkn")))
    live = graph.argument("live", "mk", "i1")
    body = [f"%low = arith.constant {low:.1e} : f32", "%r = arith.select %in1, %in0, %low : f32"]
    s = graph.elementwise("masked", "hmk", [(graph.scores("s", q, k), "hmk"), (live, "mk")], body)
    w = graph.elementwise("w", "hmk", [(graph.softmax("p", s), "hmk")], FUNCTIONS["squares"][0])
    text, (q, k, v, live) = graph.text(w, v), graph.inputs()
    live[3], live[5, 1:] = False, False
    s = np.where(live, 0.25 * q.astype(np.float64) @ k.astype(np.float64).swapaxes(1, 2), low)
    if arch:
        check_on_gpu(text, softmax(s) ** 2 @ v, [q, k, v, live], "f32", arch)
    else:
        check(graph, text, softmax(s) ** 2 @ v, 1, [q, k, v, live])
