"""Scores made of several products of queries and keys, against float64. On a GPU: test_gpu_several_products.py."""

from __future__ import annotations

import numpy as np
import pytest
from attn_opt.compiler import compile
from harness import relative_error
from hypothesis import given
from hypothesis import strategies as st
from probability_graphs import SIZES, TOLERANCE, Graph, check, check_on_gpu, narrowed, softmax
from properties import examples

NUMBERS = {"%half": 0.5, "%two": 2.0}
# Of scores %in0 and %in1 in MLIR, and of s and r in numpy.
MADE = {
    "multiplied": ("%r = arith.mulf %in0, %in1 : f32", lambda s, r: s * r),
    "scaled by other numbers": (
        "%a = arith.mulf %in0, %half : f32; %b = arith.mulf %in1, %two : f32; %r = arith.addf %a, %b : f32",
        lambda s, r: s / 2 + 2 * r,
    ),
    "function added": (
        "%t = math.tanh %in1 : f32; %b = arith.mulf %t, %two : f32; %r = arith.addf %in0, %b : f32",
        lambda s, r: s + 2 * np.tanh(r),
    ),
    "the larger one": ("%r = arith.maximumf %in0, %in1 : f32", np.maximum),
    "chosen": (
        "%c = arith.cmpf ogt, %in1, %zero : f32; %r = arith.select %c, %in0, %lowest : f32",
        lambda s, r: np.where(r > 0, s, -np.inf),
    ),
    "causal": (
        "%i = linalg.index 1 : index; %j = linalg.index 2 : index; %c = arith.cmpi sle, %j, %i : index; "
        "%p = arith.mulf %in0, %in1 : f32; %r = arith.select %c, %p, %lowest : f32",
        lambda s, r: np.where(np.tri(*s.shape[1:], dtype=bool), s * r, -np.inf),
    ),
}


def several(kind: str, name: str, sizes: dict[str, int] = SIZES):
    """The graph of such an attention, its function, inputs and result."""
    made, formula = MADE[name]
    graph = Graph(kind, {"e": 24, **sizes})
    s = graph.scores("s", graph.argument("q", "hmd"), graph.argument("k", "hkd"))
    operands = (graph.argument("q2", "hme"), "hme", kind), (graph.argument("k2", "hke"), "hke", kind)
    r = graph.matmul("dot", *operands, "hmk", "e")
    constants = [f"{name} = arith.constant {number} : f32" for name, number in NUMBERS.items()]
    x = graph.elementwise("mixed", "hmk", [(s, "hmk"), (r, "hmk")], [*constants, *made.split("; ")])
    text = graph.text(graph.softmax("p", x), graph.argument("v", "hkn"))
    inputs = [narrowed(x.astype(np.float32) * x.shape[-1] ** -0.25, kind) for x in graph.inputs()]
    q, k, q2, k2, v = (np.asarray(x, np.float64) for x in inputs)
    scores = formula(0.25 * q @ k.swapaxes(-1, -2), q2 @ k2.swapaxes(-1, -2))
    return graph, text, inputs, softmax(scores) @ v


@pytest.mark.sampled(12)
@pytest.mark.parametrize("kind", ["f32", "bf16"])
@pytest.mark.parametrize("name", MADE)
def test_all_products_are_in_the_loops(name, kind):
    graph, text, inputs, expected = several(kind, name)
    check(graph, text, expected, 1, inputs, tile_sizes=[1, 16, 0, 32])
    check(graph, text, expected, 1, inputs)
    fused = compile(text, threads=1).ir("fused")
    assert "tensor<3x37x131x" not in fused  # no scores of all queries and keys


@examples(12)
@given(
    sizes=st.fixed_dictionaries({dim: st.integers(1, 70) for dim in "mk"} | {dim: st.integers(1, 24) for dim in "den"}),
    tiles=st.tuples(st.integers(0, 20), st.integers(0, 40)),
    name=st.sampled_from([name for name in MADE if name != "chosen"]),  # which one rounding may decide
)
def test_any_sizes_and_tiles(sizes, tiles, name):
    _, text, inputs, expected = several("f32", name, {"h": 2, **sizes})
    kernel = compile(text, threads=1, tile_sizes=[1, tiles[0], 0, tiles[1]])
    assert relative_error(kernel(*inputs), expected) < TOLERANCE["f32"]


@pytest.mark.sampled(12, 5)
@pytest.mark.parametrize("arch", ["sm_90a", "sm_80"])
@pytest.mark.parametrize("kind", ["f32", "bf16"])
@pytest.mark.parametrize("name", MADE)
def test_kernels_for_gpus(name, kind, arch):
    _, text, inputs, expected = several(kind, name)
    check_on_gpu(text, expected, inputs, kind, arch)
    kernel = compile(text, target="nvidia", arch=arch, must_fuse=True)
    assert "memref<3x37x131x" not in kernel.ir("tiles")
    assert kernel.ir("ptx")


def doubled(graph: Graph) -> tuple[str, str, str]:
    """Scores of a product each, s and r, and values."""
    s = graph.scores("s", graph.argument("q", "hmd"), graph.argument("k", "hkd"))
    r = graph.scores("second", graph.argument("q2", "hmd"), graph.argument("k2", "hkd"))
    return s, r, graph.argument("v", "hkn")


