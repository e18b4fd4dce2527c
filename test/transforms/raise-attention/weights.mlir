// RUN: attn-opt %s --raise-attention | FileCheck %s

// A dropout: the probabilities are multiplied by a mask of their own shape, in a generic before the second matmul.
// CHECK-LABEL: @dropout
//       CHECK: %[[P:.*]]:4 = linalg_ext.softmax
//       CHECK: %[[W:.*]] = linalg.generic {{.*}} ins({{.*}} : tensor<6x10xf32>, tensor<6x10xf32>)
//  CHECK-NEXT: ^bb0
//       CHECK: arith.mulf
//       CHECK: linalg.generic {{.*}} ins(%[[W]], %arg2 : tensor<6x10xf32>, tensor<10x4xf32>)
func.func @dropout(%q: tensor<6x8xf32>, %k: tensor<8x10xf32>, %v: tensor<10x4xf32>, %keep: tensor<6x10xf32>) -> tensor<6x4xf32> {
  %zero = arith.constant 0.0 : f32
  %e_s = tensor.empty() : tensor<6x10xf32>
  %z_s = linalg.fill ins(%zero : f32) outs(%e_s : tensor<6x10xf32>) -> tensor<6x10xf32>
  %s = linalg.matmul ins(%q, %k : tensor<6x8xf32>, tensor<8x10xf32>) outs(%z_s : tensor<6x10xf32>) -> tensor<6x10xf32>
  %p = linalg.softmax dimension(1) ins(%s : tensor<6x10xf32>) outs(%e_s : tensor<6x10xf32>) -> tensor<6x10xf32>
  %d = linalg.mul ins(%p, %keep : tensor<6x10xf32>, tensor<6x10xf32>) outs(%e_s : tensor<6x10xf32>) -> tensor<6x10xf32>
  %e_o = tensor.empty() : tensor<6x4xf32>
  %z_o = linalg.fill ins(%zero : f32) outs(%e_o : tensor<6x4xf32>) -> tensor<6x4xf32>
  %o = linalg.matmul ins(%d, %v : tensor<6x10xf32>, tensor<10x4xf32>) outs(%z_o : tensor<6x4xf32>) -> tensor<6x4xf32>
  return %o : tensor<6x4xf32>
}

// One that is a choice stays one; the factor of what is kept comes after the second matmul.
// CHECK-LABEL: @chosen
//       CHECK: %[[P:.*]]:4 = linalg_ext.softmax
//       CHECK: %[[W:.*]] = linalg.generic {{.*}} ins(%arg3, %[[P]]#0 : tensor<6x10xi1>, tensor<6x10xf32>)
//       CHECK: %[[ZERO:.*]] = arith.constant 0.0
//  CHECK-NEXT: arith.select %{{.*}}, %{{.*}}, %[[ZERO]] : f32
//       CHECK: linalg.generic {{.*}} ins(%[[W]], %arg2 : tensor<6x10xf32>, tensor<10x4xf32>)
//       CHECK: arith.constant 1.25
//  CHECK-NEXT: arith.mulf
func.func @chosen(%q: tensor<6x8xf32>, %k: tensor<8x10xf32>, %v: tensor<10x4xf32>, %keep: tensor<6x10xi1>) -> tensor<6x4xf32> {
  %zero = arith.constant 0.0 : f32
  %factor = arith.constant 1.25 : f32
  %e_s = tensor.empty() : tensor<6x10xf32>
  %z_s = linalg.fill ins(%zero : f32) outs(%e_s : tensor<6x10xf32>) -> tensor<6x10xf32>
  %s = linalg.matmul ins(%q, %k : tensor<6x8xf32>, tensor<8x10xf32>) outs(%z_s : tensor<6x10xf32>) -> tensor<6x10xf32>
  %p = linalg.softmax dimension(1) ins(%s : tensor<6x10xf32>) outs(%e_s : tensor<6x10xf32>) -> tensor<6x10xf32>
  %d = linalg.map ins(%p, %keep : tensor<6x10xf32>, tensor<6x10xi1>) outs(%e_s : tensor<6x10xf32>)
    (%x: f32, %is: i1, %o: f32) {
      %w = arith.select %is, %factor, %zero : f32
      %y = arith.mulf %x, %w : f32
      linalg.yield %y : f32
    }
  %e_o = tensor.empty() : tensor<6x4xf32>
  %z_o = linalg.fill ins(%zero : f32) outs(%e_o : tensor<6x4xf32>) -> tensor<6x4xf32>
  %o = linalg.matmul ins(%d, %v : tensor<6x10xf32>, tensor<10x4xf32>) outs(%z_o : tensor<6x4xf32>) -> tensor<6x4xf32>
  return %o : tensor<6x4xf32>
}
