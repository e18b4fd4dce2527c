// RUN: not attn-opt %s --one-shot-bufferize --canonicalize 2>&1 | FileCheck %s --strict-whitespace
// RUN: not attn-opt %s --one-shot-bufferize --print-ir-after-failure 2>&1 | FileCheck %s --check-prefix=IR

// What a pass of upstream's says is shown at its place; the IR it failed on is not printed unless asked for.

func.func @f(%x: tensor<3xf32>, %o: tensor<3x3xf32>) -> tensor<3x3xf32> {
  %0 = linalg_ext.diag ins(%x : tensor<3xf32>) outs(%o : tensor<3x3xf32>)
  return %0 : tensor<3x3xf32>
}
//      CHECK:attn_opt_upstream_failure.mlir:7:8: error: op was not bufferized
// CHECK-NEXT:{{^}}  %0 = linalg_ext.diag ins(%x : tensor<3xf32>) outs(%o : tensor<3x3xf32>){{$}}
// CHECK-NEXT:{{^}}       ^{{$}}
//  CHECK-NOT:module {

// IR: IR Dump After OneShotBufferizePass Failed (one-shot-bufferize)
// IR: module {
