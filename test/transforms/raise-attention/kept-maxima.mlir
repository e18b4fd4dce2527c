// RUN: attn-opt %s --raise-attention="statistics=3,4 maxima=3" | FileCheck %s
// RUN: attn-opt %s --raise-attention="statistics=3,4" | FileCheck %s --check-prefix=UNKNOWN

// The derivative of a causal attention by its values, of what its forward gave for each row: the largest score m, and 1
// over the sum of exponentials. Its mask is a low number; as each query has a live key, what is masked has probability 0.
// CHECK-LABEL: @by_values
//       CHECK: %[[P:.*]] = linalg.generic {{.*}} ins(%arg3, %arg4, %{{.*}} : tensor<6xf32>, tensor<6xf32>, tensor<6x6xf32>)
//       CHECK:   %[[LIVE:.*]] = arith.cmpi
//   CHECK-NOT:   -1.000000e+30
//       CHECK:   %[[E:.*]] = math.exp
//       CHECK:   %[[W:.*]] = arith.mulf
//       CHECK:   arith.select %[[LIVE]], %[[W]], %{{.*}} : f32
//       CHECK: linalg.generic {{.*}} ins(%[[P]], %arg2 {{.*}} attrs = {__attention__}

// What is not known to be a maximum may be as low as the mask.
// UNKNOWN-LABEL: @by_values
//       UNKNOWN: arith.constant -1.000000e+30
func.func @by_values(%q: tensor<6x8xf32>, %k: tensor<6x8xf32>, %g: tensor<6x8xf32>, %m: tensor<6xf32>, %l: tensor<6xf32>) -> tensor<6x8xf32> {
  %zero = arith.constant 0.0 : f32
  %es = tensor.empty() : tensor<6x6xf32>
  %ekt = tensor.empty() : tensor<8x6xf32>
  %kt = linalg.transpose ins(%k : tensor<6x8xf32>) outs(%ekt : tensor<8x6xf32>) permutation = [1, 0]
  %zs = linalg.fill ins(%zero : f32) outs(%es : tensor<6x6xf32>) -> tensor<6x6xf32>
  %s = linalg.matmul ins(%q, %kt : tensor<6x8xf32>, tensor<8x6xf32>) outs(%zs : tensor<6x6xf32>) -> tensor<6x6xf32>
  %p = linalg.generic {
      indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>, affine_map<(i, j) -> (i)>, affine_map<(i, j) -> (i, j)>],
      iterator_types = ["parallel", "parallel"]}
      ins(%s, %m, %l : tensor<6x6xf32>, tensor<6xf32>, tensor<6xf32>) outs(%es : tensor<6x6xf32>) {
    ^bb0(%x: f32, %r: f32, %t: f32, %out: f32):
      %i = linalg.index 0 : index
      %j = linalg.index 1 : index
      %live = arith.cmpi sle, %j, %i : index
      %low = arith.constant -1.0e30 : f32
      %y = arith.select %live, %x, %low : f32
      %z = arith.subf %y, %r : f32
      %e = math.exp %z : f32
      %w = arith.mulf %e, %t : f32
      linalg.yield %w : f32
  } -> tensor<6x6xf32>
  %pt = linalg.transpose ins(%p : tensor<6x6xf32>) outs(%es : tensor<6x6xf32>) permutation = [1, 0]
  %eo = tensor.empty() : tensor<6x8xf32>
  %zo = linalg.fill ins(%zero : f32) outs(%eo : tensor<6x8xf32>) -> tensor<6x8xf32>
  %o = linalg.matmul ins(%pt, %g : tensor<6x6xf32>, tensor<6x8xf32>) outs(%zo : tensor<6x8xf32>) -> tensor<6x8xf32>
  return %o : tensor<6x8xf32>
}

