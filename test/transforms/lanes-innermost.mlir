// RUN: attn-opt %s --lanes-innermost | FileCheck %s

#scalar = affine_map<(i, j) -> ()>
#id = affine_map<(i, j) -> (i, j)>
#mk = affine_map<(m, n, k) -> (m, k)>
#nk = affine_map<(m, n, k) -> (n, k)>
#kn = affine_map<(m, n, k) -> (k, n)>
#mn = affine_map<(m, n, k) -> (m, n)>

// Queries, the first dimension of the operands, become the last one; keys and values stay as they are.
// CHECK-DAG: #[[T:.*]] = affine_map<(d0, d1) -> (d1, d0)>
// CHECK-DAG: #[[B:.*]] = affine_map<(d0, d1, d2) -> (d2, d0)>
// CHECK-DAG: #[[NK:.*]] = affine_map<(d0, d1, d2) -> (d1, d2)>
// CHECK-DAG: #[[C:.*]] = affine_map<(d0, d1, d2) -> (d1, d0)>
// CHECK-DAG: #[[KN:.*]] = affine_map<(d0, d1, d2) -> (d2, d1)>
// CHECK-LABEL: func.func @rows
// CHECK-SAME: %[[Q:.*]]: tensor<128x32xf32>, %[[K:.*]]: tensor<48x32xf32>, %[[V:.*]]: tensor<48x40xf32>
// CHECK: %[[ZEROS:.*]] = linalg.generic {{.*}} outs({{.*}} : tensor<48x64xf32>)
// CHECK: %[[QT:.*]] = linalg.generic {indexing_maps = [{{.*}}, #[[T]]]{{.*}} outs({{.*}} : tensor<32x64xf32>)
// CHECK: %[[S:.*]] = linalg.generic {indexing_maps = [#[[B]], #[[NK]], #[[C]]]{{.*}} ins(%[[QT]], %[[K]] : {{.*}}outs(%[[ZEROS]] :
// CHECK: %[[INIT:.*]] = linalg.generic {{.*}} outs({{.*}} : tensor<40x64xf32>)
// CHECK: %[[O:.*]] = linalg.generic {indexing_maps = [#[[B]], #[[KN]], #[[C]]]{{.*}} ins(%[[S]], %[[V]] : {{.*}}outs(%[[INIT]] :
// CHECK: %[[BACK:.*]] = linalg.generic {indexing_maps = [#[[T]], {{.*}} ins(%[[O]] : tensor<40x64xf32>) outs({{.*}} : tensor<64x40xf32>)
// CHECK: tensor.parallel_insert_slice %[[BACK]] into
func.func @rows(%q: tensor<128x32xf32>, %k: tensor<48x32xf32>, %v: tensor<48x40xf32>) -> tensor<128x40xf32> {
  %zero = arith.constant 0.0 : f32
  %out = tensor.empty() : tensor<128x40xf32>
  %r = scf.forall (%i) = (0) to (128) step (64)
    shared_outs(%o = %out) -> (tensor<128x40xf32>) {
      %qi = tensor.extract_slice %q[%i, 0] [64, 32] [1, 1] : tensor<128x32xf32> to tensor<64x32xf32>
    %se = tensor.empty() : tensor<64x48xf32>
    %s0 = linalg.generic {indexing_maps = [#scalar, #id], iterator_types = ["parallel", "parallel"]}
      ins(%zero : f32) outs(%se : tensor<64x48xf32>) {
      ^bb0(%x: f32, %y: f32):
        linalg.yield %x : f32
      } -> tensor<64x48xf32>
    %s = linalg.generic {indexing_maps = [#mk, #nk, #mn], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%qi, %k : tensor<64x32xf32>, tensor<48x32xf32>) outs(%s0 : tensor<64x48xf32>) {
      ^bb0(%x: f32, %y: f32, %z: f32):
        %p = arith.mulf %x, %y : f32
        %u = arith.addf %z, %p : f32
        linalg.yield %u : f32
      } -> tensor<64x48xf32>
    %oi = tensor.extract_slice %o[%i, 0] [64, 40] [1, 1] : tensor<128x40xf32> to tensor<64x40xf32>
    %p = linalg.generic {indexing_maps = [#mk, #kn, #mn], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%s, %v : tensor<64x48xf32>, tensor<48x40xf32>) outs(%oi : tensor<64x40xf32>) {
      ^bb0(%x: f32, %y: f32, %z: f32):
        %p = arith.mulf %x, %y : f32
        %u = arith.addf %z, %p : f32
        linalg.yield %u : f32
      } -> tensor<64x40xf32>
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %p into %o[%i, 0] [64, 40] [1, 1] : tensor<64x40xf32> into tensor<128x40xf32>
    }
  }
  return %r : tensor<128x40xf32>
}

// Four queries fill no vector.
// CHECK-LABEL: func.func @few_rows
// CHECK-NOT: tensor<48x4xf32>
// CHECK: return
func.func @few_rows(%q: tensor<8x32xf32>, %k: tensor<48x32xf32>, %v: tensor<48x40xf32>) -> tensor<8x40xf32> {
  %zero = arith.constant 0.0 : f32
  %out = tensor.empty() : tensor<8x40xf32>
  %r = scf.forall (%i) = (0) to (8) step (4)
    shared_outs(%o = %out) -> (tensor<8x40xf32>) {
      %qi = tensor.extract_slice %q[%i, 0] [4, 32] [1, 1] : tensor<8x32xf32> to tensor<4x32xf32>
    %se = tensor.empty() : tensor<4x48xf32>
    %s0 = linalg.generic {indexing_maps = [#scalar, #id], iterator_types = ["parallel", "parallel"]}
      ins(%zero : f32) outs(%se : tensor<4x48xf32>) {
      ^bb0(%x: f32, %y: f32):
        linalg.yield %x : f32
      } -> tensor<4x48xf32>
    %s = linalg.generic {indexing_maps = [#mk, #nk, #mn], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%qi, %k : tensor<4x32xf32>, tensor<48x32xf32>) outs(%s0 : tensor<4x48xf32>) {
      ^bb0(%x: f32, %y: f32, %z: f32):
        %p = arith.mulf %x, %y : f32
        %u = arith.addf %z, %p : f32
        linalg.yield %u : f32
      } -> tensor<4x48xf32>
    %oi = tensor.extract_slice %o[%i, 0] [4, 40] [1, 1] : tensor<8x40xf32> to tensor<4x40xf32>
    %p = linalg.generic {indexing_maps = [#mk, #kn, #mn], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%s, %v : tensor<4x48xf32>, tensor<48x40xf32>) outs(%oi : tensor<4x40xf32>) {
      ^bb0(%x: f32, %y: f32, %z: f32):
        %p = arith.mulf %x, %y : f32
        %u = arith.addf %z, %p : f32
        linalg.yield %u : f32
      } -> tensor<4x40xf32>
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %p into %o[%i, 0] [4, 40] [1, 1] : tensor<4x40xf32> into tensor<8x40xf32>
    }
  }
  return %r : tensor<8x40xf32>
}

// Four heads of four queries do: scores have both innermost, in the order of the queries; what is computed with the rows
// of values, which are read as they stand, keeps its layout.
// CHECK-LABEL: func.func @rows_of_two_dimensions
// CHECK: %[[QT:.*]] = linalg.generic {{.*}} outs({{.*}} : tensor<32x4x4xf32>)
// CHECK: %[[S:.*]] = linalg.generic {{.*}} ins(%[[QT]], %{{.*}} : tensor<32x4x4xf32>, tensor<48x32xf32>) outs({{.*}} : tensor<48x4x4xf32>)
// CHECK: linalg.generic {{.*}} ins(%[[S]], %{{.*}} : tensor<48x4x4xf32>, tensor<48x40xf32>) outs({{.*}} : tensor<4x4x40xf32>)
#hmk = affine_map<(h, m, n, k) -> (h, m, k)>
#hnk = affine_map<(h, m, n, k) -> (n, k)>
#hkn = affine_map<(h, m, n, k) -> (k, n)>
#hmn = affine_map<(h, m, n, k) -> (h, m, n)>
func.func @rows_of_two_dimensions(%q: tensor<4x8x32xf32>, %k: tensor<48x32xf32>, %v: tensor<48x40xf32>) -> tensor<4x8x40xf32> {
  %zero = arith.constant 0.0 : f32
  %out = tensor.empty() : tensor<4x8x40xf32>
  %r = scf.forall (%i) = (0) to (8) step (4) shared_outs(%o = %out) -> (tensor<4x8x40xf32>) {
    %qi = tensor.extract_slice %q[0, %i, 0] [4, 4, 32] [1, 1, 1] : tensor<4x8x32xf32> to tensor<4x4x32xf32>
    %se = tensor.empty() : tensor<4x4x48xf32>
    %s0 = linalg.generic {indexing_maps = [affine_map<(i, j, k) -> ()>, affine_map<(i, j, k) -> (i, j, k)>],
      iterator_types = ["parallel", "parallel", "parallel"]} ins(%zero : f32) outs(%se : tensor<4x4x48xf32>) {
      ^bb0(%x: f32, %y: f32):
        linalg.yield %x : f32
      } -> tensor<4x4x48xf32>
    %s = linalg.generic {indexing_maps = [#hmk, #hnk, #hmn], iterator_types = ["parallel", "parallel", "parallel", "reduction"]}
      ins(%qi, %k : tensor<4x4x32xf32>, tensor<48x32xf32>) outs(%s0 : tensor<4x4x48xf32>) {
      ^bb0(%x: f32, %y: f32, %z: f32):
        %p = arith.mulf %x, %y : f32
        %u = arith.addf %z, %p : f32
        linalg.yield %u : f32
      } -> tensor<4x4x48xf32>
    %oi = tensor.extract_slice %o[0, %i, 0] [4, 4, 40] [1, 1, 1] : tensor<4x8x40xf32> to tensor<4x4x40xf32>
    %p = linalg.generic {indexing_maps = [#hmk, #hkn, #hmn], iterator_types = ["parallel", "parallel", "parallel", "reduction"]}
      ins(%s, %v : tensor<4x4x48xf32>, tensor<48x40xf32>) outs(%oi : tensor<4x4x40xf32>) {
      ^bb0(%x: f32, %y: f32, %z: f32):
        %p = arith.mulf %x, %y : f32
        %u = arith.addf %z, %p : f32
        linalg.yield %u : f32
      } -> tensor<4x4x40xf32>
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %p into %o[0, %i, 0] [4, 4, 40] [1, 1, 1] : tensor<4x4x40xf32> into tensor<4x8x40xf32>
    }
  }
  return %r : tensor<4x8x40xf32>
}
