// RUN: attn-opt %s --drop-units=last=1 | FileCheck %s

#id3 = affine_map<(d0, d1, d2) -> (d0, d1, d2)>
#kept = affine_map<(d0, d1, d2) -> (d0, d1, 0)>
#id2 = affine_map<(d0, d1) -> (d0, d1)>

// Sums of rows that keep their dimension, and what is made of them; the first dimension stays, of one element too.
// CHECK-DAG:   #[[ALL:.*]] = affine_map<(d0, d1, d2) -> (d0, d1, d2)>
// CHECK-DAG:   #[[ROW:.*]] = affine_map<(d0, d1, d2) -> (d0, d1)>
// CHECK-DAG:   #[[OWN:.*]] = affine_map<(d0, d1) -> (d0, d1)>
// CHECK-LABEL: func.func @norm
// CHECK-SAME:    (%[[X:.*]]: tensor<1x8x64xf32>, %[[INIT:.*]]: tensor<1x8x1xf32>)
// CHECK:         %[[I:.*]] = tensor.collapse_shape %[[INIT]] {{\[\[}}0], [1, 2]] : tensor<1x8x1xf32> into tensor<1x8xf32>
// CHECK:         %[[S:.*]] = linalg.generic {indexing_maps = [#[[ALL]], #[[ROW]]], iterator_types = ["parallel", "parallel", "reduction"]}
// CHECK-SAME:      ins(%[[X]] : {{.*}}) outs(%[[I]] : tensor<1x8xf32>)
// CHECK-NOT:     reshape
// CHECK:         %[[R:.*]] = linalg.generic {indexing_maps = [#[[OWN]], #[[OWN]]], {{.*}} ins(%[[S]] : tensor<1x8xf32>)
// CHECK:         %[[Y:.*]] = linalg.generic {indexing_maps = [#[[ALL]], #[[ROW]], #[[ALL]]]
// CHECK-SAME:      ins(%[[X]], %[[R]] : tensor<1x8x64xf32>, tensor<1x8xf32>)
// CHECK-NEXT:    ^bb0
// CHECK-NOT:     expand_shape
// CHECK:         return %[[Y]]
func.func @norm(%x: tensor<1x8x64xf32>, %init: tensor<1x8x1xf32>) -> tensor<1x8x64xf32> {
  %s = linalg.generic {indexing_maps = [#id3, #kept], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%x : tensor<1x8x64xf32>) outs(%init : tensor<1x8x1xf32>) {
  ^bb0(%a: f32, %b: f32):
    %t = arith.addf %a, %b : f32
    linalg.yield %t : f32
  } -> tensor<1x8x1xf32>
  %e = tensor.empty() : tensor<1x8x1xf32>
  %r = linalg.generic {indexing_maps = [#id3, #id3], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%s : tensor<1x8x1xf32>) outs(%e : tensor<1x8x1xf32>) {
  ^bb0(%a: f32, %b: f32):
    %t = math.rsqrt %a : f32
    linalg.yield %t : f32
  } -> tensor<1x8x1xf32>
  %f = tensor.empty() : tensor<1x8x64xf32>
  %y = linalg.generic {indexing_maps = [#id3, #kept, #id3], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%x, %r : tensor<1x8x64xf32>, tensor<1x8x1xf32>) outs(%f : tensor<1x8x64xf32>) {
  ^bb0(%a: f32, %b: f32, %c: f32):
    %t = arith.mulf %a, %b : f32
    linalg.yield %t : f32
  } -> tensor<1x8x64xf32>
  return %y : tensor<1x8x64xf32>
}

// A result keeps its dimension for others; where all have one element they stay.
// CHECK-LABEL: func.func @returned
// CHECK:         %[[A:.*]] = linalg.generic {{.*}} outs(%{{.*}} : tensor<8xf32>)
// CHECK:         %[[B:.*]] = tensor.expand_shape %[[A]] {{\[\[}}0, 1]] output_shape [8, 1]
// CHECK:         %[[C:.*]] = linalg.generic {{.*}} outs(%{{.*}} : tensor<1x1xf32>)
// CHECK:         return %[[B]], %[[C]]
func.func @returned(%x: tensor<8x1xf32>, %y: tensor<1x1xf32>) -> (tensor<8x1xf32>, tensor<1x1xf32>) {
  %e = tensor.empty() : tensor<8x1xf32>
  %r = linalg.generic {indexing_maps = [#id2, #id2], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<8x1xf32>) outs(%e : tensor<8x1xf32>) {
  ^bb0(%a: f32, %b: f32):
    %t = math.absf %a : f32
    linalg.yield %t : f32
  } -> tensor<8x1xf32>
  %f = tensor.empty() : tensor<1x1xf32>
  %s = linalg.generic {indexing_maps = [#id2, #id2], iterator_types = ["parallel", "parallel"]}
      ins(%y : tensor<1x1xf32>) outs(%f : tensor<1x1xf32>) {
  ^bb0(%a: f32, %b: f32):
    %t = math.absf %a : f32
    linalg.yield %t : f32
  } -> tensor<1x1xf32>
  return %r, %s : tensor<8x1xf32>, tensor<1x1xf32>
}
