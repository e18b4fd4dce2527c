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

// Rows of all contractions but one, which sums up along them: it has its columns as lanes. It reads the weights in their
// new layout, values as they stand, and adds to what the loop carries as it is; what tiles are only inserted into keeps
// the layout of memory, a tile is transposed where it goes there.
// CHECK-LABEL: func.func @summed_rows
// CHECK-SAME:    %[[K:.*]]: tensor<128x32xf32>, %[[Q:.*]]: tensor<64x32xf32>
// CHECK:       scf.forall
// CHECK:         scf.for {{.*}} -> (tensor<64x32xf32>, tensor<128x32xf32>)
// CHECK:           %[[KJ:.*]] = tensor.extract_slice %[[K]]
// CHECK:           %[[KT:.*]] = linalg.generic {{.*}} ins(%[[KJ]] : tensor<64x32xf32>) outs({{.*}} : tensor<32x64xf32>)
// CHECK:           %[[S:.*]] = linalg.generic {{.*}} ins(%[[KT]], %[[Q]] : {{.*}}) outs({{.*}} : tensor<64x64xf32>)
// CHECK:           linalg.generic {{.*}} ins(%[[S]], %[[KJ]] : tensor<64x64xf32>, tensor<64x32xf32>) outs({{.*}} : tensor<64x32xf32>)
// CHECK:           %[[DK:.*]] = linalg.generic {{.*}} ins(%[[S]], %[[Q]] : {{.*}}) outs({{.*}} : tensor<32x64xf32>)
// CHECK:           %[[T:.*]] = linalg.generic {{.*}} ins(%[[DK]] : tensor<32x64xf32>) outs({{.*}} : tensor<64x32xf32>)
// CHECK:           tensor.insert_slice %[[T]] into %{{.*}} : tensor<64x32xf32> into tensor<128x32xf32>
func.func @summed_rows(%k: tensor<128x32xf32>, %q: tensor<64x32xf32>, %dq0: tensor<1x64x32xf32>, %dk0: tensor<1x128x32xf32>)
    -> (tensor<1x64x32xf32>, tensor<1x128x32xf32>) {
  %zero = arith.constant 0.0 : f32
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  %c128 = arith.constant 128 : index
  %r:2 = scf.forall (%h) in (1) shared_outs(%x = %dq0, %y = %dk0) -> (tensor<1x64x32xf32>, tensor<1x128x32xf32>) {
    %dq1 = tensor.extract_slice %x[%h, 0, 0] [1, 64, 32] [1, 1, 1] : tensor<1x64x32xf32> to tensor<64x32xf32>
    %dk1 = tensor.empty() : tensor<128x32xf32>
    %r1:2 = scf.for %j = %c0 to %c128 step %c64 iter_args(%dq2 = %dq1, %dk2 = %dk1) -> (tensor<64x32xf32>, tensor<128x32xf32>) {
      %kj = tensor.extract_slice %k[%j, 0] [64, 32] [1, 1] : tensor<128x32xf32> to tensor<64x32xf32>
      %e = tensor.empty() : tensor<64x64xf32>
      %z = linalg.generic {indexing_maps = [#scalar, #id], iterator_types = ["parallel", "parallel"]}
        ins(%zero : f32) outs(%e : tensor<64x64xf32>) {
        ^bb0(%a: f32, %b: f32):
          linalg.yield %a : f32
        } -> tensor<64x64xf32>
      %s = linalg.generic {indexing_maps = [#mk, #nk, #mn], iterator_types = ["parallel", "parallel", "reduction"]}
        ins(%kj, %q : tensor<64x32xf32>, tensor<64x32xf32>) outs(%z : tensor<64x64xf32>) {
        ^bb0(%a: f32, %b: f32, %c: f32):
          %p = arith.mulf %a, %b : f32
          %u = arith.addf %c, %p : f32
          linalg.yield %u : f32
        } -> tensor<64x64xf32>
      %dq = linalg.generic {indexing_maps = [affine_map<(m, n, k) -> (k, m)>, #kn, #mn], iterator_types = ["parallel", "parallel", "reduction"]}
        ins(%s, %kj : tensor<64x64xf32>, tensor<64x32xf32>) outs(%dq2 : tensor<64x32xf32>) {
        ^bb0(%a: f32, %b: f32, %c: f32):
          %p = arith.mulf %a, %b : f32
          %u = arith.addf %c, %p : f32
          linalg.yield %u : f32
        } -> tensor<64x32xf32>
      %e1 = tensor.empty() : tensor<64x32xf32>
      %z1 = linalg.generic {indexing_maps = [#scalar, #id], iterator_types = ["parallel", "parallel"]}
        ins(%zero : f32) outs(%e1 : tensor<64x32xf32>) {
        ^bb0(%a: f32, %b: f32):
          linalg.yield %a : f32
        } -> tensor<64x32xf32>
      %dk = linalg.generic {indexing_maps = [#mk, #kn, #mn], iterator_types = ["parallel", "parallel", "reduction"]}
        ins(%s, %q : tensor<64x64xf32>, tensor<64x32xf32>) outs(%z1 : tensor<64x32xf32>) {
        ^bb0(%a: f32, %b: f32, %c: f32):
          %p = arith.mulf %a, %b : f32
          %u = arith.addf %c, %p : f32
          linalg.yield %u : f32
        } -> tensor<64x32xf32>
      %dk3 = tensor.insert_slice %dk into %dk2[%j, 0] [64, 32] [1, 1] : tensor<64x32xf32> into tensor<128x32xf32>
      scf.yield %dq, %dk3 : tensor<64x32xf32>, tensor<128x32xf32>
    }
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %r1#0 into %x[%h, 0, 0] [1, 64, 32] [1, 1, 1] : tensor<64x32xf32> into tensor<1x64x32xf32>
      tensor.parallel_insert_slice %r1#1 into %y[%h, 0, 0] [1, 128, 32] [1, 1, 1] : tensor<128x32xf32> into tensor<1x128x32xf32>
    }
  }
  return %r#0, %r#1 : tensor<1x64x32xf32>, tensor<1x128x32xf32>
}
