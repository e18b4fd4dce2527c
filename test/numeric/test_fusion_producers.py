# ruff: noqa: E501 (lines of MLIR)
"""What stands around attention, fused with it: reshapes, slices, pads, broadcasts, casts, projections; in float64."""

import numpy as np
import pytest
from attn_opt.dialects.assembly import parse_module, print_module
from attn_opt.dialects.reference import evaluate
from attn_opt.transforms.fuse_attention import FuseAttention
from harness import CONTEXT
from hypothesis import given
from hypothesis import strategies as st
from properties import examples

CORE = """
  %zero = arith.constant 0.0 : f64
  %minus_inf = arith.constant 0xFFF0000000000000 : f64
  %se = tensor.empty() : tensor<{b}x{h}x{m}x{n}xf64>
  %re = tensor.empty() : tensor<{b}x{h}x{m}xf64>
  %oe = tensor.empty() : tensor<{b}x{h}x{m}x{v}xf64>
  %s0 = linalg.fill ins(%zero : f64) outs(%se : tensor<{b}x{h}x{m}x{n}xf64>) -> tensor<{b}x{h}x{m}x{n}xf64>
  %o0 = linalg.fill ins(%zero : f64) outs(%oe : tensor<{b}x{h}x{m}x{v}xf64>) -> tensor<{b}x{h}x{m}x{v}xf64>
  %m0 = linalg.fill ins(%minus_inf : f64) outs(%re : tensor<{b}x{h}x{m}xf64>) -> tensor<{b}x{h}x{m}xf64>
  %a0 = linalg.fill ins(%zero : f64) outs(%re : tensor<{b}x{h}x{m}xf64>) -> tensor<{b}x{h}x{m}xf64>
  %s = linalg_ext.batch_matmul ins(%q, %k : tensor<{b}x{h}x{m}x{d}xf64>, tensor<{b}x{h}x{n}x{d}xf64>) outs(%s0 : tensor<{b}x{h}x{m}x{n}xf64>) layout = "nt"
  %p:4 = linalg_ext.softmax dimension(3) ins(%s : tensor<{b}x{h}x{m}x{n}xf64>) outs(%se, %m0, %a0, %re : tensor<{b}x{h}x{m}x{n}xf64>, tensor<{b}x{h}x{m}xf64>, tensor<{b}x{h}x{m}xf64>, tensor<{b}x{h}x{m}xf64>)
  {between}
  %o = linalg_ext.batch_matmul ins({p}, %v : tensor<{b}x{h}x{m}x{n}xf64>, tensor<{b}x{h}x{n}x{v}xf64>) outs(%o0 : tensor<{b}x{h}x{m}x{v}xf64>) layout = "nn" {{__root__}}
"""
Q, K, V = "%q: tensor<{b}x{h}x{m}x{d}xf64>", "%k: tensor<{b}x{h}x{n}x{d}xf64>", "%v: tensor<{b}x{h}x{n}x{v}xf64>"
OUT = "tensor<{b}x{h}x{m}x{v}xf64>"

