// RUN: attn-opt %s --convert-linalg-softmax --verify-diagnostics

func.func @integers(%x: tensor<4x8xi32>, %e: tensor<4x8xi32>) -> tensor<4x8xi32> {
  // expected-error @+1 {{softmax is of floats here, but found tensor<4x8xi32>: convert its operand (arith.sitofp)}}
  %p = linalg.softmax dimension(1) ins(%x : tensor<4x8xi32>) outs(%e : tensor<4x8xi32>) -> tensor<4x8xi32>
  return %p : tensor<4x8xi32>
}
