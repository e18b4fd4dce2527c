// RUN: attn-opt %s --widen-tiles="matrix=none" | FileCheck %s --check-prefixes=CHECK,WIDE
// RUN: attn-opt %s --widen-tiles="matrix=amx-bf16" | FileCheck %s --check-prefixes=CHECK,FACTOR

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

// What has 8 bits is rounded to them all the same, and kept in f32, or as a factor of a matrix unit in bf16.
// CHECK-LABEL: func.func @narrower
// WIDE:   %[[P:.*]] = linalg.generic {{.*}} outs({{.*}} : tensor<64x48xf32>)
// FACTOR: %[[P:.*]] = linalg.generic {{.*}} outs({{.*}} : tensor<64x48xbf16>)
// CHECK:  %[[R:.*]] = arith.truncf %{{.*}} : f32 to f8E4M3FN
// WIDE:   %[[X:.*]] = arith.extf %[[R]] : f8E4M3FN to f32
// FACTOR: %[[X:.*]] = arith.extf %[[R]] : f8E4M3FN to bf16
// CHECK:  linalg.yield %[[X]]
// WIDE:   linalg.generic {{.*}} ins(%[[P]], {{.*}} : tensor<64x48xf32>, tensor<48x40xf8E4M3FN>)
// FACTOR: linalg.generic {{.*}} ins(%[[P]], {{.*}} : tensor<64x48xbf16>, tensor<48x40xf8E4M3FN>)
func.func @narrower(%s: tensor<128x48xf32>, %v: tensor<48x40xf8E4M3FN>) -> tensor<128x40xf32> {
  %out = tensor.empty() : tensor<128x40xf32>
  %r = scf.forall (%i) = (0) to (128) step (64)
    shared_outs(%o = %out) -> (tensor<128x40xf32>) {
    %si = tensor.extract_slice %s[%i, 0] [64, 48] [1, 1] : tensor<128x48xf32> to tensor<64x48xf32>
    %pe = tensor.empty() : tensor<64x48xf8E4M3FN>
    %p = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%si : tensor<64x48xf32>) outs(%pe : tensor<64x48xf8E4M3FN>) {
      ^bb0(%x: f32, %y: f8E4M3FN):
        %t = arith.truncf %x : f32 to f8E4M3FN
        linalg.yield %t : f8E4M3FN
      } -> tensor<64x48xf8E4M3FN>
    %oi = tensor.extract_slice %o[%i, 0] [64, 40] [1, 1] : tensor<128x40xf32> to tensor<64x40xf32>
    %q = linalg.generic {indexing_maps = [#mk, #kn, #mn], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%p, %v : tensor<64x48xf8E4M3FN>, tensor<48x40xf8E4M3FN>) outs(%oi : tensor<64x40xf32>) {
      ^bb0(%x: f8E4M3FN, %y: f8E4M3FN, %z: f32):
        %a = arith.extf %x : f8E4M3FN to f32
        %b = arith.extf %y : f8E4M3FN to f32
        %m = arith.mulf %a, %b : f32
        %u = arith.addf %z, %m : f32
        linalg.yield %u : f32
      } -> tensor<64x40xf32>
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %q into %o[%i, 0] [64, 40] [1, 1] : tensor<64x40xf32> into tensor<128x40xf32>
    }
  }
  return %r : tensor<128x40xf32>
}
