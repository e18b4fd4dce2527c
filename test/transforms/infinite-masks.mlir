// RUN: attn-opt %s --raise-attention --infinite-masks --split-input-file | FileCheck %s

// All queries see the first key; the scale that follows is one of the mask's number, too.
// CHECK-LABEL: func.func @causal
// CHECK:         %[[LOW:.*]] = arith.constant 0xFF800000 : f32
// CHECK-NEXT:    arith.select %{{.*}}, %{{.*}}, %[[LOW]] : f32
func.func @causal(%q: tensor<2x64x32xf32>, %k: tensor<2x32x64xf32>, %v: tensor<2x64x32xf32>) -> tensor<2x64x32xf32> {
  %zero = arith.constant 0.0 : f32
  %scale = arith.constant 0.125 : f32
  %low = arith.constant -1.0e9 : f32
  %e = tensor.empty() : tensor<2x64x64xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<2x64x64xf32>) -> tensor<2x64x64xf32>
  %s = linalg.batch_matmul ins(%q, %k : tensor<2x64x32xf32>, tensor<2x32x64xf32>) outs(%z : tensor<2x64x64xf32>) -> tensor<2x64x64xf32>
  %x = linalg.generic {indexing_maps = [affine_map<(b, m, n) -> (b, m, n)>, affine_map<(b, m, n) -> (b, m, n)>], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%s : tensor<2x64x64xf32>) outs(%e : tensor<2x64x64xf32>) {
  ^bb0(%a: f32, %o: f32):
    %i = linalg.index 1 : index
    %j = linalg.index 2 : index
    %live = arith.cmpi sle, %j, %i : index
    %b = arith.select %live, %a, %low : f32
    %c = arith.mulf %b, %scale : f32
    linalg.yield %c : f32
  } -> tensor<2x64x64xf32>
  %p = linalg.softmax dimension(2) ins(%x : tensor<2x64x64xf32>) outs(%e : tensor<2x64x64xf32>) -> tensor<2x64x64xf32>
  %eo = tensor.empty() : tensor<2x64x32xf32>
  %zo = linalg.fill ins(%zero : f32) outs(%eo : tensor<2x64x32xf32>) -> tensor<2x64x32xf32>
  %r = linalg.batch_matmul ins(%p, %v : tensor<2x64x64xf32>, tensor<2x64x32xf32>) outs(%zo : tensor<2x64x32xf32>) -> tensor<2x64x32xf32>
  return %r : tensor<2x64x32xf32>
}

// -----

// Padding that is loaded may leave a row no key, whose result is the mean of all values then.
// CHECK-LABEL: func.func @padding
// CHECK:         %[[LOW:.*]] = arith.constant -1.000000e+09 : f32
// CHECK-NEXT:    arith.select %{{.*}}, %{{.*}}, %[[LOW]] : f32
func.func @padding(%q: tensor<2x64x32xf32>, %k: tensor<2x32x64xf32>, %v: tensor<2x64x32xf32>, %there: tensor<2x64xi1>) -> tensor<2x64x32xf32> {
  %zero = arith.constant 0.0 : f32
  %low = arith.constant -1.0e9 : f32
  %e = tensor.empty() : tensor<2x64x64xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<2x64x64xf32>) -> tensor<2x64x64xf32>
  %s = linalg.batch_matmul ins(%q, %k : tensor<2x64x32xf32>, tensor<2x32x64xf32>) outs(%z : tensor<2x64x64xf32>) -> tensor<2x64x64xf32>
  %x = linalg.generic {indexing_maps = [affine_map<(b, m, n) -> (b, n)>, affine_map<(b, m, n) -> (b, m, n)>, affine_map<(b, m, n) -> (b, m, n)>], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%there, %s : tensor<2x64xi1>, tensor<2x64x64xf32>) outs(%e : tensor<2x64x64xf32>) {
  ^bb0(%live: i1, %a: f32, %o: f32):
    %b = arith.select %live, %a, %low : f32
    linalg.yield %b : f32
  } -> tensor<2x64x64xf32>
  %p = linalg.softmax dimension(2) ins(%x : tensor<2x64x64xf32>) outs(%e : tensor<2x64x64xf32>) -> tensor<2x64x64xf32>
  %eo = tensor.empty() : tensor<2x64x32xf32>
  %zo = linalg.fill ins(%zero : f32) outs(%eo : tensor<2x64x32xf32>) -> tensor<2x64x32xf32>
  %r = linalg.batch_matmul ins(%p, %v : tensor<2x64x64xf32>, tensor<2x64x32xf32>) outs(%zo : tensor<2x64x32xf32>) -> tensor<2x64x32xf32>
  return %r : tensor<2x64x32xf32>
}
