// RUN: attn-opt %s --own-inits | FileCheck %s

// CHECK-LABEL: func.func @f
// CHECK: %[[A:.*]] = linalg.fill
// CHECK-NEXT: linalg.matmul {{.*}} outs(%[[A]] :
// CHECK-NEXT: tensor.empty
// CHECK-NEXT: %[[B:.*]] = linalg.fill
// CHECK-NEXT: linalg.matmul {{.*}} outs(%[[B]] :
// CHECK-NEXT: return
func.func @f(%a: tensor<4x4xf32>) -> (tensor<4x4xf32>, tensor<4x4xf32>) {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<4x4xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<4x4xf32>) -> tensor<4x4xf32>
  %0 = linalg.matmul ins(%a, %a : tensor<4x4xf32>, tensor<4x4xf32>) outs(%z : tensor<4x4xf32>) -> tensor<4x4xf32>
  %1 = linalg.matmul ins(%0, %a : tensor<4x4xf32>, tensor<4x4xf32>) outs(%z : tensor<4x4xf32>) -> tensor<4x4xf32>
  return %0, %1 : tensor<4x4xf32>, tensor<4x4xf32>
}

// Two results of one size: neither the memory nor the dimensions of one are those of the other.
// CHECK-LABEL: func.func @empty
// CHECK: %[[A:.*]] = tensor.empty
// CHECK-NEXT: linalg.exp {{.*}} outs(%[[A]] :
// CHECK: %[[B:.*]] = tensor.empty
// CHECK-NEXT: linalg.transpose {{.*}} outs(%[[B]] :
func.func @empty(%a: tensor<4x4xf32>) -> (tensor<4x4xf32>, tensor<4x4xf32>) {
  %e = tensor.empty() : tensor<4x4xf32>
  %0 = linalg.exp ins(%a : tensor<4x4xf32>) outs(%e : tensor<4x4xf32>) -> tensor<4x4xf32>
  %1 = linalg.transpose ins(%0 : tensor<4x4xf32>) outs(%e : tensor<4x4xf32>) permutation = [1, 0]
  return %0, %1 : tensor<4x4xf32>, tensor<4x4xf32>
}

// A slice of a result is the place of that result alone: what starts with the same zeros starts somewhere else.
// CHECK-LABEL: func.func @slice
// CHECK:       %[[S:.*]] = tensor.extract_slice
// CHECK:       %[[A:.*]] = linalg.fill {{.*}} outs(%[[S]] :
// CHECK-NEXT:  scf.for {{.*}} = %[[A]])
// CHECK-NEXT:    %[[E:.*]] = tensor.empty() : tensor<4x4xf32>
// CHECK-NEXT:    %[[B:.*]] = linalg.fill {{.*}} outs(%[[E]] :
// CHECK-NEXT:    linalg.matmul {{.*}} outs(%[[B]] :
func.func @slice(%a: tensor<4x4xf32>, %o: tensor<8x4xf32>, %n: index) -> tensor<4x4xf32> {
  %zero = arith.constant 0.0 : f32
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %s = tensor.extract_slice %o[4, 0] [4, 4] [1, 1] : tensor<8x4xf32> to tensor<4x4xf32>
  %z = linalg.fill ins(%zero : f32) outs(%s : tensor<4x4xf32>) -> tensor<4x4xf32>
  %r = scf.for %i = %c0 to %n step %c1 iter_args(%sum = %z) -> tensor<4x4xf32> {
    %0 = linalg.matmul ins(%a, %a : tensor<4x4xf32>, tensor<4x4xf32>) outs(%z : tensor<4x4xf32>) -> tensor<4x4xf32>
    %1 = linalg.matmul ins(%0, %a : tensor<4x4xf32>, tensor<4x4xf32>) outs(%sum : tensor<4x4xf32>) -> tensor<4x4xf32>
    scf.yield %1 : tensor<4x4xf32>
  }
  return %r : tensor<4x4xf32>
}