# name: (arguments, what stands before, what stands between softmax and the second matmul, its result's name)
PRODUCERS = {
    # Split heads of a projection: x·W, expanded, transposed.
    "projection": (
        ["%x: tensor<{b}x{m}x{e}xf64>", "%w: tensor<{b}x{e}x{hd}xf64>", K, V],
        """
  %pz = arith.constant 0.0 : f64
  %pe = tensor.empty() : tensor<{b}x{m}x{hd}xf64>
  %p0 = linalg.fill ins(%pz : f64) outs(%pe : tensor<{b}x{m}x{hd}xf64>) -> tensor<{b}x{m}x{hd}xf64>
  %pr = linalg.batch_matmul ins(%x, %w : tensor<{b}x{m}x{e}xf64>, tensor<{b}x{e}x{hd}xf64>) outs(%p0 : tensor<{b}x{m}x{hd}xf64>) -> tensor<{b}x{m}x{hd}xf64>
  %px = tensor.expand_shape %pr [[0], [1], [2, 3]] output_shape [{b}, {m}, {h}, {d}] : tensor<{b}x{m}x{hd}xf64> into tensor<{b}x{m}x{h}x{d}xf64>
  %qe = tensor.empty() : tensor<{b}x{h}x{m}x{d}xf64>
  %q = linalg.transpose ins(%px : tensor<{b}x{m}x{h}x{d}xf64>) outs(%qe : tensor<{b}x{h}x{m}x{d}xf64>) permutation = [0, 2, 1, 3]""",
        "",
        "%p#0",
    ),
    # Batch and heads come as one dimension.
    "expanded_batch": (
        ["%qc: tensor<{bh}x{m}x{d}xf64>", K, V],
        "%q = tensor.expand_shape %qc [[0, 1], [2], [3]] output_shape [{b}, {h}, {m}, {d}] : "
        "tensor<{bh}x{m}x{d}xf64> into tensor<{b}x{h}x{m}x{d}xf64>",
        "",
        "%p#0",
    ),
    # Queries come as blocks of rows of two.
    "collapsed_rows": (
        ["%qx: tensor<{b}x{h}x{mh}x2x{d}xf64>", K, V],
        "%q = tensor.collapse_shape %qx [[0], [1], [2, 3], [4]] : "
        "tensor<{b}x{h}x{mh}x2x{d}xf64> into tensor<{b}x{h}x{m}x{d}xf64>",
        "",
        "%p#0",
    ),
    # Keys of one head for all (multi-query).
    "broadcast_keys": (
        [Q, "%k1: tensor<{b}x{n}x{d}xf64>", V],
        """
  %ke = tensor.empty() : tensor<{b}x{h}x{n}x{d}xf64>
  %k = linalg.broadcast ins(%k1 : tensor<{b}x{n}x{d}xf64>) outs(%ke : tensor<{b}x{h}x{n}x{d}xf64>) dimensions = [1]""",
        "",
        "%p#0",
    ),
    # Keys padded at both ends by rows that depend on where they stand.
    "padded_keys": (
        [Q, "%k1: tensor<{b}x{h}x{n}x{d}xf64>", "%v1: tensor<{b}x{h}x{n}x{v}xf64>"],
        """
  %ks = tensor.extract_slice %k1[0, 0, 0, 0] [{b}, {h}, {n3}, {d}] [1, 1, 1, 1] : tensor<{b}x{h}x{n}x{d}xf64> to tensor<{b}x{h}x{n3}x{d}xf64>
  %k = tensor.pad %ks low[0, 0, 1, 0] high[0, 0, 2, 0] {{
  ^bb0(%i: index, %j: index, %r: index, %c: index):
    %ri = arith.index_cast %r : index to i64
    %rf = arith.sitofp %ri : i64 to f64
    %tenth = arith.constant 0.1 : f64
    %pv = arith.mulf %rf, %tenth : f64
    tensor.yield %pv : f64
  }} : tensor<{b}x{h}x{n3}x{d}xf64> to tensor<{b}x{h}x{n}x{d}xf64>
  %v = tensor.cast %v1 : tensor<{b}x{h}x{n}x{v}xf64> to tensor<{b}x{h}x{n}x{v}xf64>""",
        "",
        "%p#0",
    ),
    # Values are a part of something larger, with a dimension dropped.
    "sliced_values": (
        [Q, K, "%vx: tensor<{b}x2x{h}x{n2}x{v}xf64>"],
        "%v = tensor.extract_slice %vx[0, 1, 0, 2, 0] [{b}, 1, {h}, {n}, {v}] [1, 1, 1, 1, 1] : "
        "tensor<{b}x2x{h}x{n2}x{v}xf64> to tensor<{b}x{h}x{n}x{v}xf64>",
        "",
        "%p#0",
    ),
    # A cache of which the last row is new.
    "inserted_keys": (
        [Q, "%cache: tensor<{b}x{h}x{n}x{d}xf64>", "%new: tensor<{b}x{h}x1x{d}xf64>", V],
        "%k = tensor.insert_slice %new into %cache[0, 0, {n1}, 0] [{b}, {h}, 1, {d}] [1, 1, 1, 1] : "
        "tensor<{b}x{h}x1x{d}xf64> into tensor<{b}x{h}x{n}x{d}xf64>",
        "",
        "%p#0",
    ),
    # Element-wise ops on queries, written as linalg.map, and a row statistic of them by linalg.reduce.
    "mapped_queries": (
        ["%qm: tensor<{b}x{h}x{m}x{d}xf64>", K, V],
        """
  %qz = arith.constant 0.0 : f64
  %qr = tensor.empty() : tensor<{b}x{h}x{m}xf64>
  %qrz = linalg.fill ins(%qz : f64) outs(%qr : tensor<{b}x{h}x{m}xf64>) -> tensor<{b}x{h}x{m}xf64>
  %sum = linalg.reduce ins(%qm : tensor<{b}x{h}x{m}x{d}xf64>) outs(%qrz : tensor<{b}x{h}x{m}xf64>) dimensions = [3]
    (%in: f64, %acc: f64) {{
      %t = arith.addf %in, %acc : f64
      linalg.yield %t : f64
    }}
  %qe = tensor.empty() : tensor<{b}x{h}x{m}x{d}xf64>
  %rows = linalg.broadcast ins(%sum : tensor<{b}x{h}x{m}xf64>) outs(%qe : tensor<{b}x{h}x{m}x{d}xf64>) dimensions = [3]
  %q = linalg.map ins(%qm, %rows : tensor<{b}x{h}x{m}x{d}xf64>, tensor<{b}x{h}x{m}x{d}xf64>) outs(%qe : tensor<{b}x{h}x{m}x{d}xf64>)
    (%x: f64, %y: f64, %old: f64) {{
      %t = arith.subf %x, %y : f64
      linalg.yield %t : f64
    }}""",
        "",
        "%p#0",
    ),
    # One tensor is keys and values.
    "shared": (
        [Q, "%kv: tensor<{b}x{h}x{n}x{d}xf64>"],
        """
  %ee = tensor.empty() : tensor<{b}x{h}x{n}x{d}xf64>
  %k = linalg.exp ins(%kv : tensor<{b}x{h}x{n}x{d}xf64>) outs(%ee : tensor<{b}x{h}x{n}x{d}xf64>) -> tensor<{b}x{h}x{n}x{d}xf64>
  %v = tensor.cast %k : tensor<{b}x{h}x{n}x{d}xf64> to tensor<{b}x{h}x{n}x{d}xf64>""",
        "",
        "%p#0",
    ),
    # One op makes keys and values.
    "two_results": (
        [Q, "%kv: tensor<{b}x{h}x{n}x{d}xf64>"],
        """
  %ee = tensor.empty() : tensor<{b}x{h}x{n}x{d}xf64>
  %k, %v = linalg.generic {{indexing_maps = [affine_map<(a, b, c, d) -> (a, b, c, d)>, affine_map<(a, b, c, d) -> (a, b, c, d)>, affine_map<(a, b, c, d) -> (a, b, c, d)>],
      iterator_types = ["parallel", "parallel", "parallel", "parallel"]}}
      ins(%kv : tensor<{b}x{h}x{n}x{d}xf64>) outs(%ee, %ee : tensor<{b}x{h}x{n}x{d}xf64>, tensor<{b}x{h}x{n}x{d}xf64>) {{
  ^bb0(%x: f64, %old0: f64, %old1: f64):
    %i = linalg.index 3 : index
    %j = arith.index_cast %i : index to i64
    %f = arith.sitofp %j : i64 to f64
    %y = arith.addf %x, %f : f64
    linalg.yield %x, %y : f64, f64
  }} -> (tensor<{b}x{h}x{n}x{d}xf64>, tensor<{b}x{h}x{n}x{d}xf64>)""",
        "",
        "%p#0",
    ),
    # Linear ops between softmax and the matmul: a factor per key, a division.
    "linear_after": (
        [Q, K, V, "%f: tensor<{n}xf64>"],
        "",
        """
  %pl = linalg.generic {{indexing_maps = [affine_map<(a, b, c, d) -> (a, b, c, d)>, affine_map<(a, b, c, d) -> (d)>, affine_map<(a, b, c, d) -> (a, b, c, d)>],
      iterator_types = ["parallel", "parallel", "parallel", "parallel"]}}
      ins(%p#0, %f : tensor<{b}x{h}x{m}x{n}xf64>, tensor<{n}xf64>) outs(%se : tensor<{b}x{h}x{m}x{n}xf64>) {{
  ^bb0(%x: f64, %y: f64, %old: f64):
    %two = arith.constant 2.0 : f64
    %t = arith.mulf %y, %x : f64
    %u = arith.divf %t, %two : f64
    %w = arith.truncf %u : f64 to f32
    %z = arith.extf %w : f32 to f64
    linalg.yield %z : f64
  }} -> tensor<{b}x{h}x{m}x{n}xf64>""",
        "%pl",
    ),
    # A gather: the body of a fused op reads a whole tensor.
    "gathered_bias": (
        ["%q1: tensor<{b}x{h}x{m}x{d}xf64>", K, V, "%table: tensor<{m}xf64>"],
        """
  %te = tensor.empty() : tensor<{m}xf64>
  %tab = linalg.exp ins(%table : tensor<{m}xf64>) outs(%te : tensor<{m}xf64>) -> tensor<{m}xf64>
  %qe = tensor.empty() : tensor<{b}x{h}x{m}x{d}xf64>
  %q = linalg.generic {{indexing_maps = [affine_map<(a, b, c, d) -> (a, b, c, d)>, affine_map<(a, b, c, d) -> (a, b, c, d)>],
      iterator_types = ["parallel", "parallel", "parallel", "parallel"]}}
      ins(%q1 : tensor<{b}x{h}x{m}x{d}xf64>) outs(%qe : tensor<{b}x{h}x{m}x{d}xf64>) {{
  ^bb0(%x: f64, %old: f64):
    %i = linalg.index 2 : index
    %t = tensor.extract %tab[%i] : tensor<{m}xf64>
    %z = arith.addf %x, %t : f64
    linalg.yield %z : f64
  }} -> tensor<{b}x{h}x{m}x{d}xf64>""",
        "",
        "%p#0",
    ),
}


