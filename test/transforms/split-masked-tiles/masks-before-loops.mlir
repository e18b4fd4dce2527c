// RUN: attn-opt %s --fuse-attention="tile-sizes=1,16,0,32" --fold-diag --canonicalize --cse --parallel-loops --canonicalize --split-masked-tiles="tests=false" --canonicalize --cse | FileCheck %s

// A mask that is the same for all heads, where no loop may ask of each tile (on GPUs): whether an element lives is found
// of rows of tiles, then of tiles, and of these the first and the last one. All between are computed with the mask.

// CHECK-LABEL: func.func @shared
// CHECK:         %[[ROWS:.*]] = tensor.expand_shape %arg3 {{\[\[}}0], [1, 2]] output_shape [64, 16, 32] : tensor<64x512xi1> into tensor<64x16x32xi1>
// CHECK:         %[[SOME:.*]] = linalg.generic {{.*}} iterator_types = ["parallel", "parallel", "reduction"]} ins(%[[ROWS]] : tensor<64x16x32xi1>) outs(%{{.*}} : tensor<64x16xi32>)
// CHECK:           arith.maxsi
// CHECK:         %[[TILES:.*]] = linalg.generic {{.*}} iterator_types = ["parallel", "parallel", "reduction"]} ins(%{{.*}} : tensor<16xi1>) outs(%{{.*}} : tensor<4x16xi32>)
// CHECK:           tensor.extract %[[SOME]][
// CHECK:         %[[ENDS:.*]]:2 = linalg.generic {{.*}} iterator_types = ["parallel", "reduction"]} ins(%{{.*}} : tensor<16xi1>) outs(%{{.*}}, %{{.*}} : tensor<4xi32>, tensor<4xi32>)
// CHECK:           tensor.extract %[[TILES]][
// CHECK:         scf.forall (%{{.*}}, %{{.*}}) = (0, 0) to (8, 64) step (1, 16)
// CHECK:           tensor.extract %[[ENDS]]#0[
// CHECK:           tensor.extract %[[ENDS]]#1[
// CHECK:           scf.for %
// CHECK:             tensor.extract_slice %arg3
// CHECK-NOT:       scf.for %
// CHECK:         return
func.func @shared(%q: tensor<8x64x8xf32>, %k: tensor<8x8x512xf32>, %v: tensor<8x512x8xf32>, %mask: tensor<64x512xi1>) -> tensor<8x64x8xf32> {
  %zero = arith.constant 0.0 : f32
  %minus_inf = arith.constant 0xFF800000 : f32
  %e0 = tensor.empty() : tensor<8x64x512xf32>
  %e1 = tensor.empty() : tensor<8x64x8xf32>
  %e2 = tensor.empty() : tensor<8x64xf32>
  %max = linalg.fill ins(%minus_inf : f32) outs(%e2 : tensor<8x64xf32>) -> tensor<8x64xf32>
  %sum = linalg.fill ins(%zero : f32) outs(%e2 : tensor<8x64xf32>) -> tensor<8x64xf32>
  %s0 = linalg.fill ins(%zero : f32) outs(%e0 : tensor<8x64x512xf32>) -> tensor<8x64x512xf32>
  %o0 = linalg.fill ins(%zero : f32) outs(%e1 : tensor<8x64x8xf32>) -> tensor<8x64x8xf32>
  %s = linalg.batch_matmul ins(%q, %k : tensor<8x64x8xf32>, tensor<8x8x512xf32>) outs(%s0 : tensor<8x64x512xf32>) -> tensor<8x64x512xf32>
  %x = linalg.generic {indexing_maps = [affine_map<(h, i, j) -> (h, i, j)>, affine_map<(h, i, j) -> (i, j)>, affine_map<(h, i, j) -> (h, i, j)>], iterator_types = ["parallel", "parallel", "parallel"]} ins(%s, %mask : tensor<8x64x512xf32>, tensor<64x512xi1>) outs(%e0 : tensor<8x64x512xf32>) {
  ^bb0(%a: f32, %live: i1, %out: f32):
    %y = arith.select %live, %a, %minus_inf : f32
    linalg.yield %y : f32
  } -> tensor<8x64x512xf32>
  %p:4 = linalg_ext.softmax dimension(2) ins(%x : tensor<8x64x512xf32>)
    outs(%e0, %max, %sum, %e2 : tensor<8x64x512xf32>, tensor<8x64xf32>, tensor<8x64xf32>, tensor<8x64xf32>)
    : tensor<8x64x512xf32>, tensor<8x64xf32>, tensor<8x64xf32>, tensor<8x64xf32>
  %o = linalg.batch_matmul ins(%p#0, %v : tensor<8x64x512xf32>, tensor<8x512x8xf32>) outs(%o0 : tensor<8x64x8xf32>) -> tensor<8x64x8xf32>
  return %o : tensor<8x64x8xf32>
}
