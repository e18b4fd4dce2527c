"""raise-attention keeps what a graph computes: before, raised, and raised and fused give the same in float64."""

from __future__ import annotations

import numpy as np
import pytest
from attn_opt.dialects.assembly import parse_module, print_module
from attn_opt.dialects.reference import evaluate
from attn_opt.transforms.fuse_attention import FuseAttention
from attn_opt.transforms.passes import listening
from attn_opt.transforms.raise_attention import RaiseAttention
from harness import CONTEXT
from hypothesis import given
from hypothesis import strategies as st
from properties import examples
from written_out import Written


def raised(text: str):
    reports = []
    module = parse_module(text, "graph.mlir", CONTEXT)
    with CONTEXT, listening(reports.append):
        RaiseAttention().run(module.operation)
    assert module.operation.verify()
    return module, [r.message for r in reports]


def check(graph: Written, seed: int = 0) -> str:
    text, inputs = graph.text(), graph.inputs(seed)
    with CONTEXT:
        expected = evaluate(parse_module(text, "graph.mlir", CONTEXT), inputs)[0]
        module, messages = raised(text)
        normal = print_module(module)
        assert normal.count("linalg_ext.softmax") == 1, f"{messages}\n{text}"
        np.testing.assert_allclose(evaluate(module, inputs)[0], expected, rtol=1e-12, atol=1e-12, err_msg=normal)
        FuseAttention().run(module.operation)
        assert module.operation.verify()
        assert "scf.for" in print_module(module)
        np.testing.assert_allclose(evaluate(module, inputs)[0], expected, rtol=1e-12, atol=1e-12)
    return normal


@st.composite
def graphs(draw):
    def one_of(*choices):
        return draw(st.sampled_from(choices))

    size = st.integers(2, 6)
    divide = one_of("before", "reciprocal", "after")
    return Written(
        b=draw(st.integers(1, 3)),
        h=draw(st.integers(1, 3)),
        groups=one_of(1, 1, 2),
        m=draw(st.integers(1, 6)),
        k=draw(size),
        d=draw(size),
        dv=draw(size),
        matmul=one_of("batch_matmul", "generic", "ext"),
        transpose=one_of("op", "map"),
        scale=one_of("q", "k", "both", "scores", "none"),
        mask=one_of("none", "causal", "bias_mk", "bias_k", "bias_full", "bool", "iota"),
        maximum=one_of("maximumf", "maxnumf", "select", "reduce", "none"),
        base=one_of("exp", "exp2"),
        divide=divide,
        keep=one_of("map", "expand", "broadcast"),
        softmax=one_of("written", "written", "linalg"),
        commuted=draw(st.booleans()),
        guard=draw(st.booleans()) and divide != "after",
    )


@given(graphs())
@examples(100)
def test_raised_equals_written_out(graph):
    check(graph)


def test_nothing_is_repeated_for_groups():
    """Keys and values are read as they are, and the scores have a dimension for the group."""
    text = check(Written(groups=3, h=2, k=8))
    assert "tensor<2x6x8x" not in text and "tensor<2x2x3x5x8xf64>" in text


def test_the_scale_is_one_factor_of_the_scores():
    assert check(Written(scale="both")).count("2.500000e-01") == 1


def test_a_fully_masked_row_is_zero():
    graph = Written(mask="bool")
    inputs = graph.inputs()
    inputs[3][0, 0, 2, :] = False
    with CONTEXT:
        module, _ = raised(graph.text())
        found = evaluate(module, inputs)[0]
    assert np.all(found[0, :, 2] == 0) and np.all(np.isfinite(found))


def test_raising_twice_changes_nothing():
    with CONTEXT:
        module, _ = raised(Written(mask="causal", groups=2).text())
        once = print_module(module)
        again, messages = raised(once)
        assert print_module(again) == once and not messages


