// RUN: attn-opt %s --raise-attention | FileCheck %s
// RUN: attn-opt %s --raise-attention --remarks 2>&1 | FileCheck %s --check-prefix=REMARK
// RUN: attn-opt %s --raise-attention --fuse-attention | FileCheck %s --check-prefix=FUSED

// Softmax in six named ops around two matmuls; the keys' transpose becomes an indexing map, row statistics come by
// broadcast. The scale of the queries becomes one of the scores.
// CHECK-DAG:   #[[QK:.*]] = affine_map<(d0, d1, d2) -> (d1, d2)>
// CHECK-LABEL: func.func @named
// CHECK-SAME:    %[[Q:.*]]: tensor<6x8xf64>, %[[K:.*]]: tensor<10x8xf64>, %[[V:.*]]: tensor<10x4xf64>
// CHECK-NOT:     linalg.transpose
// CHECK:         %[[S:.*]] = linalg.generic {indexing_maps = [#{{.*}}, #[[QK]], #{{.*}}], iterator_types = ["parallel", "parallel", "reduction"]} ins(%[[Q]], %[[K]]
// CHECK:         %[[X:.*]] = linalg.generic {{.*}} ins(%[[S]]
// CHECK:           arith.constant 2.500000e-01
// CHECK:         %[[M:.*]] = linalg.fill ins(%{{.*}} : f64) outs(%{{.*}} : tensor<6xf64>)
// CHECK:         %[[A:.*]] = linalg.fill ins(%{{.*}} : f64) outs(%{{.*}} : tensor<6xf64>)
// CHECK:         %[[P:.*]]:4 = linalg_ext.softmax dimension(1) ins(%[[X]] : tensor<6x10xf64>) outs(%{{.*}}, %[[M]], %[[A]], %{{.*}} :
// CHECK:         %[[O:.*]] = linalg.generic {{.*}} ins(%[[P]]#0, %[[V]]
// CHECK-NOT:     linalg.exp
// CHECK:         return %[[O]]

// REMARK: named-ops.mlir:{{.*}}: remark: raised to attention

// FUSED-LABEL: func.func @named
// FUSED:         scf.for
// FUSED:           linalg_ext.softmax
func.func @named(%q: tensor<6x8xf64>, %k: tensor<10x8xf64>, %v: tensor<10x4xf64>) -> tensor<6x4xf64> {
  %zero = arith.constant 0.0 : f64
  %minus_inf = arith.constant 0xFFF0000000000000 : f64
  %quarter = arith.constant dense<0.25> : tensor<6x8xf64>
  %e_q = tensor.empty() : tensor<6x8xf64>
  %qs = linalg.mul ins(%quarter, %q : tensor<6x8xf64>, tensor<6x8xf64>) outs(%e_q : tensor<6x8xf64>) -> tensor<6x8xf64>
  %e_kt = tensor.empty() : tensor<8x10xf64>
  %kt = linalg.transpose ins(%k : tensor<10x8xf64>) outs(%e_kt : tensor<8x10xf64>) permutation = [1, 0]
  %e_s = tensor.empty() : tensor<6x10xf64>
  %z_s = linalg.fill ins(%zero : f64) outs(%e_s : tensor<6x10xf64>) -> tensor<6x10xf64>
  %s = linalg.matmul ins(%qs, %kt : tensor<6x8xf64>, tensor<8x10xf64>) outs(%z_s : tensor<6x10xf64>) -> tensor<6x10xf64>
  %e_r = tensor.empty() : tensor<6xf64>
  %lowest = linalg.fill ins(%minus_inf : f64) outs(%e_r : tensor<6xf64>) -> tensor<6xf64>
  %m = linalg.reduce { arith.maximumf } ins(%s : tensor<6x10xf64>) outs(%lowest : tensor<6xf64>) dimensions = [1]
  %mb = linalg.broadcast ins(%m : tensor<6xf64>) outs(%e_s : tensor<6x10xf64>) dimensions = [1]
  %d = linalg.sub ins(%s, %mb : tensor<6x10xf64>, tensor<6x10xf64>) outs(%e_s : tensor<6x10xf64>) -> tensor<6x10xf64>
  %e = linalg.exp ins(%d : tensor<6x10xf64>) outs(%e_s : tensor<6x10xf64>) -> tensor<6x10xf64>
  %zeros = linalg.fill ins(%zero : f64) outs(%e_r : tensor<6xf64>) -> tensor<6xf64>
  %l = linalg.reduce { arith.addf } ins(%e : tensor<6x10xf64>) outs(%zeros : tensor<6xf64>) dimensions = [1]
  %lb = linalg.broadcast ins(%l : tensor<6xf64>) outs(%e_s : tensor<6x10xf64>) dimensions = [1]
  %p = linalg.div ins(%e, %lb : tensor<6x10xf64>, tensor<6x10xf64>) outs(%e_s : tensor<6x10xf64>) -> tensor<6x10xf64>
  %e_o = tensor.empty() : tensor<6x4xf64>
  %z_o = linalg.fill ins(%zero : f64) outs(%e_o : tensor<6x4xf64>) -> tensor<6x4xf64>
  %o = linalg.matmul ins(%p, %v : tensor<6x10xf64>, tensor<10x4xf64>) outs(%z_o : tensor<6x4xf64>) -> tensor<6x4xf64>
  return %o : tensor<6x4xf64>
}

// The type leaves a size open that a cast, further on, says: where the keys are read, before it, the cast is made.
// CHECK-LABEL: func.func @cast_sizes
// CHECK:         %[[K3:.*]] = tensor.collapse_shape %{{.*}} : tensor<?x?x?x?xf32> into tensor<?x?x?xf32>
// CHECK:         %[[K:.*]] = tensor.cast %[[K3]] : tensor<?x?x?xf32> to tensor<?x8x?xf32>
// CHECK:         tensor.expand_shape %[[K]] {{.*}} : tensor<?x8x?xf32> into tensor<?x4x8x?xf32>
// CHECK:         linalg_ext.softmax
func.func @cast_sizes(%q: tensor<?x4x?x8xf32>, %kt: tensor<?x?x?x?xf32>, %v: tensor<?x?x16xf32>,
                      %s: tensor<?x?x?xf32>, %o: tensor<?x?x16xf32>) -> tensor<?x?x16xf32> {
  %q3 = tensor.collapse_shape %q [[0, 1], [2], [3]] : tensor<?x4x?x8xf32> into tensor<?x?x8xf32>
  %k3 = tensor.collapse_shape %kt [[0, 1], [2], [3]] : tensor<?x?x?x?xf32> into tensor<?x?x?xf32>
  %k = tensor.cast %k3 : tensor<?x?x?xf32> to tensor<?x8x?xf32>
  %0 = linalg.batch_matmul ins(%q3, %k : tensor<?x?x8xf32>, tensor<?x8x?xf32>) outs(%s : tensor<?x?x?xf32>) -> tensor<?x?x?xf32>
  %1 = linalg.softmax dimension(2) ins(%0 : tensor<?x?x?xf32>) outs(%s : tensor<?x?x?xf32>) -> tensor<?x?x?xf32>
  %2 = linalg.batch_matmul ins(%1, %v : tensor<?x?x?xf32>, tensor<?x?x16xf32>) outs(%o : tensor<?x?x16xf32>) -> tensor<?x?x16xf32>
  return %2 : tensor<?x?x16xf32>
}
