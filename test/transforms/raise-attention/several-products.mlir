// RUN: attn-opt %s --split-input-file --raise-attention | FileCheck %s

// Scores are made of two products for each head: both have the same form, whatever they were written as.

// CHECK-LABEL: func.func @multiplied
// CHECK-DAG:     %[[S:.*]] = linalg.generic {{.*}}"reduction"]} ins(%arg0, %arg1 : {{.*}} outs(%{{.*}} : tensor<2x8x16xf32>)
// CHECK-DAG:     %[[R:.*]] = linalg.generic {{.*}}"reduction"]} ins(%arg2, %arg3 : {{.*}} outs(%{{.*}} : tensor<2x8x16xf32>)
// CHECK:         %[[X:.*]] = linalg.generic {{.*}} ins(%{{.*}}, %{{.*}} : tensor<2x8x16xf32>, tensor<2x8x16xf32>)
// CHECK:           arith.mulf
// CHECK:         linalg_ext.softmax dimension(2) ins(%[[X]] :
// CHECK-NOT:     linalg.batch_matmul
func.func @multiplied(%q: tensor<2x8x4xf32>, %k: tensor<2x4x16xf32>, %a: tensor<2x8x6xf32>, %b: tensor<2x6x16xf32>, %v: tensor<2x16x5xf32>) -> tensor<2x8x5xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<2x8x16xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<2x8x16xf32>) -> tensor<2x8x16xf32>
  %s = linalg.batch_matmul ins(%q, %k : tensor<2x8x4xf32>, tensor<2x4x16xf32>) outs(%z : tensor<2x8x16xf32>) -> tensor<2x8x16xf32>
  %r = linalg.batch_matmul ins(%a, %b : tensor<2x8x6xf32>, tensor<2x6x16xf32>) outs(%z : tensor<2x8x16xf32>) -> tensor<2x8x16xf32>
  %x = linalg.mul ins(%s, %r : tensor<2x8x16xf32>, tensor<2x8x16xf32>) outs(%e : tensor<2x8x16xf32>) -> tensor<2x8x16xf32>
  %p = linalg.softmax dimension(2) ins(%x : tensor<2x8x16xf32>) outs(%e : tensor<2x8x16xf32>) -> tensor<2x8x16xf32>
  %oe = tensor.empty() : tensor<2x8x5xf32>
  %oz = linalg.fill ins(%zero : f32) outs(%oe : tensor<2x8x5xf32>) -> tensor<2x8x5xf32>
  %o = linalg.batch_matmul ins(%p, %v : tensor<2x8x16xf32>, tensor<2x16x5xf32>) outs(%oz : tensor<2x8x5xf32>) -> tensor<2x8x5xf32>
  return %o : tensor<2x8x5xf32>
}

// -----

// What heads share is left as it is: the loops of each would compute it.

// CHECK-LABEL: func.func @shared
// CHECK:         %[[R:.*]] = linalg.matmul ins(%arg2, %arg3 :
// CHECK:         %[[S:.*]] = linalg.generic {{.*}}"reduction"]} ins(%arg0, %arg1 :
// CHECK:         linalg.generic {{.*}} ins(%[[R]], %[[S]] : tensor<8x16xf32>, tensor<2x8x16xf32>)
// CHECK:         linalg_ext.softmax
func.func @shared(%q: tensor<2x8x4xf32>, %k: tensor<2x4x16xf32>, %a: tensor<8x6xf32>, %b: tensor<6x16xf32>, %v: tensor<2x16x5xf32>) -> tensor<2x8x5xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<2x8x16xf32>
  %e1 = tensor.empty() : tensor<8x16xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<2x8x16xf32>) -> tensor<2x8x16xf32>
  %z1 = linalg.fill ins(%zero : f32) outs(%e1 : tensor<8x16xf32>) -> tensor<8x16xf32>
  %r = linalg.matmul ins(%a, %b : tensor<8x6xf32>, tensor<6x16xf32>) outs(%z1 : tensor<8x16xf32>) -> tensor<8x16xf32>
  %s = linalg.batch_matmul ins(%q, %k : tensor<2x8x4xf32>, tensor<2x4x16xf32>) outs(%z : tensor<2x8x16xf32>) -> tensor<2x8x16xf32>
  %c = linalg.broadcast ins(%r : tensor<8x16xf32>) outs(%e : tensor<2x8x16xf32>) dimensions = [0]
  %x = linalg.mul ins(%s, %c : tensor<2x8x16xf32>, tensor<2x8x16xf32>) outs(%e : tensor<2x8x16xf32>) -> tensor<2x8x16xf32>
  %p = linalg.softmax dimension(2) ins(%x : tensor<2x8x16xf32>) outs(%e : tensor<2x8x16xf32>) -> tensor<2x8x16xf32>
  %oe = tensor.empty() : tensor<2x8x5xf32>
  %oz = linalg.fill ins(%zero : f32) outs(%oe : tensor<2x8x5xf32>) -> tensor<2x8x5xf32>
  %o = linalg.batch_matmul ins(%p, %v : tensor<2x8x16xf32>, tensor<2x16x5xf32>) outs(%oz : tensor<2x8x5xf32>) -> tensor<2x8x5xf32>
  return %o : tensor<2x8x5xf32>
}
