// RUN: attn-opt %s --drop-results | FileCheck %s

#all = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<(d0, d1) -> (d0)>

// The place of a maximum that no one asks for.
// CHECK-LABEL: func.func @maximum
// CHECK-SAME:    (%[[X:.*]]: tensor<4x8xf32>, %[[LOWEST:.*]]: tensor<4xf32>, %{{.*}}: tensor<4xi64>)
// CHECK:         %[[M:.*]] = linalg.generic {{.*}} ins(%[[X]] : {{.*}} outs(%[[LOWEST]] : tensor<4xf32>)
// CHECK-NEXT:    ^bb0(%[[A:.*]]: f32, %[[B:.*]]: f32):
// CHECK-NOT:       arith.select
// CHECK:           %[[R:.*]] = arith.maximumf %[[A]], %[[B]]
// CHECK-NOT:       arith.select
// CHECK:           linalg.yield %[[R]] : f32
// CHECK:         return %[[M]]
func.func @maximum(%x: tensor<4x8xf32>, %lowest: tensor<4xf32>, %zeros: tensor<4xi64>) -> tensor<4xf32> {
  %m:2 = linalg.generic {indexing_maps = [#all, #row, #row], iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<4x8xf32>) outs(%lowest, %zeros : tensor<4xf32>, tensor<4xi64>) {
  ^bb0(%a: f32, %b: f32, %c: i64):
    %i = linalg.index 1 : index
    %at = arith.index_cast %i : index to i64
    %r = arith.maximumf %a, %b : f32
    %gt = arith.cmpf ogt, %a, %b : f32
    %p = arith.select %gt, %at, %c : i64
    linalg.yield %r, %p : f32, i64
  } -> (tensor<4xf32>, tensor<4xi64>)
  return %m#0 : tensor<4xf32>
}

// The place alone: it depends on the maximum so far, which stays.
// CHECK-LABEL: func.func @place
// CHECK:         linalg.generic {{.*}} outs(%{{.*}}, %{{.*}} : tensor<4xf32>, tensor<4xi64>)
func.func @place(%x: tensor<4x8xf32>, %lowest: tensor<4xf32>, %zeros: tensor<4xi64>) -> tensor<4xi64> {
  %m:2 = linalg.generic {indexing_maps = [#all, #row, #row], iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<4x8xf32>) outs(%lowest, %zeros : tensor<4xf32>, tensor<4xi64>) {
  ^bb0(%a: f32, %b: f32, %c: i64):
    %i = linalg.index 1 : index
    %at = arith.index_cast %i : index to i64
    %r = arith.maximumf %a, %b : f32
    %gt = arith.cmpf ogt, %a, %b : f32
    %p = arith.select %gt, %at, %c : i64
    linalg.yield %r, %p : f32, i64
  } -> (tensor<4xf32>, tensor<4xi64>)
  return %m#1 : tensor<4xi64>
}

// Of three results the middle one goes.
// CHECK-LABEL: func.func @several
// CHECK:         %[[R:.*]]:2 = linalg.generic {{.*}} outs(%{{.*}}, %{{.*}} : tensor<8xf32>, tensor<8xf32>)
// CHECK:           linalg.yield %{{.*}}, %{{.*}} : f32, f32
// CHECK:         return %[[R]]#0, %[[R]]#1
func.func @several(%x: tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>) {
  %e = tensor.empty() : tensor<8xf32>
  %r:3 = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>, affine_map<(i) -> (i)>,
                                          affine_map<(i) -> (i)>], iterator_types = ["parallel"]}
      ins(%x : tensor<8xf32>) outs(%e, %e, %e : tensor<8xf32>, tensor<8xf32>, tensor<8xf32>) {
  ^bb0(%a: f32, %b: f32, %c: f32, %d: f32):
    %0 = arith.addf %a, %a : f32
    %1 = math.exp %0 : f32
    %2 = arith.mulf %0, %a : f32
    linalg.yield %0, %1, %2 : f32, f32, f32
  } -> (tensor<8xf32>, tensor<8xf32>, tensor<8xf32>)
  return %r#0, %r#2 : tensor<8xf32>, tensor<8xf32>
}
