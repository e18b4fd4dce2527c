// RUN: attn-opt %s --rotate-loops | FileCheck %s
// RUN: attn-opt %s --rotate-loops --convert-scf-to-cf | FileCheck %s --check-prefix=BLOCKS

// CHECK: #[[LOOP:.*]] = #llvm.loop_annotation<unroll = #{{.*}}>

// How often it runs is known at run time: it is asked once before, then at the end of each iteration.
// CHECK-LABEL: func.func @unknown
// CHECK-SAME: %[[M:.*]]: memref<?xf32>, %[[N:.*]]: index, %[[X:.*]]: f32
// CHECK: %[[C0:.*]] = arith.constant 0 : index
// CHECK: %[[C4:.*]] = arith.constant 4 : index
// CHECK: %[[SOME:.*]] = arith.cmpi slt, %[[C0]], %[[N]]
// CHECK: %[[R:.*]] = scf.if %[[SOME]] -> (f32) {
// CHECK:   %[[W:.*]]:2 = scf.while (%[[I:.*]] = %[[C0]], %[[A:.*]] = %[[X]]) : (index, f32) -> (index, f32) {
// CHECK:     %[[V:.*]] = memref.load %[[M]][%[[I]]]
// CHECK:     %[[B:.*]] = arith.addf %[[A]], %[[V]]
// CHECK:     %[[NEXT:.*]] = arith.addi %[[I]], %[[C4]]
// CHECK:     %[[MORE:.*]] = arith.cmpi slt, %[[NEXT]], %[[N]]
// CHECK:     scf.condition(%[[MORE]]) %[[NEXT]], %[[B]]
// CHECK:   } do {
// CHECK:   scf.yield %[[W]]#1 : f32
// CHECK: } else {
// CHECK:   scf.yield %[[X]] : f32
// CHECK: return %[[R]]

// The loop is one block.
// BLOCKS-LABEL: func.func @unknown
// BLOCKS: cf.br ^[[LOOP:bb[0-9]+]](
// BLOCKS: ^[[LOOP]](
// BLOCKS: memref.load
// BLOCKS: cf.cond_br %{{.*}}, ^[[LOOP]](
func.func @unknown(%m: memref<?xf32>, %n: index, %x: f32) -> f32 attributes {few_rows} {
  %c0 = arith.constant 0 : index
  %c4 = arith.constant 4 : index
  %r = scf.for %i = %c0 to %n step %c4 iter_args(%a = %x) -> (f32) {
    %v = memref.load %m[%i] : memref<?xf32>
    %b = arith.addf %a, %v : f32
    scf.yield %b : f32
  }
  return %r : f32
}

// It surely runs, and what is said of it goes along.
// CHECK-LABEL: func.func @nest
// CHECK-NOT: scf.if
// CHECK: scf.while
// CHECK-NOT: scf.if
// CHECK:   scf.while
// CHECK: } attributes {loop_annotation = #[[LOOP]]}
func.func @nest(%m: memref<?x64xf32>, %x: f32) attributes {few_rows} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c64 = arith.constant 64 : index
  scf.for %i = %c0 to %c64 step %c1 {
    scf.for %j = %c0 to %c64 step %c1 {
      memref.store %x, %m[%i, %j] : memref<?x64xf32>
    }
  } {loop_annotation = #llvm.loop_annotation<unroll = <disable = true>>}
  return
}

// What surely does not run may be left to the question; other functions are LLVM's.
// CHECK-LABEL: func.func @never
// CHECK: scf.if
// CHECK-LABEL: func.func @many
// CHECK: scf.for
func.func @never(%m: memref<8xf32>, %x: f32) attributes {few_rows} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  scf.for %i = %c0 to %c0 step %c1 {
    memref.store %x, %m[%i] : memref<8xf32>
  }
  return
}
func.func @many(%m: memref<8xf32>, %n: index, %x: f32) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  scf.for %i = %c0 to %n step %c1 {
    memref.store %x, %m[%i] : memref<8xf32>
  }
  return
}
