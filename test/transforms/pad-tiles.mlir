// RUN: attn-opt %s --pad-tiles | FileCheck %s

#scalar = affine_map<(i, j) -> ()>
#id = affine_map<(i, j) -> (i, j)>
#mk = affine_map<(m, n, k) -> (m, k)>
#nk = affine_map<(m, n, k) -> (n, k)>
#kn = affine_map<(m, n, k) -> (k, n)>
#mn = affine_map<(m, n, k) -> (m, n)>

// The last tile has 36 queries; all are computed as 64.
// CHECK-LABEL: func.func @rows
// CHECK: %[[N:.*]] = affine.min
// CHECK: %[[Q:.*]] = tensor.extract_slice {{.*}}[%[[N]], 32]
// CHECK: %[[ZEROS:.*]] = linalg.fill {{.*}} -> tensor<64x32xf32>
// CHECK: %[[PADDED:.*]] = tensor.insert_slice %[[Q]] into %[[ZEROS]][0, 0] [%[[N]], 32]
// CHECK: %[[S:.*]] = linalg.generic {{.*}} ins(%[[PADDED]], {{.*}} outs({{.*}} : tensor<64x48xf32>)
// CHECK: %[[O:.*]] = linalg.generic {{.*}} ins(%[[S]], {{.*}} outs({{.*}} : tensor<64x40xf32>)
// CHECK: %[[REST:.*]] = tensor.extract_slice %[[O]][0, 0] [%[[N]], 40] [1, 1] : tensor<64x40xf32> to tensor<?x40xf32>
// CHECK: tensor.parallel_insert_slice %[[REST]] into
func.func @rows(%q: tensor<100x32xf32>, %k: tensor<48x32xf32>, %v: tensor<48x40xf32>) -> tensor<100x40xf32> {
  %zero = arith.constant 0.0 : f32
  %out = tensor.empty() : tensor<100x40xf32>
  %r = scf.forall (%i) = (0) to (100) step (64)
    shared_outs(%o = %out) -> (tensor<100x40xf32>) {
    %n = affine.min affine_map<(i) -> (-i + 100, 64)>(%i)
    %qi = tensor.extract_slice %q[%i, 0] [%n, 32] [1, 1] : tensor<100x32xf32> to tensor<?x32xf32>
    %se = tensor.empty(%n) : tensor<?x48xf32>
    %s0 = linalg.generic {indexing_maps = [#scalar, #id], iterator_types = ["parallel", "parallel"]}
      ins(%zero : f32) outs(%se : tensor<?x48xf32>) {
      ^bb0(%x: f32, %y: f32):
        linalg.yield %x : f32
      } -> tensor<?x48xf32>
    %s = linalg.generic {indexing_maps = [#mk, #nk, #mn], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%qi, %k : tensor<?x32xf32>, tensor<48x32xf32>) outs(%s0 : tensor<?x48xf32>) {
      ^bb0(%x: f32, %y: f32, %z: f32):
        %p = arith.mulf %x, %y : f32
        %u = arith.addf %z, %p : f32
        linalg.yield %u : f32
      } -> tensor<?x48xf32>
    %oi = tensor.extract_slice %o[%i, 0] [%n, 40] [1, 1] : tensor<100x40xf32> to tensor<?x40xf32>
    %p = linalg.generic {indexing_maps = [#mk, #kn, #mn], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%s, %v : tensor<?x48xf32>, tensor<48x40xf32>) outs(%oi : tensor<?x40xf32>) {
      ^bb0(%x: f32, %y: f32, %z: f32):
        %p = arith.mulf %x, %y : f32
        %u = arith.addf %z, %p : f32
        linalg.yield %u : f32
      } -> tensor<?x40xf32>
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %p into %o[%i, 0] [%n, 40] [1, 1] : tensor<?x40xf32> into tensor<100x40xf32>
    }
  }
  return %r : tensor<100x40xf32>
}
