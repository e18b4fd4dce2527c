// RUN: attn-opt %s --expand-before-slices | FileCheck %s

// Keys of packed queries, keys and values, as heads.
// CHECK-LABEL: func.func @keys
// CHECK-SAME:    (%[[X:.*]]: tensor<4096x3072xf16>)
// CHECK:         %[[E:.*]] = tensor.expand_shape %[[X]] {{\[\[}}0, 1], [2, 3]] output_shape [8, 512, 48, 64]
// CHECK:         %[[K:.*]] = tensor.extract_slice %[[E]][0, 0, 16, 0] [8, 512, 16, 64] [1, 1, 1, 1]
// CHECK:         return %[[K]]
func.func @keys(%x: tensor<4096x3072xf16>) -> tensor<8x512x16x64xf16> {
  %k = tensor.extract_slice %x[0, 1024] [4096, 1024] [1, 1] : tensor<4096x3072xf16> to tensor<4096x1024xf16>
  %h = tensor.expand_shape %k [[0, 1], [2, 3]] output_shape [8, 512, 16, 64]
      : tensor<4096x1024xf16> into tensor<8x512x16x64xf16>
  return %h : tensor<8x512x16x64xf16>
}

// A part that begins within a head, or is not known, is taken before.
// CHECK-LABEL: func.func @others
// CHECK:         tensor.extract_slice
// CHECK:         tensor.expand_shape
// CHECK:         tensor.extract_slice
// CHECK:         tensor.expand_shape
func.func @others(%x: tensor<4096x3072xf16>, %i: index) -> (tensor<4096x16x64xf16>, tensor<4096x16x64xf16>) {
  %k = tensor.extract_slice %x[0, 1000] [4096, 1024] [1, 1] : tensor<4096x3072xf16> to tensor<4096x1024xf16>
  %h = tensor.expand_shape %k [[0], [1, 2]] output_shape [4096, 16, 64]
      : tensor<4096x1024xf16> into tensor<4096x16x64xf16>
  %l = tensor.extract_slice %x[0, %i] [4096, 1024] [1, 1] : tensor<4096x3072xf16> to tensor<4096x1024xf16>
  %m = tensor.expand_shape %l [[0], [1, 2]] output_shape [4096, 16, 64]
      : tensor<4096x1024xf16> into tensor<4096x16x64xf16>
  return %h, %m : tensor<4096x16x64xf16>, tensor<4096x16x64xf16>
}
