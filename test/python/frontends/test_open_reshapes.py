"""Reshapes to computed sizes become views, dimension by dimension where sizes are known to stay."""

import numpy as np
import pytest
from attn_opt.compiler.frontends.open_reshapes import to_views
from attn_opt.dialects import make_context
from attn_opt.dialects.mlir import ir
from attn_opt.dialects.reference import evaluate

BODY = """
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %zero = arith.constant 0 : i64
  %four = arith.constant 4 : i64
  %c8 = arith.constant 8 : i64
  %c32 = arith.constant 32 : i64
  %b = tensor.dim %y, %c0 : tensor<?x?x32xf32>
  %s = tensor.dim %y, %c1 : tensor<?x?x32xf32>
  %b64 = arith.index_cast %b : index to i64
  %s64 = arith.index_cast %s : index to i64
"""
X = np.arange(6 * 5 * 32, dtype=np.float32)
# From a type, to a type and its sizes; the argument's shape and the result's, what becomes of it, and what does not.
SPLIT, MERGE = "tensor.expand_shape", "tensor.collapse_shape"
CASES = {
    "split": ("?x32", "?x?x32", "%b64, %s64, %c32", (30, 32), (6, 5, 32), f"{SPLIT} %arg0 [[0, 1], [2]]", MERGE),
    "last": ("?x?x32", "?x?x4x8", "%own0, %own1, %four, %c8", (6, 5, 32), (6, 5, 4, 8), "[[0], [1], [2, 3]]", MERGE),
    "merge": ("?x?x32", "?x32", "%n64, %c32", (6, 5, 32), (30, 32), f"{MERGE} %arg0 [[0, 1], [2]]", SPLIT),
    "both": (
        "?x?x32",
        "?x?x32",
        "%s64, %b64, %c32",
        (6, 5, 32),
        (5, 6, 32),
        f"{SPLIT} %collapsed [[0, 1], [2]]",
        "tensor.cast",
    ),
    "inferred": ("?x32", "?x?x32", "%b64, %positive, %c32", (30, 32), (6, 5, 32), f"{SPLIT} %arg0", "arith.select"),
}


@pytest.mark.parametrize("name", CASES)
def test_views(name):
    source, target, sizes, shape, result, wanted, absent = CASES[name]
    listed = f"tensor<{len(result)}xi64>"
    text = f"""func.func @main(%x: tensor<{source}xf32>, %y: tensor<?x?x32xf32>) -> tensor<{target}xf32> {{ {BODY}
      %d0 = tensor.dim %x, %c0 : tensor<{source}xf32>
      %d1 = tensor.dim %x, %c1 : tensor<{source}xf32>
      %own0 = arith.index_cast %d0 : index to i64
      %own1 = arith.index_cast %d1 : index to i64
      %n64 = arith.muli %b64, %s64 : i64
      %negative = arith.cmpi slt, %s64, %zero : i64
      %positive = arith.select %negative, %four, %s64 : i64
      %shape = tensor.from_elements {sizes} : {listed}
      %z = tensor.reshape %x(%shape) : (tensor<{source}xf32>, {listed}) -> tensor<{target}xf32>
      return %z : tensor<{target}xf32>
    }}"""
    with make_context(), ir.Location.unknown():
        module = ir.Module.parse(text)
        to_views(module)
        assert module.operation.verify()
        found = str(module)
        assert wanted in found and "tensor.reshape" not in found and absent not in found, found
        (made,) = evaluate(module, [X.reshape(shape), X.reshape(6, 5, 32)])
    assert np.array_equal(made, X.reshape(result))


def test_sizes_that_are_not_listed_stay_a_reshape():
    text = """func.func @main(%x: tensor<?x32xf32>, %shape: tensor<3xi64>) -> tensor<?x?x32xf32> {
      %z = tensor.reshape %x(%shape) : (tensor<?x32xf32>, tensor<3xi64>) -> tensor<?x?x32xf32>
      return %z : tensor<?x?x32xf32>
    }"""
    with make_context(), ir.Location.unknown():
        module = ir.Module.parse(text)
        to_views(module)
        assert "tensor.reshape" in str(module)
