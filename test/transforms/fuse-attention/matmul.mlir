// RUN: attn-opt %s --fuse-attention="tile-sizes=8,0,16 tile-interchange=2,1,0" | FileCheck %s

// Keys outside, queries inside: O and the running maximum and sum go through both loops.
// CHECK-LABEL: func.func @keys_outer
// CHECK-SAME:    %[[Q:.*]]: tensor<96x24xf32>, %[[K:.*]]: tensor<24x64xf32>, %[[V:.*]]: tensor<64x40xf32>
// CHECK:         %[[M0:.*]] = linalg.fill {{.*}} -> tensor<96xf32>
// CHECK:         %[[O0:.*]] = linalg.fill {{.*}} -> tensor<96x40xf32>
// CHECK:         %[[A0:.*]] = linalg.fill {{.*}} -> tensor<96xf32>
// CHECK:         scf.for %[[J:.*]] = %{{.*}} to %c64 step %c16 iter_args(%[[O1:.*]] = %[[O0]], %[[M1:.*]] = %[[M0]], %[[A1:.*]] = %[[A0]])
// CHECK:           scf.for %[[I:.*]] = %{{.*}} to %c96 step %c8 iter_args(%[[O:.*]] = %[[O1]], %[[M:.*]] = %[[M1]], %[[A:.*]] = %[[A1]])
// CHECK:             %[[QT:.*]] = tensor.extract_slice %[[Q]][%[[I]], 0] [8, 24] [1, 1]
// CHECK:             %[[KT:.*]] = tensor.extract_slice %[[K]][0, %[[J]]] [24, 16] [1, 1]
// CHECK:             %[[S:.*]] = linalg.matmul ins(%[[QT]], %[[KT]]
// CHECK:             %[[MT:.*]] = tensor.extract_slice %[[M]][%[[I]]] [8] [1]
// CHECK:             %[[AT:.*]] = tensor.extract_slice %[[A]][%[[I]]] [8] [1]
// CHECK:             %[[P:.*]]:4 = linalg_ext.softmax dimension(1) ins(%[[S]] : tensor<8x16xf32>) outs(%{{.*}}, %[[MT]], %[[AT]], %{{.*}} :
// CHECK:             %[[VT:.*]] = tensor.extract_slice %[[V]][%[[J]], 0] [16, 40] [1, 1]
// CHECK:             %[[OT:.*]] = tensor.extract_slice %[[O]][%[[I]], 0] [8, 40] [1, 1]
// CHECK:             %[[D:.*]] = linalg_ext.diag ins(%[[P]]#3 : tensor<8xf32>)
// CHECK:             %[[SCALED:.*]] = linalg.matmul ins(%[[D]], %[[OT]]
// CHECK:             %[[NEW:.*]] = linalg.matmul {__root__} ins(%[[P]]#0, %[[VT]] : tensor<8x16xf32>, tensor<16x40xf32>) outs(%[[SCALED]]
// CHECK:             tensor.insert_slice %[[NEW]] into %[[O]][%[[I]], 0] [8, 40] [1, 1]
// CHECK:             tensor.insert_slice %[[P]]#1 into %[[M]][%[[I]]] [8] [1]
// CHECK:             tensor.insert_slice %[[P]]#2 into %[[A]][%[[I]]] [8] [1]
// CHECK-NOT:     __byteir_parallel__
func.func @keys_outer(%q: tensor<96x24xf32>, %k: tensor<24x64xf32>, %v: tensor<64x40xf32>) -> tensor<96x40xf32> {
  %zero = arith.constant 0.0 : f32
  %minus_inf = arith.constant 0xFF800000 : f32
  %e0 = tensor.empty() : tensor<96x64xf32>
  %e1 = tensor.empty() : tensor<96x40xf32>
  %e2 = tensor.empty() : tensor<96x64xf32>
  %e3 = tensor.empty() : tensor<96xf32>
  %e4 = tensor.empty() : tensor<96xf32>
  %e5 = tensor.empty() : tensor<96xf32>
  %max = linalg.fill ins(%minus_inf : f32) outs(%e3 : tensor<96xf32>) -> tensor<96xf32>
  %s0 = linalg.fill ins(%zero : f32) outs(%e0 : tensor<96x64xf32>) -> tensor<96x64xf32>
  %o0 = linalg.fill ins(%zero : f32) outs(%e1 : tensor<96x40xf32>) -> tensor<96x40xf32>
  %sum = linalg.fill ins(%zero : f32) outs(%e4 : tensor<96xf32>) -> tensor<96xf32>
  %s = linalg.matmul ins(%q, %k : tensor<96x24xf32>, tensor<24x64xf32>) outs(%s0 : tensor<96x64xf32>) -> tensor<96x64xf32>
  %p:4 = linalg_ext.softmax dimension(1) ins(%s : tensor<96x64xf32>) outs(%e2, %max, %sum, %e5 : tensor<96x64xf32>, tensor<96xf32>, tensor<96xf32>, tensor<96xf32>) : tensor<96x64xf32>, tensor<96xf32>, tensor<96xf32>, tensor<96xf32>
  %o = linalg.matmul {__root__} ins(%p#0, %v : tensor<96x64xf32>, tensor<64x40xf32>) outs(%o0 : tensor<96x40xf32>) -> tensor<96x40xf32>
  return %o : tensor<96x40xf32>
}
