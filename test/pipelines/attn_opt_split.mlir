// RUN: not attn-opt %s --split-input-file --cse 2>%t.err | FileCheck %s
// RUN: FileCheck %s --check-prefix=ERR --input-file=%t.err

// Modules that are good are printed; of the others it is said, with the lines of the file, what is wrong.

// CHECK: func.func @first
// CHECK-NOT: module {
// CHECK: // -----
// CHECK: module {
// CHECK-NEXT: func.func @last
// ERR: attn_opt_split.mlir:18:3: error: 'linalg_ext.diag' op expects output to have rank 2
func.func @first() { return }

// -----

// ERR-NOT: error
func.func @bad(%x: tensor<3xf32>) {
  linalg_ext.diag ins(%x : tensor<3xf32>) outs(%x : tensor<3xf32>)
  return
}

// -----

func.func @last() { return }
