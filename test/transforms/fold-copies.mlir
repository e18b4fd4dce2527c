// RUN: attn-opt %s --fold-copies | FileCheck %s

#id = affine_map<(i, j) -> (i, j)>
#t = affine_map<(i, j) -> (j, i)>
#a = affine_map<(m, n, k) -> (m, k)>
#b = affine_map<(m, n, k) -> (k, n)>
#c = affine_map<(m, n, k) -> (m, n)>

// The contraction reads the keys as they stand.
// CHECK-DAG: #[[Q:.*]] = affine_map<(d0, d1, d2) -> (d0, d2)>
// CHECK-DAG: #[[K:.*]] = affine_map<(d0, d1, d2) -> (d1, d2)>
// CHECK-LABEL: func.func @keys
// CHECK-SAME: (%[[QUERIES:.*]]: tensor<4x8xf32>, %[[KEYS:.*]]: tensor<16x8xf32>, %[[INIT:.*]]: tensor<4x16xf32>)
// CHECK: linalg.generic {indexing_maps = [#[[Q]], #[[K]], {{.*}}ins(%[[QUERIES]], %[[KEYS]] :
func.func @keys(%q: tensor<4x8xf32>, %k: tensor<16x8xf32>, %s: tensor<4x16xf32>) -> tensor<4x16xf32> {
  %e = tensor.empty() : tensor<8x16xf32>
  %kt = linalg.generic {indexing_maps = [#t, #id], iterator_types = ["parallel", "parallel"]}
    ins(%k : tensor<16x8xf32>) outs(%e : tensor<8x16xf32>) {
  ^bb0(%x: f32, %y: f32):
    linalg.yield %x : f32
  } -> tensor<8x16xf32>
  %r = linalg.generic {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "reduction"]}
    ins(%q, %kt : tensor<4x8xf32>, tensor<8x16xf32>) outs(%s : tensor<4x16xf32>) {
  ^bb0(%x: f32, %y: f32, %z: f32):
    %p = arith.mulf %x, %y : f32
    %u = arith.addf %z, %p : f32
    linalg.yield %u : f32
  } -> tensor<4x16xf32>
  return %r : tensor<4x16xf32>
}

// Whoever needs the transposed tensor itself gets it.
// CHECK-LABEL: func.func @returned
// CHECK: %[[T:.*]] = linalg.generic
// CHECK: return %[[T]]
func.func @returned(%k: tensor<16x8xf32>) -> tensor<8x16xf32> {
  %e = tensor.empty() : tensor<8x16xf32>
  %kt = linalg.generic {indexing_maps = [#t, #id], iterator_types = ["parallel", "parallel"]}
    ins(%k : tensor<16x8xf32>) outs(%e : tensor<8x16xf32>) {
  ^bb0(%x: f32, %y: f32):
    linalg.yield %x : f32
  } -> tensor<8x16xf32>
  return %kt : tensor<8x16xf32>
}
