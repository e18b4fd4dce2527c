// RUN: attn-opt %s --raise-attention | FileCheck %s

#id = affine_map<(i, j) -> (i, j)>
#scores = affine_map<(i, j, d) -> (i, d)>
#keys = affine_map<(i, j, d) -> (j, d)>
#ij = affine_map<(i, j, d) -> (i, j)>

// The scale stays before the rounding to 8 bits, which a cast after it does not hide; a probability is at most 1, so
// that the clamp does nothing; what multiplies after the rounding is taken out.
// CHECK-LABEL: func.func @scaled
// CHECK:       %[[P:.*]]:4 = linalg_ext.softmax
// CHECK:       %[[R:.*]] = linalg.generic {{.*}} ins(%[[P]]#0 : tensor<5x7xf32>) outs(%{{.*}} : tensor<5x7xf8E4M3FN>)
// CHECK-NEXT:  ^bb0(%[[X:.*]]: f32, %{{.*}}: f8E4M3FN):
// CHECK-NEXT:    %[[C:.*]] = arith.constant 2.560000e+02 : f32
// CHECK-NEXT:    %[[M:.*]] = arith.mulf %[[C]], %[[X]]
// CHECK-NEXT:    %[[T:.*]] = arith.truncf %[[M]] : f32 to f8E4M3FN
// CHECK-NEXT:    linalg.yield %[[T]]
// CHECK:       linalg.generic {{.*}} ins(%[[R]], %arg2 : tensor<5x7xf8E4M3FN>, tensor<7x8xf8E4M3FN>)
// CHECK:       arith.constant 3.906250e-03
func.func @scaled(%q: tensor<5x8xf8E4M3FN>, %k: tensor<7x8xf8E4M3FN>, %v: tensor<7x8xf8E4M3FN>) -> tensor<5x8xf32> {
  %zero = arith.constant 0.0 : f32
  %se = tensor.empty() : tensor<5x7xf32>
  %s0 = linalg.fill ins(%zero : f32) outs(%se : tensor<5x7xf32>) -> tensor<5x7xf32>
  %s = linalg.generic {indexing_maps = [#scores, #keys, #ij], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%q, %k : tensor<5x8xf8E4M3FN>, tensor<7x8xf8E4M3FN>) outs(%s0 : tensor<5x7xf32>) {
  ^bb0(%a: f8E4M3FN, %b: f8E4M3FN, %c: f32):
    %0 = arith.extf %a : f8E4M3FN to f32
    %1 = arith.extf %b : f8E4M3FN to f32
    %2 = arith.mulf %0, %1 : f32
    %3 = arith.addf %c, %2 : f32
    linalg.yield %3 : f32
  } -> tensor<5x7xf32>
  %p = linalg.softmax dimension(1) ins(%s : tensor<5x7xf32>) outs(%se : tensor<5x7xf32>) -> tensor<5x7xf32>
  %pe = tensor.empty() : tensor<5x7xf8E4M3FN>
  %p8 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%p : tensor<5x7xf32>) outs(%pe : tensor<5x7xf8E4M3FN>) {
  ^bb0(%a: f32, %b: f8E4M3FN):
    %scale = arith.constant 256.0 : f32
    %low = arith.constant -448.0 : f32
    %high = arith.constant 448.0 : f32
    %0 = arith.mulf %a, %scale : f32
    %below = arith.cmpf ult, %0, %low : f32
    %1 = arith.select %below, %low, %0 : f32
    %2 = arith.minimumf %1, %high : f32
    %3 = arith.truncf %2 : f32 to f8E4M3FN
    linalg.yield %3 : f8E4M3FN
  } -> tensor<5x7xf8E4M3FN>
  %pw = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%p8 : tensor<5x7xf8E4M3FN>) outs(%se : tensor<5x7xf32>) {
  ^bb0(%a: f8E4M3FN, %b: f32):
    %inverse = arith.constant 0.00390625 : f32
    %0 = arith.extf %a : f8E4M3FN to f32
    %1 = arith.mulf %0, %inverse : f32
    linalg.yield %1 : f32
  } -> tensor<5x7xf32>
  %ve = tensor.empty() : tensor<7x8xf32>
  %vw = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%v : tensor<7x8xf8E4M3FN>) outs(%ve : tensor<7x8xf32>) {
  ^bb0(%a: f8E4M3FN, %b: f32):
    %0 = arith.extf %a : f8E4M3FN to f32
    linalg.yield %0 : f32
  } -> tensor<7x8xf32>
  %oe = tensor.empty() : tensor<5x8xf32>
  %o0 = linalg.fill ins(%zero : f32) outs(%oe : tensor<5x8xf32>) -> tensor<5x8xf32>
  %o = linalg.matmul ins(%pw, %vw : tensor<5x7xf32>, tensor<7x8xf32>) outs(%o0 : tensor<5x8xf32>) -> tensor<5x8xf32>
  return %o : tensor<5x8xf32>
}
