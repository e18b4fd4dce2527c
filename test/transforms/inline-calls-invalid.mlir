// RUN: attn-opt %s --inline-calls --split-input-file --verify-diagnostics
// RUN: attn-opt %s --check-calls --split-input-file --verify-diagnostics
// RUN: not attn-opt %s --lower-to=cpu --split-input-file 2>&1 | FileCheck %s

// CHECK: error: 'itself' calls itself
// CHECK: error: 'ping' calls itself by way of 'pong'
// CHECK-NOT: error

func.func @itself(%x: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error @+1 {{'itself' calls itself whatever it is called with, so it never returns; call it in a region of scf.if that is not always taken}}
  %y = call @itself(%x) : (tensor<4xf32>) -> tensor<4xf32>
  return %y : tensor<4xf32>
}

// -----

func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %y = call @ping(%x) : (tensor<4xf32>) -> tensor<4xf32>
  return %y : tensor<4xf32>
}
func.func private @ping(%x: tensor<4xf32>) -> tensor<4xf32> {
  %y = call @pong(%x) : (tensor<4xf32>) -> tensor<4xf32>
  return %y : tensor<4xf32>
}
func.func private @pong(%x: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error @+1 {{'ping' calls itself by way of 'pong' whatever it is called with}}
  %y = call @ping(%x) : (tensor<4xf32>) -> tensor<4xf32>
  return %y : tensor<4xf32>
}

// -----

// It may return: there is a condition.
func.func @counted(%x: tensor<4xf32>, %n: index) -> tensor<4xf32> {
  %zero = arith.constant 0 : index
  %one = arith.constant 1 : index
  %more = arith.cmpi sgt, %n, %zero : index
  %less = arith.subi %n, %one : index
  %y = scf.if %more -> tensor<4xf32> {
    %z = func.call @counted(%x, %less) : (tensor<4xf32>, index) -> tensor<4xf32>
    scf.yield %z : tensor<4xf32>
  } else {
    scf.yield %x : tensor<4xf32>
  }
  return %y : tensor<4xf32>
}
