// RUN: attn-opt %s --fuse-attention="tile-sizes=4,0,8" | FileCheck %s
// RUN: attn-opt %s --fuse-attention | FileCheck %s --check-prefix=CHOSEN

// A bias that is a product of matrices, of pairs of a query and a key with weights, is not taken for the scores: those
// are what keys alone and queries alone are multiplied to. Where tiles are chosen, the bias is computed before the loops.
// CHECK-LABEL: func.func @pair_bias(
// CHECK:         scf.for
// CHECK:           linalg.matmul ins(%{{.*}}, %{{.*}} : tensor<4x6xf32>, tensor<6x8xf32>)
// CHECK:           linalg_ext.softmax
// CHOSEN-LABEL: func.func @pair_bias(
// CHOSEN-SAME:    %[[Q:[^:]*]]: tensor<12x6xf32>
// CHOSEN:         linalg.generic {{.*}} ins(%{{.*}}, %{{.*}} : tensor<12x16x5xf32>, tensor<5xf32>)
// CHOSEN:         scf.for
// CHOSEN:           tensor.extract_slice %[[Q]]
// CHOSEN:           linalg.matmul ins(%{{.*}} : tensor<{{.*}}x6xf32>, tensor<6x{{.*}}xf32>)
// CHOSEN:           linalg_ext.softmax
func.func @pair_bias(%q: tensor<12x6xf32>, %k: tensor<6x16xf32>, %v: tensor<16x6xf32>, %pairs: tensor<12x16x5xf32>, %w: tensor<5xf32>) -> tensor<12x6xf32> {
  %zero = arith.constant 0.0 : f32
  %low = arith.constant 0xFF800000 : f32
  %e = tensor.empty() : tensor<12x16xf32>
  %r = tensor.empty() : tensor<12xf32>
  %eo = tensor.empty() : tensor<12x6xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<12x16xf32>) -> tensor<12x16xf32>
  %b = linalg.generic {indexing_maps = [affine_map<(i, j, c) -> (i, j, c)>, affine_map<(i, j, c) -> (c)>, affine_map<(i, j, c) -> (i, j)>], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%pairs, %w : tensor<12x16x5xf32>, tensor<5xf32>) outs(%z : tensor<12x16xf32>) {
  ^bb0(%x: f32, %y: f32, %sum: f32):
    %p = arith.mulf %x, %y : f32
    %t = arith.addf %sum, %p : f32
    linalg.yield %t : f32
  } -> tensor<12x16xf32>
  %s = linalg.matmul ins(%q, %k : tensor<12x6xf32>, tensor<6x16xf32>) outs(%z : tensor<12x16xf32>) -> tensor<12x16xf32>
  %x = linalg.add ins(%b, %s : tensor<12x16xf32>, tensor<12x16xf32>) outs(%e : tensor<12x16xf32>) -> tensor<12x16xf32>
  %m0 = linalg.fill ins(%low : f32) outs(%r : tensor<12xf32>) -> tensor<12xf32>
  %a0 = linalg.fill ins(%zero : f32) outs(%r : tensor<12xf32>) -> tensor<12xf32>
  %o0 = linalg.fill ins(%zero : f32) outs(%eo : tensor<12x6xf32>) -> tensor<12x6xf32>
  %p:4 = linalg_ext.softmax dimension(1) ins(%x : tensor<12x16xf32>) outs(%e, %m0, %a0, %r : tensor<12x16xf32>, tensor<12xf32>, tensor<12xf32>, tensor<12xf32>) : tensor<12x16xf32>, tensor<12xf32>, tensor<12xf32>, tensor<12xf32>
  %o = linalg.matmul ins(%p#0, %v : tensor<12x16xf32>, tensor<16x6xf32>) outs(%o0 : tensor<12x6xf32>) -> tensor<12x6xf32>
  return %o : tensor<12x6xf32>
}
