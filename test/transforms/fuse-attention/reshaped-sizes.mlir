// RUN: attn-opt %s --raise-attention --fuse-attention | FileCheck %s
// RUN: attn-opt %s --raise-attention --fuse-attention="machine=sm_90a" --lower-to=nvidia | FileCheck %s --check-prefix=GPU

// The batch of one entry that torch drops before its matmuls: what is asked of the reshaped tensors are sizes of the
// arguments, so that the loops are known to cover what they write.

// GPU: llvm.func @one_entry

// CHECK-LABEL: func.func @one_entry
//   CHECK-DAG:   %[[QUERIES:.*]] = tensor.dim %arg0, %c2{{.*}} : tensor<1x4x?x64xf16>
//   CHECK-NOT:   tensor.dim %collapsed
//       CHECK:   scf.for %{{.*}} to %c4
//       CHECK:   scf.for %{{.*}} to %{{.*}} step %c64
func.func @one_entry(%q: tensor<1x4x?x64xf16>, %k: tensor<1x4x?x64xf16>, %v: tensor<1x4x?x64xf16>) -> tensor<1x4x?x64xf16> {
  %zero = arith.constant 0.0 : f32
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %q1 = tensor.collapse_shape %q [[0, 1], [2], [3]] : tensor<1x4x?x64xf16> into tensor<4x?x64xf16>
  %k1 = tensor.collapse_shape %k [[0, 1], [2], [3]] : tensor<1x4x?x64xf16> into tensor<4x?x64xf16>
  %v1 = tensor.collapse_shape %v [[0, 1], [2], [3]] : tensor<1x4x?x64xf16> into tensor<4x?x64xf16>
  %m = tensor.dim %q1, %c1 : tensor<4x?x64xf16>
  %n = tensor.dim %k1, %c1 : tensor<4x?x64xf16>
  %e_t = tensor.empty(%n) : tensor<4x64x?xf16>
  %kt = linalg.transpose ins(%k1 : tensor<4x?x64xf16>) outs(%e_t : tensor<4x64x?xf16>) permutation = [0, 2, 1]
  %e_s = tensor.empty(%m, %n) : tensor<4x?x?xf32>
  %z_s = linalg.fill ins(%zero : f32) outs(%e_s : tensor<4x?x?xf32>) -> tensor<4x?x?xf32>
  %s = linalg.batch_matmul ins(%q1, %kt : tensor<4x?x64xf16>, tensor<4x64x?xf16>) outs(%z_s : tensor<4x?x?xf32>) -> tensor<4x?x?xf32>
  %p = linalg.softmax dimension(2) ins(%s : tensor<4x?x?xf32>) outs(%e_s : tensor<4x?x?xf32>) -> tensor<4x?x?xf32>
  %e_h = tensor.empty(%m, %n) : tensor<4x?x?xf16>
  %h = linalg.generic {indexing_maps = [affine_map<(b, i, j) -> (b, i, j)>, affine_map<(b, i, j) -> (b, i, j)>], iterator_types = ["parallel", "parallel", "parallel"]} ins(%p : tensor<4x?x?xf32>) outs(%e_h : tensor<4x?x?xf16>) {
  ^bb0(%x: f32, %y: f16):
    %t = arith.truncf %x : f32 to f16
    linalg.yield %t : f16
  } -> tensor<4x?x?xf16>
  %size = tensor.dim %q, %c2 : tensor<1x4x?x64xf16>
  %e_o = tensor.empty(%size) : tensor<4x?x64xf16>
  %zero_h = arith.constant 0.0 : f16
  %z_o = linalg.fill ins(%zero_h : f16) outs(%e_o : tensor<4x?x64xf16>) -> tensor<4x?x64xf16>
  %o = linalg.batch_matmul ins(%h, %v1 : tensor<4x?x?xf16>, tensor<4x?x64xf16>) outs(%z_o : tensor<4x?x64xf16>) -> tensor<4x?x64xf16>
  %r = tensor.expand_shape %o [[0, 1], [2], [3]] output_shape [1, 4, %size, 64] : tensor<4x?x64xf16> into tensor<1x4x?x64xf16>
  return %r : tensor<1x4x?x64xf16>
}
