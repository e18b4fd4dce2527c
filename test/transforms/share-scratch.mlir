// RUN: attn-opt %s --share-scratch="matrix=none" --split-input-file | FileCheck %s
// RUN: attn-opt %s --share-scratch="matrix=amx-bf16" --split-input-file | FileCheck %s --check-prefix=TILES

// Scores of one loop and of the next are the same memory, also where views of it are used deeper inside. What both
// loops use, what is used after them, and what has another type, is not.
// CHECK-LABEL: func.func @loops
// CHECK:         %[[S:.*]] = memref.alloca() {{.*}} : memref<256xi8>
// CHECK:         %[[O:.*]] = memref.alloca() {{.*}} : memref<256xi8>
// CHECK:         %[[B:.*]] = memref.alloca() {{.*}} : memref<64xi8>
// CHECK-NOT:     memref.alloca
// CHECK:         scf.for
// CHECK:           memref.view %[[S]]
// CHECK:           memref.view %[[O]]
// CHECK:         scf.for
// CHECK:           scf.if
// CHECK:             memref.view %[[S]]
// CHECK:             memref.view %[[B]]
// CHECK:             memref.view %[[O]]
// CHECK:         memref.view %[[O]]
// TILES-LABEL: func.func @loops
// TILES-COUNT-4: memref.alloca()
func.func @loops(%n: index, %c: i1, %x: f32) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %a = memref.alloca() {alignment = 64 : i64} : memref<256xi8>
  %o = memref.alloca() {alignment = 64 : i64} : memref<256xi8>
  %b = memref.alloca() {alignment = 64 : i64} : memref<64xi8>
  %s = memref.alloca() {alignment = 64 : i64} : memref<256xi8>
  scf.for %i = %c0 to %n step %c1 {
    %av = memref.view %a[%c0][] : memref<256xi8> to memref<64xf32>
    %ov = memref.view %o[%c0][] : memref<256xi8> to memref<64xf32>
    memref.store %x, %av[%i] : memref<64xf32>
    memref.store %x, %ov[%i] : memref<64xf32>
  }
  scf.for %i = %c0 to %n step %c1 {
    scf.if %c {
      %sv = memref.view %s[%c0][] : memref<256xi8> to memref<64xf32>
      %bv = memref.view %b[%c0][] : memref<64xi8> to memref<16xf32>
      %ov = memref.view %o[%c0][] : memref<256xi8> to memref<64xf32>
      memref.store %x, %sv[%i] : memref<64xf32>
      memref.store %x, %bv[%i] : memref<16xf32>
      memref.store %x, %ov[%i] : memref<64xf32>
    }
  }
  %ov = memref.view %o[%c0][] : memref<256xi8> to memref<64xf32>
  memref.store %x, %ov[%c0] : memref<64xf32>
  return
}

// -----

// A buffer that a branch yields may be used after it.
// CHECK-LABEL: func.func @yielded
// CHECK-COUNT-2: memref.alloca()
func.func @yielded(%c: i1, %x: f32) {
  %c0 = arith.constant 0 : index
  %a = memref.alloca() {alignment = 64 : i64} : memref<16xf32>
  %b = memref.alloca() {alignment = 64 : i64} : memref<16xf32>
  %r = scf.if %c -> memref<16xf32> {
    scf.yield %a : memref<16xf32>
  } else {
    %n = memref.alloc() : memref<16xf32>
    scf.yield %n : memref<16xf32>
  }
  memref.store %x, %b[%c0] : memref<16xf32>
  memref.store %x, %r[%c0] : memref<16xf32>
  return
}

// -----

// A buffer of any alignment is not of this compiler's making.
// CHECK-LABEL: func.func @others
// CHECK-COUNT-2: memref.alloca()
func.func @others(%x: f32) {
  %c0 = arith.constant 0 : index
  %a = memref.alloca() : memref<16xf32>
  %b = memref.alloca() : memref<16xf32>
  memref.store %x, %a[%c0] : memref<16xf32>
  memref.store %x, %b[%c0] : memref<16xf32>
  return
}
