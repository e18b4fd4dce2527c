// RUN: attn-opt %s --raise-attention="statistics=3" | FileCheck %s
// RUN: attn-opt %s --raise-attention="statistics=3" | attn-opt - --raise-attention --remarks 2>&1 | FileCheck %s --check-prefix=AGAIN

// What is raised is not looked at again.
// AGAIN-NOT: remark
//     AGAIN: func.func
// AGAIN-NOT: remark

// The derivative of a causal attention by its values, of one sequence, and of the n = log2 of the sum of exponentials
// that its forward gave for each row: what reads n follows from an attention, so that no heads are asked for. A score of
// −∞ has probability 0, which the mask then says.
// CHECK-LABEL: @by_values
//       CHECK: %[[S:.*]] = linalg.generic {{.*}} ins(%arg1, %arg0 : tensor<6x8xf32>, tensor<6x8xf32>)
//       CHECK: %[[P:.*]] = linalg.generic {{.*}} ins(%arg3, %[[S]] : tensor<6xf32>, tensor<6x6xf32>)
//       CHECK:   %[[LIVE:.*]] = arith.cmpi
//       CHECK:   %[[E:.*]] = math.exp2
//       CHECK:   arith.select %[[LIVE]], %[[E]], %{{.*}} : f32
//       CHECK: linalg.generic {{.*}}iterator_types = ["parallel", "parallel", "reduction"]} ins(%[[P]], %arg2 {{.*}} attrs = {__attention__}
func.func @by_values(
    %q: tensor<6x8xf32>, %k: tensor<6x8xf32>, %g: tensor<6x8xf32>, %n: tensor<6xf32>) -> tensor<6x8xf32> {
  %zero = arith.constant 0.0 : f32
  %es = tensor.empty() : tensor<6x6xf32>
  %ekt = tensor.empty() : tensor<8x6xf32>
  %kt = linalg.transpose ins(%k : tensor<6x8xf32>) outs(%ekt : tensor<8x6xf32>) permutation = [1, 0]
  %zs = linalg.fill ins(%zero : f32) outs(%es : tensor<6x6xf32>) -> tensor<6x6xf32>
  %s = linalg.matmul ins(%q, %kt : tensor<6x8xf32>, tensor<8x6xf32>) outs(%zs : tensor<6x6xf32>) -> tensor<6x6xf32>
  %p = linalg.generic {
      indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>, affine_map<(i, j) -> (i, j)>],
      iterator_types = ["parallel", "parallel"]}
      ins(%s, %n : tensor<6x6xf32>, tensor<6xf32>) outs(%es : tensor<6x6xf32>) {
    ^bb0(%x: f32, %r: f32, %out: f32):
      %i = linalg.index 0 : index
      %j = linalg.index 1 : index
      %live = arith.cmpi sle, %j, %i : index
      %low = arith.constant 0xFF800000 : f32
      %m = arith.select %live, %x, %low : f32
      %log2e = arith.constant 1.44269504 : f32
      %y = arith.mulf %m, %log2e : f32
      %z = arith.subf %y, %r : f32
      %e = math.exp2 %z : f32
      linalg.yield %e : f32
  } -> tensor<6x6xf32>
  %pt = linalg.transpose ins(%p : tensor<6x6xf32>) outs(%es : tensor<6x6xf32>) permutation = [1, 0]
  %eo = tensor.empty() : tensor<6x8xf32>
  %zo = linalg.fill ins(%zero : f32) outs(%eo : tensor<6x8xf32>) -> tensor<6x8xf32>
  %o = linalg.matmul ins(%pt, %g : tensor<6x6xf32>, tensor<6x8xf32>) outs(%zo : tensor<6x8xf32>) -> tensor<6x8xf32>
  return %o : tensor<6x8xf32>
}
