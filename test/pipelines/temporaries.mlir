// RUN: attn-opt %s --lower-to=cpu --print-ir-after=convert-bufferization-to-memref -o /dev/null 2>&1 | FileCheck %s

// What one layer computes is freed once the next one has read it, not at the end: the third layer has the memory of the
// first one. A view of it (here one without the batch) counts as it.

// CHECK-LABEL: func.func @layers
// CHECK:         %[[FIRST:.*]] = memref.alloc()
// CHECK:         %[[SECOND:.*]] = memref.alloc()
// CHECK:         linalg.generic {{.*}} ins(%{{.*}}, %arg2
// CHECK:         memref.dealloc %[[FIRST]]
// CHECK-NOT:     memref.dealloc
// CHECK:         %[[THIRD:.*]] = memref.alloc()
// CHECK:         linalg.generic {{.*}} ins(%{{.*}}, %arg1
// CHECK:         memref.dealloc %[[SECOND]]
// CHECK-NEXT:    return %[[THIRD]]
func.func @layers(%x: tensor<512x512xf32>, %w: tensor<512x512xf32>, %v: tensor<1x512x512xf32>) -> tensor<512x512xf32> {
  %zero = arith.constant 0.0 : f32
  %empty = tensor.empty() : tensor<512x512xf32>
  %init = linalg.fill ins(%zero : f32) outs(%empty : tensor<512x512xf32>) -> tensor<512x512xf32>
  %first = linalg.matmul ins(%x, %w : tensor<512x512xf32>, tensor<512x512xf32>) outs(%init : tensor<512x512xf32>) -> tensor<512x512xf32>
  %batched = tensor.expand_shape %first [[0, 1], [2]] output_shape [1, 512, 512] : tensor<512x512xf32> into tensor<1x512x512xf32>
  %empty1 = tensor.empty() : tensor<1x512x512xf32>
  %init1 = linalg.fill ins(%zero : f32) outs(%empty1 : tensor<1x512x512xf32>) -> tensor<1x512x512xf32>
  %second = linalg.batch_matmul ins(%batched, %v : tensor<1x512x512xf32>, tensor<1x512x512xf32>) outs(%init1 : tensor<1x512x512xf32>) -> tensor<1x512x512xf32>
  %rows = tensor.collapse_shape %second [[0, 1], [2]] : tensor<1x512x512xf32> into tensor<512x512xf32>
  %third = linalg.matmul ins(%rows, %w : tensor<512x512xf32>, tensor<512x512xf32>) outs(%init : tensor<512x512xf32>) -> tensor<512x512xf32>
  return %third : tensor<512x512xf32>
}