def build(name: str, b: int, h: int, m: int, n: int, d: int, v: int) -> tuple[str, list[np.ndarray]]:
    m += m % 2
    n = max(n, 4)
    if name in ("shared", "two_results"):
        v = d
    sizes = {"b": b, "h": h, "m": m, "n": n, "d": d, "v": v, "e": 3}
    sizes |= {"hd": h * d, "bh": b * h, "mh": m // 2, "n3": n - 3, "n2": n + 3, "n1": n - 1}
    arguments, before, between, result = PRODUCERS[name]
    text = "func.func @f(" + ", ".join(arguments) + ") -> " + OUT + " {{" + before
    text += CORE.replace("{between}", between).replace("{p}", result) + "  return %o : " + OUT + "\n}}\n"
    rng = np.random.default_rng(1)
    shapes = [a.format(**sizes).split("tensor<")[1].split("xf64")[0].split("x") for a in arguments]
    return text.format(**sizes), [rng.standard_normal([int(s) for s in shape]) for shape in shapes]


def check(text: str, inputs: list[np.ndarray], sizes, order, tolerance: float) -> None:
    with CONTEXT:
        expected = evaluate(parse_module(text, "graph.mlir", CONTEXT), inputs)
        module = parse_module(text, "graph.mlir", CONTEXT)
        FuseAttention(sizes, tuple(order)).run(module.operation)
        assert module.operation.verify()
        found = evaluate(module, inputs)
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance, err_msg=print_module(module))


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", PRODUCERS)
@given(
    shape=st.tuples(*(st.integers(1, 4) for _ in range(6))),
    sizes=st.tuples(*(st.integers(0, 4) for _ in range(5))).filter(any),
    order=st.permutations(range(5)),
)
@examples(25)
def test_producers_fused(name, shape, sizes, order):
    text, inputs = build(name, *shape)
    check(text, inputs, sizes, order, 1e-11)


