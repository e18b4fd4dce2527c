// RUN: attn-opt %s --outline-loops | FileCheck %s
// RUN: attn-opt %s --outline-loops --outline-loops | FileCheck %s

// A loop between others becomes a call; constants are cloned, tasks and loops with results stay.

// CHECK-LABEL: func.func private @f_loop_0(
// CHECK-SAME:      %[[A:.*]]: memref<8xf32>) attributes {llvm.linkage = #llvm.linkage<internal>, llvm.no_inline}
// CHECK:         %[[X:.*]] = arith.constant 1.0
// CHECK:         scf.for %[[J:.*]] =
// CHECK:           memref.store %[[X]], %[[A]][%[[J]]]
// CHECK-LABEL: func.func @f(
// CHECK:         scf.parallel
// CHECK-NOT:     scf.for
// CHECK:         call @f_loop_0(%arg0)
// CHECK:         %[[SUM:.*]] = scf.for
// CHECK:         return %[[SUM]]
func.func @f(%a: memref<8xf32>, %b: memref<8xf32>) -> f32 {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c8 = arith.constant 8 : index
  %x = arith.constant 1.0 : f32
  scf.parallel (%i) = (%c0) to (%c8) step (%c1) {
    memref.store %x, %b[%i] : memref<8xf32>
  }
  scf.for %i = %c0 to %c8 step %c1 {
    memref.store %x, %a[%i] : memref<8xf32>
  }
  %sum = scf.for %i = %c0 to %c8 step %c1 iter_args(%s = %x) -> f32 {
    %e = memref.load %b[%i] : memref<8xf32>
    %n = arith.addf %s, %e : f32
    scf.yield %n : f32
  }
  return %sum : f32
}

// One that stands alone, and one that holds tasks, stay too.

// CHECK-LABEL: func.func @alone(
// CHECK:         scf.for
// CHECK:           memref.store
func.func @alone(%a: memref<8xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c8 = arith.constant 8 : index
  %x = arith.constant 1.0 : f32
  scf.for %i = %c0 to %c8 step %c1 {
    memref.store %x, %a[%i] : memref<8xf32>
  }
  return
}

// CHECK-LABEL: func.func private @tasks_loop_0(
// CHECK-LABEL: func.func @tasks(
// CHECK:         scf.for
// CHECK:           scf.parallel
// CHECK:         call @tasks_loop_0(
func.func @tasks(%a: memref<8x8xf32>, %b: memref<8xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c8 = arith.constant 8 : index
  %x = arith.constant 1.0 : f32
  scf.for %i = %c0 to %c8 step %c1 {
    scf.parallel (%j) = (%c0) to (%c8) step (%c1) {
      memref.store %x, %a[%i, %j] : memref<8x8xf32>
    }
  }
  scf.for %i = %c0 to %c8 step %c1 {
    memref.store %x, %b[%i] : memref<8xf32>
  }
  return
}

// Of many loops those that call tasks become functions, too.
// CHECK-LABEL: func.func private @many_loop_0(
// CHECK:         scf.parallel
// CHECK-LABEL: func.func @many(
// CHECK-NOT:     scf.
// CHECK-COUNT-16: call @many_loop_
// CHECK-NOT:     scf.
// CHECK:         return
func.func @many(%a: memref<8xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c8 = arith.constant 8 : index
  %x = arith.constant 1.0 : f32
  scf.parallel (%i) = (%c0) to (%c8) step (%c1) {
    memref.store %x, %a[%i] : memref<8xf32>
  }
  scf.parallel (%i) = (%c0) to (%c8) step (%c1) {
    memref.store %x, %a[%i] : memref<8xf32>
  }
  scf.parallel (%i) = (%c0) to (%c8) step (%c1) {
    memref.store %x, %a[%i] : memref<8xf32>
  }
  scf.parallel (%i) = (%c0) to (%c8) step (%c1) {
    memref.store %x, %a[%i] : memref<8xf32>
  }
  scf.parallel (%i) = (%c0) to (%c8) step (%c1) {
    memref.store %x, %a[%i] : memref<8xf32>
  }
  scf.parallel (%i) = (%c0) to (%c8) step (%c1) {
    memref.store %x, %a[%i] : memref<8xf32>
  }
  scf.parallel (%i) = (%c0) to (%c8) step (%c1) {
    memref.store %x, %a[%i] : memref<8xf32>
  }
  scf.parallel (%i) = (%c0) to (%c8) step (%c1) {
    memref.store %x, %a[%i] : memref<8xf32>
  }
  scf.parallel (%i) = (%c0) to (%c8) step (%c1) {
    memref.store %x, %a[%i] : memref<8xf32>
  }
  scf.parallel (%i) = (%c0) to (%c8) step (%c1) {
    memref.store %x, %a[%i] : memref<8xf32>
  }
  scf.parallel (%i) = (%c0) to (%c8) step (%c1) {
    memref.store %x, %a[%i] : memref<8xf32>
  }
  scf.parallel (%i) = (%c0) to (%c8) step (%c1) {
    memref.store %x, %a[%i] : memref<8xf32>
  }
  scf.parallel (%i) = (%c0) to (%c8) step (%c1) {
    memref.store %x, %a[%i] : memref<8xf32>
  }
  scf.parallel (%i) = (%c0) to (%c8) step (%c1) {
    memref.store %x, %a[%i] : memref<8xf32>
  }
  scf.parallel (%i) = (%c0) to (%c8) step (%c1) {
    memref.store %x, %a[%i] : memref<8xf32>
  }
  scf.parallel (%i) = (%c0) to (%c8) step (%c1) {
    memref.store %x, %a[%i] : memref<8xf32>
  }
  return
}

// Masks are passed as bytes.
// CHECK-LABEL: func.func private @vectors_loop_{{[0-9]+}}(%{{.*}}: vector<16xf32>, %{{.*}}: memref<64xf32>)
// CHECK-LABEL: func.func private @vectors_loop_{{[0-9]+}}(
// CHECK-SAME:      %[[A:[^:]*]]: memref<64xf32>, %[[BYTES:[^:]*]]: vector<16xi8>, %[[V:[^:]*]]: vector<16xf32>)
// CHECK:         %[[MASK:.*]] = arith.trunci %[[BYTES]] : vector<16xi8> to vector<16xi1>
// CHECK:         scf.for
// CHECK:           vector.maskedstore %[[A]][%{{.*}}], %[[MASK]], %[[V]]
// CHECK-LABEL: func.func @vectors(
// CHECK:         %[[MASK:.*]] = vector.create_mask
// CHECK:         %[[BYTES:.*]] = arith.extui %[[MASK]] : vector<16xi1> to vector<16xi8>
// CHECK:         call @vectors_loop_{{[0-9]+}}(%{{.*}}, %[[BYTES]], %{{.*}})
func.func @vectors(%a: memref<64xf32>, %x: f32, %n: index) {
  %c0 = arith.constant 0 : index
  %c16 = arith.constant 16 : index
  %c64 = arith.constant 64 : index
  %v = vector.broadcast %x : f32 to vector<16xf32>
  %mask = vector.create_mask %n : vector<16xi1>
  scf.for %i = %c0 to %c64 step %c16 {
    vector.store %v, %a[%i] : memref<64xf32>, vector<16xf32>
  }
  scf.for %i = %c0 to %c64 step %c16 {
    vector.maskedstore %a[%i], %mask, %v : memref<64xf32>, vector<16xi1>, vector<16xf32>
  }
  return
}
