// RUN: attn-opt %s --return-arguments | FileCheck %s

// A donated argument that was written to is returned as it is, others as copies.

// CHECK-LABEL: func.func @step
// CHECK:         %[[COPY:.*]] = bufferization.clone %arg1
// CHECK-NOT:     bufferization.clone
// CHECK:         return %arg0, %[[COPY]]
func.func @step(%cache: memref<8x4xf32> {linalg_ext.donated}, %other: memref<4xf32>) -> (memref<8x4xf32>, memref<4xf32>) {
  %0 = bufferization.clone %cache : memref<8x4xf32> to memref<8x4xf32>
  %1 = bufferization.clone %other : memref<4xf32> to memref<4xf32>
  return %0, %1 : memref<8x4xf32>, memref<4xf32>
}
