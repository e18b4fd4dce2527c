// RUN: attn-opt %s --roll-loops --split-input-file | FileCheck %s

// The first and the last loop have one body, in two turns; the one between them has nothing to do in the second turn.
// CHECK-LABEL: func.func @window
// CHECK-SAME:    %[[A:.*]]: index, %[[B:.*]]: index, %[[C:.*]]: index, %[[D:.*]]: index
// CHECK:         scf.for %[[TURN:.*]] = %c0{{.*}} to %c2{{.*}} step %c1{{.*}} {
// CHECK:           %[[FIRST:.*]] = arith.cmpi eq, %[[TURN]], %c0
// CHECK-DAG:       %[[LOW:.*]] = arith.select %[[FIRST]], %[[A]], %[[C]]
// CHECK-DAG:       %[[HIGH:.*]] = arith.select %[[FIRST]], %[[B]], %[[D]]
// CHECK:           scf.for %[[K:.*]] = %[[LOW]] to %[[HIGH]] step
// CHECK-NEXT:        memref.store %{{.*}}, %{{.*}}[%[[K]]]
// CHECK:           %[[LOW2:.*]] = arith.select %{{.*}}, %[[B]], %c0
// CHECK:           %[[HIGH2:.*]] = arith.select %{{.*}}, %[[C]], %c0
// CHECK:           scf.for %{{.*}} = %[[LOW2]] to %[[HIGH2]] step
// CHECK-NEXT:        arith.addi
// CHECK-NOT:     scf.for
// CHECK:         return
func.func @window(%a: index, %b: index, %c: index, %d: index, %m: memref<?xf32>, %x: f32) {
  %c1 = arith.constant 1 : index
  scf.for %k = %a to %b step %c1 {
    memref.store %x, %m[%k] : memref<?xf32>
  }
  scf.for %k = %b to %c step %c1 {
    %n = arith.addi %k, %c1 : index
    memref.store %x, %m[%n] : memref<?xf32>
  }
  scf.for %k = %c to %d step %c1 {
    memref.store %x, %m[%k] : memref<?xf32>
  }
  return
}

// -----

// Not where bodies use other values, or memory is written between the loops.
// CHECK-LABEL: func.func @apart
// CHECK-COUNT-3: scf.for %{{.*}} = %c0 to
// CHECK-NOT:     scf.for
func.func @apart(%n: index, %m: memref<?xf32>, %x: f32, %y: f32) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  scf.for %k = %c0 to %n step %c1 {
    memref.store %x, %m[%k] : memref<?xf32>
  }
  scf.for %k = %c0 to %n step %c1 {
    memref.store %y, %m[%k] : memref<?xf32>
  }
  memref.store %y, %m[%c0] : memref<?xf32>
  scf.for %k = %c0 to %n step %c1 {
    memref.store %x, %m[%k] : memref<?xf32>
  }
  return
}
