// RUN: attn-opt %s --raise-attention --remarks 2>&1 | FileCheck %s

// A model without heads: elements of a tensor that has none are not traced through the reshape that makes it.
// CHECK-LABEL: func.func @f
// CHECK:         linalg_ext.softmax dimension(2) ins(%{{.*}} : tensor<0x5x5xf32>)
// CHECK:         return
func.func @f(%q: tensor<2x5x0xf32>, %k: tensor<2x5x0xf32>, %v: tensor<2x5x0xf32>) -> tensor<2x0x5x4xf32> {
  %zero = arith.constant 0.0 : f32
  %q4 = tensor.expand_shape %q [[0], [1], [2, 3]] output_shape [2, 5, 0, 4] : tensor<2x5x0xf32> into tensor<2x5x0x4xf32>
  %k4 = tensor.expand_shape %k [[0], [1], [2, 3]] output_shape [2, 5, 0, 4] : tensor<2x5x0xf32> into tensor<2x5x0x4xf32>
  %v4 = tensor.expand_shape %v [[0], [1], [2, 3]] output_shape [2, 5, 0, 4] : tensor<2x5x0xf32> into tensor<2x5x0x4xf32>
  %eq = tensor.empty() : tensor<2x0x5x4xf32>
  %qt = linalg.transpose ins(%q4 : tensor<2x5x0x4xf32>) outs(%eq : tensor<2x0x5x4xf32>) permutation = [0, 2, 1, 3]
  %kt = linalg.transpose ins(%k4 : tensor<2x5x0x4xf32>) outs(%eq : tensor<2x0x5x4xf32>) permutation = [0, 2, 1, 3]
  %vt = linalg.transpose ins(%v4 : tensor<2x5x0x4xf32>) outs(%eq : tensor<2x0x5x4xf32>) permutation = [0, 2, 1, 3]
  %qc = tensor.collapse_shape %qt [[0, 1], [2], [3]] : tensor<2x0x5x4xf32> into tensor<0x5x4xf32>
  %kc = tensor.collapse_shape %kt [[0, 1], [2], [3]] : tensor<2x0x5x4xf32> into tensor<0x5x4xf32>
  %vc = tensor.collapse_shape %vt [[0, 1], [2], [3]] : tensor<2x0x5x4xf32> into tensor<0x5x4xf32>
  %ekt = tensor.empty() : tensor<0x4x5xf32>
  %kk = linalg.transpose ins(%kc : tensor<0x5x4xf32>) outs(%ekt : tensor<0x4x5xf32>) permutation = [0, 2, 1]
  %es = tensor.empty() : tensor<0x5x5xf32>
  %zs = linalg.fill ins(%zero : f32) outs(%es : tensor<0x5x5xf32>) -> tensor<0x5x5xf32>
  %s = linalg.batch_matmul ins(%qc, %kk : tensor<0x5x4xf32>, tensor<0x4x5xf32>) outs(%zs : tensor<0x5x5xf32>) -> tensor<0x5x5xf32>
  %p = linalg.softmax dimension(2) ins(%s : tensor<0x5x5xf32>) outs(%es : tensor<0x5x5xf32>) -> tensor<0x5x5xf32>
  %eo = tensor.empty() : tensor<0x5x4xf32>
  %zo = linalg.fill ins(%zero : f32) outs(%eo : tensor<0x5x4xf32>) -> tensor<0x5x4xf32>
  %o = linalg.batch_matmul ins(%p, %vc : tensor<0x5x5xf32>, tensor<0x5x4xf32>) outs(%zo : tensor<0x5x4xf32>) -> tensor<0x5x4xf32>
  %o4 = tensor.expand_shape %o [[0, 1], [2], [3]] output_shape [2, 0, 5, 4] : tensor<0x5x4xf32> into tensor<2x0x5x4xf32>
  return %o4 : tensor<2x0x5x4xf32>
}
