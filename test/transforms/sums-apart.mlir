// RUN: attn-opt %s --sums-apart | FileCheck %s

#id = affine_map<(i, j) -> (i, j)>
#row = affine_map<(i, j) -> (i)>

// Exponentials, which take the place of the scores, and their sums: what is read of the init is an operand then.
// CHECK-LABEL: func.func @softmax
// CHECK-SAME:      %[[X:.*]]: tensor<4x8xf32>, %[[M:.*]]: tensor<4xf32>, %[[START:.*]]: tensor<4xf32>
// CHECK:         %[[E:.*]] = tensor.empty() : tensor<4x8xf32>
// CHECK:         %[[P:.*]] = linalg.generic {{.*}} iterator_types = ["parallel", "parallel"]} ins(%[[M]], %[[X]] : {{.*}}) outs(%[[E]] :
// CHECK-NEXT:    ^bb0(%[[MI:.*]]: f32, %[[XI:.*]]: f32, %{{.*}}: f32):
// CHECK-NEXT:      %[[D:.*]] = arith.subf %[[XI]], %[[MI]] : f32
// CHECK-NEXT:      %[[PI:.*]] = math.exp2 %[[D]] : f32
// CHECK-NEXT:      linalg.yield %[[PI]] : f32
// CHECK:         %[[S:.*]] = linalg.generic {{.*}} iterator_types = ["parallel", "reduction"]} ins(%[[P]] : {{.*}}) outs(%[[START]] :
// CHECK-NEXT:    ^bb0(%[[PJ:.*]]: f32, %[[T:.*]]: f32):
// CHECK-NEXT:      %[[A:.*]] = arith.addf %[[T]], %[[PJ]] : f32
// CHECK-NEXT:      linalg.yield %[[A]] : f32
// CHECK:         return %[[P]], %[[S]]
func.func @softmax(%x: tensor<4x8xf32>, %m: tensor<4xf32>, %start: tensor<4xf32>) -> (tensor<4x8xf32>, tensor<4xf32>) {
  %r:2 = linalg.generic {indexing_maps = [#row, #id, #row], iterator_types = ["parallel", "reduction"]}
      ins(%m : tensor<4xf32>) outs(%x, %start : tensor<4x8xf32>, tensor<4xf32>) {
  ^bb0(%mi: f32, %xi: f32, %si: f32):
    %d = arith.subf %xi, %mi : f32
    %p = math.exp2 %d : f32
    %s = arith.addf %si, %p : f32
    linalg.yield %p, %s : f32, f32
  } -> (tensor<4x8xf32>, tensor<4xf32>)
  return %r#0, %r#1 : tensor<4x8xf32>, tensor<4xf32>
}

// Two sums and no elements; a result that has the sum so far in it; and a tile in a loop: all stay as they are.
// CHECK-LABEL: func.func @stays
// CHECK-COUNT-3: linalg.generic
// CHECK-NOT:   linalg.generic
func.func @stays(%x: tensor<4x8xf32>, %s0: tensor<4xf32>, %e: tensor<4x8xf32>)
    -> (tensor<4xf32>, tensor<4xf32>, tensor<4x8xf32>, tensor<4xf32>, tensor<4x8xf32>) {
  %a:2 = linalg.generic {indexing_maps = [#id, #row, #row], iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<4x8xf32>) outs(%s0, %s0 : tensor<4xf32>, tensor<4xf32>) {
  ^bb0(%xi: f32, %si: f32, %ti: f32):
    %s = arith.addf %si, %xi : f32
    %t = arith.maxnumf %ti, %xi : f32
    linalg.yield %s, %t : f32, f32
  } -> (tensor<4xf32>, tensor<4xf32>)
  %b:2 = linalg.generic {indexing_maps = [#id, #id, #row], iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<4x8xf32>) outs(%e, %s0 : tensor<4x8xf32>, tensor<4xf32>) {
  ^bb0(%xi: f32, %ei: f32, %si: f32):
    %s = arith.addf %si, %xi : f32
    linalg.yield %s, %s : f32, f32
  } -> (tensor<4x8xf32>, tensor<4xf32>)
  %r = scf.forall (%i) = (0) to (4) step (2) shared_outs(%o = %e) -> (tensor<4x8xf32>) {
    %t = tensor.extract_slice %x[%i, 0] [2, 8] [1, 1] : tensor<4x8xf32> to tensor<2x8xf32>
    %u = tensor.extract_slice %s0[%i] [2] [1] : tensor<4xf32> to tensor<2xf32>
    %c:2 = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]}
        outs(%t, %u : tensor<2x8xf32>, tensor<2xf32>) {
    ^bb0(%xi: f32, %si: f32):
      %p = math.exp2 %xi : f32
      %s = arith.addf %si, %p : f32
      linalg.yield %p, %s : f32, f32
    } -> (tensor<2x8xf32>, tensor<2xf32>)
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %c#0 into %o[%i, 0] [2, 8] [1, 1] : tensor<2x8xf32> into tensor<4x8xf32>
    }
  }
  return %a#0, %a#1, %b#0, %b#1, %r : tensor<4xf32>, tensor<4xf32>, tensor<4x8xf32>, tensor<4xf32>, tensor<4x8xf32>
}
