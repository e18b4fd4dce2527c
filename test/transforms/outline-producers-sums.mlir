// RUN: attn-opt %s --outline-producers="multiprocessors=1 results=1" --canonicalize --cse | FileCheck %s

// What a function returns may be rounded sums of few rows, as of the heads that share keys: one kernel, whose threads
// read eight elements of each row, and add them up.

#whole = affine_map<(h, g, i, j) -> (h, g, i, j)>
#summed = affine_map<(h, g, i, j) -> (h, 0, i, j)>
#id = affine_map<(h, i, j) -> (h, i, j)>

// CHECK:         gpu.func @two_results
// CHECK:           scf.if
// CHECK-COUNT-3:     vector.load %{{.*}} : memref<4x3x64x32xbf16, {{.*}}>, vector<8xbf16>
// CHECK-NOT:         vector.load
// CHECK:             vector.store %{{.*}} : memref<4x64x32xbf16, {{.*}}>, vector<8xbf16>
// CHECK:           scf.if
// CHECK-COUNT-3:     vector.load
// CHECK:             vector.store
// CHECK-NOT:       vector.store
// CHECK-LABEL: func.func @two
// CHECK:         gpu.launch_func @two_kernels::@two_results
// CHECK-NOT:     linalg.generic
func.func @two(%a: tensor<4x3x64x32xbf16>, %b: tensor<4x3x64x32xbf16>) -> (tensor<4x64x32xbf16>, tensor<4x64x32xbf16>) {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<4x1x64x32xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<4x1x64x32xf32>) -> tensor<4x1x64x32xf32>
  %n = tensor.empty() : tensor<4x64x32xbf16>
  %s = linalg.generic {indexing_maps = [#whole, #summed], iterator_types = ["parallel", "reduction", "parallel", "parallel"]}
      ins(%a : tensor<4x3x64x32xbf16>) outs(%z : tensor<4x1x64x32xf32>) {
  ^bb0(%x: bf16, %y: f32):
    %w = arith.extf %x : bf16 to f32
    %t = arith.addf %w, %y : f32
    linalg.yield %t : f32
  } -> tensor<4x1x64x32xf32>
  %sc = tensor.collapse_shape %s [[0], [1, 2], [3]] : tensor<4x1x64x32xf32> into tensor<4x64x32xf32>
  %sn = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%sc : tensor<4x64x32xf32>) outs(%n : tensor<4x64x32xbf16>) {
  ^bb0(%x: f32, %y: bf16):
    %t = arith.truncf %x : f32 to bf16
    linalg.yield %t : bf16
  } -> tensor<4x64x32xbf16>
  %r = linalg.generic {indexing_maps = [#whole, #summed], iterator_types = ["parallel", "reduction", "parallel", "parallel"]}
      ins(%b : tensor<4x3x64x32xbf16>) outs(%z : tensor<4x1x64x32xf32>) {
  ^bb0(%x: bf16, %y: f32):
    %w = arith.extf %x : bf16 to f32
    %t = arith.addf %w, %y : f32
    linalg.yield %t : f32
  } -> tensor<4x1x64x32xf32>
  %rc = tensor.collapse_shape %r [[0], [1, 2], [3]] : tensor<4x1x64x32xf32> into tensor<4x64x32xf32>
  %rn = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%rc : tensor<4x64x32xf32>) outs(%n : tensor<4x64x32xbf16>) {
  ^bb0(%x: f32, %y: bf16):
    %t = arith.truncf %x : f32 to bf16
    linalg.yield %t : bf16
  } -> tensor<4x64x32xbf16>
  return %sn, %rn : tensor<4x64x32xbf16>, tensor<4x64x32xbf16>
}

// Sums along rows, of more elements, or that others read, are in memory first: ``outline-elements`` and ``outline-rows``
// have threads for them.
// CHECK-LABEL: func.func @along_rows
// CHECK:         linalg.generic {{.*}} iterator_types = ["parallel", "reduction"]
func.func @along_rows(%a: tensor<64x16xf32>) -> tensor<64xbf16> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<64xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<64xf32>) -> tensor<64xf32>
  %s = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>], iterator_types = ["parallel", "reduction"]}
      ins(%a : tensor<64x16xf32>) outs(%z : tensor<64xf32>) {
  ^bb0(%x: f32, %y: f32):
    %t = arith.addf %x, %y : f32
    linalg.yield %t : f32
  } -> tensor<64xf32>
  %n = tensor.empty() : tensor<64xbf16>
  %r = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>], iterator_types = ["parallel"]}
      ins(%s : tensor<64xf32>) outs(%n : tensor<64xbf16>) {
  ^bb0(%x: f32, %y: bf16):
    %t = arith.truncf %x : f32 to bf16
    linalg.yield %t : bf16
  } -> tensor<64xbf16>
  return %r : tensor<64xbf16>
}
