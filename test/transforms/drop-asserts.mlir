// RUN: attn-opt %s --canonicalize --drop-asserts --split-input-file --verify-diagnostics
// RUN: attn-opt %s --lower-to=cpu --split-input-file 2>&1 | FileCheck %s

// CHECK: drop-asserts.mlir:12:3: warning: whether "three rows" holds is not checked
// CHECK-NOT: {{error|bug|warning}}
func.func @sizes(%x: tensor<?xf32>) -> tensor<?xf32> {
  %c0 = arith.constant 0 : index
  %c3 = arith.constant 3 : index
  %d = tensor.dim %x, %c0 : tensor<?xf32>
  %c = arith.cmpi eq, %d, %c3 : index
  // expected-warning @below {{whether "three rows" holds is not checked: it shows only where it runs; check it before the call}}
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
