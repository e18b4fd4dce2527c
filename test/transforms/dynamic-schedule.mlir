// RUN: attn-opt %s --convert-scf-to-openmp --dynamic-schedule | FileCheck %s

// CHECK: omp.wsloop schedule(dynamic)
func.func @f(%a: memref<8xf32>, %x: f32) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c8 = arith.constant 8 : index
  scf.parallel (%i) = (%c0) to (%c8) step (%c1) {
    memref.store %x, %a[%i] : memref<8xf32>
  }
  return
}