@pytest.mark.parametrize("element", ["f32", "bf16", "f16"])
def test_narrow_floats_are_computed_in_f32(element):
    """Scores, the chain on them and the output's accumulator are f32, whatever is stored."""
    text = (
        Written()
        .text()
        .replace("f64", element)
        .replace("0xFFF0000000000000", {"f32": "0xFF800000", "bf16": "0xFF80", "f16": "0xFC00"}[element])
    )
    with CONTEXT:
        module, _ = raised(text)
        printed = print_module(module)
    assert "linalg_ext.softmax dimension(3) ins(" in printed
    assert "tensor<2x2x5x7xf32>, tensor<2x2x5xf32>" in printed


def test_many_ops_in_a_row():
    """What is too deep to be looked through is left alone, and told."""
    rows = "\n".join(f"%y{i + 1} = arith.addf %y{i}, %x : f64" for i in range(600))
    text = f"""
func.func @f(%q: tensor<5x4xf64>, %k: tensor<4x7xf64>, %v: tensor<7x4xf64>) -> tensor<5x4xf64> {{
  %zero = arith.constant 0.0 : f64
  %e = tensor.empty() : tensor<5x7xf64>
  %s0 = linalg.fill ins(%zero : f64) outs(%e : tensor<5x7xf64>) -> tensor<5x7xf64>
  %s = linalg.matmul ins(%q, %k : tensor<5x4xf64>, tensor<4x7xf64>) outs(%s0 : tensor<5x7xf64>) -> tensor<5x7xf64>
  %long = linalg.map ins(%s : tensor<5x7xf64>) outs(%e : tensor<5x7xf64>) (%x: f64, %old: f64) {{
    %y0 = arith.addf %x, %x : f64
    {rows}
    linalg.yield %y600 : f64
  }}
  %p = linalg.softmax dimension(1) ins(%long : tensor<5x7xf64>) outs(%e : tensor<5x7xf64>) -> tensor<5x7xf64>
  %oe = tensor.empty() : tensor<5x4xf64>
  %o0 = linalg.fill ins(%zero : f64) outs(%oe : tensor<5x4xf64>) -> tensor<5x4xf64>
  %o = linalg.matmul ins(%p, %v : tensor<5x7xf64>, tensor<7x4xf64>) outs(%o0 : tensor<5x4xf64>) -> tensor<5x4xf64>
  return %o : tensor<5x4xf64>
}}
"""
    with CONTEXT:
        module, messages = raised(text)
    assert messages == ["not raised to attention: hundreds of scalar ops in a row lead to it"]
    assert "linalg_ext.softmax" not in print_module(module)


def test_many_ops_in_a_row_before_a_row_sum():
    """The same of the sum that a softmax's derivative has."""
    rows = "\n".join(f"%y{i + 1} = arith.addf %y{i}, %s : f64" for i in range(600))
    text = f"""
#rows = affine_map<(i, j) -> (i, j)>
#row = affine_map<(i, j) -> (i)>
func.func @f(%e: tensor<5x7xf64>, %g: tensor<5x4xf64>, %v: tensor<4x7xf64>) -> tensor<5xf64> {{
  %zero = arith.constant 0.0 : f64
  %empty = tensor.empty() : tensor<5x7xf64>
  %s0 = linalg.fill ins(%zero : f64) outs(%empty : tensor<5x7xf64>) -> tensor<5x7xf64>
  %p = linalg.softmax dimension(1) ins(%e : tensor<5x7xf64>) outs(%empty : tensor<5x7xf64>) -> tensor<5x7xf64>
  %dp = linalg.matmul ins(%g, %v : tensor<5x4xf64>, tensor<4x7xf64>) outs(%s0 : tensor<5x7xf64>) -> tensor<5x7xf64>
  %long = linalg.map ins(%p : tensor<5x7xf64>) outs(%empty : tensor<5x7xf64>) (%s: f64, %old: f64) {{
    %y0 = arith.addf %s, %s : f64
    {rows}
    linalg.yield %y600 : f64
  }}
  %re = tensor.empty() : tensor<5xf64>
  %r0 = linalg.fill ins(%zero : f64) outs(%re : tensor<5xf64>) -> tensor<5xf64>
  %r = linalg.generic {{indexing_maps = [#rows, #rows, #row], iterator_types = ["parallel", "reduction"]}}
      ins(%long, %dp : tensor<5x7xf64>, tensor<5x7xf64>) outs(%r0 : tensor<5xf64>) {{
  ^bb0(%a: f64, %b: f64, %sum: f64):
    %product = arith.mulf %a, %b : f64
    %next = arith.addf %product, %sum : f64
    linalg.yield %next : f64
  }} -> tensor<5xf64>
  return %r : tensor<5xf64>
}}
"""
    with CONTEXT:
        module, messages = raised(text)
    assert messages == ["not raised to attention: hundreds of scalar ops in a row lead to it"]
    assert "linalg_ext.softmax" not in print_module(module)


