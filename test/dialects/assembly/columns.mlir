// RUN: not attn-opt %s --allow-unregistered-dialect 2>&1 | FileCheck %s --match-full-lines --strict-whitespace

// A place after a custom form on its line, as upstream's parser finds it, is told in columns of the input.
func.func @f(%x: tensor<5xf32>, %o: tensor<5x5xf32>) {
  %0 = linalg_ext.diag ins(%x : tensor<5xf32>) outs(%o : tensor<5x5xf32>) %1 = "x.ümlaut"(%2) : (f32) -> f32
  return
}
//      CHECK:{{.*}}columns.mlir:5:92: error: use of undeclared SSA value name
// CHECK-NEXT:  %0 = linalg_ext.diag ins(%x : tensor<5xf32>) outs(%o : tensor<5x5xf32>) %1 = "x.ümlaut"(%2) : (f32) -> f32
// CHECK-NEXT:                                                                                          ^
