// RUN: attn-opt %s --fuse-reductions | FileCheck %s

#id = affine_map<(i, j) -> (i, j)>
#row = affine_map<(i, j) -> (i)>

// CHECK-LABEL: func.func @scale
// CHECK-SAME: (%[[S:.*]]: tensor<4x8xf32>, %[[INIT:.*]]: tensor<4xf32>
// CHECK: %[[E:.*]] = tensor.empty
// CHECK: %[[R:.*]]:2 = linalg.generic {{.*}} iterator_types = ["parallel", "reduction"]} ins(%[[S]] : {{.*}} outs(%[[E]], %[[INIT]] :
// CHECK-NEXT: ^bb0(%[[IN:.*]]: f32, %{{.*}}: f32, %[[ACC:.*]]: f32):
// CHECK-NEXT: %[[X:.*]] = arith.mulf %[[IN]],
// CHECK-NEXT: %[[M:.*]] = arith.maxnumf %[[X]], %[[ACC]]
// CHECK-NEXT: linalg.yield %[[X]], %[[M]]
// CHECK: return %[[R]]#0, %[[R]]#1
func.func @scale(%s: tensor<4x8xf32>, %init: tensor<4xf32>, %f: f32) -> (tensor<4x8xf32>, tensor<4xf32>) {
  %e = tensor.empty() : tensor<4x8xf32>
  %x = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
    ins(%s : tensor<4x8xf32>) outs(%e : tensor<4x8xf32>) {
  ^bb0(%a: f32, %b: f32):
    %y = arith.mulf %a, %f : f32
    linalg.yield %y : f32
  } -> tensor<4x8xf32>
  %m = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]}
    ins(%x : tensor<4x8xf32>) outs(%init : tensor<4xf32>) {
  ^bb0(%a: f32, %b: f32):
    %y = arith.maxnumf %a, %b : f32
    linalg.yield %y : f32
  } -> tensor<4xf32>
  return %x, %m : tensor<4x8xf32>, tensor<4xf32>
}

// A sum of squares reads twice what it is of.
// CHECK-LABEL: func.func @squares
// CHECK: %[[R:.*]]:2 = linalg.generic
// CHECK-NEXT: ^bb0(%[[IN:.*]]: f32, %{{.*}}: f32, %[[ACC:.*]]: f32):
// CHECK-NEXT: %[[X:.*]] = arith.subf %[[IN]],
// CHECK-NEXT: %[[Q:.*]] = arith.mulf %[[X]], %[[X]]
// CHECK-NEXT: %[[T:.*]] = arith.addf %[[Q]], %[[ACC]]
// CHECK-NEXT: linalg.yield %[[X]], %[[T]]
func.func @squares(%s: tensor<4x8xf32>, %init: tensor<4xf32>, %f: f32) -> (tensor<4x8xf32>, tensor<4xf32>) {
  %e = tensor.empty() : tensor<4x8xf32>
  %x = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
    ins(%s : tensor<4x8xf32>) outs(%e : tensor<4x8xf32>) {
  ^bb0(%a: f32, %b: f32):
    %y = arith.subf %a, %f : f32
    linalg.yield %y : f32
  } -> tensor<4x8xf32>
  %m = linalg.generic {indexing_maps = [#id, #id, #row], iterator_types = ["parallel", "reduction"]}
    ins(%x, %x : tensor<4x8xf32>, tensor<4x8xf32>) outs(%init : tensor<4xf32>) {
  ^bb0(%a: f32, %b: f32, %c: f32):
    %y = arith.mulf %a, %b : f32
    %z = arith.addf %y, %c : f32
    linalg.yield %z : f32
  } -> tensor<4xf32>
  return %x, %m : tensor<4x8xf32>, tensor<4xf32>
}
