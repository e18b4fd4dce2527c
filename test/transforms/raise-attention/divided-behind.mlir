// RUN: attn-opt %s --raise-attention | FileCheck %s

#id = affine_map<(i, j) -> (i, j)>
#row = affine_map<(i, j) -> (i)>

// A softmax whose division stands behind the second matmul, and what else needs the undivided output, as derivatives
// do: that is the output times the row's sum of exponentials. The scores are read by the softmax alone.
// CHECK-LABEL: @undivided_is_read
//       CHECK: %[[S:.*]] = linalg.generic {{.*}} ins(%arg0, %arg1
//       CHECK: %[[P:.*]]:4 = linalg_ext.softmax dimension(1) ins(%[[S]]
//   CHECK-NOT: ins(%[[S]]{{[ ,]}}
//       CHECK: %[[O:.*]] = linalg.generic {{.*}} ins(%[[P]]#0, %arg2
//   CHECK-NOT: math.exp
//       CHECK: %[[U:.*]] = linalg.generic {{.*}} ins(%[[O]], %{{.*}} : tensor<6x4xf32>, tensor<6xf32>)
//       CHECK:   arith.mulf
//       CHECK: %[[N:.*]] = linalg.generic {{.*}} ins(%[[U]]
//       CHECK:   arith.negf
//       CHECK: return %[[O]], %[[N]]
func.func @undivided_is_read(%q: tensor<6x8xf32>, %k: tensor<8x10xf32>, %v: tensor<10x4xf32>)
    -> (tensor<6x4xf32>, tensor<6x4xf32>) {
  %zero = arith.constant 0.0 : f32
  %lowest = arith.constant 0xFF800000 : f32
  %e_s = tensor.empty() : tensor<6x10xf32>
  %e_r = tensor.empty() : tensor<6xf32>
  %e_o = tensor.empty() : tensor<6x4xf32>
  %z_s = linalg.fill ins(%zero : f32) outs(%e_s : tensor<6x10xf32>) -> tensor<6x10xf32>
  %z_r = linalg.fill ins(%zero : f32) outs(%e_r : tensor<6xf32>) -> tensor<6xf32>
  %l_r = linalg.fill ins(%lowest : f32) outs(%e_r : tensor<6xf32>) -> tensor<6xf32>
  %z_o = linalg.fill ins(%zero : f32) outs(%e_o : tensor<6x4xf32>) -> tensor<6x4xf32>
  %s = linalg.matmul ins(%q, %k : tensor<6x8xf32>, tensor<8x10xf32>) outs(%z_s : tensor<6x10xf32>) -> tensor<6x10xf32>
  %m = linalg.reduce { arith.maximumf } ins(%s : tensor<6x10xf32>) outs(%l_r : tensor<6xf32>) dimensions = [1]
  %p = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]}
      ins(%s, %m : tensor<6x10xf32>, tensor<6xf32>) outs(%e_s : tensor<6x10xf32>) {
  ^bb0(%a: f32, %b: f32, %c: f32):
    %0 = arith.subf %a, %b : f32
    %1 = math.exp %0 : f32
    linalg.yield %1 : f32
  } -> tensor<6x10xf32>
  %l = linalg.reduce { arith.addf } ins(%p : tensor<6x10xf32>) outs(%z_r : tensor<6xf32>) dimensions = [1]
  %u = linalg.matmul ins(%p, %v : tensor<6x10xf32>, tensor<10x4xf32>) outs(%z_o : tensor<6x4xf32>) -> tensor<6x4xf32>
  %o = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]}
      ins(%u, %l : tensor<6x4xf32>, tensor<6xf32>) outs(%e_o : tensor<6x4xf32>) {
  ^bb0(%a: f32, %b: f32, %c: f32):
    %0 = arith.divf %a, %b : f32
    linalg.yield %0 : f32
  } -> tensor<6x4xf32>
  %n = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%u : tensor<6x4xf32>) outs(%e_o : tensor<6x4xf32>) {
  ^bb0(%a: f32, %c: f32):
    %0 = arith.negf %a : f32
    linalg.yield %0 : f32
  } -> tensor<6x4xf32>
  return %o, %n : tensor<6x4xf32>, tensor<6x4xf32>
}
