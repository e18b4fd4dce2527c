"""One kernel for any number of queries, with loops of their own for few of them, against float64."""

import dataclasses
import functools

import numpy as np
import pytest
from attn_opt.compiler import compile, pass_manager
from attn_opt.compiler.graphs import Attention
from attn_opt.dialects.assembly import parse_module
from attn_opt.transforms.rewriting import ops_in
from harness import CONTEXT, relative_error
from hypothesis import example, given
from hypothesis import strategies as st
from properties import examples

TOLERANCE = {"f32": 3e-6, "f64": 1e-13, "bf16": 1.5e-2, "f16": 2e-3, "f8E4M3FN": 6e-2}
BASE = Attention(heads=4, heads_kv=2, head_size=40, dynamic=True)
GRAPHS = {
    "plain": {},
    "own keys": {"heads": 3, "heads_kv": 3, "element": "bf16"},
    "group of 8": {"heads": 8, "heads_kv": 1, "element": "f16"},
    "group of 3": {"heads": 6, "element": "bf16", "value_size": 24},  # 15 rows
    "group of 4": {"heads": 8, "head_size": 64, "window": (-300, 0), "bottom_right": True, "lse": True},
    "group of 5": {"heads": 5, "heads_kv": 1, "softcap": 4.0, "element": "f8E4M3FN", "output": "f32"},
    "causal": {"window": (None, 0), "bottom_right": True, "element": "bf16", "lse": True},
    "causal, own keys": {"heads": 2, "window": (None, 0), "bottom_right": True, "lse": True},
    "window": {"window": (-70, 3), "bottom_right": True, "softcap": 5.0},
    "bshd": {"input_layout": "bshd", "output_layout": "bshd", "element": "f16"},
    "bias": {"bias": "hqk", "heads": 2},
    "mask": {"mask": "bqk", "heads": 2, "element": "bf16"},
    "f64": {"element": "f64", "head_size": 17, "value_size": 23, "values_transposed": True},
}


@functools.cache
def kernel(name: str):
    graph = dataclasses.replace(BASE, **GRAPHS[name])
    return graph, compile(graph.text())


@pytest.mark.sampled(12)
@pytest.mark.parametrize("name", GRAPHS)
@examples(12)
@given(batch=st.integers(1, 2), queries=st.integers(1, 52), keys=st.integers(1, 700))
@example(batch=1, queries=1, keys=1)
@example(batch=1, queries=1, keys=513)
@example(batch=2, queries=16, keys=1030)
@example(batch=2, queries=17, keys=333)
@example(batch=1, queries=4, keys=1030)
@example(batch=1, queries=48, keys=700)
@example(batch=1, queries=49, keys=257)
@example(batch=1, queries=131, keys=131)
def test_any_number(name, batch, queries, keys):
    graph, run = kernel(name)
    graph = dataclasses.replace(graph, batch=batch, queries=queries, keys=keys)
    inputs = graph.inputs("normal", seed=queries * 1000 + keys)
    found, (output, lse) = run(*inputs), graph.reference(inputs)
    found = found if graph.lse else [found]
    tolerance = TOLERANCE[graph.element]
    assert relative_error(graph.canonical_output(np.asarray(found[0], np.float64)), output) < tolerance
    if graph.lse:
        live = np.isfinite(lse)
        assert (np.isneginf(found[1]) == ~live).all()
        assert np.abs(np.asarray(found[1], np.float64)[live] - lse[live]).max(initial=0) < 10 * tolerance


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, True),
        ({"window": (None, 0), "bottom_right": True}, True),
        ({"lengths": (50,)}, True),
        ({"window": (None, 0)}, False),  # few queries see few keys
        ({"window": (-10, 30)}, False),
        ({"window": (-10, None)}, True),
        ({"packed": "3hd", "input_layout": "bshd", "keys": 64}, False),  # as many keys as queries
        ({"dynamic": False}, False),
    ],
    ids=str,
)
def test_which(fields, expected):
    with CONTEXT:
        module = parse_module(dataclasses.replace(BASE, **fields).text(), "graph.mlir", CONTEXT)
        pass_manager.run(["raise-attention", "version-queries", "fuse-attention"], module)
        assert any(ops_in(module.operation, "scf.if")) == expected


