// RUN: attn-opt %s | FileCheck %s
// RUN: attn-opt %s | attn-opt | FileCheck %s
// RUN: attn-opt %s --mlir-print-op-generic | FileCheck %s --check-prefix=GENERIC
// RUN: attn-opt %s --mlir-print-op-generic | attn-opt | FileCheck %s

module attributes {transform.with_named_sequence} {
  // CHECK-LABEL: transform.named_sequence @any_op
  transform.named_sequence @any_op(%arg0: !transform.any_op {transform.readonly}) {
    // CHECK-NEXT: %[[ROOT:.*]] = transform.structured.match
    %root = transform.structured.match attributes {__root__} in %arg0 : (!transform.any_op) -> !transform.any_op
    %stop = transform.structured.match attributes {__stop__}
              in %arg0 : (!transform.any_op) -> !transform.any_op
    // CHECK: %[[T:.*]]:3 = transform.structured.fuse_ext %[[ROOT]], %{{.*}} {tile_interchange = [1, 0], tile_sizes = [3, 5]}
    // GENERIC: "transform_ext.fuse_ext"(%{{.*}}, %{{.*}}) {tile_interchange = [1, 0], tile_sizes = [3, 5]} : (!transform.any_op, !transform.any_op) -> (!transform.any_op, !transform.any_op, !transform.any_op)
    %t, %loops:2 = transform.structured.fuse_ext %root, %stop {tile_sizes = [3, 5], tile_interchange = [1, 0]}
    // CHECK-NEXT: transform.structured.tile_loop_hint %[[T]]#0 : !transform.any_op
    transform.structured.tile_loop_hint %t
    // CHECK-NEXT: transform.structured.tile_loop_hint %[[T]]#2 : !transform.any_op
    transform.structured.tile_loop_hint %loops#1 : !transform.any_op
    // CHECK-NEXT: transform.cleanup
    cleanup
    // CHECK-NEXT: transform.yield
    transform.yield
  }

  // The type of a handle is that of its definition, in whatever form that is.
  // CHECK-LABEL: transform.named_sequence @op_handle
  transform.named_sequence @op_handle(%arg0: !transform.any_op, %arg1: !transform.op<"linalg.matmul">) {
    // CHECK: transform.structured.tile_ext %{{.*}} {tile_interchange = [], tile_sizes = [4, 0]}
    // GENERIC: (!transform.op<"linalg.matmul">) -> (!transform.op<"linalg.matmul">, !transform.op<"linalg.matmul">)
    transform.structured.tile_ext %arg1 {tile_sizes = [4, 0]}
    %p = transform.cast %arg0 : !transform.any_op to !transform.op<"scf.for">
    // GENERIC: "transform_ext.tile_loop_hint"(%{{.*}}) : (!transform.op<"scf.for">) -> ()
    transform.structured.tile_loop_hint %p
    // Types that differ from the operand's are spelled out.
    // CHECK: transform.structured.tile_ext %{{.*}} {tile_interchange = [], tile_sizes = [0, 4]} : (!transform.op<"scf.for">) -> (!transform.any_op, !transform.any_op)
    %q, %l = transform.structured.tile_ext %p {tile_sizes = [0, 4]} : (!transform.op<"scf.for">) -> (!transform.any_op, !transform.any_op)
    // GENERIC: "transform_ext.tile_loop_hint"(%{{.*}}) : (!transform.any_op) -> ()
    transform.structured.tile_loop_hint %l
    transform.yield
  }
}

// CHECK-LABEL: transform.sequence
transform.sequence failures(propagate) {
^bb0(%arg0: !pdl.operation):
  %0 = transform.structured.match attributes {__root__} in %arg0 : (!pdl.operation) -> !pdl.operation
  // CHECK: %[[A:.*]]:4 = transform.structured.fuse_ext
  // GENERIC: (!pdl.operation) -> (!pdl.operation, !pdl.operation, !pdl.operation, !pdl.operation)
  %1, %loops:3 = transform.structured.fuse_ext %0 {tile_sizes = [2, 0, 8, 0, 4], tile_interchange = [0, 1, 4, 3, 2]}
  // CHECK-NEXT: transform.structured.tile_loop_hint %[[A]]#0 : !pdl.operation
  transform.structured.tile_loop_hint %1 : !pdl.operation
  // CHECK-NEXT: transform.cleanup
  transform.cleanup
  // CHECK-NEXT: transform.cleanup
  cleanup
}

// CHECK-LABEL: transform.sequence
// CHECK-NEXT: ^bb0
// CHECK-NEXT: transform.cleanup
// CHECK-NEXT: transform.structured.tile_loop_hint
transform.sequence failures(propagate) {
^bb0(%arg0: !transform.any_op):
  cleanup
  transform.structured.tile_loop_hint %arg0
  // CHECK: foreach
  // CHECK: transform.cleanup {tag}
  transform.foreach %arg0 : !transform.any_op {
  ^bb1(%arg1: !transform.any_op):
    transform.structured.tile_loop_hint %arg1 cleanup {tag}
  }
  %c = transform.param.constant 1 : i64 -> !transform.param<i64>
  %l = transform.cast %arg0 : !transform.any_op to !transform.op<"scf.for">
  foreach %arg0 : !transform.any_op {
  ^bb1(%arg1: !transform.any_op):
    // CHECK: transform.structured.tile_loop_hint %{{.*}} : !transform.op<"scf.for">
    transform.structured.tile_loop_hint %l
  }
  %m:2 = "transform.split_handle"(%l) <{fail_on_payload_too_small = true, pass_through_empty_handle = true}> : (!transform.op<"scf.for">) -> (!transform.any_op, !transform.op<"scf.for">)
  // CHECK: transform.structured.tile_loop_hint %{{.*}}#0 : !transform.any_op
  transform.structured.tile_loop_hint %m#0
  // CHECK: transform.structured.tile_loop_hint %{{.*}}#1 : !transform.op<"scf.for">
  transform.structured.tile_loop_hint %m#1
}

// A word is an op where an op may stand.
// CHECK-LABEL: transform.named_sequence @cleanup
// CHECK-NEXT: transform.include @nothing
// CHECK-SAME: {cleanup}
// CHECK-NEXT: transform.cleanup
module attributes {transform.with_named_sequence} {
  transform.named_sequence @nothing(%arg0: !transform.any_op {transform.readonly}) { transform.yield }
  transform.named_sequence @cleanup(%arg0: !transform.any_op {transform.readonly}) attributes {test.cleanup} {
    transform.include @nothing failures(suppress) (%arg0) {cleanup} : (!transform.any_op) -> ()
    cleanup transform.yield
  }
}
