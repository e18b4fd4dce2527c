// RUN: attn-opt %s --convert-linalg-softmax | FileCheck %s

// Statistics of f16 are f32.
// CHECK-LABEL: func.func @half
// CHECK-SAME:    %[[X:.*]]: tensor<3x?x5xf16>, %[[E:[^:]*]]: tensor<3x?x5xf16>
// CHECK:         %[[ROWS:.*]] = tensor.empty() : tensor<3x5xf32>
// CHECK:         %[[INF:.*]] = arith.constant 0xFF800000 : f32
// CHECK:         %[[MAX:.*]] = linalg.fill ins(%[[INF]] : f32) outs(%[[ROWS]]
// CHECK:         %[[ZERO:.*]] = arith.constant 0.000000e+00 : f32
// CHECK:         %[[SUM:.*]] = linalg.fill ins(%[[ZERO]] : f32) outs(%[[ROWS]]
// CHECK:         %[[P:.*]]:4 = linalg_ext.softmax dimension(1) ins(%[[X]] : tensor<3x?x5xf16>) outs(%[[E]], %[[MAX]], %[[SUM]], %[[ROWS]]
// CHECK:         return %[[P]]#0
func.func @half(%x: tensor<3x?x5xf16>, %e: tensor<3x?x5xf16>) -> tensor<3x?x5xf16> {
  %p = linalg.softmax dimension(1) ins(%x : tensor<3x?x5xf16>) outs(%e : tensor<3x?x5xf16>) -> tensor<3x?x5xf16>
  return %p : tensor<3x?x5xf16>
}