# Softmax of 6 × 10 scores %s, with P as %p: what divides, and what is divided. %l is the sum of the exponentials %e.
ROWS, SCORES = "tensor<6xf64>", "tensor<6x10xf64>"
GRAPH = f"""
#ij = affine_map<(i, j) -> (i, j)>
#i = affine_map<(i, j) -> (i)>
func.func @f(%q: tensor<6x8xf64>, %k: tensor<8x10xf64>, %v: tensor<10x4xf64>) -> tensor<6x4xf64> {{
  %zero = arith.constant 0.0 : f64
  %one = arith.constant 1.0 : f64
  %low = arith.constant 0xFFF0000000000000 : f64
  %wide = tensor.empty() : {SCORES}
  %row = tensor.empty() : {ROWS}
  %zeros = linalg.fill ins(%zero : f64) outs(%row : {ROWS}) -> {ROWS}
  %lowest = linalg.fill ins(%low : f64) outs(%row : {ROWS}) -> {ROWS}
  %start = linalg.fill ins(%zero : f64) outs(%wide : {SCORES}) -> {SCORES}
  %s = linalg.matmul ins(%q, %k : tensor<6x8xf64>, tensor<8x10xf64>) outs(%start : {SCORES}) -> {SCORES}
  SOFTMAX
  %out = tensor.empty() : tensor<6x4xf64>
  %o0 = linalg.fill ins(%zero : f64) outs(%out : tensor<6x4xf64>) -> tensor<6x4xf64>
  %o = linalg.matmul ins(%p, %v : {SCORES}, tensor<10x4xf64>) outs(%o0 : tensor<6x4xf64>) -> tensor<6x4xf64>
  return %o : tensor<6x4xf64>
}}
"""
WRITTEN = f"""
  %m = linalg.reduce {{ arith.maximumf }} ins(%s : {SCORES}) outs(%lowest : {ROWS}) dimensions = [1]
  %e = linalg.generic {{indexing_maps = [#ij, #i, #ij], iterator_types = ["parallel", "parallel"]}}
      ins(%s, %m : {SCORES}, {ROWS}) outs(%wide : {SCORES}) {{
  ^bb0(%x: f64, %y: f64, %old: f64):
    %d = arith.subf %x, %y : f64
    %z = math.exp %d : f64
    linalg.yield %z : f64
  }} -> {SCORES}
  %l = linalg.reduce {{ arith.addf }} ins(%e : {SCORES}) outs(%zeros : {ROWS}) dimensions = [1]
  %p = linalg.generic {{indexing_maps = [#ij, #i, #ij], iterator_types = ["parallel", "parallel"]}}
      ins(%e, %l : {SCORES}, {ROWS}) outs(%wide : {SCORES}) {{
  ^bb0(%x: f64, %y: f64, %old: f64):
    DIVIDED
    linalg.yield %z : f64
  }} -> {SCORES}"""
