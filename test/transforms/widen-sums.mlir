// RUN: attn-opt %s --widen-sums | FileCheck %s

#id = affine_map<(i, j) -> (i, j)>
#row = affine_map<(i, j) -> (i)>

// A sum of squares: squares have the precision of the elements, the sum f32's.
// CHECK-LABEL: func.func @squares
// CHECK:         %[[ZEROS:.*]] = linalg.fill ins(%{{.*}} : f32) {{.*}} -> tensor<?xf32>
// CHECK:         %[[SUM:.*]] = linalg.generic {{.*}} outs(%[[ZEROS]] : tensor<?xf32>)
// CHECK-NEXT:    ^bb0(%[[A:.*]]: bf16, %[[S:.*]]: f32):
// CHECK:           %[[P:.*]] = arith.mulf %[[A]], %[[A]] : bf16
// CHECK:           %[[W:.*]] = arith.extf %[[P]] : bf16 to f32
// CHECK:           arith.addf %[[S]], %[[W]] : f32
// CHECK:         %[[R:.*]] = linalg.generic {{.*}} ins(%[[SUM]] : tensor<?xf32>)
// CHECK:           arith.truncf
// CHECK:         return %[[R]] : tensor<?xbf16>
func.func @squares(%x: tensor<?x64xbf16>, %e: tensor<?xbf16>) -> tensor<?xbf16> {
  %zero = arith.constant 0.0 : bf16
  %i = linalg.fill ins(%zero : bf16) outs(%e : tensor<?xbf16>) -> tensor<?xbf16>
  %s = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<?x64xbf16>) outs(%i : tensor<?xbf16>) {
  ^bb0(%a: bf16, %sum: bf16):
    %p = arith.mulf %a, %a : bf16
    %r = arith.addf %sum, %p : bf16
    linalg.yield %r : bf16
  } -> tensor<?xbf16>
  return %s : tensor<?xbf16>
}

// What it starts from may be any tensor.
// CHECK-LABEL: func.func @product
// CHECK:         %[[START:.*]] = linalg.generic {{.*}} ins(%arg1 : tensor<8xf16>)
// CHECK:           arith.extf
// CHECK:         linalg.generic {{.*}} outs(%[[START]] : tensor<8xf32>)
// CHECK:           arith.mulf %{{.*}}, %{{.*}} : f32
func.func @product(%x: tensor<8x64xf16>, %y: tensor<8xf16>) -> tensor<8xf16> {
  %s = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<8x64xf16>) outs(%y : tensor<8xf16>) {
  ^bb0(%a: f16, %all: f16):
    %r = arith.mulf %a, %all : f16
    linalg.yield %r : f16
  } -> tensor<8xf16>
  return %s : tensor<8xf16>
}

// Left as they are: a maximum, a sum of f32, matmuls, and what looks at its sum.
// CHECK-LABEL: func.func @others
// CHECK-NOT:     arith.extf
func.func @others(%x: tensor<8x64xf16>, %w: tensor<8x64xf32>, %b: tensor<64x4xf16>, %y: tensor<8xf16>,
                  %z: tensor<8xf32>, %c: tensor<8x4xf16>)
    -> (tensor<8xf16>, tensor<8xf32>, tensor<8x4xf16>, tensor<8xf16>) {
  %m = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<8x64xf16>) outs(%y : tensor<8xf16>) {
  ^bb0(%a: f16, %most: f16):
    %r = arith.maximumf %a, %most : f16
    linalg.yield %r : f16
  } -> tensor<8xf16>
  %s = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]}
      ins(%w : tensor<8x64xf32>) outs(%z : tensor<8xf32>) {
  ^bb0(%a: f32, %sum: f32):
    %r = arith.addf %a, %sum : f32
    linalg.yield %r : f32
  } -> tensor<8xf32>
  %p = linalg.matmul ins(%x, %b : tensor<8x64xf16>, tensor<64x4xf16>) outs(%c : tensor<8x4xf16>) -> tensor<8x4xf16>
  %t = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<8x64xf16>) outs(%y : tensor<8xf16>) {
  ^bb0(%a: f16, %sum: f16):
    %d = arith.mulf %sum, %a : f16
    %r = arith.addf %d, %sum : f16
    linalg.yield %r : f16
  } -> tensor<8xf16>
  return %m, %s, %p, %t : tensor<8xf16>, tensor<8xf32>, tensor<8x4xf16>, tensor<8xf16>
}
