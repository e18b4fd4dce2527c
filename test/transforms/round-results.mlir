// RUN: attn-opt %s --split-input-file --round-results | FileCheck %s

#id = affine_map<(i, j) -> (i, j)>
#row = affine_map<(i, j) -> (i)>

// What the result started from becomes an input; the sum is still of what was not rounded.
// CHECK-LABEL: func.func @probabilities
// CHECK-SAME:    %[[S:.*]]: tensor<4x8xf32>, %[[L:.*]]: tensor<4xf32>
// CHECK:       %[[E:.*]] = tensor.empty() : tensor<4x8xbf16>
// CHECK:       %[[P:.*]]:2 = linalg.generic {{.*}} ins(%[[S]] : tensor<4x8xf32>) outs(%[[E]], %[[L]] : tensor<4x8xbf16>, tensor<4xf32>)
// CHECK-NEXT:  ^bb0(%[[X:.*]]: f32, %{{.*}}: bf16, %[[A:.*]]: f32):
// CHECK-NEXT:    %[[Y:.*]] = math.exp2 %[[X]]
// CHECK-NEXT:    %[[SUM:.*]] = arith.addf %[[A]], %[[Y]]
// CHECK-NEXT:    %[[R:.*]] = arith.truncf %[[Y]] : f32 to bf16
// CHECK-NEXT:    linalg.yield %[[R]], %[[SUM]]
// CHECK:       return %[[P]]#0, %[[P]]#1
func.func @probabilities(%s: tensor<4x8xf32>, %l: tensor<4xf32>) -> (tensor<4x8xbf16>, tensor<4xf32>) {
  %p:2 = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]}
      outs(%s, %l : tensor<4x8xf32>, tensor<4xf32>) {
  ^bb0(%x: f32, %a: f32):
    %y = math.exp2 %x : f32
    %sum = arith.addf %a, %y : f32
    linalg.yield %y, %sum : f32, f32
  } -> (tensor<4x8xf32>, tensor<4xf32>)
  %e = tensor.empty() : tensor<4x8xbf16>
  %r = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%p#0 : tensor<4x8xf32>) outs(%e : tensor<4x8xbf16>) {
  ^bb0(%x: f32, %y: bf16):
    %z = arith.truncf %x : f32 to bf16
    linalg.yield %z : bf16
  } -> tensor<4x8xbf16>
  return %r, %p#1 : tensor<4x8xbf16>, tensor<4xf32>
}

// -----

#id = affine_map<(i, j) -> (i, j)>
#mk = affine_map<(m, n, k) -> (m, k)>
#kn = affine_map<(m, n, k) -> (k, n)>
#mn = affine_map<(m, n, k) -> (m, n)>

// A sum is rounded when it is complete, not with each term.
// CHECK-LABEL: func.func @sums
// CHECK:       linalg.generic {{.*}} outs(%{{.*}} : tensor<4x4xf32>) {
// CHECK:       linalg.generic {{.*}} ins({{.*}} : tensor<4x4xf32>) outs({{.*}} : tensor<4x4xbf16>)
func.func @sums(%a: tensor<4x4xf32>, %c: tensor<4x4xf32>) -> tensor<4x4xbf16> {
  %p = linalg.generic {indexing_maps = [#mk, #kn, #mn], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%a, %a : tensor<4x4xf32>, tensor<4x4xf32>) outs(%c : tensor<4x4xf32>) {
  ^bb0(%x: f32, %y: f32, %z: f32):
    %0 = arith.mulf %x, %y : f32
    %1 = arith.addf %z, %0 : f32
    linalg.yield %1 : f32
  } -> tensor<4x4xf32>
  %e = tensor.empty() : tensor<4x4xbf16>
  %r = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%p : tensor<4x4xf32>) outs(%e : tensor<4x4xbf16>) {
  ^bb0(%x: f32, %y: bf16):
    %z = arith.truncf %x : f32 to bf16
    linalg.yield %z : bf16
  } -> tensor<4x4xbf16>
  return %r : tensor<4x4xbf16>
}

// -----

#id = affine_map<(i, j) -> (i, j)>

// With a scale before, and with what is rounded to 8 bits and kept in a wider type.
// CHECK-LABEL: func.func @scaled
// CHECK:       linalg.generic {{.*}} outs(%{{.*}} : tensor<4x8xbf16>)
// CHECK-NEXT:  ^bb0(%[[X:.*]]: f32, %{{.*}}: bf16):
// CHECK-NEXT:    %[[Y:.*]] = math.exp2 %[[X]]
// CHECK-NEXT:    %[[M:.*]] = arith.mulf %[[Y]]
// CHECK-NEXT:    %[[R:.*]] = arith.truncf %[[M]] : f32 to f8E4M3FN
// CHECK-NEXT:    %[[W:.*]] = arith.extf %[[R]] : f8E4M3FN to bf16
// CHECK-NEXT:    linalg.yield %[[W]]
// CHECK-NOT:   linalg.generic
func.func @scaled(%s: tensor<4x8xf32>) -> tensor<4x8xbf16> {
  %c = arith.constant 256.0 : f32
  %p = linalg.generic {indexing_maps = [#id], iterator_types = ["parallel", "parallel"]}
      outs(%s : tensor<4x8xf32>) {
  ^bb0(%x: f32):
    %y = math.exp2 %x : f32
    linalg.yield %y : f32
  } -> tensor<4x8xf32>
  %e = tensor.empty() : tensor<4x8xbf16>
  %r = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%p : tensor<4x8xf32>) outs(%e : tensor<4x8xbf16>) {
  ^bb0(%x: f32, %y: bf16):
    %m = arith.mulf %x, %c : f32
    %t = arith.truncf %m : f32 to f8E4M3FN
    %z = arith.extf %t : f8E4M3FN to bf16
    linalg.yield %z : bf16
  } -> tensor<4x8xbf16>
  return %r : tensor<4x8xbf16>
}
