// RUN: attn-opt %s --fresh-inits | FileCheck %s

// CHECK-LABEL: func.func @f
// CHECK: %[[E:.*]] = tensor.empty() : tensor<2x4xf32>
// CHECK: linalg.transpose ins(%arg0 : tensor<4x2xf32>) outs(%[[E]] : tensor<2x4xf32>)
// An init that is read stays.
// CHECK: linalg.matmul {{.*}} outs(%extracted_slice
func.func @f(%x: tensor<4x2xf32>, %y: tensor<8x4xf32>, %i: index, %a: tensor<2x3xf32>, %b: tensor<3x4xf32>)
    -> (tensor<2x4xf32>, tensor<2x4xf32>) {
  %s = tensor.extract_slice %y[%i, 0] [2, 4] [1, 1] : tensor<8x4xf32> to tensor<2x4xf32>
  %t = linalg.transpose ins(%x : tensor<4x2xf32>) outs(%s : tensor<2x4xf32>) permutation = [1, 0]
  %m = linalg.matmul ins(%a, %b : tensor<2x3xf32>, tensor<3x4xf32>) outs(%s : tensor<2x4xf32>) -> tensor<2x4xf32>
  return %t, %m : tensor<2x4xf32>, tensor<2x4xf32>
}
