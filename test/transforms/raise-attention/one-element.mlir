// RUN: attn-opt %s --raise-attention | FileCheck %s

#id = affine_map<(b, i, j) -> (b, i, j)>
#none = affine_map<(b, i, j) -> ()>

// Weights that are divided by a number of keys, which a tensor of one element has: its dimensions are collapsed to none.
// They are found, and the quotient is taken of the result.
// CHECK-LABEL: @divided
//       CHECK: arith.maximumf
//       CHECK: %[[O:.*]] = linalg.generic {{.*}} ["parallel", "parallel", "parallel", "reduction"]
//       CHECK: linalg.generic {{.*}} ins(%{{.*}}, %[[O]] : tensor<i64>, tensor<2x6x4xf32>)
//       CHECK: arith.divf
func.func @divided(%q: tensor<2x6x8xf32>, %k: tensor<2x8x10xf32>, %v: tensor<2x10x4xf32>, %n: tensor<1xi64>)
    -> tensor<2x6x4xf32> {
  %zero = arith.constant 0.0 : f32
  %e_s = tensor.empty() : tensor<2x6x10xf32>
  %e_o = tensor.empty() : tensor<2x6x4xf32>
  %e_n = tensor.empty() : tensor<1xf32>
  %z_s = linalg.fill ins(%zero : f32) outs(%e_s : tensor<2x6x10xf32>) -> tensor<2x6x10xf32>
  %z_o = linalg.fill ins(%zero : f32) outs(%e_o : tensor<2x6x4xf32>) -> tensor<2x6x4xf32>
  %real = linalg.generic {indexing_maps = [affine_map<(d) -> (d)>, affine_map<(d) -> (d)>],
      iterator_types = ["parallel"]} ins(%n : tensor<1xi64>) outs(%e_n : tensor<1xf32>) {
  ^bb0(%a: i64, %b: f32):
    %0 = arith.sitofp %a : i64 to f32
    linalg.yield %0 : f32
  } -> tensor<1xf32>
  %number = tensor.collapse_shape %real [] : tensor<1xf32> into tensor<f32>
  %s = linalg.batch_matmul ins(%q, %k : tensor<2x6x8xf32>, tensor<2x8x10xf32>) outs(%z_s : tensor<2x6x10xf32>)
      -> tensor<2x6x10xf32>
  %p = linalg.generic {indexing_maps = [#id, #none, #id], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%s, %number : tensor<2x6x10xf32>, tensor<f32>) outs(%e_s : tensor<2x6x10xf32>) {
  ^bb0(%a: f32, %b: f32, %c: f32):
    %0 = arith.maximumf %a, %zero : f32
    %1 = arith.divf %0, %b : f32
    linalg.yield %1 : f32
  } -> tensor<2x6x10xf32>
  %o = linalg.batch_matmul ins(%p, %v : tensor<2x6x10xf32>, tensor<2x10x4xf32>) outs(%z_o : tensor<2x6x4xf32>)
      -> tensor<2x6x4xf32>
  return %o : tensor<2x6x4xf32>
}
