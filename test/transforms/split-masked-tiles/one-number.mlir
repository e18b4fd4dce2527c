// A tensor of one element, of which no dimension is left: no group of the reshape names them.
//
// RUN: attn-opt %s --raise-attention --fuse-attention="tile-sizes=16,0,16" --convert-linalg-softmax --split-masked-tiles --canonicalize | FileCheck %s

#row = affine_map<(d0, d1, d2) -> (d0, d2)>
#col = affine_map<(d0, d1, d2) -> (d1, d2)>
#out = affine_map<(d0, d1, d2) -> (d0, d1)>
#id = affine_map<(d0, d1) -> (d0, d1)>
#none = affine_map<(d0, d1) -> ()>

// The loop over keys ends where the number or the queries of the tile say, whichever is later. It counts as
// one with which nothing overflows.
// CHECK-LABEL: func.func @prefix
// CHECK:         scf.for
// CHECK:           %[[N:.*]] = tensor.extract %{{.*}}[%c0] : tensor<1xi64>
// CHECK:           %[[ABOVE:.*]] = arith.maxsi %[[N]], %c-536870912_i64
// CHECK:           %[[BETWEEN:.*]] = arith.minsi %[[ABOVE]], %c536870912_i64
// CHECK:           arith.index_cast %[[BETWEEN]] : i64 to index
// CHECK:           scf.for %{{.*}} = %c0 to
func.func @prefix(%q: tensor<64x16xf32>, %k: tensor<96x16xf32>, %v: tensor<96x16xf32>, %n: tensor<1xi64>) -> tensor<64x16xf32> {
  %zero = arith.constant 0.0 : f32
  %low = arith.constant 0xFF800000 : f32
  %one = tensor.collapse_shape %n [] : tensor<1xi64> into tensor<i64>
  %empty = tensor.empty() : tensor<64x96xf32>
  %fill = linalg.fill ins(%zero : f32) outs(%empty : tensor<64x96xf32>) -> tensor<64x96xf32>
  %s = linalg.generic {indexing_maps = [#row, #col, #out], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%q, %k : tensor<64x16xf32>, tensor<96x16xf32>) outs(%fill : tensor<64x96xf32>) {
  ^bb0(%a: f32, %b: f32, %c: f32):
    %0 = arith.mulf %a, %b : f32
    %1 = arith.addf %c, %0 : f32
    linalg.yield %1 : f32
  } -> tensor<64x96xf32>
  %masked = linalg.generic {indexing_maps = [#id, #none, #id], iterator_types = ["parallel", "parallel"]}
      ins(%s, %one : tensor<64x96xf32>, tensor<i64>) outs(%empty : tensor<64x96xf32>) {
  ^bb0(%x: f32, %end: i64, %c: f32):
    %i = linalg.index 0 : index
    %j = linalg.index 1 : index
    %key = arith.index_cast %j : index to i64
    %later = arith.cmpi sgt, %j, %i : index
    %beyond = arith.cmpi sge, %key, %end : i64
    %dead = arith.andi %later, %beyond : i1
    %0 = arith.select %dead, %low, %x : f32
    linalg.yield %0 : f32
  } -> tensor<64x96xf32>
  %p = linalg.softmax dimension(1) ins(%masked : tensor<64x96xf32>) outs(%empty : tensor<64x96xf32>) -> tensor<64x96xf32>
  %o = tensor.empty() : tensor<64x16xf32>
  %o0 = linalg.fill ins(%zero : f32) outs(%o : tensor<64x16xf32>) -> tensor<64x16xf32>
  %r = linalg.matmul ins(%p, %v : tensor<64x96xf32>, tensor<96x16xf32>) outs(%o0 : tensor<64x16xf32>) -> tensor<64x16xf32>
  return %r : tensor<64x16xf32>
}
