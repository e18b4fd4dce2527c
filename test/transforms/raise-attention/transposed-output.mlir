// RUN: attn-opt %s --raise-attention | FileCheck %s

// The output as JAX has it: values first, so that its second matmul gives [batch, size, queries], and generics that
// transpose, before and behind a cast. The matmul writes in the order of the last one.
// CHECK-DAG:   #[[OUT:.*]] = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2)>
// CHECK-LABEL: func.func @values_first
// CHECK:         %[[P:.*]]:4 = linalg_ext.softmax dimension(2)
// CHECK:         %[[O:.*]] = linalg.generic {indexing_maps = [#{{.*}}, #{{.*}}, #[[OUT]]], {{.*}} outs(%{{.*}} : tensor<2x5x6xf32>)
// CHECK:         %[[N:.*]] = linalg.generic {{.*}} ins(%[[O]] : tensor<2x5x6xf32>)
// CHECK:           arith.truncf
// CHECK:         return %[[N]] : tensor<2x5x6xf16>
#qk = affine_map<(b, m, n, d) -> (b, m, d)>
#kk = affine_map<(b, m, n, d) -> (b, n, d)>
#sk = affine_map<(b, m, n, d) -> (b, m, n)>
#ve = affine_map<(b, e, m, n) -> (b, n, e)>
#pe = affine_map<(b, e, m, n) -> (b, m, n)>
#oe = affine_map<(b, e, m, n) -> (b, e, m)>
#id = affine_map<(b, i, j) -> (b, i, j)>
#row = affine_map<(b, i, j) -> (b, i)>
#swapped = affine_map<(b, i, j) -> (b, j, i)>
func.func @values_first(%q: tensor<2x5x8xf32>, %k: tensor<2x7x8xf32>, %v: tensor<2x7x6xf32>) -> tensor<2x5x6xf16> {
  %zero = arith.constant 0.0 : f32
  %low = arith.constant 0xFF800000 : f32
  %se = tensor.empty() : tensor<2x5x7xf32>
  %s0 = linalg.fill ins(%zero : f32) outs(%se : tensor<2x5x7xf32>) -> tensor<2x5x7xf32>
  %s = linalg.generic {indexing_maps = [#qk, #kk, #sk], iterator_types = ["parallel", "parallel", "parallel", "reduction"]}
      ins(%q, %k : tensor<2x5x8xf32>, tensor<2x7x8xf32>) outs(%s0 : tensor<2x5x7xf32>) {
  ^bb0(%a: f32, %b: f32, %c: f32):
    %t = arith.mulf %a, %b : f32
    %u = arith.addf %c, %t : f32
    linalg.yield %u : f32
  } -> tensor<2x5x7xf32>
  %re = tensor.empty() : tensor<2x5xf32>
  %m0 = linalg.fill ins(%low : f32) outs(%re : tensor<2x5xf32>) -> tensor<2x5xf32>
  %m = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%s : tensor<2x5x7xf32>) outs(%m0 : tensor<2x5xf32>) {
  ^bb0(%a: f32, %c: f32):
    %t = arith.maximumf %a, %c : f32
    linalg.yield %t : f32
  } -> tensor<2x5xf32>
  %e = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%s, %m : tensor<2x5x7xf32>, tensor<2x5xf32>) outs(%se : tensor<2x5x7xf32>) {
  ^bb0(%a: f32, %b: f32, %c: f32):
    %t = arith.subf %a, %b : f32
    %u = math.exp %t : f32
    linalg.yield %u : f32
  } -> tensor<2x5x7xf32>
  %l0 = linalg.fill ins(%zero : f32) outs(%re : tensor<2x5xf32>) -> tensor<2x5xf32>
  %l = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%e : tensor<2x5x7xf32>) outs(%l0 : tensor<2x5xf32>) {
  ^bb0(%a: f32, %c: f32):
    %t = arith.addf %a, %c : f32
    linalg.yield %t : f32
  } -> tensor<2x5xf32>
  %p = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%e, %l : tensor<2x5x7xf32>, tensor<2x5xf32>) outs(%se : tensor<2x5x7xf32>) {
  ^bb0(%a: f32, %b: f32, %c: f32):
    %t = arith.divf %a, %b : f32
    linalg.yield %t : f32
  } -> tensor<2x5x7xf32>
  %oe = tensor.empty() : tensor<2x6x5xf32>
  %o0 = linalg.fill ins(%zero : f32) outs(%oe : tensor<2x6x5xf32>) -> tensor<2x6x5xf32>
  %o = linalg.generic {indexing_maps = [#ve, #pe, #oe], iterator_types = ["parallel", "parallel", "parallel", "reduction"]}
      ins(%v, %p : tensor<2x7x6xf32>, tensor<2x5x7xf32>) outs(%o0 : tensor<2x6x5xf32>) {
  ^bb0(%a: f32, %b: f32, %c: f32):
    %t = arith.mulf %a, %b : f32
    %u = arith.addf %c, %t : f32
    linalg.yield %u : f32
  } -> tensor<2x6x5xf32>
  %ne = tensor.empty() : tensor<2x6x5xf16>
  %n = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%o : tensor<2x6x5xf32>) outs(%ne : tensor<2x6x5xf16>) {
  ^bb0(%a: f32, %c: f16):
    %t = arith.truncf %a : f32 to f16
    linalg.yield %t : f16
  } -> tensor<2x6x5xf16>
  %te = tensor.empty() : tensor<2x5x6xf16>
  %r = linalg.generic {indexing_maps = [#swapped, #id], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%n : tensor<2x6x5xf16>) outs(%te : tensor<2x5x6xf16>) {
  ^bb0(%a: f16, %c: f16):
    linalg.yield %a : f16
  } -> tensor<2x5x6xf16>
  return %r : tensor<2x5x6xf16>
}