def weighted(graph: Graph, s: str, r: str) -> str:
    """softmax(s)·σ(r)"""
    body = [
        "%a = arith.negf %in1 : f32",
        "%b = math.exp %a : f32",
        "%c = arith.addf %b, %one : f32",
        "%d = arith.divf %one, %c : f32",
        "%r = arith.mulf %in0, %d : f32",
    ]
    p = graph.softmax("p", s)
    return graph.elementwise("w", "hmk", [(p, "hmk"), (r, "hmk")], ["%one = arith.constant 1.0 : f32", *body])


def squared(graph: Graph, s: str, r: str) -> str:
    """softmax(s·r)²: two loops over the keys."""
    x = graph.elementwise("mixed", "hmk", [(s, "hmk"), (r, "hmk")], ["%r = arith.mulf %in0, %in1 : f32"])
    return graph.elementwise("w", "hmk", [(graph.softmax("p", x), "hmk")], ["%r = arith.mulf %in0, %in0 : f32"])


OF_PROBABILITIES = {
    "weighted": (weighted, lambda s, r: softmax(s) / (1 + np.exp(-r))),
    "squared": (squared, lambda s, r: softmax(s * r) ** 2),
}


def of_probabilities(kind: str, name: str, sizes: dict[str, int] = SIZES):
    """The function of such an attention, its inputs and result."""
    make, formula = OF_PROBABILITIES[name]
    graph = Graph(kind, sizes)
    s, r, v = doubled(graph)
    text, inputs = graph.text(make(graph, s, r), v), graph.inputs()
    q, k, q2, k2, v = (np.asarray(x, np.float64) for x in inputs)
    return text, inputs, formula(0.25 * q @ k.swapaxes(-1, -2), 0.25 * q2 @ k2.swapaxes(-1, -2)) @ v


@pytest.mark.sampled(5, 1)
@pytest.mark.parametrize("kind", ["f32", "bf16"])
@pytest.mark.parametrize("name", OF_PROBABILITIES)
def test_weights_and_functions_of_probabilities(name, kind):
    text, inputs, expected = of_probabilities(kind, name)
    kernel = compile(text, threads=1)
    assert "tensor<3x37x131x" not in kernel.ir("fused")
    assert relative_error(kernel(*inputs), expected) < TOLERANCE[kind]
    for arch in ("sm_90a", "sm_80"):
        check_on_gpu(text, expected, inputs, kind, arch)
        assert compile(text, target="nvidia", arch=arch, must_fuse=True).ir("ptx")


def test_three_products():
    graph = Graph("f32")
    queries, keys = graph.argument("q", "hmd"), graph.argument("k", "hkd")
    products = [graph.scores("s", queries, keys)]
    for i in range(2):
        of_queries, of_keys = (graph.argument(f"{letter}{i}", f"h{dim}c") for letter, dim in (("q", "m"), ("k", "k")))
        products.append(graph.matmul(f"dot{i}", (of_queries, "hmc", "f32"), (of_keys, "hkc", "f32"), "hmk", "c"))
    body = ["%t = arith.mulf %in0, %in1 : f32", "%u = math.tanh %in2 : f32", "%r = arith.addf %t, %u : f32"]
    x = graph.elementwise("mixed", "hmk", [(p, "hmk") for p in products], body)
    text, inputs = graph.text(graph.softmax("p", x), graph.argument("v", "hkn")), graph.inputs()
    q, k, q0, k0, q1, k1, v = (x.astype(np.float64) for x in inputs)
    s, r, u = 0.25 * q @ k.swapaxes(-1, -2), q0 @ k0.swapaxes(-1, -2), q1 @ k1.swapaxes(-1, -2)
    expected = softmax(s * r + np.tanh(u)) @ v
    check(graph, text, expected, 1, inputs)
    assert "tensor<3x37x131x" not in compile(text, threads=1).ir("fused")
    for arch in ("sm_90a", "sm_80"):
        check_on_gpu(text, expected, inputs, "f32", arch)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("target", [{}, {"target": "nvidia", "arch": "sm_90a"}])
def test_what_heads_share_is_computed_once(target):
    """Each head would compute it again."""
    graph = Graph("f32")
    s = graph.scores("s", graph.argument("q", "hmd"), graph.argument("k", "hkd"))
    r = graph.matmul(
        "dot", (graph.argument("a", "md"), "md", "f32"), (graph.argument("b", "kd"), "kd", "f32"), "mk", "d"
    )
    x = graph.elementwise("mixed", "hmk", [(s, "hmk"), (r, "mk")], ["%r = arith.mulf %in0, %in1 : f32"])
    text, inputs = graph.text(graph.softmax("p", x), graph.argument("v", "hkn")), graph.inputs()
    assert "tensor<37x131xf32>" in (fused := compile(text, **target).ir("fused"))
    assert "tensor<3x37x131xf32>" not in fused
    if not target:
        q, k, a, b, v = (x.astype(np.float64) for x in inputs)
        expected = softmax(0.25 * q @ k.swapaxes(-1, -2) * (a @ b.T)) @ v
        assert relative_error(compile(text, threads=1)(*inputs), expected) < TOLERANCE["f32"]


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("kind", "columns", "arch"), [("f32", 512, "sm_90a"), ("bf16", 256, "sm_86")])
def test_products_that_shared_memory_does_not_hold_are_computed_before(kind, columns, arch):
    sizes = {**SIZES, "m": 256, "k": 256, "d": columns // 2, "e": columns, "n": 64}
    _, text, _, _ = several(kind, "multiplied", sizes)
    kernel = compile(text, target="nvidia", arch=arch, must_fuse=True)
    assert "tensor<3x256x256x" in kernel.ir("fused")
    assert kernel.ir("ptx")
