// RUN: attn-opt %s --linalg-generalize-named-ops --outline-kernels | FileCheck %s

// What is computed of the first row of a tile is no op on that tile, which would have as few rows then: it is left to a
// kernel of its own, and all rows of the product are stored.
// CHECK:       gpu.func @first_row_0
// CHECK:         arith.constant dense
// CHECK:         %[[ROWS:.*]] = arith.constant 7 : index
// CHECK:         tile.store (%{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %[[ROWS]], %{{.*}}) {{.*}}, memref<7x8xf32
// CHECK-NOT:     tile.store
// CHECK-NOT:   gpu.func
// CHECK:       func.func @first_row
// CHECK:         gpu.launch_func
// CHECK:         linalg.generic
#same = affine_map<(i, j) -> (i, j)>
func.func @first_row(%x: tensor<7x4xf32>, %w: tensor<4x8xf32>) -> (tensor<7x8xf32>, tensor<1x8xf32>) {
  %zero = arith.constant 0.0 : f32
  %two = arith.constant 2.0 : f32
  %e = tensor.empty() : tensor<7x8xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<7x8xf32>) -> tensor<7x8xf32>
  %p = linalg.matmul ins(%x, %w : tensor<7x4xf32>, tensor<4x8xf32>) outs(%z : tensor<7x8xf32>) -> tensor<7x8xf32>
  %row = tensor.extract_slice %p[0, 0] [1, 8] [1, 1] : tensor<7x8xf32> to tensor<1x8xf32>
  %e1 = tensor.empty() : tensor<1x8xf32>
  %twice = linalg.generic {indexing_maps = [#same, #same], iterator_types = ["parallel", "parallel"]} ins(%row : tensor<1x8xf32>) outs(%e1 : tensor<1x8xf32>) {
  ^bb0(%a: f32, %o: f32):
    %m = arith.mulf %a, %two : f32
    linalg.yield %m : f32
  } -> tensor<1x8xf32>
  return %p, %twice : tensor<7x8xf32>, tensor<1x8xf32>
}
