// RUN: not attn-opt %s --reconcile-unrealized-casts --canonicalize 2>&1 | FileCheck %s --strict-whitespace
// RUN: not attn-opt %s --reconcile-unrealized-casts --print-ir-after-failure 2>&1 | FileCheck %s --check-prefix=IR

// What a pass of upstream's says is shown at its place; the IR it failed on is not printed unless asked for.

func.func @f(%x: i32) -> i64 {
  %0 = builtin.unrealized_conversion_cast %x : i32 to i64
  return %0 : i64
}
//      CHECK:attn_opt_upstream_failure.mlir:7:8: error: failed to legalize
// CHECK-NEXT:{{^}}  %0 = builtin.unrealized_conversion_cast %x : i32 to i64{{$}}
// CHECK-NEXT:{{^}}       ^{{$}}
//  CHECK-NOT:module {

// IR: IR Dump After ReconcileUnrealizedCasts Failed (reconcile-unrealized-casts)
// IR: module {
