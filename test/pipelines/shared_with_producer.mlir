// RUN: attn-opt %s --lower-to=nvidia --print-ir-after=outline-elements -o /dev/null 2>&1 | FileCheck %s

// The second matmul's loop reads what is made of %h, which the first one's result is added to: %h is computed on the
// first one's tiles, and once more by the kernel that computes what the second one reads.

// CHECK-LABEL: func.func @f
// CHECK:         gpu.launch_func @f_kernels::@f_0
// CHECK-NOT:     f_elements
// CHECK:         gpu.launch_func @f_kernels::@f_producers_0
// CHECK:         gpu.launch_func @f_kernels::@f_1
// CHECK-NOT:     f_elements
// CHECK:         return

#id = affine_map<(i, j) -> (i, j)>
#both = ["parallel", "parallel"]
func.func @f(%a: tensor<512x512xf16>, %b: tensor<512x512xf16>, %c: tensor<512x512xf16>, %x: tensor<512x512xf16>, %y: tensor<512x512xf16>) -> (tensor<512x512xf16>, tensor<512x512xf32>) {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<512x512xf16>
  %e32 = tensor.empty() : tensor<512x512xf32>
  %zeros = linalg.fill ins(%zero : f32) outs(%e32 : tensor<512x512xf32>) -> tensor<512x512xf32>
  %first = linalg.matmul ins(%a, %b : tensor<512x512xf16>, tensor<512x512xf16>) outs(%zeros : tensor<512x512xf32>) -> tensor<512x512xf32>
  %h = linalg.generic {indexing_maps = [#id, #id], iterator_types = #both} ins(%x : tensor<512x512xf16>) outs(%e : tensor<512x512xf16>) {
  ^bb0(%p: f16, %_: f16):
    %t = arith.addf %p, %p : f16
    linalg.yield %t : f16
  } -> tensor<512x512xf16>
  %sum = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = #both} ins(%first, %h : tensor<512x512xf32>, tensor<512x512xf16>) outs(%e : tensor<512x512xf16>) {
  ^bb0(%p: f32, %q: f16, %_: f16):
    %t = arith.truncf %p : f32 to f16
    %u = arith.addf %t, %q : f16
    linalg.yield %u : f16
  } -> tensor<512x512xf16>
  %d = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = #both} ins(%h, %y : tensor<512x512xf16>, tensor<512x512xf16>) outs(%e : tensor<512x512xf16>) {
  ^bb0(%p: f16, %q: f16, %_: f16):
    %t = arith.mulf %p, %q : f16
    linalg.yield %t : f16
  } -> tensor<512x512xf16>
  %second = linalg.matmul ins(%c, %d : tensor<512x512xf16>, tensor<512x512xf16>) outs(%zeros : tensor<512x512xf32>) -> tensor<512x512xf32>
  return %sum, %second : tensor<512x512xf16>, tensor<512x512xf32>
}
