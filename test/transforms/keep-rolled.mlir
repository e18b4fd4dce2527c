// RUN: attn-opt %s --keep-rolled | FileCheck %s
// RUN: attn-opt %s --keep-rolled --convert-scf-to-cf --convert-to-llvm | FileCheck %s --check-prefix=BRANCH

// The annotation is LLVM's: two of the three branches back carry it, no other branch does.
// BRANCH: #[[LOOP:.*]] = #llvm.loop_annotation<unroll = #{{.*}}>
// BRANCH-LABEL: llvm.func @tile
// BRANCH-COUNT-2: llvm.br {{.*}}loop_annotation = #[[LOOP]]
// BRANCH-NOT: loop_annotation =
// BRANCH: llvm.func @others

// A register tile of eight vectors, and the loop around it.
// CHECK-LABEL: func.func @tile
// CHECK: scf.for
// CHECK: scf.for
// CHECK: scf.yield
// CHECK-NEXT: } {loop_annotation = #{{.*}}}
// CHECK: } {loop_annotation = #{{.*}}}
func.func @tile(%m: memref<?x128xf32>, %n: index, %start: vector<16xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c64 = arith.constant 64 : index
  scf.for %i = %c0 to %n step %c64 {
    %r:8 = scf.for %j = %c0 to %n step %c1 iter_args(%a = %start, %b = %start, %c = %start, %d = %start,
        %e = %start, %f = %start, %g = %start, %h = %start) -> (vector<16xf32>, vector<16xf32>, vector<16xf32>,
        vector<16xf32>, vector<16xf32>, vector<16xf32>, vector<16xf32>, vector<16xf32>) {
      %x = vector.load %m[%j, %c0] : memref<?x128xf32>, vector<16xf32>
      %y = arith.addf %a, %x : vector<16xf32>
      scf.yield %y, %b, %c, %d, %e, %f, %g, %h : vector<16xf32>, vector<16xf32>, vector<16xf32>, vector<16xf32>,
        vector<16xf32>, vector<16xf32>, vector<16xf32>, vector<16xf32>
    }
    vector.store %r#0, %m[%i, %c0] : memref<?x128xf32>, vector<16xf32>
  }
  return
}

// Left to LLVM: a loop of few vectors, a register tile of two iterations, scalars.
// CHECK-LABEL: func.func @others
// CHECK-NOT: loop_annotation
func.func @others(%m: memref<?x128xf32>, %n: index, %start: vector<16xf32>, %number: f32) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c16 = arith.constant 16 : index
  %c32 = arith.constant 32 : index
  scf.for %i = %c0 to %n step %c16 {
    vector.store %start, %m[%i, %c0] : memref<?x128xf32>, vector<16xf32>
  }
  %r:8 = scf.for %j = %c0 to %c32 step %c16 iter_args(%a = %start, %b = %start, %c = %start, %d = %start,
      %e = %start, %f = %start, %g = %start, %h = %start) -> (vector<16xf32>, vector<16xf32>, vector<16xf32>,
      vector<16xf32>, vector<16xf32>, vector<16xf32>, vector<16xf32>, vector<16xf32>) {
    %x = vector.load %m[%j, %c0] : memref<?x128xf32>, vector<16xf32>
    %y = arith.addf %a, %x : vector<16xf32>
    scf.yield %y, %b, %c, %d, %e, %f, %g, %h : vector<16xf32>, vector<16xf32>, vector<16xf32>, vector<16xf32>,
      vector<16xf32>, vector<16xf32>, vector<16xf32>, vector<16xf32>
  }
  vector.store %r#0, %m[%c0, %c0] : memref<?x128xf32>, vector<16xf32>
  scf.for %i = %c0 to %n step %c1 {
    scf.for %j = %c0 to %n step %c1 {
      memref.store %number, %m[%i, %j] : memref<?x128xf32>
    }
  }
  return
}
