// RUN: attn-opt %s --split-input-file --lower-to=nvidia | FileCheck %s
// RUN: not attn-opt %s --split-input-file --lower-to=cpu 2>&1 | FileCheck %s --check-prefix=ERROR

// Of arith and math on tensors, kernels are made; an index is i32 in registers, and i64 in memory.
// CHECK-LABEL: llvm.func @indices
//       CHECK: llvm.store %{{.*}} : i64, !llvm.ptr<1>
func.func @indices(%x: tensor<4x8xi32>) -> tensor<4x8xindex> {
  %i = arith.index_cast %x : tensor<4x8xi32> to tensor<4x8xindex>
  %j = arith.addi %i, %i : tensor<4x8xindex>
  return %j : tensor<4x8xindex>
}

// -----

// Ops of other dialects have to be converted before; which is said, at the place.
func.func @other(%a: tensor<4xf32>) -> tensor<4xf32> {
  // ERROR:      elementwise_on_tensors.mlir:18:8: error: op was not bufferized
  %j = tosa.exp %a : (tensor<4xf32>) -> tensor<4xf32>
  // ERROR:      note: what computes with tensors is to be linalg, arith or math here; of tosa, --pass-pipeline="{{.*}}tosa-to-linalg
  return %j : tensor<4xf32>
}
