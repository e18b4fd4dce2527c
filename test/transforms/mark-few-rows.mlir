// RUN: attn-opt %s --pass-pipeline="builtin.module(mark-few-rows{rows=16})" | FileCheck %s
// RUN: attn-opt %s --mark-few-rows | FileCheck %s --check-prefix=NONE

// NONE-NOT: few_rows

// Four heads of four queries are 16 rows; the outermost loop has the mark.
// CHECK-LABEL: func.func @few
// CHECK: scf.forall
// CHECK: scf.forall
// CHECK-NOT: few_rows
// CHECK: tensor.extract_slice
// CHECK: } {few_rows}
// CHECK-NEXT: return
func.func @few(%x: tensor<4x4x?xf32>, %o: tensor<?x4x4x?xf32>, %m: tensor<4x4xf32>, %n: index, %k: index)
    -> tensor<?x4x4x?xf32> {
  %r = scf.forall (%i) in (%n) shared_outs(%a = %o) -> (tensor<?x4x4x?xf32>) {
    %s = scf.forall (%j) in (%n) shared_outs(%b = %o) -> (tensor<?x4x4x?xf32>) {
      %p:4 = linalg_ext.softmax dimension(2) ins(%x : tensor<4x4x?xf32>)
        outs(%x, %m, %m, %m : tensor<4x4x?xf32>, tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>)
        : tensor<4x4x?xf32>, tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>
      scf.forall.in_parallel {
        tensor.parallel_insert_slice %p#0 into %b[%j, 0, 0, 0] [1, 4, 4, %k] [1, 1, 1, 1]
          : tensor<4x4x?xf32> into tensor<?x4x4x?xf32>
      }
    }
    %t = tensor.extract_slice %s[%i, 0, 0, 0] [1, 4, 4, %k] [1, 1, 1, 1] : tensor<?x4x4x?xf32> to tensor<4x4x?xf32>
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %t into %a[%i, 0, 0, 0] [1, 4, 4, %k] [1, 1, 1, 1]
        : tensor<4x4x?xf32> into tensor<?x4x4x?xf32>
    }
  }
  return %r : tensor<?x4x4x?xf32>
}

// 17 rows are more than that, and of some number who knows. What is in no parallel loop has nothing to be marked.
// CHECK-LABEL: func.func @others
// CHECK-NOT: few_rows
func.func @others(%x: tensor<17x?xf32>, %y: tensor<?x?xf32>, %z: tensor<1x8xf32>, %o: tensor<?x17x?xf32>,
    %m: tensor<17xf32>, %l: tensor<?xf32>, %j: tensor<1xf32>, %n: index, %k: index)
    -> (tensor<?x17x?xf32>, tensor<?x?xf32>, tensor<1x8xf32>) {
  %r:2 = scf.forall (%i) in (%n) shared_outs(%a = %o, %b = %y) -> (tensor<?x17x?xf32>, tensor<?x?xf32>) {
    %p:4 = linalg_ext.softmax dimension(1) ins(%x : tensor<17x?xf32>)
      outs(%x, %m, %m, %m : tensor<17x?xf32>, tensor<17xf32>, tensor<17xf32>, tensor<17xf32>)
      : tensor<17x?xf32>, tensor<17xf32>, tensor<17xf32>, tensor<17xf32>
    %q:4 = linalg_ext.softmax dimension(1) ins(%y : tensor<?x?xf32>)
      outs(%y, %l, %l, %l : tensor<?x?xf32>, tensor<?xf32>, tensor<?xf32>, tensor<?xf32>)
      : tensor<?x?xf32>, tensor<?xf32>, tensor<?xf32>, tensor<?xf32>
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %p#0 into %a[%i, 0, 0] [1, 17, %k] [1, 1, 1]
        : tensor<17x?xf32> into tensor<?x17x?xf32>
      tensor.parallel_insert_slice %q#0 into %b[%i, 0] [%n, %k] [1, 1] : tensor<?x?xf32> into tensor<?x?xf32>
    }
  }
  %s:4 = linalg_ext.softmax dimension(1) ins(%z : tensor<1x8xf32>)
    outs(%z, %j, %j, %j : tensor<1x8xf32>, tensor<1xf32>, tensor<1xf32>, tensor<1xf32>)
    : tensor<1x8xf32>, tensor<1xf32>, tensor<1xf32>, tensor<1xf32>
  return %r#0, %r#1, %s#0 : tensor<?x17x?xf32>, tensor<?x?xf32>, tensor<1x8xf32>
}
