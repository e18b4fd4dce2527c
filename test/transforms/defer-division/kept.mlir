// RUN: attn-opt %s --split-input-file --verify-diagnostics --defer-division | FileCheck %s

// Each keeps dividing; a remark says why.

// CHECK: func.func @probabilities_returned
// CHECK: linalg_ext.softmax
func.func @probabilities_returned(%x: tensor<4x8xf32>, %v: tensor<8x2xf32>, %m: tensor<4xf32>, %a: tensor<4xf32>) -> (tensor<4x8xf32>, tensor<4x2xf32>) {
  %zero = arith.constant 0.0 : f32
  %e0 = tensor.empty() : tensor<4x2xf32>
  %o0 = linalg.fill ins(%zero : f32) outs(%e0 : tensor<4x2xf32>) -> tensor<4x2xf32>
  // expected-remark @+1 {{'linalg_ext.softmax' divides in every tile: its result is not used by one matmul alone}}
  %p:4 = linalg_ext.softmax dimension(1) ins(%x : tensor<4x8xf32>) outs(%x, %m, %a, %m : tensor<4x8xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) : tensor<4x8xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
  %o = linalg.matmul ins(%p#0, %v : tensor<4x8xf32>, tensor<8x2xf32>) outs(%o0 : tensor<4x2xf32>) -> tensor<4x2xf32>
  return %p#0, %o : tensor<4x8xf32>, tensor<4x2xf32>
}

// -----

// CHECK: func.func @dropped_out
// CHECK: linalg_ext.softmax
#id = affine_map<(i, j) -> (i, j)>
func.func @dropped_out(%x: tensor<4x8xf32>, %v: tensor<8x2xf32>, %m: tensor<4xf32>, %a: tensor<4xf32>) -> tensor<4x2xf32> {
  %zero = arith.constant 0.0 : f32
  %e0 = tensor.empty() : tensor<4x2xf32>
  %o0 = linalg.fill ins(%zero : f32) outs(%e0 : tensor<4x2xf32>) -> tensor<4x2xf32>
  // expected-remark @+1 {{'linalg_ext.softmax' divides in every tile: 'linalg.generic' uses its result and is not linear in it}}
  %p:4 = linalg_ext.softmax dimension(1) ins(%x : tensor<4x8xf32>) outs(%x, %m, %a, %m : tensor<4x8xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) : tensor<4x8xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
  %d = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%p#0 : tensor<4x8xf32>) outs(%x : tensor<4x8xf32>) {
  ^bb0(%in: f32, %out: f32):
    %y = arith.mulf %in, %in : f32
    linalg.yield %y : f32
  } -> tensor<4x8xf32>
  %o = linalg.matmul ins(%d, %v : tensor<4x8xf32>, tensor<8x2xf32>) outs(%o0 : tensor<4x2xf32>) -> tensor<4x2xf32>
  return %o : tensor<4x2xf32>
}

// -----

func.func @half(%x: tensor<4x8xf16>, %v: tensor<8x2xf16>, %m: tensor<4xf32>, %a: tensor<4xf32>) -> tensor<4x2xf16> {
  %zero = arith.constant 0.0 : f16
  %e0 = tensor.empty() : tensor<4x2xf16>
  %o0 = linalg.fill ins(%zero : f16) outs(%e0 : tensor<4x2xf16>) -> tensor<4x2xf16>
  // expected-remark @+1 {{'linalg_ext.softmax' divides in every tile: the accumulator of the matmul is f16, whose range sums of exponentials may exceed}}
  %p:4 = linalg_ext.softmax dimension(1) ins(%x : tensor<4x8xf16>) outs(%x, %m, %a, %m : tensor<4x8xf16>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) : tensor<4x8xf16>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
  %o = linalg.matmul ins(%p#0, %v : tensor<4x8xf16>, tensor<8x2xf16>) outs(%o0 : tensor<4x2xf16>) -> tensor<4x2xf16>
  return %o : tensor<4x2xf16>
}

// -----

// What the matmul adds to would be divided too.
func.func @not_rescaled(%x: tensor<4x8xf32>, %v: tensor<8x2xf32>, %o: tensor<4x2xf32>, %m: tensor<4xf32>, %a: tensor<4xf32>) -> tensor<4x2xf32> {
  // expected-remark @+1 {{'linalg_ext.softmax' divides in every tile: the accumulator of the matmul is not rescaled}}
  %p:4 = linalg_ext.softmax dimension(1) ins(%x : tensor<4x8xf32>) outs(%x, %m, %a, %m : tensor<4x8xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) : tensor<4x8xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
  %r = linalg.matmul ins(%p#0, %v : tensor<4x8xf32>, tensor<8x2xf32>) outs(%o : tensor<4x2xf32>) -> tensor<4x2xf32>
  return %r : tensor<4x2xf32>
}
