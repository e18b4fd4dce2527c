// RUN: attn-opt %s --raise-attention="statistics=3,4 weights=4" | FileCheck %s
// RUN: attn-opt %s --raise-attention="statistics=3,4" | FileCheck %s --check-prefix=UNKNOWN

// The derivative of an attention with padding by its values, of what its forward gave for each row: n, and in rows that are
// masked as a whole the probability of each key, w; 0 in others. The number of the mask is left out: where a row has a live
// key at one of three places, w is not looked at, and what is masked is 0.
// CHECK-LABEL: @of_padding
//       CHECK: %[[MASKED:.*]] = linalg.generic {{.*}} ins(%arg4, {{.*}}) outs(%{{.*}} : tensor<6xi1>)
//       CHECK:   %[[HAS:.*]] = arith.cmpf ogt
//       CHECK:   %[[NOWHERE:.*]] = arith.xori
//       CHECK:   arith.andi %[[HAS]], %[[NOWHERE]]
//       CHECK: linalg.generic {{.*}} ins(%arg4, {{.*}}%[[MASKED]] : {{.*}})
//  CHECK-NEXT:   ^bb0(%[[W:[^:]*]]: f32
//       CHECK:   %[[LIVE:.*]] = arith.andi
//       CHECK:   %[[COUNTS:.*]] = arith.ori %[[LIVE]], %{{.*}} : i1
//   CHECK-NOT:   -1.000000e+30
//       CHECK:   %[[E:.*]] = math.exp2
//       CHECK:   %[[P:.*]] = arith.select %[[LIVE]], %[[E]], %[[W]] : f32
//       CHECK:   arith.select %[[COUNTS]], %[[P]], %{{.*}} : f32

// What is not known to be such a weight is a number like others.
// UNKNOWN-LABEL: @of_padding
//       UNKNOWN: arith.constant -1.000000e+30
func.func @of_padding(%q: tensor<6x8xf32>, %k: tensor<6x8xf32>, %g: tensor<6x8xf32>, %n: tensor<6xf32>, %w: tensor<6xf32>, %there: tensor<6xi1>) -> tensor<6x8xf32> {
  %zero = arith.constant 0.0 : f32
  %es = tensor.empty() : tensor<6x6xf32>
  %ekt = tensor.empty() : tensor<8x6xf32>
  %kt = linalg.transpose ins(%k : tensor<6x8xf32>) outs(%ekt : tensor<8x6xf32>) permutation = [1, 0]
  %zs = linalg.fill ins(%zero : f32) outs(%es : tensor<6x6xf32>) -> tensor<6x6xf32>
  %s = linalg.matmul ins(%q, %kt : tensor<6x8xf32>, tensor<8x6xf32>) outs(%zs : tensor<6x6xf32>) -> tensor<6x6xf32>
  %p = linalg.generic {
      indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>, affine_map<(i, j) -> (i)>, affine_map<(i, j) -> (j)>, affine_map<(i, j) -> (i, j)>],
      iterator_types = ["parallel", "parallel"]}
      ins(%s, %n, %w, %there : tensor<6x6xf32>, tensor<6xf32>, tensor<6xf32>, tensor<6xi1>) outs(%es : tensor<6x6xf32>) {
    ^bb0(%x: f32, %r: f32, %t: f32, %is: i1, %out: f32):
      %i = linalg.index 0 : index
      %j = linalg.index 1 : index
      %before = arith.cmpi sle, %j, %i : index
      %live = arith.andi %before, %is : i1
      %low = arith.constant -1.0e30 : f32
      %y = arith.select %live, %x, %low : f32
      %log2e = arith.constant 1.44269504 : f32
      %scaled = arith.mulf %y, %log2e : f32
      %z = arith.subf %scaled, %r : f32
      %e = math.exp2 %z : f32
      %none = arith.constant 0.0 : f32
      %masked = arith.cmpf ogt, %t, %none : f32
      %p_ij = arith.select %masked, %t, %e : f32
      linalg.yield %p_ij : f32
  } -> tensor<6x6xf32>
  %pt = linalg.transpose ins(%p : tensor<6x6xf32>) outs(%es : tensor<6x6xf32>) permutation = [1, 0]
  %eo = tensor.empty() : tensor<6x8xf32>
  %zo = linalg.fill ins(%zero : f32) outs(%eo : tensor<6x8xf32>) -> tensor<6x8xf32>
  %o = linalg.matmul ins(%pt, %g : tensor<6x6xf32>, tensor<6x8xf32>) outs(%zo : tensor<6x8xf32>) -> tensor<6x8xf32>
  return %o : tensor<6x8xf32>
}
