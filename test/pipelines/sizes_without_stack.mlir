// RUN: attn-opt %s --lower-to=cpu | FileCheck %s

// Sizes are read from what a function is passed, not from a copy on the stack: one that is made after a branch moves the
// stack by a few bytes, and with it the vectors that are passed on it.
// CHECK: llvm.func @sizes
// CHECK-NOT: llvm.alloca
func.func @sizes(%a: tensor<?x?xf32>, %b: tensor<?x?xf32>) -> tensor<?x?xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %m = tensor.dim %a, %c0 : tensor<?x?xf32>
  %n = tensor.dim %a, %c1 : tensor<?x?xf32>
  %e = tensor.empty(%m, %n) : tensor<?x?xf32>
  %x = linalg.exp ins(%a : tensor<?x?xf32>) outs(%e : tensor<?x?xf32>) -> tensor<?x?xf32>
  %e2 = tensor.empty(%n, %m) : tensor<?x?xf32>
  %t = linalg.transpose ins(%x : tensor<?x?xf32>) outs(%e2 : tensor<?x?xf32>) permutation = [1, 0]
  return %t : tensor<?x?xf32>
}
