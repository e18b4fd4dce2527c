// RUN: not attn-opt %s 2>&1 | FileCheck %s
// RUN: not attn-opt --split-input-file %s 2>&1 | FileCheck %s
// RUN: not attn-opt - < %s 2>&1 | FileCheck %s

// Upstream's parser dies of some malformed input; it must not take the command with it.
// CHECK: {{attn_opt_crash.mlir|stdin>}}:10:{{[0-9]+}}: error:
// CHECK-NEXT: permutation = ]
func.func @f(%x: tensor<2x3xf32>, %o: tensor<3x2xf32>) {
  %0 = linalg.transpose ins(%x : tensor<2x3xf32>) outs(%o : tensor<3x2xf32>)
    permutation = ]
  return
}
