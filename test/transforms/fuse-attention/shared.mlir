// RUN: attn-opt %s --fuse-attention | FileCheck %s

// Keys that are returned as well are computed once, before the loops; a reshape that others use too is made again in them.
// CHECK-LABEL: func.func @cached
// CHECK:         %[[K:.*]] = linalg.generic
// CHECK:         scf.for
// CHECK-NOT:       tensor.insert_slice {{.*}}tensor<4x8xf32> into tensor<128x8xf32>
// CHECK:           tensor.extract_slice %[[K]]
// CHECK:         return %{{.*}}, %[[K]], %{{.*}} : tensor<128x4xf32>, tensor<128x8xf32>, tensor<128x8xf32>
#id = affine_map<(i, j) -> (i, j)>
func.func @cached(%q: tensor<1x128x8xf32>, %k: tensor<128x8xf32>, %v: tensor<128x4xf32>) -> (tensor<128x4xf32>, tensor<128x8xf32>, tensor<128x8xf32>) {
  %zero = arith.constant 0.0 : f32
  %lowest = arith.constant 0xFF800000 : f32
  %rows = tensor.collapse_shape %q [[0, 1], [2]] : tensor<1x128x8xf32> into tensor<128x8xf32>
  %e_k = tensor.empty() : tensor<128x8xf32>
  %turned = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%k : tensor<128x8xf32>) outs(%e_k : tensor<128x8xf32>) {
  ^bb0(%x: f32, %_: f32):
    %y = arith.addf %x, %x : f32
    linalg.yield %y : f32
  } -> tensor<128x8xf32>
  %e_s = tensor.empty() : tensor<128x128xf32>
  %z_s = linalg.fill ins(%zero : f32) outs(%e_s : tensor<128x128xf32>) -> tensor<128x128xf32>
  %s = linalg.matmul indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n, k)>, affine_map<(m, n, k) -> (m, n)>]
      ins(%rows, %turned : tensor<128x8xf32>, tensor<128x8xf32>) outs(%z_s : tensor<128x128xf32>) -> tensor<128x128xf32>
  %e_r = tensor.empty() : tensor<128xf32>
  %m = linalg.fill ins(%lowest : f32) outs(%e_r : tensor<128xf32>) -> tensor<128xf32>
  %a = linalg.fill ins(%zero : f32) outs(%e_r : tensor<128xf32>) -> tensor<128xf32>
  %p:4 = linalg_ext.softmax dimension(1) ins(%s : tensor<128x128xf32>) outs(%e_s, %m, %a, %e_r : tensor<128x128xf32>, tensor<128xf32>, tensor<128xf32>, tensor<128xf32>) : tensor<128x128xf32>, tensor<128xf32>, tensor<128xf32>, tensor<128xf32>
  %e_o = tensor.empty() : tensor<128x4xf32>
  %z_o = linalg.fill ins(%zero : f32) outs(%e_o : tensor<128x4xf32>) -> tensor<128x4xf32>
  %o = linalg.matmul ins(%p#0, %v : tensor<128x128xf32>, tensor<128x4xf32>) outs(%z_o : tensor<128x4xf32>) -> tensor<128x4xf32>
  %more = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%rows : tensor<128x8xf32>) outs(%e_k : tensor<128x8xf32>) {
  ^bb0(%x: f32, %_: f32):
    %y = arith.mulf %x, %x : f32
    linalg.yield %y : f32
  } -> tensor<128x8xf32>
  return %o, %turned, %more : tensor<128x4xf32>, tensor<128x8xf32>, tensor<128x8xf32>
}

// Queries and keys that are slices of what is made in the loops; the keys are returned as well.
// CHECK-LABEL: func.func @packed
// CHECK:         scf.for
// CHECK:           linalg.transpose
// CHECK:           %[[K:.*]] = linalg.transpose {{.*}} permutation = [1, 0, 2]
// CHECK:           linalg_ext.batch_matmul
// CHECK:           linalg_ext.diag
// CHECK:           tensor.insert_slice %[[K]] into %{{.*}} : tensor<1x9x16xf32> into tensor<2x9x16xf32>
func.func @packed(%packed: tensor<9x4x16xf32>, %v: tensor<2x9x16xf32>) -> (tensor<2x9x16xf32>, tensor<2x9x16xf32>) {
  %zero = arith.constant 0.0 : f32
  %lowest = arith.constant 0xFF800000 : f32
  %e = tensor.empty() : tensor<4x9x16xf32>
  %heads = linalg.transpose ins(%packed : tensor<9x4x16xf32>) outs(%e : tensor<4x9x16xf32>) permutation = [1, 0, 2]
  %q = tensor.extract_slice %heads[0, 0, 0] [2, 9, 16] [1, 1, 1] : tensor<4x9x16xf32> to tensor<2x9x16xf32>
  %k = tensor.extract_slice %heads[2, 0, 0] [2, 9, 16] [1, 1, 1] : tensor<4x9x16xf32> to tensor<2x9x16xf32>
  %e_s = tensor.empty() : tensor<2x9x9xf32>
  %z_s = linalg.fill ins(%zero : f32) outs(%e_s : tensor<2x9x9xf32>) -> tensor<2x9x9xf32>
  %s = linalg_ext.batch_matmul ins(%q, %k : tensor<2x9x16xf32>, tensor<2x9x16xf32>) outs(%z_s : tensor<2x9x9xf32>) layout = "nt"
  %e_r = tensor.empty() : tensor<2x9xf32>
  %m = linalg.fill ins(%lowest : f32) outs(%e_r : tensor<2x9xf32>) -> tensor<2x9xf32>
  %a = linalg.fill ins(%zero : f32) outs(%e_r : tensor<2x9xf32>) -> tensor<2x9xf32>
  %p:4 = linalg_ext.softmax dimension(2) ins(%s : tensor<2x9x9xf32>) outs(%e_s, %m, %a, %e_r : tensor<2x9x9xf32>, tensor<2x9xf32>, tensor<2x9xf32>, tensor<2x9xf32>) : tensor<2x9x9xf32>, tensor<2x9xf32>, tensor<2x9xf32>, tensor<2x9xf32>
  %e_o = tensor.empty() : tensor<2x9x16xf32>
  %z_o = linalg.fill ins(%zero : f32) outs(%e_o : tensor<2x9x16xf32>) -> tensor<2x9x16xf32>
  %o = linalg_ext.batch_matmul ins(%p#0, %v : tensor<2x9x9xf32>, tensor<2x9x16xf32>) outs(%z_o : tensor<2x9x16xf32>) layout = "nn"
  return %o, %k : tensor<2x9x16xf32>, tensor<2x9x16xf32>
}
