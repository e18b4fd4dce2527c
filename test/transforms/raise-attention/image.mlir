// RUN: attn-opt %s --raise-attention | FileCheck %s

// Keys that are the pixels of an image, 3 rows of 5; to their scores something is added by row, and something by column.
// Scores of one dimension of keys come of it: what has rows or columns alone is read at key div 5 and key mod 5.
// CHECK-LABEL: func.func @rows_and_columns
// CHECK:         %[[COLUMNS:.*]] = linalg.generic {{.*}} outs(%{{.*}} : tensor<7x15xf32>)
// CHECK:           arith.remsi %{{.*}}, %c5
// CHECK:           tensor.extract %arg4
// CHECK:         %[[ROWS:.*]] = linalg.generic {{.*}} outs(%{{.*}} : tensor<7x15xf32>)
// CHECK:           arith.divsi %{{.*}}, %c5
// CHECK:           tensor.extract %arg3
// CHECK:         %[[S:.*]] = linalg.generic {{.*}} ins(%arg0, %arg1 : tensor<7x8xf32>, tensor<15x8xf32>)
// CHECK:         %[[X:.*]] = linalg.generic {{.*}} ins(%[[COLUMNS]], %[[ROWS]], %[[S]] :
// CHECK:         linalg_ext.softmax dimension(1) ins(%[[X]] : tensor<7x15xf32>)
// CHECK:         linalg.generic {{.*}} ins(%{{.*}}, %arg2 : tensor<7x15xf32>, tensor<15x8xf32>)
func.func @rows_and_columns(%q: tensor<7x8xf32>, %k: tensor<15x8xf32>, %v: tensor<15x8xf32>, %r: tensor<7x3xf32>, %c: tensor<7x5xf32>) -> tensor<7x8xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<7x15xf32>
  %s0 = linalg.fill ins(%zero : f32) outs(%e : tensor<7x15xf32>) -> tensor<7x15xf32>
  %s = linalg.matmul indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n, k)>, affine_map<(m, n, k) -> (m, n)>]
      ins(%q, %k : tensor<7x8xf32>, tensor<15x8xf32>) outs(%s0 : tensor<7x15xf32>) -> tensor<7x15xf32>
  %image = tensor.expand_shape %s [[0], [1, 2]] output_shape [7, 3, 5] : tensor<7x15xf32> into tensor<7x3x5xf32>
  %e3 = tensor.empty() : tensor<7x3x5xf32>
  %sum = linalg.generic {indexing_maps = [affine_map<(q, y, x) -> (q, y, x)>, affine_map<(q, y, x) -> (q, y)>, affine_map<(q, y, x) -> (q, x)>, affine_map<(q, y, x) -> (q, y, x)>],
      iterator_types = ["parallel", "parallel", "parallel"]} ins(%image, %r, %c : tensor<7x3x5xf32>, tensor<7x3xf32>, tensor<7x5xf32>) outs(%e3 : tensor<7x3x5xf32>) {
  ^bb0(%a: f32, %row: f32, %column: f32, %_: f32):
    %b = arith.addf %a, %row : f32
    %d = arith.addf %b, %column : f32
    linalg.yield %d : f32
  } -> tensor<7x3x5xf32>
  %flat = tensor.collapse_shape %sum [[0], [1, 2]] : tensor<7x3x5xf32> into tensor<7x15xf32>
  %p = linalg.softmax dimension(1) ins(%flat : tensor<7x15xf32>) outs(%e : tensor<7x15xf32>) -> tensor<7x15xf32>
  %e_o = tensor.empty() : tensor<7x8xf32>
  %o0 = linalg.fill ins(%zero : f32) outs(%e_o : tensor<7x8xf32>) -> tensor<7x8xf32>
  %o = linalg.matmul ins(%p, %v : tensor<7x15xf32>, tensor<15x8xf32>) outs(%o0 : tensor<7x8xf32>) -> tensor<7x8xf32>
  return %o : tensor<7x8xf32>
}
