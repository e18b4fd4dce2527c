// RUN: attn-opt %s --drop-arguments | FileCheck %s

// One is not used, one is a constant, two are the same in both calls; what differs, or is changed, stays.
// CHECK: llvm.func internal @task(%[[I:.*]]: i64, %[[P:.*]]: !llvm.ptr {llvm.noalias}, %[[N:.*]]: i64) -> i64
// CHECK-SAME: no_inline
// CHECK:   %[[C64:.*]] = llvm.mlir.constant(64 : i64) : i64
// CHECK:   %[[ROW:.*]] = llvm.mul %[[I]], %[[C64]]
// CHECK:   %[[SUM:.*]] = llvm.add %[[ROW]], %[[N]]
// CHECK:   %[[TWICE:.*]] = llvm.add %[[SUM]], %[[N]]
// CHECK:   llvm.store %[[TWICE]], %[[P]]
llvm.func internal @task(%i: i64, %allocated: !llvm.ptr, %p: !llvm.ptr {llvm.noalias}, %stride: i64, %n: i64, %size: i64)
    -> i64 attributes {no_inline} {
  %row = llvm.mul %i, %stride : i64
  %sum = llvm.add %row, %n : i64
  %twice = llvm.add %sum, %size : i64
  llvm.store %twice, %p : i64, !llvm.ptr
  llvm.return %twice : i64
}

// A vector is made of constants again: it would come by way of memory.
// CHECK: llvm.func internal @of_vector(%{{.*}}: !llvm.ptr) {
// CHECK:   %[[STEPS:.*]] = llvm.intr.stepvector : vector<16xi64>
// CHECK:   %[[EVERY:.*]] = llvm.mlir.constant(dense<8> : vector<16xi64>)
// CHECK:   %[[PLACES:.*]] = llvm.mul %[[STEPS]], %[[EVERY]]
// CHECK:   llvm.store %[[PLACES]]
llvm.func internal @of_vector(%p: !llvm.ptr, %places: vector<16xi64>) {
  llvm.store %places, %p : vector<16xi64>, !llvm.ptr
  llvm.return
}

// Calls through an address pass what they pass, and so do others'.
// CHECK: llvm.func internal @taken(%{{.*}}: i64)
llvm.func internal @taken(%a: i64) {
  llvm.return
}
// CHECK: llvm.func @public(%{{.*}}: i64)
llvm.func @public(%a: i64) {
  llvm.return
}

// CHECK-LABEL: llvm.func @main
// CHECK-SAME: %[[X:.*]]: i64, %[[P:.*]]: !llvm.ptr, %[[N:.*]]: i64
// CHECK: %[[FIRST:.*]] = llvm.call @task(%[[X]], %[[P]], %[[N]]) : (i64, !llvm.ptr, i64) -> i64
// CHECK: llvm.call @task(%[[FIRST]], %[[P]], %[[N]]) : (i64, !llvm.ptr, i64) -> i64
// CHECK: llvm.call @of_vector(%[[P]]) : (!llvm.ptr) -> ()
// CHECK: llvm.call @public(%[[X]])
llvm.func @main(%x: i64, %p: !llvm.ptr, %n: i64) -> !llvm.ptr {
  %c64 = llvm.mlir.constant(64 : i64) : i64
  %every = llvm.mlir.constant(dense<8> : vector<16xi64>) : vector<16xi64>
  %steps = llvm.intr.stepvector : vector<16xi64>
  %places = llvm.mul %steps, %every : vector<16xi64>
  %first = llvm.call @task(%x, %p, %p, %c64, %n, %n) : (i64, !llvm.ptr, !llvm.ptr, i64, i64, i64) -> i64
  %second = llvm.call @task(%first, %p, %p, %c64, %n, %n) : (i64, !llvm.ptr, !llvm.ptr, i64, i64, i64) -> i64
  llvm.call @of_vector(%p, %places) : (!llvm.ptr, vector<16xi64>) -> ()
  llvm.call @public(%x) : (i64) -> ()
  llvm.call @taken(%x) : (i64) -> ()
  %address = llvm.mlir.addressof @taken : !llvm.ptr
  llvm.return %address : !llvm.ptr
}
