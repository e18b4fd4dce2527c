// RUN: attn-opt %s --raise-attention --fuse-attention --verify-diagnostics | FileCheck %s

// Without a query there is nothing to tile.
// CHECK-LABEL: func.func @no_query
// CHECK-NOT:     scf.for
func.func @no_query(%q: tensor<0x8xf32>, %k: tensor<8x10xf32>, %v: tensor<10x4xf32>) -> tensor<0x4xf32> {
  %zero = arith.constant 0.0 : f32
  %e_s = tensor.empty() : tensor<0x10xf32>
  %z_s = linalg.fill ins(%zero : f32) outs(%e_s : tensor<0x10xf32>) -> tensor<0x10xf32>
  %s = linalg.matmul ins(%q, %k : tensor<0x8xf32>, tensor<8x10xf32>) outs(%z_s : tensor<0x10xf32>) -> tensor<0x10xf32>
  %p = linalg.softmax dimension(1) ins(%s : tensor<0x10xf32>) outs(%e_s : tensor<0x10xf32>) -> tensor<0x10xf32>
  %e_o = tensor.empty() : tensor<0x4xf32>
  %z_o = linalg.fill ins(%zero : f32) outs(%e_o : tensor<0x4xf32>) -> tensor<0x4xf32>
  // expected-remark@below {{raised to attention}}
  // expected-remark@below {{attention is left as it is: it has no elements}}
  %o = linalg.matmul ins(%p, %v : tensor<0x10xf32>, tensor<10x4xf32>) outs(%z_o : tensor<0x4xf32>) -> tensor<0x4xf32>
  return %o : tensor<0x4xf32>
}