SPLIT, SPLIT_ROWS = "tensor<2x3x10xf64>", "tensor<2x3xf64>"
EXISTING = f"""
  %deep = tensor.empty() : {SPLIT}
  %deep_row = tensor.empty() : {SPLIT_ROWS}
  %first = linalg.fill ins(MAXIMUM : f64) outs(%deep_row : {SPLIT_ROWS}) -> {SPLIT_ROWS}
  %none = linalg.fill ins(SUM : f64) outs(%deep_row : {SPLIT_ROWS}) -> {SPLIT_ROWS}
  %st = tensor.expand_shape %s [[0, 1], [2]] output_shape [2, 3, 10] : {SCORES} into {SPLIT}
  %pt, %max, %sum, %scale = linalg_ext.softmax dimension(2) ins(%st : {SPLIT})
      outs(%deep, %first, %none, %deep_row : {SPLIT}, {SPLIT_ROWS}, {SPLIT_ROWS}, {SPLIT_ROWS})
      : {SPLIT}, {SPLIT_ROWS}, {SPLIT_ROWS}, {SPLIT_ROWS}
  %p = tensor.collapse_shape %pt [[0, 1], [2]] : {SPLIT} into {SCORES}"""
SOFTMAXES = {
    "one where the sum is 0": """%c = arith.cmpf oeq, %y, %zero : f64
    %w = arith.select %c, %one, %y : f64
    %z = arith.divf %x, %w : f64""",
    "the sum where it is not 0": """%c = arith.cmpf une, %y, %zero : f64
    %w = arith.select %c, %y, %one : f64
    %z = arith.divf %x, %w : f64""",
    "its magnitude": """%w = math.absf %y : f64
    %z = arith.divf %x, %w : f64""",
    "negated twice": """%n = arith.negf %x : f64
    %w = arith.divf %n, %y : f64
    %z = arith.negf %w : f64""",
    "bounded from below": """%w = arith.maximumf %y, %one : f64
    %z = arith.divf %x, %w : f64""",
}


def is_raised(softmax: str) -> bool:
    """Whether the graph is; its result must be the same."""
    text, rng = GRAPH.replace("SOFTMAX", softmax), np.random.default_rng(0)
    inputs = [rng.standard_normal(shape) for shape in ((6, 8), (8, 10), (10, 4))]
    with CONTEXT:
        expected = evaluate(parse_module(text, "graph.mlir", CONTEXT), inputs)[0]
        module, messages = raised(text)
        np.testing.assert_allclose(evaluate(module, inputs)[0], expected, rtol=1e-12, atol=1e-12)
    return "raised to attention" in messages


@pytest.mark.parametrize("name", SOFTMAXES)
def test_divisors(name):
    assert is_raised(WRITTEN.replace("DIVIDED", SOFTMAXES[name]))


@pytest.mark.parametrize(
    ("maximum", "total", "fresh"),
    [("%low", "%zero", True), ("%zero", "%zero", False), ("%low", "%one", False)],
)
def test_a_softmax_that_goes_on_from_statistics_is_left(maximum, total, fresh):
    assert is_raised(EXISTING.replace("MAXIMUM", maximum).replace("SUM", total)) == fresh


@pytest.mark.parametrize("kind", ["add", "mul"])
def test_terms_and_factors_that_are_shared_are_looked_at_once(kind):
    """Of 40 such steps, one after the other, there are 2⁴⁰ paths to the scores."""
    lines, x = [f"%ones = linalg.fill ins(%one : f64) outs(%wide : {SCORES}) -> {SCORES}"], "%s"
    for i in range(40):
        twice, scale = f"%twice{i}", "%ones" if kind == "mul" else x
        lines.append(f"{twice} = linalg.{kind} ins({x}, {x} : {SCORES}, {SCORES}) outs(%wide : {SCORES}) -> {SCORES}")
        x = f"%x{i}"
        lines.append(f"{x} = linalg.sub ins({twice}, {scale} : {SCORES}, {SCORES}) outs(%wide : {SCORES}) -> {SCORES}")
    if kind == "mul":
        lines.append(f"%last = linalg.tanh ins({x} : {SCORES}) outs(%wide : {SCORES}) -> {SCORES}")
        x = "%last"
    written = WRITTEN.replace("%s", x).replace("DIVIDED", "%z = arith.divf %x, %y : f64")
    assert is_raised("\n  ".join([*lines, written]))
