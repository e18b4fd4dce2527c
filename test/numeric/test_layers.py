"""Layers around attention on the CPU: products with a matrix that is transposed, repeated and made wider first, as
frontends write them, and convolutions."""

import ml_dtypes
import numpy as np
import pytest
from attn_opt.compiler import compile
from attn_opt.dialects.assembly import parse_module
from attn_opt.dialects.reference import evaluate
from harness import CONTEXT
from hypothesis import given
from hypothesis import strategies as st
from properties import examples

DTYPES = {"f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16}
ROUNDING = {"f32": 1e-6, "f16": 1e-3, "bf16": 8e-3}

# X·Wᵀ + bias for each of {b} matrices X.
LINEAR = """
#all = affine_map<(b, i, j) -> (b, i, j)>
#matrix = affine_map<(b, i, j) -> (i, j)>
#last = affine_map<(b, i, j) -> (j)>
func.func @linear(%x: tensor<{b}x{m}x{k}x{t}>, %w: tensor<{n}x{k}x{t}>, %bias: tensor<{n}xf32>)
    -> tensor<{b}x{m}x{n}x{t}> {{
  %zero = arith.constant 0.0 : f32
  %te = tensor.empty() : tensor<{k}x{n}x{t}>
  %wt = linalg.transpose ins(%w : tensor<{n}x{k}x{t}>) outs(%te : tensor<{k}x{n}x{t}>) permutation = [1, 0]
  %re = tensor.empty() : tensor<{b}x{k}x{n}x{t}>
  %each = linalg.generic {{indexing_maps = [#matrix, #all], iterator_types = ["parallel", "parallel", "parallel"]}}
      ins(%wt : tensor<{k}x{n}x{t}>) outs(%re : tensor<{b}x{k}x{n}x{t}>) {{
  ^bb0(%a: {t}, %o: {t}):
    linalg.yield %a : {t}
  }} -> tensor<{b}x{k}x{n}x{t}>{widened}
  %se = tensor.empty() : tensor<{b}x{m}x{n}xf32>
  %init = linalg.fill ins(%zero : f32) outs(%se : tensor<{b}x{m}x{n}xf32>) -> tensor<{b}x{m}x{n}xf32>
  %sum = linalg.batch_matmul ins({operands} : tensor<{b}x{m}x{k}xf32>, tensor<{b}x{k}x{n}xf32>)
      outs(%init : tensor<{b}x{m}x{n}xf32>) -> tensor<{b}x{m}x{n}xf32>
  %oe = tensor.empty() : tensor<{b}x{m}x{n}x{t}>
  %out = linalg.generic {{indexing_maps = [#all, #last, #all], iterator_types = ["parallel", "parallel", "parallel"]}}
      ins(%sum, %bias : tensor<{b}x{m}x{n}xf32>, tensor<{n}xf32>) outs(%oe : tensor<{b}x{m}x{n}x{t}>) {{
  ^bb0(%s: f32, %c: f32, %o: {t}):
    {added}
    linalg.yield %y : {t}
  }} -> tensor<{b}x{m}x{n}x{t}>
  return %out : tensor<{b}x{m}x{n}x{t}>
}}
"""
WIDENED = """
  %{name}e = tensor.empty() : tensor<{shape}xf32>
  %{name} = linalg.generic {{indexing_maps = [#all, #all], iterator_types = ["parallel", "parallel", "parallel"]}}
      ins({value} : tensor<{shape}x{t}>) outs(%{name}e : tensor<{shape}xf32>) {{
  ^bb0(%a: {t}, %o: f32):
    %f = arith.extf %a : {t} to f32
    linalg.yield %f : f32
  }} -> tensor<{shape}xf32>"""


def linear(t: str, b: int, m: int, k: int, n: int) -> str:
    """The graph for elements `t`; narrow ones are widened before the product, and its result is rounded to them."""
    operands, widened, added = "%x, %each", "", "%y = arith.addf %s, %c : f32"
    if t != "f32":
        widened = WIDENED.format(name="xw", value="%x", shape=f"{b}x{m}x{k}", t=t)
        widened += WIDENED.format(name="ww", value="%each", shape=f"{b}x{k}x{n}", t=t)
        operands, added = "%xw, %ww", f"%f = arith.addf %s, %c : f32\n    %y = arith.truncf %f : f32 to {t}"
    return LINEAR.format(t=t, b=b, m=m, k=k, n=n, widened=widened, operands=operands, added=added)


def check(element: str, b: int, m: int, k: int, n: int) -> None:
    rng = np.random.default_rng(b * 1000 + m)
    x, w = (rng.standard_normal(shape).astype(DTYPES[element]) for shape in ((b, m, k), (n, k)))
    bias = rng.standard_normal(n).astype(np.float32)
    found = compile(linear(element, b, m, k, n))(x, w, bias)
    exact = x.astype(np.float64) @ w.astype(np.float64).T + bias
    error = np.linalg.norm(np.asarray(found, dtype=np.float64) - exact) / np.linalg.norm(exact)
    assert error < ROUNDING[element]


@pytest.mark.sampled(5)
@pytest.mark.parametrize("element", DTYPES)
@given(sizes=st.tuples(st.integers(1, 5), st.integers(1, 70), st.integers(1, 70), st.integers(1, 70)))
@examples(8)
def test_products_with_a_repeated_matrix(element, sizes):
    check(element, *sizes)


@pytest.mark.sampled(3, 5)
@pytest.mark.parametrize("element", DTYPES)
@pytest.mark.parametrize("sizes", [(1, 65, 4096, 2100), (9, 8, 1535, 1030)], ids=["even", "odd"])
def test_a_matrix_larger_than_a_stack(element, sizes):
    """In bf16 a panel of it was on the stack of each task, which ended the process."""
    check(element, *sizes)


# Input, filter and result, of which `x` stands for the length that the input needs; filters have 3 or 2 × 3 places.
CONVOLUTIONS = {
    "conv_1d_ncw_fcw": ("{b}x{c}x{x}", "{f}x{c}x3", "{b}x{f}x{n}", 1),
    "conv_1d_nwc_wcf": ("{b}x{x}x{c}", "3x{c}x{f}", "{b}x{n}x{f}", 1),
    "conv_2d_nchw_fchw": ("{b}x{c}x{y}x{x}", "{f}x{c}x2x3", "{b}x{f}x{m}x{n}", 2),
    "conv_2d_nhwc_hwcf": ("{b}x{y}x{x}x{c}", "2x3x{c}x{f}", "{b}x{m}x{n}x{f}", 2),
    "conv_2d_ngchw_gfchw": ("{b}x2x{c}x{y}x{x}", "2x{f}x{c}x2x3", "{b}x2x{f}x{m}x{n}", 2),
    "depthwise_conv_2d_nchw_chw": ("{b}x{c}x{y}x{x}", "{c}x2x3", "{b}x{c}x{m}x{n}", 2),
}


def convolution(name: str, element: str, is_open: bool, step: int, apart: int, **sizes: int) -> tuple[str, list]:
    """A graph of a convolution, with `step` from one window to the next and `apart` from one place in it to the next;
    the shapes of its arguments. `is_open`: with open sizes."""
    *shapes, ranks = CONVOLUTIONS[name]
    sizes["x"], sizes["y"] = (sizes["n"] - 1) * step + 2 * apart + 1, (sizes["m"] - 1) * step + apart + 1
    texts = [shape.format(**sizes) for shape in shapes]
    counts = [[int(size) for size in text.split("x")] for text in texts]
    kinds = [("?x" * len(count) if is_open else text + "x") for text, count in zip(texts, counts, strict=True)]
    x, w, y = (f"tensor<{kind}{e}>" for kind, e in zip(kinds, (element, element, "f32"), strict=True))
    attributes = ", ".join(
        f"{n} = dense<{v}> : tensor<{ranks}xi64>" for n, v in (("strides", step), ("dilations", apart))
    )
    text = f"""func.func @convolution(%x: {x}, %w: {w}, %init: {y}) -> {y} {{
      %y = linalg.{name} {{{attributes}}} ins(%x, %w : {x}, {w}) outs(%init : {y}) -> {y}
      return %y : {y}
    }}"""
    return text, counts


@pytest.mark.sampled(5)
@pytest.mark.parametrize("name", CONVOLUTIONS)
@given(
    element=st.sampled_from(["f32", "bf16"]),
    is_open=st.booleans(),
    steps=st.tuples(st.integers(1, 3), st.integers(1, 2)),
    sizes=st.tuples(st.integers(1, 3), st.integers(1, 20), st.integers(1, 20), st.integers(1, 18), st.integers(1, 70)),
)
@examples(6)
def test_convolutions(name, element, is_open, steps, sizes):
    text, shapes = convolution(name, element, is_open, *steps, **dict(zip("bcfmn", sizes, strict=True)))
    rng = np.random.default_rng(5)
    arrays = [rng.standard_normal(shape) for shape in shapes]
    inputs = [a.astype(DTYPES[e]) for a, e in zip(arrays, (element, element, "f32"), strict=True)]
    wide = [a.astype(np.float64) for a in inputs]
    (exact,) = evaluate(parse_module(text, "convolution.mlir", CONTEXT), wide)
    found = compile(text)(*inputs)
    np.testing.assert_allclose(found, exact, rtol=1e-4, atol=1e-4)
