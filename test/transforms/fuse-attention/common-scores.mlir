// RUN: attn-opt %s --fuse-attention --remarks 2>&1 | FileCheck %s
// RUN: attn-opt %s --version-queries --fuse-attention

// CHECK-COUNT-3: remark: tiled into 2 loops, fused with linalg_ext.softmax
// CHECK:         attention is left as it is: its scores are part of another one's loops

// Two softmaxes of the same scores: each attention computes them in its own loops.
// CHECK-LABEL: func.func @two
// CHECK:         scf.for
// CHECK:           linalg.matmul ins(%{{.*}} : tensor<?x16xf32>, tensor<16x32xf32>)
// CHECK:           linalg_ext.softmax
// CHECK:         scf.for
// CHECK:           linalg.matmul ins(%{{.*}} : tensor<?x16xf32>, tensor<16x32xf32>)
// CHECK:           linalg.add
// CHECK:           linalg_ext.softmax
func.func @two(%q: tensor<?x16xf32>, %kt: tensor<16x32xf32>, %b: tensor<?x32xf32>, %v: tensor<32x16xf32>)
    -> (tensor<?x16xf32>, tensor<?x16xf32>) {
  %c0 = arith.constant 0 : index
  %n = tensor.dim %q, %c0 : tensor<?x16xf32>
  %zero = arith.constant 0.0 : f32
  %minus_inf = arith.constant 0xFF800000 : f32
  %re = tensor.empty(%n) : tensor<?xf32>
  %rm = linalg.fill ins(%minus_inf : f32) outs(%re : tensor<?xf32>) -> tensor<?xf32>
  %rz = linalg.fill ins(%zero : f32) outs(%re : tensor<?xf32>) -> tensor<?xf32>
  %se = tensor.empty(%n) : tensor<?x32xf32>
  %sz = linalg.fill ins(%zero : f32) outs(%se : tensor<?x32xf32>) -> tensor<?x32xf32>
  %s = linalg.matmul ins(%q, %kt : tensor<?x16xf32>, tensor<16x32xf32>) outs(%sz : tensor<?x32xf32>) -> tensor<?x32xf32>
  %x = linalg.add ins(%s, %b : tensor<?x32xf32>, tensor<?x32xf32>) outs(%se : tensor<?x32xf32>) -> tensor<?x32xf32>
  %p1:4 = linalg_ext.softmax dimension(1) ins(%s : tensor<?x32xf32>) outs(%se, %rm, %rz, %re : tensor<?x32xf32>, tensor<?xf32>, tensor<?xf32>, tensor<?xf32>)
    : tensor<?x32xf32>, tensor<?xf32>, tensor<?xf32>, tensor<?xf32>
  %p2:4 = linalg_ext.softmax dimension(1) ins(%x : tensor<?x32xf32>) outs(%se, %rm, %rz, %re : tensor<?x32xf32>, tensor<?xf32>, tensor<?xf32>, tensor<?xf32>)
    : tensor<?x32xf32>, tensor<?xf32>, tensor<?xf32>, tensor<?xf32>
  %oe = tensor.empty(%n) : tensor<?x16xf32>
  %oz = linalg.fill ins(%zero : f32) outs(%oe : tensor<?x16xf32>) -> tensor<?x16xf32>
  %o1 = linalg.matmul ins(%p1#0, %v : tensor<?x32xf32>, tensor<32x16xf32>) outs(%oz : tensor<?x16xf32>) -> tensor<?x16xf32>
  %o2 = linalg.matmul ins(%p2#0, %v : tensor<?x32xf32>, tensor<32x16xf32>) outs(%oz : tensor<?x16xf32>) -> tensor<?x16xf32>
  return %o1, %o2 : tensor<?x16xf32>, tensor<?x16xf32>
}

// The scores are returned too: the loops of the first attention put them together for the second, which is left.
// CHECK-LABEL: func.func @returned
// CHECK:         %[[FUSED:.*]]:4 = scf.for
// CHECK:         linalg.add ins(%[[FUSED]]#{{[0-3]}}
// CHECK:         linalg_ext.softmax dimension(1)
func.func @returned(%q: tensor<?x16xf32>, %kt: tensor<16x32xf32>, %b: tensor<?x32xf32>, %v: tensor<32x16xf32>)
    -> (tensor<?x16xf32>, tensor<?x16xf32>, tensor<?x32xf32>) {
  %c0 = arith.constant 0 : index
  %n = tensor.dim %q, %c0 : tensor<?x16xf32>
  %zero = arith.constant 0.0 : f32
  %minus_inf = arith.constant 0xFF800000 : f32
  %re = tensor.empty(%n) : tensor<?xf32>
  %rm = linalg.fill ins(%minus_inf : f32) outs(%re : tensor<?xf32>) -> tensor<?xf32>
  %rz = linalg.fill ins(%zero : f32) outs(%re : tensor<?xf32>) -> tensor<?xf32>
  %se = tensor.empty(%n) : tensor<?x32xf32>
  %sz = linalg.fill ins(%zero : f32) outs(%se : tensor<?x32xf32>) -> tensor<?x32xf32>
  %s = linalg.matmul ins(%q, %kt : tensor<?x16xf32>, tensor<16x32xf32>) outs(%sz : tensor<?x32xf32>) -> tensor<?x32xf32>
  %x = linalg.add ins(%s, %b : tensor<?x32xf32>, tensor<?x32xf32>) outs(%se : tensor<?x32xf32>) -> tensor<?x32xf32>
  %p1:4 = linalg_ext.softmax dimension(1) ins(%s : tensor<?x32xf32>) outs(%se, %rm, %rz, %re : tensor<?x32xf32>, tensor<?xf32>, tensor<?xf32>, tensor<?xf32>)
    : tensor<?x32xf32>, tensor<?xf32>, tensor<?xf32>, tensor<?xf32>
  %p2:4 = linalg_ext.softmax dimension(1) ins(%x : tensor<?x32xf32>) outs(%se, %rm, %rz, %re : tensor<?x32xf32>, tensor<?xf32>, tensor<?xf32>, tensor<?xf32>)
    : tensor<?x32xf32>, tensor<?xf32>, tensor<?xf32>, tensor<?xf32>
  %oe = tensor.empty(%n) : tensor<?x16xf32>
  %oz = linalg.fill ins(%zero : f32) outs(%oe : tensor<?x16xf32>) -> tensor<?x16xf32>
  %o1 = linalg.matmul ins(%p1#0, %v : tensor<?x32xf32>, tensor<32x16xf32>) outs(%oz : tensor<?x16xf32>) -> tensor<?x16xf32>
  %o2 = linalg.matmul ins(%p2#0, %v : tensor<?x32xf32>, tensor<32x16xf32>) outs(%oz : tensor<?x16xf32>) -> tensor<?x16xf32>
  return %o1, %o2, %s : tensor<?x16xf32>, tensor<?x16xf32>, tensor<?x32xf32>
}
