// RUN: attn-opt %s --canonicalize --cse | FileCheck %s --check-prefix=FLAGS
// RUN: attn-opt %s --pass-pipeline="builtin.module(func.func(canonicalize,cse))" | FileCheck %s --check-prefix=FLAGS
// RUN: attn-opt %s --linalg-generalize-named-ops | FileCheck %s --check-prefix=GENERALIZED
// RUN: attn-opt %s --pass-pipeline="builtin.module( canonicalize{max-iterations=2 top-down=false}, func.func(linalg-generalize-named-ops) )" | FileCheck %s --check-prefix=GENERALIZED
// A pass that runs on functions alone is nested.
// RUN: attn-opt %s --promote-buffers-to-stack="max-alloc-size-in-bytes=64" -o %t.mlir
// RUN: FileCheck %s --check-prefix=NESTED --input-file=%t.mlir
// RUN: attn-opt - < %s --cse -o - | FileCheck %s --check-prefix=CSE

// FLAGS-LABEL: func.func @f
// FLAGS-COUNT-1: tensor.empty
// FLAGS-NOT: tensor.empty
// FLAGS: linalg_ext.diag ins(
// CSE-COUNT-1: tensor.empty
// CSE-NOT: tensor.empty
// GENERALIZED: linalg.generic
// GENERALIZED: linalg_ext.diag
// NESTED: linalg_ext.diag
func.func @f(%x: tensor<3xf32>, %y: f32) -> (tensor<3x3xf32>, tensor<3x3xf32>) {
  %0 = tensor.empty() : tensor<3x3xf32>
  %1 = tensor.empty() : tensor<3x3xf32>
  %2 = linalg.fill ins(%y : f32) outs(%0 : tensor<3x3xf32>) -> tensor<3x3xf32>
  %3 = linalg_ext.diag ins(%x : tensor<3xf32>) outs(%1 : tensor<3x3xf32>)
  return %2, %3 : tensor<3x3xf32>, tensor<3x3xf32>
}
