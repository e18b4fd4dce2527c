// RUN: attn-opt %s --raise-attention="statistics=3" | FileCheck %s
// RUN: attn-opt %s --raise-attention="statistics=3" | attn-opt - --raise-attention --remarks 2>&1 | FileCheck %s --check-prefix=AGAIN

// What is raised is not looked at again.
// AGAIN-NOT: remark
//     AGAIN: func.func
// AGAIN-NOT: remark

// Probabilities that follow from n, the log2 of the sum of exponentials, are read by a second matmul and by something
// else, which computes them again, in loops of its own.

#scores_q = affine_map<(h, i, j, d) -> (h, i, d)>
#scores_k = affine_map<(h, i, j, d) -> (h, j, d)>
#scores = affine_map<(h, i, j, d) -> (h, i, j)>
#pair = affine_map<(h, i, j) -> (h, i, j)>
#row = affine_map<(h, i, j) -> (h, i)>

// A sum over heads, as the derivative by a bias that heads share.
// CHECK-LABEL: @over_heads
//       CHECK: %[[S:.*]] = linalg.generic {{.*}} ins(%arg0, %arg1 : tensor<3x6x8xf32>, tensor<3x7x8xf32>)
//       CHECK: %[[P:.*]] = linalg.generic {{.*}} ins(%arg3, %[[S]] : tensor<3x6xf32>, tensor<3x6x7xf32>)
//       CHECK: %[[SUM:.*]] = linalg.generic {{.*}}iterator_types = ["reduction", "parallel", "parallel"]} ins(%[[P]] : tensor<3x6x7xf32>) {{.*}} attrs = {__pairwise__}
//       CHECK: return %{{.*}}, %[[SUM]]
func.func @over_heads(
    %q: tensor<3x6x8xf32>, %k: tensor<3x7x8xf32>, %g: tensor<3x6x8xf32>, %n: tensor<3x6xf32>)
    -> (tensor<3x7x8xf32>, tensor<6x7xf32>) {
  %zero = arith.constant 0.0 : f32
  %empty = tensor.empty() : tensor<3x6x7xf32>
  %zeros = linalg.fill ins(%zero : f32) outs(%empty : tensor<3x6x7xf32>) -> tensor<3x6x7xf32>
  %s = linalg.generic {
      indexing_maps = [#scores_q, #scores_k, #scores],
      iterator_types = ["parallel", "parallel", "parallel", "reduction"]}
      ins(%q, %k : tensor<3x6x8xf32>, tensor<3x7x8xf32>) outs(%zeros : tensor<3x6x7xf32>) {
    ^bb0(%x: f32, %y: f32, %out: f32):
      %product = arith.mulf %x, %y : f32
      %total = arith.addf %out, %product : f32
      linalg.yield %total : f32
  } -> tensor<3x6x7xf32>
  %p = linalg.generic {
      indexing_maps = [#pair, #row, #pair], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%s, %n : tensor<3x6x7xf32>, tensor<3x6xf32>) outs(%empty : tensor<3x6x7xf32>) {
    ^bb0(%x: f32, %r: f32, %out: f32):
      %z = arith.subf %x, %r : f32
      %e = math.exp2 %z : f32
      linalg.yield %e : f32
  } -> tensor<3x6x7xf32>
  %turned = tensor.empty() : tensor<3x7x6xf32>
  %pt = linalg.transpose ins(%p : tensor<3x6x7xf32>) outs(%turned : tensor<3x7x6xf32>) permutation = [0, 2, 1]
  %eo = tensor.empty() : tensor<3x7x8xf32>
  %zo = linalg.fill ins(%zero : f32) outs(%eo : tensor<3x7x8xf32>) -> tensor<3x7x8xf32>
  %o = linalg.batch_matmul ins(%pt, %g : tensor<3x7x6xf32>, tensor<3x6x8xf32>) outs(%zo : tensor<3x7x8xf32>) -> tensor<3x7x8xf32>
  %er = tensor.empty() : tensor<6x7xf32>
  %zr = linalg.fill ins(%zero : f32) outs(%er : tensor<6x7xf32>) -> tensor<6x7xf32>
  %r = linalg.reduce { arith.addf } ins(%p : tensor<3x6x7xf32>) outs(%zr : tensor<6x7xf32>) dimensions = [0]
  return %o, %r : tensor<3x7x8xf32>, tensor<6x7xf32>
}

// Of sums over keys, the one over heads is another op.
// CHECK-LABEL: @over_keys
//       CHECK: %[[S:.*]] = linalg.generic {{.*}} ins(%arg0, %arg1 : tensor<3x6x8xf32>, tensor<3x7x8xf32>)
//       CHECK: %[[P:.*]] = linalg.generic {{.*}} ins(%arg3, %[[S]] : tensor<3x6xf32>, tensor<3x6x7xf32>)
//       CHECK: %[[ROWS:.*]] = linalg.generic {{.*}}iterator_types = ["parallel", "parallel", "reduction"]} ins(%[[P]] : tensor<3x6x7xf32>) {{.*}} attrs = {__pairwise__}
//       CHECK: %[[SUM:.*]] = linalg.generic {{.*}}iterator_types = ["reduction", "parallel"]} ins(%[[ROWS]] : tensor<3x6xf32>)
//       CHECK: return %{{.*}}, %[[SUM]]
func.func @over_keys(
    %q: tensor<3x6x8xf32>, %k: tensor<3x7x8xf32>, %g: tensor<3x6x8xf32>, %n: tensor<3x6xf32>)
    -> (tensor<3x7x8xf32>, tensor<6xf32>) {
  %zero = arith.constant 0.0 : f32
  %empty = tensor.empty() : tensor<3x6x7xf32>
  %zeros = linalg.fill ins(%zero : f32) outs(%empty : tensor<3x6x7xf32>) -> tensor<3x6x7xf32>
  %s = linalg.generic {
      indexing_maps = [#scores_q, #scores_k, #scores],
      iterator_types = ["parallel", "parallel", "parallel", "reduction"]}
      ins(%q, %k : tensor<3x6x8xf32>, tensor<3x7x8xf32>) outs(%zeros : tensor<3x6x7xf32>) {
    ^bb0(%x: f32, %y: f32, %out: f32):
      %product = arith.mulf %x, %y : f32
      %total = arith.addf %out, %product : f32
      linalg.yield %total : f32
  } -> tensor<3x6x7xf32>
  %p = linalg.generic {
      indexing_maps = [#pair, #row, #pair], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%s, %n : tensor<3x6x7xf32>, tensor<3x6xf32>) outs(%empty : tensor<3x6x7xf32>) {
    ^bb0(%x: f32, %r: f32, %out: f32):
      %z = arith.subf %x, %r : f32
      %e = math.exp2 %z : f32
      linalg.yield %e : f32
  } -> tensor<3x6x7xf32>
  %turned = tensor.empty() : tensor<3x7x6xf32>
  %pt = linalg.transpose ins(%p : tensor<3x6x7xf32>) outs(%turned : tensor<3x7x6xf32>) permutation = [0, 2, 1]
  %eo = tensor.empty() : tensor<3x7x8xf32>
  %zo = linalg.fill ins(%zero : f32) outs(%eo : tensor<3x7x8xf32>) -> tensor<3x7x8xf32>
  %o = linalg.batch_matmul ins(%pt, %g : tensor<3x7x6xf32>, tensor<3x6x8xf32>) outs(%zo : tensor<3x7x8xf32>) -> tensor<3x7x8xf32>
  %er = tensor.empty() : tensor<6xf32>
  %zr = linalg.fill ins(%zero : f32) outs(%er : tensor<6xf32>) -> tensor<6xf32>
  %r = linalg.reduce { arith.addf } ins(%p : tensor<3x6x7xf32>) outs(%zr : tensor<6xf32>) dimensions = [0, 2]
  return %o, %r : tensor<3x7x8xf32>, tensor<6xf32>
}

// Where queries are summed over, they are the columns of the tiles.
// CHECK-LABEL: @over_queries
//       CHECK: {{.*}}{__attention__}
//       CHECK: %[[S:.*]] = linalg.generic {{.*}} ins(%arg1, %arg0 : tensor<3x7x8xf32>, tensor<3x6x8xf32>)
//       CHECK: %[[P:.*]] = linalg.generic {{.*}} ins(%arg3, %[[S]] : tensor<3x6xf32>, tensor<3x7x6xf32>)
//       CHECK: linalg.generic {{.*}}iterator_types = ["parallel", "parallel", "reduction"]} ins(%[[P]] : tensor<3x7x6xf32>) {{.*}} attrs = {__pairwise__}
func.func @over_queries(
    %q: tensor<3x6x8xf32>, %k: tensor<3x7x8xf32>, %g: tensor<3x6x8xf32>, %n: tensor<3x6xf32>)
    -> (tensor<3x7x8xf32>, tensor<7xf32>) {
  %zero = arith.constant 0.0 : f32
  %empty = tensor.empty() : tensor<3x6x7xf32>
  %zeros = linalg.fill ins(%zero : f32) outs(%empty : tensor<3x6x7xf32>) -> tensor<3x6x7xf32>
  %s = linalg.generic {
      indexing_maps = [#scores_q, #scores_k, #scores],
      iterator_types = ["parallel", "parallel", "parallel", "reduction"]}
      ins(%q, %k : tensor<3x6x8xf32>, tensor<3x7x8xf32>) outs(%zeros : tensor<3x6x7xf32>) {
    ^bb0(%x: f32, %y: f32, %out: f32):
      %product = arith.mulf %x, %y : f32
      %total = arith.addf %out, %product : f32
      linalg.yield %total : f32
  } -> tensor<3x6x7xf32>
  %p = linalg.generic {
      indexing_maps = [#pair, #row, #pair], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%s, %n : tensor<3x6x7xf32>, tensor<3x6xf32>) outs(%empty : tensor<3x6x7xf32>) {
    ^bb0(%x: f32, %r: f32, %out: f32):
      %z = arith.subf %x, %r : f32
      %e = math.exp2 %z : f32
      linalg.yield %e : f32
  } -> tensor<3x6x7xf32>
  %turned = tensor.empty() : tensor<3x7x6xf32>
  %pt = linalg.transpose ins(%p : tensor<3x6x7xf32>) outs(%turned : tensor<3x7x6xf32>) permutation = [0, 2, 1]
  %eo = tensor.empty() : tensor<3x7x8xf32>
  %zo = linalg.fill ins(%zero : f32) outs(%eo : tensor<3x7x8xf32>) -> tensor<3x7x8xf32>
  %o = linalg.batch_matmul ins(%pt, %g : tensor<3x7x6xf32>, tensor<3x6x8xf32>) outs(%zo : tensor<3x7x8xf32>) -> tensor<3x7x8xf32>
  %er = tensor.empty() : tensor<7xf32>
  %zr = linalg.fill ins(%zero : f32) outs(%er : tensor<7xf32>) -> tensor<7xf32>
  %r = linalg.reduce { arith.addf } ins(%p : tensor<3x6x7xf32>) outs(%zr : tensor<7xf32>) dimensions = [0, 1]
  return %o, %r : tensor<3x7x8xf32>, tensor<7xf32>
}

// What is read as it is.
// CHECK-LABEL: @as_a_whole
//       CHECK: %[[S:.*]] = linalg.generic {{.*}} ins(%arg0, %arg1 : tensor<3x6x8xf32>, tensor<3x7x8xf32>)
//       CHECK: %[[P:.*]] = linalg.generic {{.*}} ins(%arg3, %[[S]] : tensor<3x6xf32>, tensor<3x6x7xf32>)
//       CHECK: %[[WHOLE:.*]] = linalg.generic {{.*}}iterator_types = ["parallel", "parallel", "parallel"]} ins(%[[P]] : tensor<3x6x7xf32>) {{.*}} attrs = {__pairwise__}
//       CHECK: return %{{.*}}, %[[WHOLE]]
func.func @as_a_whole(
    %q: tensor<3x6x8xf32>, %k: tensor<3x7x8xf32>, %g: tensor<3x6x8xf32>, %n: tensor<3x6xf32>)
    -> (tensor<3x7x8xf32>, tensor<3x6x7xf32>) {
  %zero = arith.constant 0.0 : f32
  %empty = tensor.empty() : tensor<3x6x7xf32>
  %zeros = linalg.fill ins(%zero : f32) outs(%empty : tensor<3x6x7xf32>) -> tensor<3x6x7xf32>
  %s = linalg.generic {
      indexing_maps = [#scores_q, #scores_k, #scores],
      iterator_types = ["parallel", "parallel", "parallel", "reduction"]}
      ins(%q, %k : tensor<3x6x8xf32>, tensor<3x7x8xf32>) outs(%zeros : tensor<3x6x7xf32>) {
    ^bb0(%x: f32, %y: f32, %out: f32):
      %product = arith.mulf %x, %y : f32
      %total = arith.addf %out, %product : f32
      linalg.yield %total : f32
  } -> tensor<3x6x7xf32>
  %p = linalg.generic {
      indexing_maps = [#pair, #row, #pair], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%s, %n : tensor<3x6x7xf32>, tensor<3x6xf32>) outs(%empty : tensor<3x6x7xf32>) {
    ^bb0(%x: f32, %r: f32, %out: f32):
      %z = arith.subf %x, %r : f32
      %e = math.exp2 %z : f32
      linalg.yield %e : f32
  } -> tensor<3x6x7xf32>
  %turned = tensor.empty() : tensor<3x7x6xf32>
  %pt = linalg.transpose ins(%p : tensor<3x6x7xf32>) outs(%turned : tensor<3x7x6xf32>) permutation = [0, 2, 1]
  %eo = tensor.empty() : tensor<3x7x8xf32>
  %zo = linalg.fill ins(%zero : f32) outs(%eo : tensor<3x7x8xf32>) -> tensor<3x7x8xf32>
  %o = linalg.batch_matmul ins(%pt, %g : tensor<3x7x6xf32>, tensor<3x6x8xf32>) outs(%zo : tensor<3x7x8xf32>) -> tensor<3x7x8xf32>
  return %o, %p : tensor<3x7x8xf32>, tensor<3x6x7xf32>
}
