// RUN: attn-opt %s --raise-attention | FileCheck %s

#id = affine_map<(i, j) -> (i, j)>
#row = affine_map<(i, j) -> (i)>

// What a softmax knows of its rows has a dimension less than its probabilities, and none of the keys: a product with it
// (the share that keys have of a sum with a sink, then a projection of the output) is no attention.
// CHECK-LABEL: @projected
//       CHECK: %[[P:.*]]:4 = linalg_ext.softmax dimension(1)
//       CHECK: linalg.matmul ins(%[[P]]#0, %arg2
//       CHECK: linalg.generic {{.*}} ins(%{{.*}}, %[[P]]#1, %[[P]]#2 :
//       CHECK: linalg.matmul
//   CHECK-NOT: linalg_ext.softmax
func.func @projected(%q: tensor<6x8xf32>, %k: tensor<8x10xf32>, %v: tensor<10x4xf32>, %w: tensor<4x5xf32>)
    -> tensor<6x5xf32> {
  %zero = arith.constant 0.0 : f32
  %lowest = arith.constant 0xFF800000 : f32
  %e_s = tensor.empty() : tensor<6x10xf32>
  %e_r = tensor.empty() : tensor<6xf32>
  %e_o = tensor.empty() : tensor<6x4xf32>
  %e_w = tensor.empty() : tensor<6x5xf32>
  %z_s = linalg.fill ins(%zero : f32) outs(%e_s : tensor<6x10xf32>) -> tensor<6x10xf32>
  %z_r = linalg.fill ins(%zero : f32) outs(%e_r : tensor<6xf32>) -> tensor<6xf32>
  %l_r = linalg.fill ins(%lowest : f32) outs(%e_r : tensor<6xf32>) -> tensor<6xf32>
  %z_o = linalg.fill ins(%zero : f32) outs(%e_o : tensor<6x4xf32>) -> tensor<6x4xf32>
  %z_w = linalg.fill ins(%zero : f32) outs(%e_w : tensor<6x5xf32>) -> tensor<6x5xf32>
  %s = linalg.matmul ins(%q, %k : tensor<6x8xf32>, tensor<8x10xf32>) outs(%z_s : tensor<6x10xf32>) -> tensor<6x10xf32>
  %x = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%s : tensor<6x10xf32>) outs(%e_s : tensor<6x10xf32>) {
  ^bb0(%a: f32, %c: f32):
    %0 = math.tanh %a : f32
    linalg.yield %0 : f32
  } -> tensor<6x10xf32>
  %p:4 = linalg_ext.softmax dimension(1) ins(%x : tensor<6x10xf32>) outs(%e_s, %l_r, %z_r, %e_r : tensor<6x10xf32>, tensor<6xf32>, tensor<6xf32>, tensor<6xf32>)
  %o = linalg.matmul ins(%p#0, %v : tensor<6x10xf32>, tensor<10x4xf32>) outs(%z_o : tensor<6x4xf32>) -> tensor<6x4xf32>
  %shared = linalg.generic {indexing_maps = [#id, #row, #row, #id], iterator_types = ["parallel", "parallel"]}
      ins(%o, %p#1, %p#2 : tensor<6x4xf32>, tensor<6xf32>, tensor<6xf32>) outs(%e_o : tensor<6x4xf32>) {
  ^bb0(%a: f32, %m: f32, %l: f32, %c: f32):
    %0 = arith.negf %m : f32
    %1 = math.exp %0 : f32
    %2 = arith.addf %l, %1 : f32
    %3 = arith.divf %l, %2 : f32
    %4 = arith.mulf %a, %3 : f32
    linalg.yield %4 : f32
  } -> tensor<6x4xf32>
  %r = linalg.matmul ins(%shared, %w : tensor<6x4xf32>, tensor<4x5xf32>) outs(%z_w : tensor<6x5xf32>) -> tensor<6x5xf32>
  return %r : tensor<6x5xf32>
}
