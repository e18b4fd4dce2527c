// RUN: attn-opt %s --widen-tiles="matrix=none" | FileCheck %s
// RUN: attn-opt %s --widen-tiles="matrix=amx-bf16" | FileCheck %s

#scalar = affine_map<(i, j) -> ()>
#id = affine_map<(i, j) -> (i, j)>
#mk = affine_map<(m, n, k) -> (m, k)>
#nk = affine_map<(m, n, k) -> (n, k)>
#kn = affine_map<(m, n, k) -> (k, n)>
#mn = affine_map<(m, n, k) -> (m, n)>

// Scores and accumulators are f32; queries, keys, values and the output stay bf16.
// CHECK-LABEL: func.func @rows
// CHECK: linalg.generic {{.*}} outs({{.*}} : tensor<64x48xf32>) {
// CHECK-NEXT: ^bb0(%[[X:.*]]: f32, %{{.*}}: f32):
// CHECK-NEXT: linalg.yield %[[X]] : f32
// CHECK: %[[S:.*]] = linalg.generic {{.*}} ins({{.*}} : tensor<64x32xbf16>, tensor<48x32xbf16>) outs({{.*}} : tensor<64x48xf32>)
// CHECK-NEXT: ^bb0(%{{.*}}: bf16, %{{.*}}: bf16, %{{.*}}: f32):
// CHECK: %[[O:.*]] = linalg.generic {{.*}} ins(%[[S]], {{.*}} : tensor<64x48xf32>, tensor<48x40xbf16>) outs({{.*}} : tensor<64x40xf32>)
// CHECK: %[[ROUNDED:.*]] = linalg.generic {{.*}} ins(%[[O]] : tensor<64x40xf32>) outs({{.*}} : tensor<64x40xbf16>)
// CHECK: arith.truncf
// CHECK: tensor.parallel_insert_slice %[[ROUNDED]] into
func.func @rows(%q: tensor<128x32xbf16>, %k: tensor<48x32xbf16>, %v: tensor<48x40xbf16>) -> tensor<128x40xbf16> {
  %zero = arith.constant 0.0 : bf16
  %out = tensor.empty() : tensor<128x40xbf16>
  %r = scf.forall (%i) = (0) to (128) step (64)
    shared_outs(%o = %out) -> (tensor<128x40xbf16>) {
      %qi = tensor.extract_slice %q[%i, 0] [64, 32] [1, 1] : tensor<128x32xbf16> to tensor<64x32xbf16>
    %se = tensor.empty() : tensor<64x48xbf16>
    %s0 = linalg.generic {indexing_maps = [#scalar, #id], iterator_types = ["parallel", "parallel"]}
      ins(%zero : bf16) outs(%se : tensor<64x48xbf16>) {
      ^bb0(%x: bf16, %y: bf16):
        linalg.yield %x : bf16
      } -> tensor<64x48xbf16>
    %s = linalg.generic {indexing_maps = [#mk, #nk, #mn], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%qi, %k : tensor<64x32xbf16>, tensor<48x32xbf16>) outs(%s0 : tensor<64x48xbf16>) {
      ^bb0(%x: bf16, %y: bf16, %z: bf16):
        %p = arith.mulf %x, %y : bf16
        %u = arith.addf %z, %p : bf16
        linalg.yield %u : bf16
      } -> tensor<64x48xbf16>
    %oi = tensor.extract_slice %o[%i, 0] [64, 40] [1, 1] : tensor<128x40xbf16> to tensor<64x40xbf16>
    %p = linalg.generic {indexing_maps = [#mk, #kn, #mn], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%s, %v : tensor<64x48xbf16>, tensor<48x40xbf16>) outs(%oi : tensor<64x40xbf16>) {
      ^bb0(%x: bf16, %y: bf16, %z: bf16):
        %p = arith.mulf %x, %y : bf16
        %u = arith.addf %z, %p : bf16
        linalg.yield %u : bf16
      } -> tensor<64x40xbf16>
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %p into %o[%i, 0] [64, 40] [1, 1] : tensor<64x40xbf16> into tensor<128x40xbf16>
    }
  }
  return %r : tensor<128x40xbf16>
}
