// RUN: attn-opt %s --fuse-elements | FileCheck %s

#id = affine_map<(d0, d1) -> (d0, d1)>
#t = affine_map<(d0, d1) -> (d1, d0)>
#row = affine_map<(d0, d1) -> (d0)>

// A product, read in another order, is computed where it is read; a constant tensor is a number.
// CHECK-DAG:   #[[T:.*]] = affine_map<(d0, d1) -> (d1, d0)>
// CHECK-LABEL: func.func @chain
// CHECK-SAME:    (%[[X:.*]]: tensor<8x64xf32>, %[[Y:.*]]: tensor<64x8xf32>)
// CHECK:         %[[R:.*]] = linalg.generic {{.*}} ins(%[[Y]], %[[X]] :
// CHECK:           %[[TWO:.*]] = arith.constant 2.0
// CHECK:           %[[P:.*]] = arith.mulf %{{.*}}, %[[TWO]]
// CHECK:           arith.addf %[[P]],
// CHECK-NOT:     linalg.generic
// CHECK:         return %[[R]]
func.func @chain(%x: tensor<8x64xf32>, %y: tensor<64x8xf32>) -> tensor<64x8xf32> {
  %two = arith.constant dense<2.0> : tensor<8x64xf32>
  %e = tensor.empty() : tensor<8x64xf32>
  %a = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x, %two : tensor<8x64xf32>, tensor<8x64xf32>) outs(%e : tensor<8x64xf32>) {
  ^bb0(%u: f32, %v: f32, %w: f32):
    %f = arith.mulf %u, %v : f32
    linalg.yield %f : f32
  } -> tensor<8x64xf32>
  %o = tensor.empty() : tensor<64x8xf32>
  %b = linalg.generic {indexing_maps = [#t, #id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%a, %y : tensor<8x64xf32>, tensor<64x8xf32>) outs(%o : tensor<64x8xf32>) {
  ^bb0(%u: f32, %v: f32, %w: f32):
    %f = arith.addf %u, %v : f32
    linalg.yield %f : f32
  } -> tensor<64x8xf32>
  return %b : tensor<64x8xf32>
}

// A row that each of 64 columns reads would be computed 64 times.
// CHECK-LABEL: func.func @many_times
// CHECK:         math.exp
// CHECK:         linalg.generic
// CHECK-NOT:     math.exp
// CHECK:         return
func.func @many_times(%x: tensor<8xf32>, %y: tensor<8x64xf32>) -> tensor<8x64xf32> {
  %e = tensor.empty() : tensor<8xf32>
  %a = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]}
      ins(%x : tensor<8xf32>) outs(%e : tensor<8xf32>) {
  ^bb0(%u: f32, %w: f32):
    %f = math.exp %u : f32
    linalg.yield %f : f32
  } -> tensor<8xf32>
  %o = tensor.empty() : tensor<8x64xf32>
  %b = linalg.generic {indexing_maps = [#row, #id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%a, %y : tensor<8xf32>, tensor<8x64xf32>) outs(%o : tensor<8x64xf32>) {
  ^bb0(%u: f32, %v: f32, %w: f32):
    %f = arith.addf %u, %v : f32
    linalg.yield %f : f32
  } -> tensor<8x64xf32>
  return %b : tensor<8x64xf32>
}

// What a body takes at a place of its own is computed there.
// CHECK-LABEL: func.func @at_a_place
// CHECK:         linalg.generic
// CHECK:           %[[V:.*]] = tensor.extract %{{.*}}[%{{.*}}] : tensor<8xf32>
// CHECK:           arith.negf %[[V]]
// CHECK-NOT:     linalg.generic
// CHECK:         return
func.func @at_a_place(%x: tensor<8xf32>) -> tensor<4xf32> {
  %c4 = arith.constant 4 : index
  %e = tensor.empty() : tensor<8xf32>
  %a = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]}
      ins(%x : tensor<8xf32>) outs(%e : tensor<8xf32>) {
  ^bb0(%u: f32, %w: f32):
    %f = arith.negf %u : f32
    linalg.yield %f : f32
  } -> tensor<8xf32>
  %o = tensor.empty() : tensor<4xf32>
  %b = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} outs(%o : tensor<4xf32>) {
  ^bb0(%w: f32):
    %i = linalg.index 0 : index
    %j = arith.addi %i, %c4 : index
    %f = tensor.extract %a[%j] : tensor<8xf32>
    linalg.yield %f : f32
  } -> tensor<4xf32>
  return %b : tensor<4xf32>
}
