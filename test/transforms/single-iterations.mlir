// RUN: attn-opt %s --single-iterations | FileCheck %s

// CHECK-LABEL: func.func @two_loops
// CHECK-SAME: %[[A:.*]]: index, %[[B:.*]]: index, %[[S:.*]]: index, %[[X:.*]]: memref<8xf32>
// CHECK: %[[C0:.*]] = arith.constant 0
// CHECK: %[[C1:.*]] = arith.constant 1
// CHECK: %[[NEXT:.*]] = arith.addi %[[A]], %[[S]]
// CHECK: %[[M0:.*]] = arith.cmpi slt, %[[NEXT]], %[[B]]
// CHECK: %[[NEXT1:.*]] = arith.addi %[[C0]], %[[C1]]
// CHECK: %[[M1:.*]] = arith.cmpi slt, %[[NEXT1]], %[[B]]
// CHECK: %[[MANY:.*]] = arith.ori %[[M0]], %[[M1]]
// CHECK: scf.if %[[MANY]] {
// CHECK:   scf.parallel (%[[I:.*]], %[[J:.*]]) = (%[[A]], %[[C0]]) to (%[[B]], %[[B]]) step (%[[S]], %[[C1]])
// CHECK:     func.call @body(%[[J]], %[[I]], %[[X]])
// CHECK: } else {
// CHECK:   %[[O0:.*]] = arith.cmpi slt, %[[A]], %[[B]]
// CHECK:   %[[O1:.*]] = arith.cmpi slt, %[[C0]], %[[B]]
// CHECK:   %[[ONE:.*]] = arith.andi %[[O0]], %[[O1]]
// CHECK:   scf.if %[[ONE]] {
// CHECK:     func.call @body(%[[C0]], %[[A]], %[[X]])
func.func private @body(%i: index, %j: index, %x: memref<8xf32>) {
  return
}
func.func @two_loops(%a: index, %b: index, %s: index, %x: memref<8xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  scf.parallel (%i, %j) = (%a, %c0) to (%b, %b) step (%s, %c1) {
    func.call @body(%j, %i, %x) : (index, index, memref<8xf32>) -> ()
  }
  return
}

// What is not one call stays as it is.
// CHECK-LABEL: func.func @no_call
// CHECK-NOT: scf.if
// CHECK: scf.parallel
func.func @no_call(%b: index, %x: memref<8xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %one = arith.constant 1.0 : f32
  scf.parallel (%i) = (%c0) to (%b) step (%c1) {
    memref.store %one, %x[%i] : memref<8xf32>
  }
  return
}

// Over eight heads there is no single iteration.
// CHECK-LABEL: func.func @several
// CHECK-NOT: scf.if
// CHECK: scf.parallel
// CHECK: return
func.func @several(%b: index, %x: memref<8xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c8 = arith.constant 8 : index
  scf.parallel (%i, %j) = (%c0, %c0) to (%b, %c8) step (%c1, %c1) {
    func.call @body(%j, %i, %x) : (index, index, memref<8xf32>) -> ()
  }
  return
}
