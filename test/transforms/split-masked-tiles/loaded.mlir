// RUN: attn-opt %s --verify-diagnostics --split-masked-tiles | FileCheck %s

// No tile of a mask that is loaded is known to be live; dead ones could be skipped if a matmul used the result.
// CHECK-COUNT-1: linalg_ext.unnorm_softmax
// CHECK-NOT:     linalg_ext.unnorm_softmax
#id = affine_map<(i, j) -> (i, j)>
func.func @loaded(%s: tensor<4x8xf32>, %mask: tensor<4x8xi1>, %m: tensor<4xf32>, %a: tensor<4xf32>) -> tensor<4xf32> {
  %c0 = arith.constant 0 : index
  %c2 = arith.constant 2 : index
  %c8 = arith.constant 8 : index
  %minus_inf = arith.constant 0xFF800000 : f32
  %e = tensor.empty() : tensor<4x2xf32>
  %r = scf.for %k = %c0 to %c8 step %c2 iter_args(%m1 = %m) -> tensor<4xf32> {
    %s1 = tensor.extract_slice %s[0, %k] [4, 2] [1, 1] : tensor<4x8xf32> to tensor<4x2xf32>
    %mask1 = tensor.extract_slice %mask[0, %k] [4, 2] [1, 1] : tensor<4x8xi1> to tensor<4x2xi1>
    %x = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]} ins(%s1, %mask1 : tensor<4x2xf32>, tensor<4x2xi1>) outs(%e : tensor<4x2xf32>) {
    ^bb0(%in: f32, %visible: i1, %out: f32):
      // expected-remark @+1 {{all tiles are masked: the mask does not depend linearly on positions in any loop}}
      %y = arith.select %visible, %in, %minus_inf : f32
      linalg.yield %y : f32
    } -> tensor<4x2xf32>
    // expected-remark @+1 {{tiles that the mask makes dead are computed: its result is not used by one matmul alone}}
    %p:4 = linalg_ext.unnorm_softmax dimension(1) ins(%x : tensor<4x2xf32>) outs(%e, %m1, %a, %a : tensor<4x2xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) : tensor<4x2xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
    scf.yield %p#1 : tensor<4xf32>
  }
  return %r : tensor<4xf32>
}
