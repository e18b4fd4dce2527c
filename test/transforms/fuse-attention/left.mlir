// RUN: attn-opt %s --fuse-attention --verify-diagnostics | FileCheck %s

// What is marked is left, with the reason that the mark gives; the mark goes.
// CHECK-LABEL: func.func @of_two
// CHECK-NOT:     scf.for
// CHECK:         linalg_ext.softmax
// CHECK-NOT:     __left__
// CHECK:         scf.for
// CHECK:           linalg_ext.softmax
func.func @of_two(%q: tensor<64x8xf32>, %k: tensor<8x96xf32>, %v: tensor<96x8xf32>) -> tensor<64x8xf32> {
  %zero = arith.constant 0.0 : f32
  %low = arith.constant 0xFF800000 : f32
  %es = tensor.empty() : tensor<64x96xf32>
  %er = tensor.empty() : tensor<64xf32>
  %zs = linalg.fill ins(%zero : f32) outs(%es : tensor<64x96xf32>) -> tensor<64x96xf32>
  %m = linalg.fill ins(%low : f32) outs(%er : tensor<64xf32>) -> tensor<64xf32>
  %l = linalg.fill ins(%zero : f32) outs(%er : tensor<64xf32>) -> tensor<64xf32>
  %eo = tensor.empty() : tensor<64x8xf32>
  %zo = linalg.fill ins(%zero : f32) outs(%eo : tensor<64x8xf32>) -> tensor<64x8xf32>
  %s = linalg.matmul ins(%q, %k : tensor<64x8xf32>, tensor<8x96xf32>) outs(%zs : tensor<64x96xf32>) -> tensor<64x96xf32>
  %p:4 = linalg_ext.softmax dimension(1) ins(%s : tensor<64x96xf32>) outs(%es, %m, %l, %er : tensor<64x96xf32>, tensor<64xf32>, tensor<64xf32>, tensor<64xf32>) : tensor<64x96xf32>, tensor<64xf32>, tensor<64xf32>, tensor<64xf32>
  // expected-warning@below {{attention is left as it is: it is too dear}}
  %o = linalg.matmul {__left__ = "it is too dear"} ins(%p#0, %v : tensor<64x96xf32>, tensor<96x8xf32>) outs(%zo : tensor<64x8xf32>) -> tensor<64x8xf32>
  %s1 = linalg.matmul ins(%o, %k : tensor<64x8xf32>, tensor<8x96xf32>) outs(%zs : tensor<64x96xf32>) -> tensor<64x96xf32>
  %p1:4 = linalg_ext.softmax dimension(1) ins(%s1 : tensor<64x96xf32>) outs(%es, %m, %l, %er : tensor<64x96xf32>, tensor<64xf32>, tensor<64xf32>, tensor<64xf32>) : tensor<64x96xf32>, tensor<64xf32>, tensor<64xf32>, tensor<64xf32>
  // expected-remark@below {{tiled into}}
  %o1 = linalg.matmul ins(%p1#0, %v : tensor<64x96xf32>, tensor<96x8xf32>) outs(%zo : tensor<64x8xf32>) -> tensor<64x8xf32>
  return %o1 : tensor<64x8xf32>
}
