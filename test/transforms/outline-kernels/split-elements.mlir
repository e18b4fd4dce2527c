// RUN: attn-opt %s --outline-kernels | FileCheck %s

// Queries of several heads side by side that get a bias in the loop: both are split before it, none of a tile's
// dimensions.

// CHECK-LABEL: gpu.func @biased_0
// CHECK-SAME:      memref<1x6x64xf32
// CHECK-SAME:      memref<6x64xf32
// CHECK-LABEL: func.func @biased
// CHECK-DAG:     tensor.expand_shape %arg0 {{\[\[}}0], [1, 2]] output_shape [1, 6, 64] : tensor<1x384xf32> into tensor<1x6x64xf32>
// CHECK-DAG:     tensor.expand_shape %arg1 {{\[\[}}0, 1]] output_shape [6, 64] : tensor<384xf32> into tensor<6x64xf32>
#id = affine_map<(i, j) -> (i, j)>
#columns = affine_map<(i, j) -> (j)>
#all = affine_map<(i, j, k) -> (i, j, k)>
func.func @biased(%q: tensor<1x384xf32>, %u: tensor<384xf32>) -> tensor<2x3x64xf32> {
  %e = tensor.empty() : tensor<2x3x64xf32>
  %r = scf.forall (%h) in (2) shared_outs(%o = %e) -> (tensor<2x3x64xf32>) {
    %at = affine.apply affine_map<(d0) -> (d0 * 192)>(%h)
    %s = tensor.extract_slice %q[0, %at] [1, 192] [1, 1] : tensor<1x384xf32> to tensor<1x192xf32>
    %b = tensor.extract_slice %u[%at] [192] [1] : tensor<384xf32> to tensor<192xf32>
    %t = tensor.empty() : tensor<1x192xf32>
    %y = linalg.generic {indexing_maps = [#id, #columns, #id], iterator_types = ["parallel", "parallel"]}
        ins(%s, %b : tensor<1x192xf32>, tensor<192xf32>) outs(%t : tensor<1x192xf32>) {
    ^bb0(%x: f32, %v: f32, %out: f32):
      %z = arith.addf %x, %v : f32
      linalg.yield %z : f32
    } -> tensor<1x192xf32>
    %x = tensor.expand_shape %y [[0], [1, 2]] output_shape [1, 3, 64] : tensor<1x192xf32> into tensor<1x3x64xf32>
    %w = tensor.empty() : tensor<1x3x64xf32>
    %f = linalg.generic {indexing_maps = [#all, #all], iterator_types = ["parallel", "parallel", "parallel"]} ins(%x : tensor<1x3x64xf32>) outs(%w : tensor<1x3x64xf32>) {
    ^bb0(%in: f32, %out: f32):
      %z = math.exp %in : f32
      linalg.yield %z : f32
    } -> tensor<1x3x64xf32>
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %f into %o[%h, 0, 0] [1, 3, 64] [1, 1, 1] : tensor<1x3x64xf32> into tensor<2x3x64xf32>
    }
  }
  return %r : tensor<2x3x64xf32>
}
