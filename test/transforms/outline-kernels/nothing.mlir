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