@pytest.mark.parametrize("name", sorted(set(PRODUCERS) - {"gathered_bias", "collapsed_rows"}))
def test_producers_stand_in_the_loops(name):
    """Tiled by batch, heads, queries and keys, everything is computed tile by tile."""
    text, _ = build(name, 2, 3, 8, 12, 5, 6)
    with CONTEXT:
        module = parse_module(text, "graph.mlir", CONTEXT)
        FuseAttention((1, 1, 4, 0, 4)).run(module.operation)
    before = print_module(module).partition("scf.for")[0]
    assert "linalg_ext" not in before and "expand_shape" not in before and "linalg.batch_matmul" not in before


ROOTS = """
func.func @f(%x: tensor<{m}x{n}xf64>, %w: tensor<{n}x{d}xf64>) -> (tensor<{m}x{d}xf64>, tensor<{m}x{d}xf64>, tensor<{m}xf64>) {{
  %zero = arith.constant 0.0 : f64
  %e = tensor.empty() : tensor<{m}x{d}xf64>
  %r = tensor.empty() : tensor<{m}xf64>
  %p0 = linalg.fill ins(%zero : f64) outs(%e : tensor<{m}x{d}xf64>) -> tensor<{m}x{d}xf64>
  %r0 = linalg.fill ins(%zero : f64) outs(%r : tensor<{m}xf64>) -> tensor<{m}xf64>
  %p = linalg.matmul ins(%x, %w : tensor<{m}x{n}xf64>, tensor<{n}x{d}xf64>) outs(%p0 : tensor<{m}x{d}xf64>) -> tensor<{m}x{d}xf64>
  %root:2 = linalg.generic {{indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>],
      iterator_types = ["parallel", "reduction"]}} ins(%p : tensor<{m}x{d}xf64>) outs(%e, %r0 : tensor<{m}x{d}xf64>, tensor<{m}xf64>) attrs = {{__root__}} {{
  ^bb0(%a: f64, %old: f64, %sum: f64):
    %y = arith.mulf %a, %a : f64
    %s = arith.addf %sum, %y : f64
    linalg.yield %y, %s : f64, f64
  }} -> (tensor<{m}x{d}xf64>, tensor<{m}xf64>)
  return %root#0, %p, %root#1 : tensor<{m}x{d}xf64>, tensor<{m}x{d}xf64>, tensor<{m}xf64>
}}
"""


@given(
    shape=st.tuples(*(st.integers(1, 7) for _ in range(3))),
    sizes=st.tuples(*(st.integers(0, 5) for _ in range(2))).filter(any),
    order=st.permutations(range(2)),
)
@examples(60)
def test_root_with_two_results(shape, sizes, order):
    """A root that writes a matrix and reduces it to a vector; its producer is returned as well."""
    m, n, d = shape
    text = ROOTS.format(m=m, n=n, d=d)
    rng = np.random.default_rng(2)
    inputs = [rng.standard_normal((m, n)), rng.standard_normal((n, d))]
    check(text, inputs, sizes, order, 1e-12)
