// RUN: attn-opt %s --forall-to-parallel | FileCheck %s

// CHECK-LABEL: func.func @f
// CHECK-SAME: %[[A:.*]]: memref<?x64xf32>, %[[N:.*]]: index, %[[L:.*]]: index
// CHECK-DAG: %[[C0:.*]] = arith.constant 0 : index
// CHECK-DAG: %[[C4:.*]] = arith.constant 4 : index
// CHECK-DAG: %[[C64:.*]] = arith.constant 64 : index
// CHECK: scf.parallel (%[[I:.*]], %[[J:.*]]) = (%[[L]], %[[C0]]) to (%[[N]], %[[C64]]) step (%[[C4]], %[[N]]) {
// CHECK:   scf.parallel (%[[K:.*]]) =
// CHECK:     memref.store %{{.*}}, %[[A]][%[[K]], %[[J]]]
// CHECK:     scf.reduce
// CHECK:   memref.store %{{.*}}, %[[A]][%[[I]], %[[J]]]
// CHECK:   scf.reduce
// CHECK: } {few_rows}
func.func @f(%a: memref<?x64xf32>, %n: index, %l: index, %x: f32) {
  scf.forall (%i, %j) = (%l, 0) to (%n, 64) step (4, %n) {
    scf.forall (%k) in (%n) {
      memref.store %x, %a[%k, %j] : memref<?x64xf32>
    }
    memref.store %x, %a[%i, %j] : memref<?x64xf32>
  } {few_rows}
  return
}

// Of what is on tensors the results are buffers first.
// CHECK-LABEL: func.func @tensors
// CHECK: scf.forall
func.func @tensors(%a: tensor<8xf32>, %x: tensor<1xf32>) -> tensor<8xf32> {
  %r = scf.forall (%i) in (8) shared_outs(%o = %a) -> (tensor<8xf32>) {
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %x into %o[%i] [1] [1] : tensor<1xf32> into tensor<8xf32>
    }
  }
  return %r : tensor<8xf32>
}
