// RUN: attn-opt %s --outline-producers="multiprocessors=1" --canonicalize --cse | FileCheck %s

// What a loop reads by one reshape, and a sum behind it by another: both read what the kernel has written.
// CHECK:         gpu.func @shared_producers_0(%{{.*}}: memref<4x64x16xf16, {{.*}}>, %{{.*}}: memref<4x64x16xf16,
// CHECK-LABEL: func.func @shared
// CHECK:         gpu.launch_func @shared_kernels::@shared_producers_0
// CHECK:         %[[MADE:.*]] = bufferization.to_tensor %{{.*}} : memref<4x64x16xf16> to tensor<4x64x16xf16>
// CHECK-DAG:     %[[ROWS:.*]] = tensor.collapse_shape %[[MADE]] {{\[}}[0, 1], [2]]
// CHECK-DAG:     %[[WIDE:.*]] = tensor.collapse_shape %[[MADE]] {{\[}}[0], [1, 2]]
// CHECK:         scf.forall
// CHECK:           tensor.extract_slice %[[ROWS]]
// CHECK:         linalg.generic {{.*}} ins(%[[WIDE]] : tensor<4x1024xf16>)
// CHECK-NOT:     math.exp
// CHECK:         return
#whole = affine_map<(i, j, k) -> (i, j, k)>
func.func @shared(%a: tensor<4x64x16xf16>, %zeros: tensor<1024xf16>) -> (tensor<256x16xf16>, tensor<1024xf16>) {
  %n = tensor.empty() : tensor<4x64x16xf16>
  %x = linalg.generic {indexing_maps = [#whole, #whole], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%a : tensor<4x64x16xf16>) outs(%n : tensor<4x64x16xf16>) {
  ^bb0(%v: f16, %o: f16):
    %t = math.exp %v : f16
    linalg.yield %t : f16
  } -> tensor<4x64x16xf16>
  %rows = tensor.collapse_shape %x [[0, 1], [2]] : tensor<4x64x16xf16> into tensor<256x16xf16>
  %wide = tensor.collapse_shape %x [[0], [1, 2]] : tensor<4x64x16xf16> into tensor<4x1024xf16>
  %m = tensor.empty() : tensor<256x16xf16>
  %y = scf.forall (%i) in (256) shared_outs(%o = %m) -> tensor<256x16xf16> {
    %p = tensor.extract_slice %rows[%i, 0] [1, 16] [1, 1] : tensor<256x16xf16> to tensor<1x16xf16>
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %p into %o[%i, 0] [1, 16] [1, 1] : tensor<1x16xf16> into tensor<256x16xf16>
    }
  }
  %s = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (j)>], iterator_types = ["reduction", "parallel"]}
      ins(%wide : tensor<4x1024xf16>) outs(%zeros : tensor<1024xf16>) {
  ^bb0(%v: f16, %o: f16):
    %t = arith.addf %o, %v : f16
    linalg.yield %t : f16
  } -> tensor<1024xf16>
  return %y, %s : tensor<256x16xf16>, tensor<1024xf16>
}
