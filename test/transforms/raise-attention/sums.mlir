// RUN: attn-opt %s --raise-attention --canonicalize --cse | FileCheck %s

#id = affine_map<(i, j) -> (i, j)>
#row = affine_map<(i, j) -> (i)>

// Differential attention: an attention for each softmax, and λ, of each row, on the output of the second.
// CHECK-LABEL: @difference
//       CHECK: %[[P1:.*]]:4 = linalg_ext.softmax
//       CHECK: %[[O1:.*]] = linalg.generic {{.*}} ins(%[[P1]]#0, %arg4 : tensor<6x10xf32>, tensor<10x4xf32>)
//       CHECK: %[[P2:.*]]:4 = linalg_ext.softmax
//       CHECK: %[[O2:.*]] = linalg.generic {{.*}} ins(%[[P2]]#0, %arg4 : tensor<6x10xf32>, tensor<10x4xf32>)
//       CHECK: linalg.generic {{.*}} ins(%arg5, %[[O2]] : tensor<6xf32>, tensor<6x4xf32>)
//       CHECK:   arith.mulf
//   CHECK-NOT: tensor<6x10xf32>
//       CHECK: return
func.func @difference(%q1: tensor<6x8xf32>, %k1: tensor<8x10xf32>, %q2: tensor<6x8xf32>, %k2: tensor<8x10xf32>, %v: tensor<10x4xf32>, %w: tensor<6xf32>) -> tensor<6x4xf32> {
  %zero = arith.constant 0.0 : f32
  %e_s = tensor.empty() : tensor<6x10xf32>
  %z_s = linalg.fill ins(%zero : f32) outs(%e_s : tensor<6x10xf32>) -> tensor<6x10xf32>
  %s1 = linalg.matmul ins(%q1, %k1 : tensor<6x8xf32>, tensor<8x10xf32>) outs(%z_s : tensor<6x10xf32>) -> tensor<6x10xf32>
  %s2 = linalg.matmul ins(%q2, %k2 : tensor<6x8xf32>, tensor<8x10xf32>) outs(%z_s : tensor<6x10xf32>) -> tensor<6x10xf32>
  %p1 = linalg.softmax dimension(1) ins(%s1 : tensor<6x10xf32>) outs(%e_s : tensor<6x10xf32>) -> tensor<6x10xf32>
  %p2 = linalg.softmax dimension(1) ins(%s2 : tensor<6x10xf32>) outs(%e_s : tensor<6x10xf32>) -> tensor<6x10xf32>
  %d = linalg.generic {indexing_maps = [#id, #id, #row, #id], iterator_types = ["parallel", "parallel"]}
      ins(%p1, %p2, %w : tensor<6x10xf32>, tensor<6x10xf32>, tensor<6xf32>) outs(%e_s : tensor<6x10xf32>) {
  ^bb0(%a: f32, %b: f32, %c: f32, %o: f32):
    %0 = arith.mulf %b, %c : f32
    %1 = arith.subf %a, %0 : f32
    linalg.yield %1 : f32
  } -> tensor<6x10xf32>
  %e_o = tensor.empty() : tensor<6x4xf32>
  %z_o = linalg.fill ins(%zero : f32) outs(%e_o : tensor<6x4xf32>) -> tensor<6x4xf32>
  %o = linalg.matmul ins(%d, %v : tensor<6x10xf32>, tensor<10x4xf32>) outs(%z_o : tensor<6x4xf32>) -> tensor<6x4xf32>
  return %o : tensor<6x4xf32>
}

// One softmax over pairs of heads, whose halves are subtracted: queries and keys are one of two columns of heads.
// CHECK-LABEL: @halves
//       CHECK: tensor.expand_shape %arg0 {{.*}} into tensor<2x2x6x8xf32>
//       CHECK: tensor.extract_slice %{{.*}}[0, 0, 0, 0] [2, 1, 6, 8] [1, 1, 1, 1]
//       CHECK: tensor.extract_slice %{{.*}}[0, 0, 0, 0] [2, 1, 8, 10] [1, 1, 1, 1]
//       CHECK: linalg_ext.softmax
//       CHECK: tensor.extract_slice %{{.*}}[0, 1, 0, 0] [2, 1, 6, 8] [1, 1, 1, 1]
//       CHECK: linalg_ext.softmax
//   CHECK-NOT: tensor<4x6x10xf32>
//       CHECK: return
func.func @halves(%q: tensor<4x6x8xf32>, %k: tensor<4x8x10xf32>, %v: tensor<2x10x4xf32>) -> tensor<2x6x4xf32> {
  %zero = arith.constant 0.0 : f32
  %e_s = tensor.empty() : tensor<4x6x10xf32>
  %z_s = linalg.fill ins(%zero : f32) outs(%e_s : tensor<4x6x10xf32>) -> tensor<4x6x10xf32>
  %s = linalg.batch_matmul ins(%q, %k : tensor<4x6x8xf32>, tensor<4x8x10xf32>) outs(%z_s : tensor<4x6x10xf32>) -> tensor<4x6x10xf32>
  %p = linalg.softmax dimension(2) ins(%s : tensor<4x6x10xf32>) outs(%e_s : tensor<4x6x10xf32>) -> tensor<4x6x10xf32>
  %pairs = tensor.expand_shape %p [[0, 1], [2], [3]] output_shape [2, 2, 6, 10] : tensor<4x6x10xf32> into tensor<2x2x6x10xf32>
  %p1 = tensor.extract_slice %pairs[0, 0, 0, 0] [2, 1, 6, 10] [1, 1, 1, 1] : tensor<2x2x6x10xf32> to tensor<2x6x10xf32>
  %p2 = tensor.extract_slice %pairs[0, 1, 0, 0] [2, 1, 6, 10] [1, 1, 1, 1] : tensor<2x2x6x10xf32> to tensor<2x6x10xf32>
  %e_d = tensor.empty() : tensor<2x6x10xf32>
  %d = linalg.sub ins(%p1, %p2 : tensor<2x6x10xf32>, tensor<2x6x10xf32>) outs(%e_d : tensor<2x6x10xf32>) -> tensor<2x6x10xf32>
  %e_o = tensor.empty() : tensor<2x6x4xf32>
  %z_o = linalg.fill ins(%zero : f32) outs(%e_o : tensor<2x6x4xf32>) -> tensor<2x6x4xf32>
  %o = linalg.batch_matmul ins(%d, %v : tensor<2x6x10xf32>, tensor<2x10x4xf32>) outs(%z_o : tensor<2x6x4xf32>) -> tensor<2x6x4xf32>
  return %o : tensor<2x6x4xf32>
}

// p + p·w is one attention, with weights 1 + w; what is the same for all rows is multiplied by values once, not per row.
// CHECK-LABEL: @one_softmax
//       CHECK: %[[P:.*]]:4 = linalg_ext.softmax
//       CHECK: linalg.generic {{.*}} ins(%arg3, %[[P]]#0 :
//       CHECK:   arith.mulf
//   CHECK-NOT: linalg_ext.softmax
//       CHECK: linalg.generic {{.*}}iterator_types = ["parallel", "reduction"]} ins(%arg4, %arg2 : tensor<10xf32>, tensor<10x4xf32>)
//       CHECK: return
func.func @one_softmax(%q: tensor<6x8xf32>, %k: tensor<8x10xf32>, %v: tensor<10x4xf32>, %w: tensor<6x10xf32>, %u: tensor<10xf32>) -> tensor<6x4xf32> {
  %zero = arith.constant 0.0 : f32
  %e_s = tensor.empty() : tensor<6x10xf32>
  %z_s = linalg.fill ins(%zero : f32) outs(%e_s : tensor<6x10xf32>) -> tensor<6x10xf32>
  %s = linalg.matmul ins(%q, %k : tensor<6x8xf32>, tensor<8x10xf32>) outs(%z_s : tensor<6x10xf32>) -> tensor<6x10xf32>
  %p = linalg.softmax dimension(1) ins(%s : tensor<6x10xf32>) outs(%e_s : tensor<6x10xf32>) -> tensor<6x10xf32>
  %pw = linalg.mul ins(%p, %w : tensor<6x10xf32>, tensor<6x10xf32>) outs(%e_s : tensor<6x10xf32>) -> tensor<6x10xf32>
  %b = linalg.add ins(%p, %pw : tensor<6x10xf32>, tensor<6x10xf32>) outs(%e_s : tensor<6x10xf32>) -> tensor<6x10xf32>
  %us = linalg.broadcast ins(%u : tensor<10xf32>) outs(%e_s : tensor<6x10xf32>) dimensions = [0]
  %d = linalg.add ins(%b, %us : tensor<6x10xf32>, tensor<6x10xf32>) outs(%e_s : tensor<6x10xf32>) -> tensor<6x10xf32>
  %e_o = tensor.empty() : tensor<6x4xf32>
  %z_o = linalg.fill ins(%zero : f32) outs(%e_o : tensor<6x4xf32>) -> tensor<6x4xf32>
  %o = linalg.matmul ins(%d, %v : tensor<6x10xf32>, tensor<10x4xf32>) outs(%z_o : tensor<6x4xf32>) -> tensor<6x4xf32>
  return %o : tensor<6x4xf32>
}
