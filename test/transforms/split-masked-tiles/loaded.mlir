// RUN: attn-opt %s --verify-diagnostics --split-input-file --split-masked-tiles --canonicalize --cse | FileCheck %s

// Tiles of a mask that is loaded are looked at: first their first row, and all of it only where that may decide. Live
// ones are computed without the mask; dead ones could be skipped if a matmul used the result.
// CHECK-LABEL: func.func @loaded(
// CHECK:       scf.for %[[K:.*]] = %c0 to %c8 step %c2 iter_args(%[[M:.*]] = %arg2)
// CHECK:         tensor.extract_slice %arg1[0, %[[K]]] [1, 2] [1, 1] : tensor<4x8xi1> to tensor<2xi1>
// CHECK:         %[[ROW:.*]] = linalg.generic {{.*}} iterator_types = ["reduction"]}
// CHECK:           arith.andi
// CHECK:         %[[MAYBE:.*]] = tensor.extract %[[ROW]]{{.*}} : tensor<i1>
// CHECK:         %[[LIVE:.*]] = scf.if %[[MAYBE]] -> (i1) {
// CHECK:           tensor.extract_slice %arg1[0, %[[K]]] [4, 2]
// CHECK:           linalg.generic {{.*}} iterator_types = ["reduction", "reduction"]}
// CHECK:         scf.if %[[LIVE]] -> (tensor<4xf32>) {
// CHECK-NOT:       arith.select
// CHECK:           linalg_ext.unnorm_softmax
// CHECK:         } else {
// CHECK:           arith.select
// CHECK:           linalg_ext.unnorm_softmax
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
      %y = arith.select %visible, %in, %minus_inf : f32
      linalg.yield %y : f32
    } -> tensor<4x2xf32>
    // expected-remark @+2 {{tiles that the mask makes dead are computed: its result is not used by one matmul alone}}
    // expected-remark @+1 {{looks at each tile of what is loaded as a mask}}
    %p:4 = linalg_ext.unnorm_softmax dimension(1) ins(%x : tensor<4x2xf32>) outs(%e, %m1, %a, %a : tensor<4x2xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) : tensor<4x2xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
    scf.yield %p#1 : tensor<4xf32>
  }
  return %r : tensor<4xf32>
}

// -----

// What is loaded as numbers of both queries and keys says nothing of a tile.
// CHECK-LABEL: func.func @segments
// CHECK-NOT:     scf.if
// CHECK:         return
#id = affine_map<(i, j) -> (i, j)>
#of_i = affine_map<(i, j) -> (i)>
#of_j = affine_map<(i, j) -> (j)>
func.func @segments(%s: tensor<4x8xf32>, %q: tensor<4xi32>, %k: tensor<8xi32>, %m: tensor<4xf32>, %a: tensor<4xf32>) -> tensor<4xf32> {
  %c0 = arith.constant 0 : index
  %c2 = arith.constant 2 : index
  %c8 = arith.constant 8 : index
  %minus_inf = arith.constant 0xFF800000 : f32
  %e = tensor.empty() : tensor<4x2xf32>
  %r = scf.for %n = %c0 to %c8 step %c2 iter_args(%m1 = %m) -> tensor<4xf32> {
    %s1 = tensor.extract_slice %s[0, %n] [4, 2] [1, 1] : tensor<4x8xf32> to tensor<4x2xf32>
    %k1 = tensor.extract_slice %k[%n] [2] [1] : tensor<8xi32> to tensor<2xi32>
    %x = linalg.generic {indexing_maps = [#id, #of_i, #of_j, #id], iterator_types = ["parallel", "parallel"]} ins(%s1, %q, %k1 : tensor<4x2xf32>, tensor<4xi32>, tensor<2xi32>) outs(%e : tensor<4x2xf32>) {
    ^bb0(%in: f32, %of_query: i32, %of_key: i32, %out: f32):
      %product = arith.xori %of_query, %of_key : i32
      %other = arith.trunci %product : i32 to i1
      // expected-remark @+1 {{all tiles are masked: the mask does not depend linearly on positions in any loop}}
      %y = arith.select %other, %minus_inf, %in : f32
      linalg.yield %y : f32
    } -> tensor<4x2xf32>
    // Scores that are loaded may be −∞ themselves.
    // expected-remark @+1 {{tiles that the mask makes dead are computed: its result is not used by one matmul alone}}
    %p:4 = linalg_ext.unnorm_softmax dimension(1) ins(%x : tensor<4x2xf32>) outs(%e, %m1, %a, %a : tensor<4x2xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) : tensor<4x2xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
    scf.yield %p#1 : tensor<4xf32>
  }
  return %r : tensor<4xf32>
}
