// RUN: attn-opt %s --outline-kernels | FileCheck %s

// Parts of a row of memory are rows of a tile: the host splits the memory, and the kernel reads whole parts of it.

// CHECK-LABEL: gpu.func @split_0
// CHECK-SAME:      (%{{[^:]*}}: memref<1x6x64xf32, strided<[?, ?, 1]>>, %{{[^:]*}}: memref<2x3x64xf32
// CHECK-LABEL: func.func @split
// CHECK:         tensor.expand_shape %{{.*}} {{\[\[}}0], [1, 2]] output_shape [1, 6, 64] : tensor<1x384xf32> into tensor<1x6x64xf32>
#id = affine_map<(d0, d1, d2) -> (d0, d1, d2)>
func.func @split(%q: tensor<1x384xf32>) -> tensor<2x3x64xf32> {
  %e = tensor.empty() : tensor<2x3x64xf32>
  %r = scf.forall (%h) in (2) shared_outs(%o = %e) -> (tensor<2x3x64xf32>) {
    %at = affine.apply affine_map<(d0) -> (d0 * 192)>(%h)
    %s = tensor.extract_slice %q[0, %at] [1, 192] [1, 1] : tensor<1x384xf32> to tensor<1x192xf32>
    %x = tensor.expand_shape %s [[0], [1, 2]] output_shape [1, 3, 64] : tensor<1x192xf32> into tensor<1x3x64xf32>
    %t = tensor.empty() : tensor<1x3x64xf32>
    %y = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel", "parallel"]} ins(%x : tensor<1x3x64xf32>) outs(%t : tensor<1x3x64xf32>) {
    ^bb0(%in: f32, %out: f32):
      %z = math.exp %in : f32
      linalg.yield %z : f32
    } -> tensor<1x3x64xf32>
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %y into %o[%h, 0, 0] [1, 3, 64] [1, 1, 1] : tensor<1x3x64xf32> into tensor<2x3x64xf32>
    }
  }
  return %r : tensor<2x3x64xf32>
}
