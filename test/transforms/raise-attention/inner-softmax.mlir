// RUN: attn-opt %s --raise-attention | FileCheck %s

// Squares of probabilities: an attention of values that are 1 has the sums of exponentials, and another one without a
// softmax makes probabilities of each score by itself, exp(s − m)·(1 / l), or 0 in rows without a live key.
// CHECK-LABEL: @squares
//       CHECK: %[[S:.*]] = linalg.generic {{.*}} ins(%arg0, %arg1 : tensor<2x5x8xf32>, tensor<2x7x8xf32>)
//       CHECK: %[[SOFTMAX:.*]]:4 = linalg_ext.softmax dimension(2) ins(%[[S]]
//       CHECK: %[[ONES:.*]] = linalg.fill ins(%{{.*}} : f32) outs(%{{.*}} : tensor<2x7x4xf32>)
//       CHECK: %[[LIVE:.*]] = linalg.generic {{.*}} ins(%[[SOFTMAX]]#0, %[[ONES]] : tensor<2x5x7xf32>, tensor<2x7x4xf32>)
//       CHECK: %[[FIRST:.*]] = tensor.collapse_shape
//       CHECK: %[[M:.*]] = linalg.generic {{.*}} ins(%[[SOFTMAX]]#1, %[[FIRST]] :
//  CHECK-NEXT: ^bb0(%[[MAX:.*]]: f32, %[[OUTPUT:.*]]: f32, %{{.*}}: f32):
//       CHECK:   %[[IS:.*]] = arith.cmpf une, %[[OUTPUT]], %[[ZERO:.*]] : f32
//  CHECK-NEXT:   arith.select %[[IS]], %[[MAX]], %[[ZERO]]
//       CHECK: %[[R:.*]] = linalg.generic {{.*}} ins(%[[SOFTMAX]]#2, %[[FIRST]] :
//  CHECK-NEXT: ^bb0(%[[SUM:.*]]: f32, %{{.*}}: f32, %{{.*}}: f32):
//       CHECK:   %[[SHARE:.*]] = arith.divf %{{.*}}, %[[SUM]]
//  CHECK-NEXT:   arith.select %{{.*}}, %[[SHARE]]
//       CHECK: %[[AGAIN:.*]] = linalg.generic {{.*}} ins(%arg0, %arg1 : tensor<2x5x8xf32>, tensor<2x7x8xf32>)
//       CHECK: %[[W:.*]] = linalg.generic {{.*}} ins(%[[M]], %[[R]], %[[AGAIN]] :
//       CHECK:   %[[D:.*]] = arith.subf
//       CHECK:   %[[D2:.*]] = arith.mulf %{{.*}}, %[[D]]
//  CHECK-NEXT:   %[[E:.*]] = math.exp2 %[[D2]]
//  CHECK-NEXT:   %[[P:.*]] = arith.mulf %{{.*}}, %[[E]]
//  CHECK-NEXT:   arith.mulf %[[P]], %[[P]]
//       CHECK: linalg.generic {{.*}} ins(%[[W]], %arg2 : tensor<2x5x7xf32>, tensor<2x7x4xf32>)
#id = affine_map<(b, i, j) -> (b, i, j)>
func.func @squares(%q: tensor<2x5x8xf32>, %k: tensor<2x7x8xf32>, %v: tensor<2x7x4xf32>) -> tensor<2x5x4xf32> {
  %zero = arith.constant 0.0 : f32
  %e_t = tensor.empty() : tensor<2x8x7xf32>
  %kt = linalg.transpose ins(%k : tensor<2x7x8xf32>) outs(%e_t : tensor<2x8x7xf32>) permutation = [0, 2, 1]
  %e_s = tensor.empty() : tensor<2x5x7xf32>
  %z_s = linalg.fill ins(%zero : f32) outs(%e_s : tensor<2x5x7xf32>) -> tensor<2x5x7xf32>
  %s = linalg.batch_matmul ins(%q, %kt : tensor<2x5x8xf32>, tensor<2x8x7xf32>) outs(%z_s : tensor<2x5x7xf32>) -> tensor<2x5x7xf32>
  %p = linalg.softmax dimension(2) ins(%s : tensor<2x5x7xf32>) outs(%e_s : tensor<2x5x7xf32>) -> tensor<2x5x7xf32>
  %w = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel", "parallel"]} ins(%p : tensor<2x5x7xf32>) outs(%e_s : tensor<2x5x7xf32>) {
  ^bb0(%x: f32, %o: f32):
    %r = arith.mulf %x, %x : f32
    linalg.yield %r : f32
  } -> tensor<2x5x7xf32>
  %e_o = tensor.empty() : tensor<2x5x4xf32>
  %z_o = linalg.fill ins(%zero : f32) outs(%e_o : tensor<2x5x4xf32>) -> tensor<2x5x4xf32>
  %o = linalg.batch_matmul ins(%w, %v : tensor<2x5x7xf32>, tensor<2x7x4xf32>) outs(%z_o : tensor<2x5x4xf32>) -> tensor<2x5x4xf32>
  return %o : tensor<2x5x4xf32>
}

// What is compared with the largest probability is no function of each by itself: it stays.
// CHECK-LABEL: @largest
//   CHECK-NOT: linalg_ext.softmax
//       CHECK: return
#row = affine_map<(b, i, j) -> (b, i)>
func.func @largest(%q: tensor<2x5x8xf32>, %kt: tensor<2x8x7xf32>, %v: tensor<2x7x4xf32>) -> tensor<2x5x4xf32> {
  %zero = arith.constant 0.0 : f32
  %e_s = tensor.empty() : tensor<2x5x7xf32>
  %z_s = linalg.fill ins(%zero : f32) outs(%e_s : tensor<2x5x7xf32>) -> tensor<2x5x7xf32>
  %s = linalg.batch_matmul ins(%q, %kt : tensor<2x5x8xf32>, tensor<2x8x7xf32>) outs(%z_s : tensor<2x5x7xf32>) -> tensor<2x5x7xf32>
  %p = linalg.softmax dimension(2) ins(%s : tensor<2x5x7xf32>) outs(%e_s : tensor<2x5x7xf32>) -> tensor<2x5x7xf32>
  %e_m = tensor.empty() : tensor<2x5xf32>
  %z_m = linalg.fill ins(%zero : f32) outs(%e_m : tensor<2x5xf32>) -> tensor<2x5xf32>
  %most = linalg.reduce { arith.maximumf } ins(%p : tensor<2x5x7xf32>) outs(%z_m : tensor<2x5xf32>) dimensions = [2]
  %w = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel", "parallel"]} ins(%p, %most : tensor<2x5x7xf32>, tensor<2x5xf32>) outs(%e_s : tensor<2x5x7xf32>) {
  ^bb0(%x: f32, %m: f32, %o: f32):
    %is = arith.cmpf oge, %x, %m : f32
    %r = arith.select %is, %x, %zero : f32
    linalg.yield %r : f32
  } -> tensor<2x5x7xf32>
  %e_o = tensor.empty() : tensor<2x5x4xf32>
  %z_o = linalg.fill ins(%zero : f32) outs(%e_o : tensor<2x5x4xf32>) -> tensor<2x5x4xf32>
  %o = linalg.batch_matmul ins(%w, %v : tensor<2x5x7xf32>, tensor<2x7x4xf32>) outs(%z_o : tensor<2x5x4xf32>) -> tensor<2x5x4xf32>
  return %o : tensor<2x5x4xf32>
}
