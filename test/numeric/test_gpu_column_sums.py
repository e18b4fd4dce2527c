"""Sums over columns that the threads of a block share, without a GPU: all threads at once."""

import math

import numpy as np
import pytest
from attn_opt.compiler import pass_manager
from attn_opt.dialects.assembly import parse_module
from attn_opt.dialects.mlir import ir
from attn_opt.transforms.rewriting import ops_in
from gpu_modules import Launches, run_module
from harness import CONTEXT
from hypothesis import given
from hypothesis import strategies as st
from properties import examples

DTYPES = {"f32": np.float32, "f16": np.float16, "i32": np.int32}
# Of each element x, which is `wide`, a number y of its row, and what there is.
BODIES = {
    "squares": ("%z = arith.mulf %x, %x : f32\n%t = arith.addf %z, %old : f32", lambda x, y: (x * x).sum((0, 1))),
    "of_rows": ("%z = arith.mulf %x, %y : f32\n%t = arith.addf %old, %z : f32", lambda x, y: (x * y).sum((0, 1))),
    "maximum": ("%t = arith.maximumf %old, %x : f32", lambda x, y: x.max((0, 1))),
}
MODULE = """
#whole = affine_map<(i, j, k) -> (i, j, k)>
#row = affine_map<(i, j, k) -> (i, j, 0)>
#column = affine_map<(i, j, k) -> (k)>
func.func @f(%a: tensor<{rows}x{columns}x{element}>, %b: tensor<{rows}x1xf32>, %init: tensor<{columns}xf32>)
    -> tensor<{columns}xf32> {{
  %r = linalg.generic {{indexing_maps = [#whole, #row, #column],
      iterator_types = ["reduction", "reduction", "parallel"]}}
      ins(%a, %b : tensor<{rows}x{columns}x{element}>, tensor<{rows}x1xf32>) outs(%init : tensor<{columns}xf32>) {{
  ^bb0(%x{narrow}: {element}, %y: f32, %old: f32):
    {wide}
    {body}
    linalg.yield %t : f32
  }} -> tensor<{columns}xf32>
  return %r : tensor<{columns}xf32>
}}
"""


def text_of(rows, columns, element, body):
    is_narrow = element != "f32"
    return MODULE.format(
        rows=rows,
        columns=columns,
        element=element,
        narrow="0" if is_narrow else "",
        wide=f"%x = arith.extf %x0 : {element} to f32" if is_narrow else "",
        body=BODIES[body][0],
    )


def of_block(text):
    """Threads of a block of the first kernel, and how many elements they load at once; 0: one by itself."""
    with CONTEXT:
        module = parse_module(text, "test.mlir", CONTEXT)
        pass_manager.run(["outline-elements", "canonicalize", "cse"], module)
        (kernel,) = ops_in(module.operation, "gpu.func")
        loads = ops_in(kernel, "vector.load")
        width = ir.VectorType(loads[0].results[0].type).shape[0] if loads else 1
        if "tile.threads" not in kernel.attributes:
            return (32 if ops_in(kernel, "gpu.subgroup_reduce") else 0), width
        return ir.IntegerAttr(kernel.attributes["tile.threads"]).value, width


@examples(25)
@given(
    sizes=st.tuples(st.integers(1, 12), st.integers(1, 260)),
    columns=st.sampled_from([1, 2, 7, 8, 12, 16, 40, 64, 96, 129]),
    element=st.sampled_from(["f32", "f16"]),
    body=st.sampled_from([*BODIES]),
    dynamic=st.booleans(),
    seed=st.integers(0, 99),
)
def test_every_column_is_summed_once(sizes, columns, element, body, dynamic, seed):
    rng = np.random.default_rng(seed)
    a = rng.normal(size=(*sizes, columns)).astype(DTYPES[element])
    b = rng.normal(size=(*sizes, 1)).astype(np.float32)
    init = rng.normal(size=columns).astype(np.float32)
    rows = "?x?" if dynamic else "x".join(map(str, sizes))
    text = text_of(rows, columns, element, body)
    count = 1024 if dynamic else math.prod(sizes)
    threads, width = of_block(text)
    assert (threads > 0) == (count >= 128)
    assert threads == 0 or width == math.gcd(columns, 4 if element == "f32" else 8)
    (found,) = run_module(text, [a, b, init])
    x, y = a.astype(np.float64), b.astype(np.float64)
    expected = np.maximum(init, BODIES[body][1](x, y)) if body == "maximum" else BODIES[body][1](x, y) + init
    scale = 1 if body == "maximum" else np.sqrt(math.prod(sizes))
    np.testing.assert_allclose(found, expected, atol=2e-6 * scale, rtol=2e-6)


