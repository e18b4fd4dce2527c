// RUN: attn-opt %s --round-probabilities | FileCheck %s

// Probabilities of f32 times values of f16 become probabilities of f16.

// CHECK-LABEL: func.func @mixed
// CHECK:         %[[P:.*]]:4 = linalg_ext.softmax
// CHECK:         %[[R:.*]] = linalg.generic {{.*}} ins(%[[P]]#0 : tensor<?x64xf32>)
// CHECK:           arith.truncf %{{.*}} : f32 to f16
// CHECK:         linalg.generic {{.*}} ins(%[[R]], %{{.*}} : tensor<?x64xf16>, tensor<64x8xf16>)
// CHECK-NEXT:    ^bb0(%[[A:.*]]: f16, %[[B:.*]]: f16, %[[ACC:.*]]: f32):
// CHECK-DAG:       %[[X:.*]] = arith.extf %[[A]] : f16 to f32
// CHECK-DAG:       %[[Y:.*]] = arith.extf %[[B]] : f16 to f32
// CHECK:           arith.mulf %[[X]], %[[Y]] : f32

// What is no probability might not fit, and values of f32 are multiplied as they are.

// CHECK-LABEL: func.func @others
// CHECK-NOT:     arith.truncf
// CHECK:         return

#a = affine_map<(m, n, k) -> (m, k)>
#b = affine_map<(m, n, k) -> (k, n)>
#c = affine_map<(m, n, k) -> (m, n)>
func.func @mixed(%x: tensor<?x64xf32>, %v: tensor<64x8xf16>, %p0: tensor<?x64xf32>, %r: tensor<?xf32>, %o: tensor<?x8xf32>) -> tensor<?x8xf32> {
  %p:4 = linalg_ext.softmax dimension(1) ins(%x : tensor<?x64xf32>) outs(%p0, %r, %r, %r : tensor<?x64xf32>, tensor<?xf32>, tensor<?xf32>, tensor<?xf32>) : tensor<?x64xf32>, tensor<?xf32>, tensor<?xf32>, tensor<?xf32>
  %y = linalg.generic {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "reduction"]} ins(%p#0, %v : tensor<?x64xf32>, tensor<64x8xf16>) outs(%o : tensor<?x8xf32>) {
  ^bb0(%s: f32, %t: f16, %acc: f32):
    %w = arith.extf %t : f16 to f32
    %product = arith.mulf %s, %w : f32
    %sum = arith.addf %acc, %product : f32
    linalg.yield %sum : f32
  } -> tensor<?x8xf32>
  return %y : tensor<?x8xf32>
}

func.func @others(%x: tensor<?x64xf32>, %v: tensor<64x8xf16>, %w: tensor<64x8xf32>, %p0: tensor<?x64xf32>, %r: tensor<?xf32>, %o: tensor<?x8xf32>) -> (tensor<?x8xf32>, tensor<?x8xf32>) {
  %p:4 = linalg_ext.softmax dimension(1) ins(%x : tensor<?x64xf32>) outs(%p0, %r, %r, %r : tensor<?x64xf32>, tensor<?xf32>, tensor<?xf32>, tensor<?xf32>) : tensor<?x64xf32>, tensor<?xf32>, tensor<?xf32>, tensor<?xf32>
  %y = linalg.generic {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "reduction"]} ins(%x, %v : tensor<?x64xf32>, tensor<64x8xf16>) outs(%o : tensor<?x8xf32>) {
  ^bb0(%s: f32, %t: f16, %acc: f32):
    %u = arith.extf %t : f16 to f32
    %product = arith.mulf %s, %u : f32
    %sum = arith.addf %acc, %product : f32
    linalg.yield %sum : f32
  } -> tensor<?x8xf32>
  %z = linalg.generic {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "reduction"]} ins(%p#0, %w : tensor<?x64xf32>, tensor<64x8xf32>) outs(%o : tensor<?x8xf32>) {
  ^bb0(%s: f32, %t: f32, %acc: f32):
    %product = arith.mulf %s, %t : f32
    %sum = arith.addf %acc, %product : f32
    linalg.yield %sum : f32
  } -> tensor<?x8xf32>
  return %y, %z : tensor<?x8xf32>, tensor<?x8xf32>
}
