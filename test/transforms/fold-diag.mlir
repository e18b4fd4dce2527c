// RUN: attn-opt %s --fold-diag --canonicalize | FileCheck %s

// CHECK-LABEL: func.func @scales_rows_in_place
// CHECK-NOT: linalg_ext.diag
// CHECK: linalg.generic {{.*}} ins(%arg0 : tensor<4xf32>) outs(%arg1 : tensor<4x32xf32>)
// CHECK-NEXT: ^bb0(%[[S:.*]]: f32, %[[X:.*]]: f32):
// CHECK-NEXT: arith.mulf %[[S]], %[[X]]
// CHECK-NOT: linalg.matmul
func.func @scales_rows_in_place(%s: tensor<4xf32>, %x: tensor<4x32xf32>) -> tensor<4x32xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<4x4xf32>
  %d = linalg_ext.diag ins(%s : tensor<4xf32>) outs(%e : tensor<4x4xf32>) : tensor<4x4xf32>
  %f = tensor.empty() : tensor<4x32xf32>
  %z = linalg.fill ins(%zero : f32) outs(%f : tensor<4x32xf32>) -> tensor<4x32xf32>
  %r = linalg.matmul ins(%d, %x : tensor<4x4xf32>, tensor<4x32xf32>) outs(%z : tensor<4x32xf32>) -> tensor<4x32xf32>
  return %r : tensor<4x32xf32>
}

// An init that is not zero is added.
// CHECK-LABEL: func.func @adds_init
// CHECK: linalg.generic {{.*}} ins(%arg0, %arg1 : tensor<2x4xf32>, tensor<2x4x8xf32>) outs(%arg2 : tensor<2x4x8xf32>)
// CHECK: arith.addf
func.func @adds_init(%s: tensor<2x4xf32>, %x: tensor<2x4x8xf32>, %c: tensor<2x4x8xf32>) -> tensor<2x4x8xf32> {
  %e = tensor.empty() : tensor<2x4x4xf32>
  %d = linalg_ext.diag ins(%s : tensor<2x4xf32>) outs(%e : tensor<2x4x4xf32>) : tensor<2x4x4xf32>
  %r = linalg_ext.batch_matmul ins(%d, %x : tensor<2x4x4xf32>, tensor<2x4x8xf32>) outs(%c : tensor<2x4x8xf32>)
    layout = "nn"
  return %r : tensor<2x4x8xf32>
}

// Only the left operand is folded, and the matrix stays where something else uses it.
// CHECK-LABEL: func.func @right_operand
// CHECK: linalg_ext.diag
// CHECK: linalg.matmul
func.func @right_operand(%s: tensor<4xf32>, %x: tensor<8x4xf32>, %c: tensor<8x4xf32>) -> tensor<8x4xf32> {
  %e = tensor.empty() : tensor<4x4xf32>
  %d = linalg_ext.diag ins(%s : tensor<4xf32>) outs(%e : tensor<4x4xf32>) : tensor<4x4xf32>
  %r = linalg.matmul ins(%x, %d : tensor<8x4xf32>, tensor<4x4xf32>) outs(%c : tensor<8x4xf32>) -> tensor<8x4xf32>
  return %r : tensor<8x4xf32>
}
