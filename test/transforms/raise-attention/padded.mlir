// RUN: attn-opt %s --raise-attention | FileCheck %s

// A score of −1 beside those of the keys, by padding: exp(−1 − m) in the sum of each row.
// CHECK-LABEL: @beside
//       CHECK: %[[P:.*]]:4 = linalg_ext.softmax dimension(1)
//       CHECK: linalg.generic {{.*}} ins(%[[P]]#1, %[[P]]#2 : tensor<6xf32>, tensor<6xf32>)
//       CHECK:   arith.subf
//       CHECK:   math.exp
//       CHECK:   arith.addf
//       CHECK:   arith.divf
//   CHECK-NOT: tensor<6x11xf32>
//       CHECK: return
func.func @beside(%q: tensor<6x8xf32>, %k: tensor<8x10xf32>, %v: tensor<10x4xf32>) -> tensor<6x4xf32> {
  %zero = arith.constant 0.0 : f32
  %one = arith.constant -1.0 : f32
  %e_s = tensor.empty() : tensor<6x10xf32>
  %z_s = linalg.fill ins(%zero : f32) outs(%e_s : tensor<6x10xf32>) -> tensor<6x10xf32>
  %s = linalg.matmul ins(%q, %k : tensor<6x8xf32>, tensor<8x10xf32>) outs(%z_s : tensor<6x10xf32>) -> tensor<6x10xf32>
  %x = tensor.pad %s low[0, 0] high[0, 1] {
  ^bb0(%i: index, %j: index):
    tensor.yield %one : f32
  } : tensor<6x10xf32> to tensor<6x11xf32>
  %e_x = tensor.empty() : tensor<6x11xf32>
  %p = linalg.softmax dimension(1) ins(%x : tensor<6x11xf32>) outs(%e_x : tensor<6x11xf32>) -> tensor<6x11xf32>
  %own = tensor.extract_slice %p[0, 0] [6, 10] [1, 1] : tensor<6x11xf32> to tensor<6x10xf32>
  %e_o = tensor.empty() : tensor<6x4xf32>
  %z_o = linalg.fill ins(%zero : f32) outs(%e_o : tensor<6x4xf32>) -> tensor<6x4xf32>
  %o = linalg.matmul ins(%own, %v : tensor<6x10xf32>, tensor<10x4xf32>) outs(%z_o : tensor<6x4xf32>) -> tensor<6x4xf32>
  return %o : tensor<6x4xf32>
}
