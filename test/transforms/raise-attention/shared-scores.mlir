// RUN: attn-opt %s --raise-attention --split-input-file --verify-diagnostics --remarks | FileCheck %s

// Two values with one softmax: each attention has scores of its own, as fuse-attention takes them.
// CHECK-LABEL: @two_values
//       CHECK: linalg_ext.softmax
//       CHECK: linalg.generic {{.*}} ins(%{{.*}}, %arg2 : tensor<6x10xf32>, tensor<10x4xf32>)
//       CHECK: linalg_ext.softmax
//       CHECK: linalg.generic {{.*}} ins(%{{.*}}, %arg3 : tensor<6x10xf32>, tensor<10x5xf32>)
func.func @two_values(%q: tensor<6x8xf32>, %k: tensor<8x10xf32>, %v: tensor<10x4xf32>, %u: tensor<10x5xf32>) -> (tensor<6x4xf32>, tensor<6x5xf32>) {
  %zero = arith.constant 0.0 : f32
  %e_s = tensor.empty() : tensor<6x10xf32>
  %z_s = linalg.fill ins(%zero : f32) outs(%e_s : tensor<6x10xf32>) -> tensor<6x10xf32>
  %s = linalg.matmul ins(%q, %k : tensor<6x8xf32>, tensor<8x10xf32>) outs(%z_s : tensor<6x10xf32>) -> tensor<6x10xf32>
  %p = linalg.softmax dimension(1) ins(%s : tensor<6x10xf32>) outs(%e_s : tensor<6x10xf32>) -> tensor<6x10xf32>
  %e_o = tensor.empty() : tensor<6x4xf32>
  %z_o = linalg.fill ins(%zero : f32) outs(%e_o : tensor<6x4xf32>) -> tensor<6x4xf32>
  // expected-remark @+1 {{raised to attention}}
  %o = linalg.matmul ins(%p, %v : tensor<6x10xf32>, tensor<10x4xf32>) outs(%z_o : tensor<6x4xf32>) -> tensor<6x4xf32>
  %e_w = tensor.empty() : tensor<6x5xf32>
  %z_w = linalg.fill ins(%zero : f32) outs(%e_w : tensor<6x5xf32>) -> tensor<6x5xf32>
  // expected-remark @+1 {{raised to attention}}
  %w = linalg.matmul ins(%p, %u : tensor<6x10xf32>, tensor<10x5xf32>) outs(%z_w : tensor<6x5xf32>) -> tensor<6x5xf32>
  return %o, %w : tensor<6x4xf32>, tensor<6x5xf32>
}

// -----

// Two values, and the probabilities are returned: they are there as a whole.
func.func @returned_too(%q: tensor<6x8xf32>, %k: tensor<8x10xf32>, %v: tensor<10x4xf32>, %u: tensor<10x4xf32>) -> (tensor<6x4xf32>, tensor<6x4xf32>, tensor<6x10xf32>) {
  %zero = arith.constant 0.0 : f32
  %e_s = tensor.empty() : tensor<6x10xf32>
  %z_s = linalg.fill ins(%zero : f32) outs(%e_s : tensor<6x10xf32>) -> tensor<6x10xf32>
  %s = linalg.matmul ins(%q, %k : tensor<6x8xf32>, tensor<8x10xf32>) outs(%z_s : tensor<6x10xf32>) -> tensor<6x10xf32>
  %p = linalg.softmax dimension(1) ins(%s : tensor<6x10xf32>) outs(%e_s : tensor<6x10xf32>) -> tensor<6x10xf32>
  %e_o = tensor.empty() : tensor<6x4xf32>
  %z_o = linalg.fill ins(%zero : f32) outs(%e_o : tensor<6x4xf32>) -> tensor<6x4xf32>
  // expected-remark @+1 {{'func.return' needs its scores or probabilities as a whole too}}
  %o = linalg.matmul ins(%p, %v : tensor<6x10xf32>, tensor<10x4xf32>) outs(%z_o : tensor<6x4xf32>) -> tensor<6x4xf32>
  // expected-remark @+1 {{'func.return' needs its scores or probabilities as a whole too}}
  %w = linalg.matmul ins(%p, %u : tensor<6x10xf32>, tensor<10x4xf32>) outs(%z_o : tensor<6x4xf32>) -> tensor<6x4xf32>
  return %o, %w, %p : tensor<6x4xf32>, tensor<6x4xf32>, tensor<6x10xf32>
}
