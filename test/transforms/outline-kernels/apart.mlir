// RUN: attn-opt %s --outline-kernels | FileCheck %s

// Matmuls each of which is a tile become a kernel each where one block cannot compute them together; one that has two
// loops of rows and of a sum, and is no tile, is left to kernels of elements, and the others are none the worse for it.

#a = affine_map<(i, j, k) -> (i, k)>
#b = affine_map<(i, j, k) -> (k, j)>
#c = affine_map<(i, j, k) -> (i, j)>

// CHECK:       gpu.func @apart_0
// CHECK:       gpu.func @apart_1
// CHECK-NOT:   gpu.func
// CHECK:       func.func @apart
// CHECK:         gpu.launch_func @apart_kernels::@apart_0
// CHECK:         linalg.generic
// CHECK-SAME:      "reduction", "reduction"
// CHECK:         gpu.launch_func @apart_kernels::@apart_1
func.func @apart(%x: tensor<4x6x17xf16>, %w: tensor<17x32xf16>, %u: tensor<6x17x32xf16>, %v: tensor<32x8xf16>) -> (tensor<6x32xf32>, tensor<4x8xf32>) {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<6x32xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<6x32xf32>) -> tensor<6x32xf32>
  %first = tensor.extract_slice %x[0, 0, 0] [1, 6, 17] [1, 1, 1] : tensor<4x6x17xf16> to tensor<6x17xf16>
  %p = linalg.generic {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%first, %w : tensor<6x17xf16>, tensor<17x32xf16>) outs(%z : tensor<6x32xf32>) {
  ^bb0(%l: f16, %r: f16, %o: f32):
    %1 = arith.extf %l : f16 to f32
    %2 = arith.extf %r : f16 to f32
    %3 = arith.mulf %1, %2 : f32
    %4 = arith.addf %o, %3 : f32
    linalg.yield %4 : f32
  } -> tensor<6x32xf32>
  %e1 = tensor.empty() : tensor<4x32xf32>
  %z1 = linalg.fill ins(%zero : f32) outs(%e1 : tensor<4x32xf32>) -> tensor<4x32xf32>
  %q = linalg.generic {indexing_maps = [affine_map<(i, j, h, k) -> (i, h, k)>, affine_map<(i, j, h, k) -> (h, k, j)>,
      affine_map<(i, j, h, k) -> (i, j)>], iterator_types = ["parallel", "parallel", "reduction", "reduction"]}
      ins(%x, %u : tensor<4x6x17xf16>, tensor<6x17x32xf16>) outs(%z1 : tensor<4x32xf32>) {
  ^bb0(%l: f16, %r: f16, %o: f32):
    %1 = arith.extf %l : f16 to f32
    %2 = arith.extf %r : f16 to f32
    %3 = arith.mulf %1, %2 : f32
    %4 = arith.addf %o, %3 : f32
    linalg.yield %4 : f32
  } -> tensor<4x32xf32>
  %e2 = tensor.empty() : tensor<4x32xf16>
  %h = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]}
      ins(%q : tensor<4x32xf32>) outs(%e2 : tensor<4x32xf16>) {
  ^bb0(%l: f32, %o: f16):
    %1 = arith.truncf %l : f32 to f16
    linalg.yield %1 : f16
  } -> tensor<4x32xf16>
  %e3 = tensor.empty() : tensor<4x8xf32>
  %z3 = linalg.fill ins(%zero : f32) outs(%e3 : tensor<4x8xf32>) -> tensor<4x8xf32>
  %s = linalg.generic {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%h, %v : tensor<4x32xf16>, tensor<32x8xf16>) outs(%z3 : tensor<4x8xf32>) {
  ^bb0(%l: f16, %r: f16, %o: f32):
    %1 = arith.extf %l : f16 to f32
    %2 = arith.extf %r : f16 to f32
    %3 = arith.mulf %1, %2 : f32
    %4 = arith.addf %o, %3 : f32
    linalg.yield %4 : f32
  } -> tensor<4x8xf32>
  return %p, %s : tensor<6x32xf32>, tensor<4x8xf32>
}
