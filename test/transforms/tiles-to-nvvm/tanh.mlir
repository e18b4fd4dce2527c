// RUN: attn-opt %s --outline-elements --canonicalize --tiles-to-nvvm | FileCheck %s

// Without a matmul, tanh of what is in memory as f32 is as exact as other functions; the special unit's has 2^-11, which
// is enough of 16 bits.

// CHECK-LABEL: llvm.func @of_f32_elements_0
//   CHECK-NOT:   tanh.approx
//       CHECK:   llvm.return
// CHECK-LABEL: llvm.func @of_f16_elements_0
//       CHECK:   tanh.approx.f32
//       CHECK:   llvm.return

#same = affine_map<(i) -> (i)>

func.func @of_f32(%x: tensor<1024xf32>) -> tensor<1024xf32> {
  %empty = tensor.empty() : tensor<1024xf32>
  %y = linalg.generic {indexing_maps = [#same, #same], iterator_types = ["parallel"]}
      ins(%x : tensor<1024xf32>) outs(%empty : tensor<1024xf32>) {
    ^bb0(%a: f32, %out: f32):
      %t = math.tanh %a : f32
      linalg.yield %t : f32
  } -> tensor<1024xf32>
  return %y : tensor<1024xf32>
}

func.func @of_f16(%x: tensor<1024xf16>) -> tensor<1024xf16> {
  %empty = tensor.empty() : tensor<1024xf16>
  %y = linalg.generic {indexing_maps = [#same, #same], iterator_types = ["parallel"]}
      ins(%x : tensor<1024xf16>) outs(%empty : tensor<1024xf16>) {
    ^bb0(%a: f16, %out: f16):
      %t = math.tanh %a : f16
      linalg.yield %t : f16
  } -> tensor<1024xf16>
  return %y : tensor<1024xf16>
}
