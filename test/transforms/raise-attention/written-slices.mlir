// RUN: attn-opt %s --raise-attention --split-input-file | FileCheck %s

// scores[:, 3:7] = tanh(scores[:, 3:7]) is a choice by index.
// CHECK-LABEL: @slice
//       CHECK: linalg.generic
//       CHECK: %[[J:.*]] = linalg.index 1
//       CHECK: arith.cmpi sge, %[[J]]
//       CHECK: arith.cmpi slt, %[[J]]
//       CHECK: math.tanh
//       CHECK: arith.select
//       CHECK: linalg_ext.softmax
func.func @slice(%q: tensor<6x8xf32>, %k: tensor<8x10xf32>, %v: tensor<10x4xf32>) -> tensor<6x4xf32> {
  %zero = arith.constant 0.0 : f32
  %e_s = tensor.empty() : tensor<6x10xf32>
  %e_p = tensor.empty() : tensor<6x4xf32>
  %z_s = linalg.fill ins(%zero : f32) outs(%e_s : tensor<6x10xf32>) -> tensor<6x10xf32>
  %s = linalg.matmul ins(%q, %k : tensor<6x8xf32>, tensor<8x10xf32>) outs(%z_s : tensor<6x10xf32>) -> tensor<6x10xf32>
  %part = tensor.extract_slice %s[0, 3] [6, 4] [1, 1] : tensor<6x10xf32> to tensor<6x4xf32>
  %t = linalg.tanh ins(%part : tensor<6x4xf32>) outs(%e_p : tensor<6x4xf32>) -> tensor<6x4xf32>
  %x = tensor.insert_slice %t into %s[0, 3] [6, 4] [1, 1] : tensor<6x4xf32> into tensor<6x10xf32>
  %p = linalg.softmax dimension(1) ins(%x : tensor<6x10xf32>) outs(%e_s : tensor<6x10xf32>) -> tensor<6x10xf32>
  %z_o = linalg.fill ins(%zero : f32) outs(%e_p : tensor<6x4xf32>) -> tensor<6x4xf32>
  %o = linalg.matmul ins(%p, %v : tensor<6x10xf32>, tensor<10x4xf32>) outs(%z_o : tensor<6x4xf32>) -> tensor<6x4xf32>
  return %o : tensor<6x4xf32>
}

// -----

// scores[:, 1::3] = tanh(scores[:, 1::3]): an index has its third part in a slice where that is one.
// CHECK-LABEL: @steps
//       CHECK: linalg.generic
//       CHECK: %[[J:.*]] = linalg.index 1
//       CHECK: arith.cmpi sge, %[[J]]
//       CHECK: %[[REST:.*]] = arith.remui
//       CHECK: arith.cmpi eq, %[[REST]]
//       CHECK: math.tanh
//       CHECK: arith.select
//       CHECK: linalg_ext.softmax
func.func @steps(%q: tensor<6x8xf32>, %k: tensor<8x10xf32>, %v: tensor<10x4xf32>) -> tensor<6x4xf32> {
  %zero = arith.constant 0.0 : f32
  %e_s = tensor.empty() : tensor<6x10xf32>
  %e_t = tensor.empty() : tensor<6x3xf32>
  %e_o = tensor.empty() : tensor<6x4xf32>
  %z_s = linalg.fill ins(%zero : f32) outs(%e_s : tensor<6x10xf32>) -> tensor<6x10xf32>
  %s = linalg.matmul ins(%q, %k : tensor<6x8xf32>, tensor<8x10xf32>) outs(%z_s : tensor<6x10xf32>) -> tensor<6x10xf32>
  %part = tensor.extract_slice %s[0, 1] [6, 3] [1, 3] : tensor<6x10xf32> to tensor<6x3xf32>
  %t = linalg.tanh ins(%part : tensor<6x3xf32>) outs(%e_t : tensor<6x3xf32>) -> tensor<6x3xf32>
  %x = tensor.insert_slice %t into %s[0, 1] [6, 3] [1, 3] : tensor<6x3xf32> into tensor<6x10xf32>
  %p = linalg.softmax dimension(1) ins(%x : tensor<6x10xf32>) outs(%e_s : tensor<6x10xf32>) -> tensor<6x10xf32>
  %z_o = linalg.fill ins(%zero : f32) outs(%e_o : tensor<6x4xf32>) -> tensor<6x4xf32>
  %o = linalg.matmul ins(%p, %v : tensor<6x10xf32>, tensor<10x4xf32>) outs(%z_o : tensor<6x4xf32>) -> tensor<6x4xf32>
  return %o : tensor<6x4xf32>
}

// -----

// Parts of the scores that are put together again.
// CHECK-LABEL: @together
//       CHECK: linalg.generic
//       CHECK: %[[J:.*]] = linalg.index 1
//       CHECK: %[[FIRST:.*]] = arith.cmpi slt, %[[J]]
//       CHECK: math.tanh
//       CHECK: arith.select %[[FIRST]]
//       CHECK: linalg_ext.softmax
func.func @together(%q: tensor<6x8xf32>, %k: tensor<8x10xf32>, %v: tensor<10x4xf32>) -> tensor<6x4xf32> {
  %zero = arith.constant 0.0 : f32
  %e_s = tensor.empty() : tensor<6x10xf32>
  %e_o = tensor.empty() : tensor<6x4xf32>
  %z_s = linalg.fill ins(%zero : f32) outs(%e_s : tensor<6x10xf32>) -> tensor<6x10xf32>
  %s = linalg.matmul ins(%q, %k : tensor<6x8xf32>, tensor<8x10xf32>) outs(%z_s : tensor<6x10xf32>) -> tensor<6x10xf32>
  %first = tensor.extract_slice %s[0, 0] [6, 4] [1, 1] : tensor<6x10xf32> to tensor<6x4xf32>
  %rest = tensor.extract_slice %s[0, 4] [6, 6] [1, 1] : tensor<6x10xf32> to tensor<6x6xf32>
  %t = linalg.tanh ins(%first : tensor<6x4xf32>) outs(%e_o : tensor<6x4xf32>) -> tensor<6x4xf32>
  %x = tensor.concat dim(1) %t, %rest : (tensor<6x4xf32>, tensor<6x6xf32>) -> tensor<6x10xf32>
  %p = linalg.softmax dimension(1) ins(%x : tensor<6x10xf32>) outs(%e_s : tensor<6x10xf32>) -> tensor<6x10xf32>
  %z_o = linalg.fill ins(%zero : f32) outs(%e_o : tensor<6x4xf32>) -> tensor<6x4xf32>
  %o = linalg.matmul ins(%p, %v : tensor<6x10xf32>, tensor<10x4xf32>) outs(%z_o : tensor<6x4xf32>) -> tensor<6x4xf32>
  return %o : tensor<6x4xf32>
}