@pytest.mark.parametrize(
    ("rows", "columns", "element", "expected"),
    [
        ("4x512", 512, "bf16", (512, 8)),
        ("4x512", 512, "f32", (512, 4)),
        ("64x512", 512, "bf16", (1024, 8)),
        ("2x64", 512, "bf16", (32, 8)),
        ("4x512", 577, "bf16", (128, 1)),
        ("?x?", 768, "bf16", (256, 8)),
        ("8x8", 512, "bf16", (0, 1)),  # few rows
        ("8x512", 1 << 18, "bf16", (0, 1)),  # as many columns as threads
    ],
)
def test_threads_of_columns(rows, columns, element, expected):
    assert of_block(text_of(rows, columns, element, "squares")) == expected


def test_complex_numbers_are_no_pieces():
    """A thread has a column of these to itself."""
    text = text_of("4x512", 64, "f32", "squares")
    for old, new in [
        ("tensor<4x512x64xf32>", "tensor<4x512x64xcomplex<f32>>"),
        ("^bb0(%x: f32", "^bb0(%z0: complex<f32>"),
        ("%z = ", "%x = complex.abs %z0 : complex<f32>\n%z = "),
    ]:
        text = text.replace(old, new)
    assert of_block(text) == (0, 1)


def test_sums_of_the_same_rows_are_one_launch():
    """The gradients of a norm's weight and bias: of f16 times a row's number, and of itself, integers beside them."""
    text = """
#whole = affine_map<(i, j) -> (i, j)>
#column = affine_map<(i, j) -> (j)>
func.func @f(%a: tensor<600x32xf16>, %c: tensor<600x32xi32>) -> (tensor<32xf32>, tensor<32xi32>, tensor<32xf32>) {
  %zero = arith.constant 0.0 : f32
  %none = arith.constant 0 : i32
  %e = tensor.empty() : tensor<32xf32>
  %n = tensor.empty() : tensor<32xi32>
  %zeros = linalg.fill ins(%zero : f32) outs(%e : tensor<32xf32>) -> tensor<32xf32>
  %nones = linalg.fill ins(%none : i32) outs(%n : tensor<32xi32>) -> tensor<32xi32>
  %r:2 = linalg.generic {indexing_maps = [#whole, #whole, #column, #column],
      iterator_types = ["reduction", "parallel"]} ins(%a, %c : tensor<600x32xf16>, tensor<600x32xi32>)
      outs(%zeros, %nones : tensor<32xf32>, tensor<32xi32>) {
  ^bb0(%x: f16, %i: i32, %old: f32, %before: i32):
    %y = arith.extf %x : f16 to f32
    %f = arith.sitofp %i : i32 to f32
    %z = arith.mulf %y, %f : f32
    %t = arith.addf %old, %z : f32
    %u = arith.addi %before, %i : i32
    linalg.yield %t, %u : f32, i32
  } -> (tensor<32xf32>, tensor<32xi32>)
  %s = linalg.generic {indexing_maps = [#whole, #column], iterator_types = ["reduction", "parallel"]}
      ins(%a : tensor<600x32xf16>) outs(%zeros : tensor<32xf32>) {
  ^bb0(%x: f16, %old: f32):
    %y = arith.extf %x : f16 to f32
    %t = arith.addf %old, %y : f32
    linalg.yield %t : f32
  } -> tensor<32xf32>
  return %r#0, %r#1, %s : tensor<32xf32>, tensor<32xi32>, tensor<32xf32>
}
"""
    rng = np.random.default_rng(0)
    a, c = rng.normal(size=(600, 32)).astype(np.float16), rng.integers(-9, 9, (600, 32)).astype(np.int32)
    found = run_module(text.replace("func.func @f", "func.func @attention"), [a, c])
    wide = a.astype(np.float64)
    np.testing.assert_allclose(found[0], (wide * c).sum(0), atol=1e-3)
    np.testing.assert_array_equal(found[1], c.sum(0))
    np.testing.assert_allclose(found[2], wide.sum(0), atol=1e-3)
    assert [name for name in Launches.kernels if "elements" in name] == ["attention_elements_0"]
