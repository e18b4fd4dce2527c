// RUN: attn-opt %s --fuse-attention="tile-sizes=1,16,0,32" --canonicalize --cse --parallel-loops --canonicalize --split-masked-tiles --canonicalize --cse | FileCheck %s

#left = affine_map<(b, i, j, d) -> (b, i, d)>
#right = affine_map<(b, i, j, d) -> (b, j, d)>
#values = affine_map<(b, i, j, d) -> (b, d, j)>
#out = affine_map<(b, i, j, d) -> (b, i, j)>
#id = affine_map<(b, i, j) -> (b, i, j)>
#row = affine_map<(b, i, j) -> (b, i)>

// What a row has in the place of masked weights is left out of tiles in which no weight is masked, as a constant would be.
// CHECK-LABEL: func.func @weight_of_a_row
// CHECK:      scf.forall
// CHECK:        %[[LIVE:.*]] = scf.for
// CHECK-NOT:      arith.select
// CHECK:          math.exp2
// CHECK-NOT:      arith.select
// CHECK:        scf.for {{.*}} iter_args(%{{.*}} = %[[LIVE]])
// CHECK:          %[[E:.*]] = math.exp2
// CHECK:          arith.select %{{.*}}, %[[E]], %{{.*}} : f32
func.func @weight_of_a_row(%q: tensor<2x64x8xf32>, %k: tensor<2x128x8xf32>, %v: tensor<2x128x8xf32>, %w: tensor<2x64xf32>) -> tensor<2x64x8xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<2x64x128xf32>
  %e_o = tensor.empty() : tensor<2x64x8xf32>
  %s0 = linalg.fill ins(%zero : f32) outs(%e : tensor<2x64x128xf32>) -> tensor<2x64x128xf32>
  %o0 = linalg.fill ins(%zero : f32) outs(%e_o : tensor<2x64x8xf32>) -> tensor<2x64x8xf32>
  %s = linalg.generic {indexing_maps = [#left, #right, #out], iterator_types = ["parallel", "parallel", "parallel", "reduction"]} ins(%q, %k : tensor<2x64x8xf32>, tensor<2x128x8xf32>) outs(%s0 : tensor<2x64x128xf32>) {
  ^bb0(%x: f32, %y: f32, %z: f32):
    %p = arith.mulf %x, %y : f32
    %r = arith.addf %z, %p : f32
    linalg.yield %r : f32
  } -> tensor<2x64x128xf32>
  %p = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel", "parallel"]} ins(%s, %w : tensor<2x64x128xf32>, tensor<2x64xf32>) outs(%e : tensor<2x64x128xf32>) {
  ^bb0(%x: f32, %y: f32, %_: f32):
    %i = linalg.index 1 : index
    %j = linalg.index 2 : index
    %live = arith.cmpi sle, %j, %i : index
    %exp = math.exp2 %x : f32
    %r = arith.select %live, %exp, %y : f32
    linalg.yield %r : f32
  } -> tensor<2x64x128xf32>
  %o = linalg.generic {indexing_maps = [#left, #values, #out], iterator_types = ["parallel", "parallel", "parallel", "reduction"]} ins(%p, %v : tensor<2x64x128xf32>, tensor<2x128x8xf32>) outs(%o0 : tensor<2x64x8xf32>) {
  ^bb0(%x: f32, %y: f32, %z: f32):
    %p0 = arith.mulf %x, %y : f32
    %r = arith.addf %z, %p0 : f32
    linalg.yield %r : f32
  } -> tensor<2x64x8xf32>
  return %o : tensor<2x64x8xf32>
}
