// RUN: attn-opt %s --canonicalize --check-asserts --split-input-file --verify-diagnostics
// RUN: not attn-opt %s --lower-to=cpu 2>&1 | FileCheck %s
// RUN: not attn-opt %s --lower-to=nvidia 2>&1 | FileCheck %s

// CHECK: check-asserts.mlir:13:3: error: whether "three rows" holds
// CHECK-NOT: {{error|bug}}
func.func @sizes(%x: tensor<?xf32>) -> tensor<?xf32> {
  %c0 = arith.constant 0 : index
  %c3 = arith.constant 3 : index
  %d = tensor.dim %x, %c0 : tensor<?xf32>
  %c = arith.cmpi eq, %d, %c3 : index
  // expected-error @below {{whether "three rows" holds shows only when it runs, and where it does not the process would end: check that before the call, and leave cf.assert out}}
  cf.assert %c, "three rows"
  return %x : tensor<?xf32>
}

// -----

func.func @known(%x: tensor<3xf32>) -> tensor<3xf32> {
  %c0 = arith.constant 0 : index
  %c3 = arith.constant 3 : index
  %d = tensor.dim %x, %c0 : tensor<3xf32>
  %c = arith.cmpi eq, %d, %c3 : index
  cf.assert %c, "three rows"
  return %x : tensor<3xf32>
}
