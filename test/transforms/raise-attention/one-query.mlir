// RUN: attn-opt %s --raise-attention | FileCheck %s

// A query that has no dimension of its own gets one of size 1: the scores have rows, as those of many queries do. In
// the output it is a part of the dimension before.
// CHECK-LABEL: func.func @one_query
// CHECK-SAME:    %[[Q:.*]]: tensor<3x8xf64>
// CHECK:         %[[ROWS:.*]] = tensor.expand_shape %[[Q]] {{.*}} : tensor<3x8xf64> into tensor<1x3x8xf64>
// CHECK:         linalg.generic {{.*}} ins(%[[ROWS]]
// CHECK:         linalg_ext.softmax dimension(2) ins({{.*}} : tensor<3x1x10xf64>)
// CHECK:         tensor.collapse_shape {{.*}} : tensor<3x1x4xf64> into tensor<3x4xf64>
#rows = affine_map<(b, k, d) -> (b, d)>
#keys = affine_map<(b, k, d) -> (b, k, d)>
#scores = affine_map<(b, k, d) -> (b, k)>
func.func @one_query(%q: tensor<3x8xf64>, %k: tensor<3x10x8xf64>, %v: tensor<3x10x4xf64>) -> tensor<3x4xf64> {
  %zero = arith.constant 0.0 : f64
  %e_s = tensor.empty() : tensor<3x10xf64>
  %z_s = linalg.fill ins(%zero : f64) outs(%e_s : tensor<3x10xf64>) -> tensor<3x10xf64>
  %s = linalg.generic {indexing_maps = [#rows, #keys, #scores], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%q, %k : tensor<3x8xf64>, tensor<3x10x8xf64>) outs(%z_s : tensor<3x10xf64>) {
  ^bb0(%a: f64, %b: f64, %o: f64):
    %0 = arith.mulf %a, %b : f64
    %1 = arith.addf %o, %0 : f64
    linalg.yield %1 : f64
  } -> tensor<3x10xf64>
  %p = linalg.softmax dimension(1) ins(%s : tensor<3x10xf64>) outs(%e_s : tensor<3x10xf64>) -> tensor<3x10xf64>
  %e_o = tensor.empty() : tensor<3x4xf64>
  %z_o = linalg.fill ins(%zero : f64) outs(%e_o : tensor<3x4xf64>) -> tensor<3x4xf64>
  %o = linalg.generic {indexing_maps = [#scores, #keys, #rows], iterator_types = ["parallel", "reduction", "parallel"]}
      ins(%p, %v : tensor<3x10xf64>, tensor<3x10x4xf64>) outs(%z_o : tensor<3x4xf64>) {
  ^bb0(%a: f64, %b: f64, %o: f64):
    %0 = arith.mulf %a, %b : f64
    %1 = arith.addf %o, %0 : f64
    linalg.yield %1 : f64
  } -> tensor<3x4xf64>
  return %o : tensor<3x4xf64>
}