// Padding that is loaded may leave a row no live key: then the maximum is the mask's number, and probabilities are those
// of all keys. In rows of which the first key is there, or the last one, or the query's own, low numbers are as −∞.
// CHECK-LABEL: @of_padding
//       CHECK: %[[ROWS:.*]] = linalg.generic {{.*}} outs(%{{.*}} : tensor<6xi1>)
//       CHECK:   arith.xori
//       CHECK: %[[MASKED:.*]] = linalg.generic {{.*}} ins(%arg3 : tensor<6xf32>) outs(%{{.*}} : tensor<6xi1>)
//       CHECK:   arith.cmpf olt, %{{.*}}, %{{.*}} : f32
//       CHECK: %[[SCORE:.*]] = linalg.generic {{.*}} ins(%arg3 : tensor<6xf32>) outs(%{{.*}} : tensor<6xf32>)
//       CHECK:   arith.select
//       CHECK: linalg.generic {{.*}} ins({{.*}}%[[ROWS]], %[[MASKED]], %[[SCORE]] : {{.*}})
//       CHECK:   %[[LIVE:.*]] = arith.andi
//   CHECK-DAG:   %[[KNOWN:.*]] = arith.ori %[[LIVE]], %{{.*}} : i1
//   CHECK-DAG:   %[[OWN:.*]] = arith.ori %[[LIVE]], %{{.*}} : i1
//       CHECK:   %[[COUNTS:.*]] = arith.andi %[[KNOWN]], %[[OWN]] : i1
//   CHECK-NOT:   -1.000000e+30
//       CHECK:   %[[E:.*]] = math.exp2
//       CHECK:   arith.select %[[LIVE]], %[[E]], %{{.*}} : f32
//       CHECK:   arith.select %[[COUNTS]], %{{.*}}, %{{.*}} : f32
func.func @of_padding(%q: tensor<6x8xf32>, %k: tensor<6x8xf32>, %g: tensor<6x8xf32>, %m: tensor<6xf32>, %l: tensor<6xf32>, %there: tensor<6xi1>) -> tensor<6x8xf32> {
  %zero = arith.constant 0.0 : f32
  %es = tensor.empty() : tensor<6x6xf32>
  %ekt = tensor.empty() : tensor<8x6xf32>
  %kt = linalg.transpose ins(%k : tensor<6x8xf32>) outs(%ekt : tensor<8x6xf32>) permutation = [1, 0]
  %zs = linalg.fill ins(%zero : f32) outs(%es : tensor<6x6xf32>) -> tensor<6x6xf32>
  %s = linalg.matmul ins(%q, %kt : tensor<6x8xf32>, tensor<8x6xf32>) outs(%zs : tensor<6x6xf32>) -> tensor<6x6xf32>
  %p = linalg.generic {
      indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>, affine_map<(i, j) -> (i)>, affine_map<(i, j) -> (j)>, affine_map<(i, j) -> (i, j)>],
      iterator_types = ["parallel", "parallel"]}
      ins(%s, %m, %l, %there : tensor<6x6xf32>, tensor<6xf32>, tensor<6xf32>, tensor<6xi1>) outs(%es : tensor<6x6xf32>) {
    ^bb0(%x: f32, %r: f32, %t: f32, %is: i1, %out: f32):
      %i = linalg.index 0 : index
      %j = linalg.index 1 : index
      %before = arith.cmpi sle, %j, %i : index
      %live = arith.andi %before, %is : i1
      %low = arith.constant -1.0e30 : f32
      %y = arith.select %live, %x, %low : f32
      %z = arith.subf %y, %r : f32
      %e = math.exp %z : f32
      %w = arith.mulf %e, %t : f32
      linalg.yield %w : f32
  } -> tensor<6x6xf32>
  %pt = linalg.transpose ins(%p : tensor<6x6xf32>) outs(%es : tensor<6x6xf32>) permutation = [1, 0]
  %eo = tensor.empty() : tensor<6x8xf32>
  %zo = linalg.fill ins(%zero : f32) outs(%eo : tensor<6x8xf32>) -> tensor<6x8xf32>
  %o = linalg.matmul ins(%pt, %g : tensor<6x6xf32>, tensor<6x8xf32>) outs(%zo : tensor<6x8xf32>) -> tensor<6x8xf32>
  return %o : tensor<6x8xf32>
}
