// RUN: attn-opt %s --outline-kernels --split-input-file | FileCheck %s

// What has no loops over tiles, and is no tile for one block, leaves no gpu.module behind.
// CHECK-NOT: gpu.module
// CHECK-NOT: gpu.container_module
// CHECK-LABEL: func.func @large
// CHECK:         linalg.matmul
func.func @large(%a: tensor<999x64xf16>, %b: tensor<64x999xf16>, %o: tensor<999x999xf32>) -> tensor<999x999xf32> {
  %0 = linalg.matmul ins(%a, %b : tensor<999x64xf16>, tensor<64x999xf16>) outs(%o : tensor<999x999xf32>) -> tensor<999x999xf32>
  return %0 : tensor<999x999xf32>
}

// -----

// CHECK-NOT: gpu.module
// CHECK-LABEL: func.func @refused
func.func @refused(%a: tensor<9x?xf16>, %b: tensor<?x9xf16>, %o: tensor<9x9xf32>) -> tensor<9x9xf32> {
  %0 = linalg.matmul ins(%a, %b : tensor<9x?xf16>, tensor<?x9xf16>) outs(%o : tensor<9x9xf32>) -> tensor<9x9xf32>
  return %0 : tensor<9x9xf32>
}

// -----

// Each of the loops of rows is as small as a tile, all of them together are not.
// CHECK-NOT: gpu.module
// CHECK-LABEL: func.func @many_rows
func.func @many_rows(%a: tensor<8x65x8xf16>, %b: tensor<8x9xf16>, %o: tensor<8x65x9xf32>) -> tensor<8x65x9xf32> {
  %0 = linalg.generic {indexing_maps = [affine_map<(h, i, j, k) -> (h, i, k)>, affine_map<(h, i, j, k) -> (k, j)>,
      affine_map<(h, i, j, k) -> (h, i, j)>], iterator_types = ["parallel", "parallel", "parallel", "reduction"]}
      ins(%a, %b : tensor<8x65x8xf16>, tensor<8x9xf16>) outs(%o : tensor<8x65x9xf32>) {
  ^bb0(%l: f16, %r: f16, %s: f32):
    %1 = arith.extf %l : f16 to f32
    %2 = arith.extf %r : f16 to f32
    %3 = arith.mulf %1, %2 : f32
    %4 = arith.addf %s, %3 : f32
    linalg.yield %4 : f32
  } -> tensor<8x65x9xf32>
  return %0 : tensor<8x65x9xf32>
}
