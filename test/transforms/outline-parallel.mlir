// RUN: attn-opt %s --outline-parallel | FileCheck %s
// RUN: attn-opt %s --outline-parallel --outline-parallel | FileCheck %s

// CHECK: func.func private @f_parallel_0(%[[I:.*]]: index, %[[A:.*]]: memref<8xf32>)
// CHECK-SAME: llvm.linkage = #llvm.linkage<internal>, llvm.no_inline
// CHECK: %[[X:.*]] = arith.constant 1.0
// CHECK: memref.store %[[X]], %[[A]][%[[I]]]
// CHECK: func.func @f
// CHECK: scf.parallel (%[[J:.*]]) =
// CHECK-NEXT: func.call @f_parallel_0(%[[J]], %arg0)
func.func @f(%a: memref<8xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c8 = arith.constant 8 : index
  %x = arith.constant 1.0 : f32
  scf.parallel (%i) = (%c0) to (%c8) step (%c1) {
    memref.store %x, %a[%i] : memref<8xf32>
  }
  return
}

// A name that is taken, a loop that is in no func.func.
// CHECK: func.func private @g_parallel_1(
// CHECK: func.func @g(
// CHECK: func.func private @g_parallel_0(
// CHECK: llvm.func @h
// CHECK:   scf.parallel
// CHECK:     vector.print
func.func @g(%a: memref<8xf32>, %n: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %x = arith.constant 1.0 : f32
  scf.parallel (%i) = (%c0) to (%n) step (%c1) {
    memref.store %x, %a[%i] : memref<8xf32>
  }
  return
}
func.func private @g_parallel_0(%a: memref<8xf32>) {
  return
}
llvm.func @h() {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %n = arith.constant 8 : index
  scf.parallel (%i) = (%c0) to (%n) step (%c1) {
    vector.print %i : index
  }
  llvm.return
}

// What is known of the loop's tasks is known of their function.
// CHECK: func.func private @few_parallel_{{[0-9]+}}({{.*}}) attributes {few_rows, llvm.linkage
// CHECK: func.func @few
func.func @few(%a: memref<8xf32>, %x: f32) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c8 = arith.constant 8 : index
  scf.parallel (%i) = (%c0) to (%c8) step (%c1) {
    memref.store %x, %a[%i] : memref<8xf32>
  } {few_rows}
  return
}
