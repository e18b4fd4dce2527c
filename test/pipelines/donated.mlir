// RUN: attn-opt %s --lower-to=cpu --print-ir-after=convert-bufferization-to-memref -o /dev/null 2>&1 | FileCheck %s

// A token is added to a donated cache without a copy of it.

// CHECK-LABEL: func.func @append
// CHECK-NOT:     memref.alloc
// CHECK:         %[[ROW:.*]] = memref.subview %arg0[%arg2, 0] [1, 4] [1, 1]
// CHECK:         memref.copy %arg1, %[[ROW]]
// CHECK-NEXT:    return %arg0
func.func @append(%cache: tensor<8x4xf32> {bufferization.writable = true}, %row: tensor<1x4xf32>, %at: index) -> tensor<8x4xf32> {
  %0 = tensor.insert_slice %row into %cache[%at, 0] [1, 4] [1, 1] : tensor<1x4xf32> into tensor<8x4xf32>
  return %0 : tensor<8x4xf32>
}
