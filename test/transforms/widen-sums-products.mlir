// RUN: attn-opt %s --widen-sums="products=1" | FileCheck %s

// Products of halves are added up in f32, as their factors are: but in loops over tiles, whose sums are f32 anyway.

#a = affine_map<(i, j, k) -> (i, k)>
#b = affine_map<(i, j, k) -> (k, j)>
#c = affine_map<(i, j, k) -> (i, j)>

// CHECK-LABEL: func.func @matmul
// CHECK:         %[[ZEROS:.*]] = linalg.fill ins(%{{.*}} : f32) {{.*}} -> tensor<32x48xf32>
// CHECK:         %[[SUM:.*]] = linalg.generic {{.*}} ins(%arg0, %arg1 : tensor<32x64xbf16>, tensor<64x48xbf16>) outs(%[[ZEROS]] : tensor<32x48xf32>)
// CHECK-NEXT:    ^bb0(%[[X:.*]]: bf16, %[[Y:.*]]: bf16, %[[S:.*]]: f32):
// CHECK-NEXT:      %[[A:.*]] = arith.extf %[[X]] : bf16 to f32
// CHECK-NEXT:      %[[B:.*]] = arith.extf %[[Y]] : bf16 to f32
// CHECK-NEXT:      %[[P:.*]] = arith.mulf %[[A]], %[[B]] : f32
// CHECK-NEXT:      %[[R:.*]] = arith.addf %[[S]], %[[P]] : f32
// CHECK-NEXT:      linalg.yield %[[R]]
// CHECK:         linalg.generic {{.*}} ins(%[[SUM]] : tensor<32x48xf32>)
// CHECK:           arith.truncf
func.func @matmul(%x: tensor<32x64xbf16>, %y: tensor<64x48xbf16>) -> tensor<32x48xbf16> {
  %zero = arith.constant 0.0 : bf16
  %e = tensor.empty() : tensor<32x48xbf16>
  %i = linalg.fill ins(%zero : bf16) outs(%e : tensor<32x48xbf16>) -> tensor<32x48xbf16>
  %s = linalg.generic {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%x, %y : tensor<32x64xbf16>, tensor<64x48xbf16>) outs(%i : tensor<32x48xbf16>) {
  ^bb0(%a: bf16, %b: bf16, %sum: bf16):
    %p = arith.mulf %a, %b : bf16
    %r = arith.addf %sum, %p : bf16
    linalg.yield %r : bf16
  } -> tensor<32x48xbf16>
  return %s : tensor<32x48xbf16>
}

// CHECK-LABEL: func.func @tiles
// CHECK-NOT:     f32
func.func @tiles(%x: tensor<32x64xbf16>, %y: tensor<64x48xbf16>, %i: tensor<32x48xbf16>, %n: index) -> tensor<32x48xbf16> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %all = scf.for %k = %c0 to %n step %c1 iter_args(%o = %i) -> tensor<32x48xbf16> {
    %s = linalg.generic {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "reduction"]}
        ins(%x, %y : tensor<32x64xbf16>, tensor<64x48xbf16>) outs(%o : tensor<32x48xbf16>) {
    ^bb0(%a: bf16, %b: bf16, %sum: bf16):
      %p = arith.mulf %a, %b : bf16
      %r = arith.addf %sum, %p : bf16
      linalg.yield %r : bf16
    } -> tensor<32x48xbf16>
    scf.yield %s : tensor<32x48xbf16>
  }
  return %all : tensor<32x48xbf16>
}