// Two tensors that a loop carries start from memory of their own.
// CHECK-LABEL: func.func @carried
// CHECK:       %[[B:.*]] = tensor.empty() : tensor<8xf32>
// CHECK-NEXT:  %[[A:.*]] = tensor.empty() : tensor<8xf32>
// CHECK:       scf.for {{.*}} iter_args(%{{.*}} = %[[A]], %{{.*}} = %[[B]])
func.func @carried(%x: tensor<1xf32>, %y: tensor<1xf32>) -> (tensor<8xf32>, tensor<8xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c8 = arith.constant 8 : index
  %e = tensor.empty() : tensor<8xf32>
  %r:2 = scf.for %i = %c0 to %c8 step %c1 iter_args(%p = %e, %q = %e) -> (tensor<8xf32>, tensor<8xf32>) {
    %0 = tensor.insert_slice %x into %p[%i] [1] [1] : tensor<1xf32> into tensor<8xf32>
    %1 = tensor.insert_slice %y into %q[%i] [1] [1] : tensor<1xf32> into tensor<8xf32>
    scf.yield %0, %1 : tensor<8xf32>, tensor<8xf32>
  }
  return %r#0, %r#1 : tensor<8xf32>, tensor<8xf32>
}

// A slice that two ops write to stays the place of the one whose result is inserted there.
// CHECK-LABEL: func.func @inserted
// CHECK:       %[[S:.*]] = tensor.extract_slice %[[A:.*]][
// CHECK-NEXT:  %[[X:.*]] = linalg.exp {{.*}} outs(%[[S]] :
// CHECK-NEXT:  %[[E:.*]] = tensor.empty() : tensor<1x4xf32>
// CHECK-NEXT:  %[[Y:.*]] = linalg.log {{.*}} outs(%[[E]] :
// CHECK:         tensor.parallel_insert_slice %[[X]] into %[[A]]
// CHECK:         tensor.parallel_insert_slice %[[Y]] into
func.func @inserted(%x: tensor<1x4xf32>, %a: tensor<8x4xf32>, %b: tensor<8x4xf32>) -> (tensor<8x4xf32>, tensor<8x4xf32>) {
  %r:2 = scf.forall (%i) in (8) shared_outs(%p = %a, %q = %b) -> (tensor<8x4xf32>, tensor<8x4xf32>) {
    %s = tensor.extract_slice %p[%i, 0] [1, 4] [1, 1] : tensor<8x4xf32> to tensor<1x4xf32>
    %0 = linalg.exp ins(%x : tensor<1x4xf32>) outs(%s : tensor<1x4xf32>) -> tensor<1x4xf32>
    %1 = linalg.log ins(%x : tensor<1x4xf32>) outs(%s : tensor<1x4xf32>) -> tensor<1x4xf32>
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %0 into %p[%i, 0] [1, 4] [1, 1] : tensor<1x4xf32> into tensor<8x4xf32>
      tensor.parallel_insert_slice %1 into %q[%i, 0] [1, 4] [1, 1] : tensor<1x4xf32> into tensor<8x4xf32>
    }
  }
  return %r#0, %r#1 : tensor<8x4xf32>, tensor<8x4xf32>
}

// Two sums that one loop carries from zero have zeros of their own.
// CHECK-LABEL: func.func @sums
// CHECK:       %[[B:.*]] = linalg.fill
// CHECK:       %[[A:.*]] = linalg.fill
// CHECK:       scf.for {{.*}} iter_args(%{{.*}} = %[[A]], %{{.*}} = %[[B]])
func.func @sums(%x: tensor<8xf32>, %y: tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>) {
  %zero = arith.constant 0.0 : f32
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c8 = arith.constant 8 : index
  %e = tensor.empty() : tensor<8xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<8xf32>) -> tensor<8xf32>
  %r:2 = scf.for %i = %c0 to %c8 step %c1 iter_args(%p = %z, %q = %z) -> (tensor<8xf32>, tensor<8xf32>) {
    %0 = linalg.add ins(%p, %x : tensor<8xf32>, tensor<8xf32>) outs(%p : tensor<8xf32>) -> tensor<8xf32>
    %1 = linalg.add ins(%q, %y : tensor<8xf32>, tensor<8xf32>) outs(%q : tensor<8xf32>) -> tensor<8xf32>
    scf.yield %0, %1 : tensor<8xf32>, tensor<8xf32>
  }
  return %r#0, %r#1 : tensor<8xf32>, tensor<8xf32>
}
