"""Scores that are sums over two dimensions, as einsum("bncd,bmcd->bnm") has them, for GPUs, at the level of tiles."""

import numpy as np
import pytest
from probability_graphs import check_on_gpu, softmax

TEXT = """
func.func @f(%q: tensor<2x50x4x8xf32>, %k: tensor<2xKEYSxf32>, %v: tensor<2x70x16xf32>) -> tensor<2x50x16xf32> {
  %zero = arith.constant 0.0 : f32
  %kt_empty = tensor.empty() : tensor<2x4x8x70xf32>
  %kt = linalg.transpose ins(%k : tensor<2xKEYSxf32>) outs(%kt_empty : tensor<2x4x8x70xf32>) permutation = [ORDER]
  %q2 = tensor.collapse_shape %q [[0], [1], [2, 3]] : tensor<2x50x4x8xf32> into tensor<2x50x32xf32>
  %k2 = tensor.collapse_shape %kt [[0], [1, 2], [3]] : tensor<2x4x8x70xf32> into tensor<2x32x70xf32>
  %s_empty = tensor.empty() : tensor<2x50x70xf32>
  %s_init = linalg.fill ins(%zero : f32) outs(%s_empty : tensor<2x50x70xf32>) -> tensor<2x50x70xf32>
  %s = linalg.batch_matmul ins(%q2, %k2 : tensor<2x50x32xf32>, tensor<2x32x70xf32>)
    outs(%s_init : tensor<2x50x70xf32>) -> tensor<2x50x70xf32>
  %p = linalg.softmax dimension(2) ins(%s : tensor<2x50x70xf32>) outs(%s_empty : tensor<2x50x70xf32>)
    -> tensor<2x50x70xf32>
  %o_empty = tensor.empty() : tensor<2x50x16xf32>
  %o_init = linalg.fill ins(%zero : f32) outs(%o_empty : tensor<2x50x16xf32>) -> tensor<2x50x16xf32>
  %o = linalg.batch_matmul ins(%p, %v : tensor<2x50x70xf32>, tensor<2x70x16xf32>)
    outs(%o_init : tensor<2x50x16xf32>) -> tensor<2x50x16xf32>
  return %o : tensor<2x50x16xf32>
}
"""


@pytest.mark.parametrize("arch", ["sm_90a", "sm_80"])
@pytest.mark.parametrize("keys, order", [("70x4x8", (0, 2, 3, 1)), ("70x8x4", (0, 3, 2, 1))])
def test_sums_over_two_dimensions(keys, order, arch):
    """Side by side in memory, and in another order there: keys are put together in a launch before."""
    text = TEXT.replace("KEYS", keys).replace("ORDER", ", ".join(map(str, order)))
    rng = np.random.default_rng(0)
    shapes = ((2, 50, 4, 8), (2, *map(int, keys.split("x"))), (2, 70, 16))
    q, k, v = (rng.standard_normal(shape).astype(np.float32) for shape in shapes)
    s = q.reshape(2, 50, 32).astype(np.float64) @ k.transpose(order).reshape(2, 32, 70)
    check_on_gpu(text, softmax(s) @ v, [q, k, v], "bf16", arch)
