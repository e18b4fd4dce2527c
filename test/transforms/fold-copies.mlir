// RUN: attn-opt %s --fold-copies | FileCheck %s

#id = affine_map<(i, j) -> (i, j)>
#t = affine_map<(i, j) -> (j, i)>
#a = affine_map<(m, n, k) -> (m, k)>
#b = affine_map<(m, n, k) -> (k, n)>
#c = affine_map<(m, n, k) -> (m, n)>

// The contraction reads the keys as they stand.
// CHECK-DAG: #[[Q:.*]] = affine_map<(d0, d1, d2) -> (d0, d2)>
// CHECK-DAG: #[[K:.*]] = affine_map<(d0, d1, d2) -> (d1, d2)>
// CHECK-DAG: #[[MATRIX:.*]] = affine_map<(d0, d1, d2, d3) -> (d3, d2)>
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

#rows = affine_map<(b, i, j) -> (i, j)>
#all = affine_map<(b, i, j) -> (b, i, j)>
#x = affine_map<(b, m, n, k) -> (b, m, k)>
#w = affine_map<(b, m, n, k) -> (b, k, n)>
#y = affine_map<(b, m, n, k) -> (b, m, n)>

// A matrix that is repeated for each of several others, and made wider, is read as it stands.
// CHECK-LABEL: func.func @repeated
// CHECK-SAME: (%[[X:.*]]: tensor<3x4x8xf32>, %[[W:.*]]: tensor<8x16xbf16>, %[[INIT:.*]]: tensor<3x4x16xf32>)
// CHECK-NOT: linalg.generic {{.*}}ins(%[[W]] :
// CHECK: %[[Y:.*]] = linalg.generic {indexing_maps = [#{{.*}}, #[[MATRIX]], #{{.*}}ins(%[[X]], %[[W]] :
// CHECK-NEXT: ^bb0(%[[A:.*]]: f32, %[[B:.*]]: bf16, %[[SUM:.*]]: f32):
// CHECK-NEXT:   %[[WIDE:.*]] = arith.extf %[[B]] : bf16 to f32
// CHECK-NEXT:   arith.mulf %[[A]], %[[WIDE]]
// CHECK: return %[[Y]]
func.func @repeated(%x: tensor<3x4x8xf32>, %w: tensor<8x16xbf16>, %init: tensor<3x4x16xf32>) -> tensor<3x4x16xf32> {
  %e = tensor.empty() : tensor<3x8x16xbf16>
  %each = linalg.generic {indexing_maps = [#rows, #all], iterator_types = ["parallel", "parallel", "parallel"]}
    ins(%w : tensor<8x16xbf16>) outs(%e : tensor<3x8x16xbf16>) {
  ^bb0(%a: bf16, %o: bf16):
    linalg.yield %a : bf16
  } -> tensor<3x8x16xbf16>
  %f = tensor.empty() : tensor<3x8x16xf32>
  %wide = linalg.generic {indexing_maps = [#all, #all], iterator_types = ["parallel", "parallel", "parallel"]}
    ins(%each : tensor<3x8x16xbf16>) outs(%f : tensor<3x8x16xf32>) {
  ^bb0(%a: bf16, %o: f32):
    %b = arith.extf %a : bf16 to f32
    linalg.yield %b : f32
  } -> tensor<3x8x16xf32>
  %y = linalg.generic {indexing_maps = [#x, #w, #y], iterator_types = ["parallel", "parallel", "parallel", "reduction"]}
    ins(%x, %wide : tensor<3x4x8xf32>, tensor<3x8x16xf32>) outs(%init : tensor<3x4x16xf32>) {
  ^bb0(%a: f32, %b: f32, %sum: f32):
    %p = arith.mulf %a, %b : f32
    %s = arith.addf %sum, %p : f32
    linalg.yield %s : f32
  } -> tensor<3x4x16xf32>
  return %y : tensor<3x4x16xf32>
}

#id1 = affine_map<(i, j, k) -> (i, j)>
#mk = affine_map<(i, j, k) -> (k, j)>

// Where a loop would be in no map any more, and for ops that do not multiply, the copy stays.
// CHECK-LABEL: func.func @loop_of_its_own
// CHECK-COUNT-3: linalg.generic
func.func @loop_of_its_own(%x: tensor<4x8xf32>, %r: tensor<8xf32>, %init: tensor<4x8xf32>) -> (tensor<4x8xf32>, tensor<4x8xf32>) {
  %e = tensor.empty() : tensor<4x8xf32>
  %each = linalg.generic {indexing_maps = [affine_map<(i, j) -> (j)>, #id], iterator_types = ["parallel", "parallel"]}
    ins(%r : tensor<8xf32>) outs(%e : tensor<4x8xf32>) {
  ^bb0(%a: f32, %o: f32):
    linalg.yield %a : f32
  } -> tensor<4x8xf32>
  %sum = linalg.generic {indexing_maps = [#id1, #mk, #id1], iterator_types = ["parallel", "parallel", "reduction"]}
    ins(%x, %each : tensor<4x8xf32>, tensor<4x8xf32>) outs(%init : tensor<4x8xf32>) {
  ^bb0(%a: f32, %b: f32, %s: f32):
    %p = arith.mulf %a, %b : f32
    %q = arith.addf %s, %p : f32
    linalg.yield %q : f32
  } -> tensor<4x8xf32>
  %exp = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
    ins(%each : tensor<4x8xf32>) outs(%e : tensor<4x8xf32>) {
  ^bb0(%a: f32, %o: f32):
    %b = math.exp %a : f32
    linalg.yield %b : f32
  } -> tensor<4x8xf32>
  return %sum, %exp : tensor<4x8xf32>, tensor<4x8xf32>
}