def test_keys_of_few_blocks_are_split():
    """One task has all heads, and it is not known how many entries a batch has."""
    graph = dataclasses.replace(BASE, heads=8, heads_kv=8, input_layout="bshd", head_size=64)
    run = compile(graph.text(), threads=3)
    assert "keys are split into 12 parts" in run.explain()
    for queries, keys, batch in ((1, 1000, 1), (3, 5, 2), (2, 411, 1)):
        graph = dataclasses.replace(graph, queries=queries, keys=keys, batch=batch)
        inputs = graph.inputs("normal")
        assert relative_error(run(*inputs), graph.reference(inputs)[0]) < TOLERANCE["f32"]


def test_two_attentions_one_after_the_other():
    """The first one's output is the second one's queries, through a matmul; each has loops of its own."""
    sizes, square, row = "tensor<?x16xf32>", "tensor<?x?xf32>", "tensor<?xf32>"
    attention = f"""
  %sNR = linalg.matmul ins(%qNR, %kt : {sizes}, tensor<16x?xf32>) outs(%sz : {square}) -> {square}
  %pNR:4 = linalg_ext.softmax dimension(1) ins(%sNR : {square})
    outs(%se, %rm, %rz, %re : {square}, {row}, {row}, {row}) : {square}, {row}, {row}, {row}
  %oNR = linalg.matmul ins(%pNR#0, %v : {square}, {sizes}) outs(%oz : {sizes}) -> {sizes}
"""
    text = f"""
func.func @twice(%q0: {sizes}, %kt: tensor<16x?xf32>, %v: {sizes}, %w: tensor<16x16xf32>) -> ({sizes}, {sizes}) {{
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : f32
  %minus_inf = arith.constant 0xFF800000 : f32
  %m = tensor.dim %q0, %c0 : {sizes}
  %n = tensor.dim %v, %c0 : {sizes}
  %se = tensor.empty(%m, %n) : {square}
  %sz = linalg.fill ins(%zero : f32) outs(%se : tensor<?x?xf32>) -> tensor<?x?xf32>
  %re = tensor.empty(%m) : tensor<?xf32>
  %rm = linalg.fill ins(%minus_inf : f32) outs(%re : tensor<?xf32>) -> tensor<?xf32>
  %rz = linalg.fill ins(%zero : f32) outs(%re : tensor<?xf32>) -> tensor<?xf32>
  %oe = tensor.empty(%m) : {sizes}
  %oz = linalg.fill ins(%zero : f32) outs(%oe : {sizes}) -> {sizes}
{attention.replace("NR", "0")}
  %q1 = linalg.matmul ins(%o0, %w : {sizes}, tensor<16x16xf32>) outs(%oz : {sizes}) -> {sizes}
{attention.replace("NR", "1")}
  return %o0, %o1 : {sizes}, {sizes}
}}"""
    run = compile(text)
    assert run.ir("fused").count("scf.if") == 4
    rng = np.random.default_rng(0)
    for m, n in ((1, 300), (5, 77), (16, 1), (40, 90), (50, 60)):
        q, kt, v, w = (rng.standard_normal(shape, np.float32) for shape in ((m, 16), (16, n), (n, 16), (16, 16)))

        def attend(x, kt=kt, v=v):
            s = x.astype(np.float64) @ kt
            p = np.exp(s - s.max(-1, keepdims=True))
            return p @ v / p.sum(-1, keepdims=True)

        first = attend(q)
        for found, expected in zip(run(q, kt, v, w), (first, attend(first @ w)), strict=True):
            assert relative_error(found, expected) < 1e-5
