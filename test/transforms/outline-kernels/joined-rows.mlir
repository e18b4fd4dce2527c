// RUN: attn-opt %s --outline-kernels --canonicalize --cse | FileCheck %s

#q = affine_map<(h, g, i, j, d) -> (h, g, i, d)>
#k = affine_map<(h, g, i, j, d) -> (h, j, d)>
#s = affine_map<(h, g, i, j, d) -> (h, g, i, j)>
#tile = affine_map<(h, g, i, j) -> (h, g, i, j)>
#row = affine_map<(h, g, i, j) -> (h, g, i)>
#none = affine_map<(h, g, i, j) -> ()>
#of_queries = affine_map<(h, g, i, j) -> (i)>

// The largest score of each of 12 queries of 5 heads that share 32 keys, those after the query left out, and times a
// factor of the query. Rows of a tile are both: heads first, so that the tile's last head may be none.

// CHECK:         gpu.func @shared_keys_0(%[[Q:.*]]: memref<2x5x12x16xf16, strided<[?, ?, ?, 1]>>, %[[K:.*]]: memref<2x32x16xf16, {{.*}}>, %[[F:.*]]: memref<12xf32, {{.*}}>, %[[OUT:.*]]: memref<2x5x12xf32, {{.*}}>) kernel
// CHECK-DAG:       %[[G:.*]] = arith.muli %{{.*}}, %c4
// CHECK-DAG:       %[[HEADS:.*]] = affine.min
// CHECK-DAG:       %[[ROWS:.*]] = arith.muli %[[HEADS]], %c12
// CHECK:           %[[QT:.*]] = tile.load (%[[Q]], %[[H:.*]], %[[G]], %c0, %c0, %[[ROWS]], %c16) {dims = {{\[\[\[}}1, 4], [2, 12]], 3]{{.*}} -> (tensor<64x16xf16>)
// CHECK:           %[[KT:.*]] = tile.load (%[[K]], %[[H]], %c0, %c0, %c32, %c16) {dims = [1, 2]{{.*}} -> (tensor<32x16xf16>)
// CHECK:           %[[S:.*]] = linalg.generic {{.*}} ins(%[[QT]], %[[KT]] : tensor<64x16xf16>, tensor<32x16xf16>) outs(%{{.*}} : tensor<64x32xf32>)
// CHECK:           %[[FT:.*]] = tile.load (%[[F]], %c0, %[[ROWS]]) {dims = {{\[\[\[}}-1, 4], [0, 12]]]{{.*}} -> (tensor<64xf32>)
// CHECK:           linalg.generic {{.*}} ins(%[[S]], %[[FT]] : tensor<64x32xf32>, tensor<64xf32>)
// CHECK:             %[[R:.*]] = linalg.index 0
// CHECK:             %[[I:.*]] = arith.remui %[[R]], %c12
// CHECK:             arith.cmpi sge, %[[I]]
// CHECK:           tile.store ({{.*}}, %[[OUT]], %[[H]], %[[G]], %c0, %[[ROWS]]) {dims = {{\[\[\[}}1, 4], [2, 12]]]

func.func @shared_keys(%q: tensor<2x5x12x16xf16>, %k: tensor<2x32x16xf16>, %f: tensor<12xf32>) -> tensor<2x5x12xf32> {
  %minus_inf = arith.constant 0xFF800000 : f32
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<2x5x12xf32>
  %init = linalg.fill ins(%minus_inf : f32) outs(%e : tensor<2x5x12xf32>) -> tensor<2x5x12xf32>
  %r = scf.forall (%h, %g) = (0, 0) to (2, 5) step (1, 4) shared_outs(%out = %init) -> (tensor<2x5x12xf32>) {
    %n = affine.min affine_map<(d0) -> (4, 5 - d0)>(%g)
    %max0 = tensor.extract_slice %out[%h, %g, 0] [1, %n, 12] [1, 1, 1] : tensor<2x5x12xf32> to tensor<1x?x12xf32>
    %qt = tensor.extract_slice %q[%h, %g, 0, 0] [1, %n, 12, 16] [1, 1, 1, 1] : tensor<2x5x12x16xf16> to tensor<1x?x12x16xf16>
    %kt = tensor.extract_slice %k[%h, 0, 0] [1, 32, 16] [1, 1, 1] : tensor<2x32x16xf16> to tensor<1x32x16xf16>
    %se = tensor.empty(%n) : tensor<1x?x12x32xf32>
    %s0 = linalg.generic {indexing_maps = [#none, #tile], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%zero : f32) outs(%se : tensor<1x?x12x32xf32>) {
    ^bb0(%a: f32, %b: f32):
      linalg.yield %a : f32
    } -> tensor<1x?x12x32xf32>
    %s = linalg.generic {indexing_maps = [#q, #k, #s], iterator_types = ["parallel", "parallel", "parallel", "parallel", "reduction"]} ins(%qt, %kt : tensor<1x?x12x16xf16>, tensor<1x32x16xf16>) outs(%s0 : tensor<1x?x12x32xf32>) {
    ^bb0(%a: f16, %b: f16, %c: f32):
      %x = arith.extf %a : f16 to f32
      %y = arith.extf %b : f16 to f32
      %xy = arith.mulf %x, %y : f32
      %sum = arith.addf %c, %xy : f32
      linalg.yield %sum : f32
    } -> tensor<1x?x12x32xf32>
    %masked = linalg.generic {indexing_maps = [#tile, #of_queries, #tile], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%s, %f : tensor<1x?x12x32xf32>, tensor<12xf32>) outs(%se : tensor<1x?x12x32xf32>) {
    ^bb0(%a: f32, %b: f32, %c: f32):
      %i = linalg.index 2 : index
      %j = linalg.index 3 : index
      %live = arith.cmpi sge, %i, %j : index
      %scaled = arith.mulf %a, %b : f32
      %left = arith.select %live, %scaled, %minus_inf : f32
      linalg.yield %left : f32
    } -> tensor<1x?x12x32xf32>
    %max = linalg.generic {indexing_maps = [#tile, #row], iterator_types = ["parallel", "parallel", "parallel", "reduction"]} ins(%masked : tensor<1x?x12x32xf32>) outs(%max0 : tensor<1x?x12xf32>) {
    ^bb0(%a: f32, %b: f32):
      %m = arith.maximumf %a, %b : f32
      linalg.yield %m : f32
    } -> tensor<1x?x12xf32>
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %max into %out[%h, %g, 0] [1, %n, 12] [1, 1, 1] : tensor<1x?x12xf32> into tensor<2x5x12xf32>
    }
  }
  return %r : tensor<2x5x12xf32>
}
