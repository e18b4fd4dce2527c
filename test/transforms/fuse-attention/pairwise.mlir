// RUN: attn-opt %s --fuse-attention | FileCheck %s
// RUN: attn-opt %s --fuse-attention="tile-sizes=1,32,16" | FileCheck %s --check-prefix=SIZES
// RUN: attn-opt %s --fuse-attention="machine=sm_90a" | FileCheck %s --check-prefix=GPU

// A result for each query and key, summed over heads: the loop over these is the innermost, and what is added up stays
// in the tile.
// CHECK-LABEL: @by_bias
//       CHECK: scf.for %[[I:.*]] = %{{.*}} to %c512 step %c64 iter_args
//       CHECK:   scf.for %[[J:.*]] = %{{.*}} to %c256 step %c64 iter_args
//       CHECK:     scf.for %[[H:.*]] = %{{.*}} to %c3 step %c1 iter_args(%[[ACC:.*]] = %{{.*}})
//       CHECK:       %[[S:.*]] = linalg.generic {{.*}}"reduction"]} ins(%{{.*}} : tensor<1x64x32xf32>, tensor<1x64x32xf32>)
//       CHECK:       %[[E:.*]] = linalg.generic {{.*}} ins(%[[S]], %{{.*}} : tensor<1x64x64xf32>, tensor<1x64xf32>)
//       CHECK:       math.exp
//       CHECK:       %[[TILE:.*]] = tensor.extract_slice %[[ACC]][%[[I]], %[[J]]] [64, 64]
//       CHECK:       linalg.generic {{.*}}["reduction", "parallel", "parallel"]} ins(%[[E]] : {{.*}}) outs(%[[TILE]] :
//       CHECK:     {__byteir_parallel__}
//       CHECK:   {__byteir_parallel__}
//       GPU: scf.for %{{.*}} = %{{.*}} to %c512 step %c128
//       GPU:   scf.for %{{.*}} = %{{.*}} to %c256 step %c64
//       SIZES: scf.for %{{.*}} = %{{.*}} to %c512 step %c32
//       SIZES:   scf.for %{{.*}} = %{{.*}} to %c256 step %c16
func.func @by_bias(%q: tensor<3x512x32xf32>, %k: tensor<3x256x32xf32>, %n: tensor<3x512xf32>) -> tensor<512x256xf32> {
  %zero = arith.constant 0.0 : f32
  %es = tensor.empty() : tensor<3x512x256xf32>
  %zs = linalg.fill ins(%zero : f32) outs(%es : tensor<3x512x256xf32>) -> tensor<3x512x256xf32>
  %s = linalg.generic {
      indexing_maps = [affine_map<(h, i, j, d) -> (h, i, d)>, affine_map<(h, i, j, d) -> (h, j, d)>, affine_map<(h, i, j, d) -> (h, i, j)>],
      iterator_types = ["parallel", "parallel", "parallel", "reduction"]}
      ins(%q, %k : tensor<3x512x32xf32>, tensor<3x256x32xf32>) outs(%zs : tensor<3x512x256xf32>) {
    ^bb0(%x: f32, %y: f32, %out: f32):
      %product = arith.mulf %x, %y : f32
      %total = arith.addf %out, %product : f32
      linalg.yield %total : f32
  } -> tensor<3x512x256xf32>
  %p = linalg.generic {
      indexing_maps = [affine_map<(h, i, j) -> (h, i, j)>, affine_map<(h, i, j) -> (h, i)>, affine_map<(h, i, j) -> (h, i, j)>],
      iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%s, %n : tensor<3x512x256xf32>, tensor<3x512xf32>) outs(%es : tensor<3x512x256xf32>) {
    ^bb0(%x: f32, %r: f32, %out: f32):
      %z = arith.subf %x, %r : f32
      %e = math.exp %z : f32
      linalg.yield %e : f32
  } -> tensor<3x512x256xf32>
  %er = tensor.empty() : tensor<512x256xf32>
  %zr = linalg.fill ins(%zero : f32) outs(%er : tensor<512x256xf32>) -> tensor<512x256xf32>
  %r = linalg.generic {
      indexing_maps = [affine_map<(h, i, j) -> (h, i, j)>, affine_map<(h, i, j) -> (i, j)>],
      iterator_types = ["reduction", "parallel", "parallel"]}
      ins(%p : tensor<3x512x256xf32>) outs(%zr : tensor<512x256xf32>) attrs = {__pairwise__} {
    ^bb0(%x: f32, %out: f32):
      %total = arith.addf %out, %x : f32
      linalg.yield %total : f32
  } -> tensor<512x256xf32>
  return %r : tensor<512x256xf32>
}
