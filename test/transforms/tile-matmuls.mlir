// RUN: attn-opt %s --tile-matmuls | FileCheck %s
// RUN: attn-opt %s --tile-matmuls="multiprocessors=8 rows=128" | FileCheck %s --check-prefix=FEW

#a = affine_map<(m, n, k) -> (m, k)>
#b = affine_map<(m, n, k) -> (n, k)>
#c = affine_map<(m, n, k) -> (m, n)>

// Tiles as large as leave no multiprocessor idle: 16 × 4 of 64 × 128 for 132 of them, 8 × 4 of 128 × 128 for 8. A loop
// goes along the sum by 128 bytes.
// CHECK-LABEL: func.func @matmul
// CHECK-SAME:    (%[[A:.*]]: tensor<1024x512xf16>, %[[B:.*]]: tensor<512x512xf16>)
// CHECK:         scf.for %[[I:[^ ]*]] = %{{.*}} to %{{.*}} step %c64
// CHECK:           scf.for %[[J:[^ ]*]] = %{{.*}} to %{{.*}} step %c64
// CHECK:             scf.for %[[K:[^ ]*]] = %{{.*}} to %{{.*}} step %c64
// CHECK:               %[[LEFT:.*]] = tensor.extract_slice %[[A]][%[[I]], %[[K]]] [64, 64] [1, 1]
// CHECK:               %[[RIGHT:.*]] = tensor.extract_slice %[[B]][%[[J]], %[[K]]] [64, 64] [1, 1]
// CHECK:               linalg.generic {{.*}} ins(%[[LEFT]], %[[RIGHT]] :
// FEW-LABEL: func.func @matmul
// FEW:         scf.for {{.*}} step %c128
// FEW:           scf.for {{.*}} step %c128
// FEW:             scf.for {{.*}} step %c64
func.func @matmul(%a: tensor<1024x512xf16>, %b: tensor<512x512xf16>) -> tensor<1024x512xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<1024x512xf32>
  %i = linalg.fill ins(%zero : f32) outs(%e : tensor<1024x512xf32>) -> tensor<1024x512xf32>
  %r = linalg.generic {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%a, %b : tensor<1024x512xf16>, tensor<512x512xf16>) outs(%i : tensor<1024x512xf32>) {
  ^bb0(%x: f16, %y: f16, %o: f32):
    %p = arith.extf %x : f16 to f32
    %q = arith.extf %y : f16 to f32
    %t = arith.mulf %p, %q : f32
    %u = arith.addf %o, %t : f32
    linalg.yield %u : f32
  } -> tensor<1024x512xf32>
  return %r : tensor<1024x512xf32>
}

// Integers stay as they are, and so do several matmuls that one block computes.
// CHECK-LABEL: func.func @integers
// CHECK-NOT:     scf.for
// CHECK:         return
func.func @integers(%a: tensor<1024x512xi32>, %b: tensor<512x512xi32>, %i: tensor<1024x512xi32>) -> tensor<1024x512xi32> {
  %r = linalg.generic {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%a, %b : tensor<1024x512xi32>, tensor<512x512xi32>) outs(%i : tensor<1024x512xi32>) {
  ^bb0(%x: i32, %y: i32, %o: i32):
    %t = arith.muli %x, %y : i32
    %u = arith.addi %o, %t : i32
    linalg.yield %u : i32
  } -> tensor<1024x512xi32>
  return %r : tensor<1024x512xi32>
}
// CHECK-LABEL: func.func @small
// CHECK-NOT:     scf.for
// CHECK:         return
func.func @small(%a: tensor<64x64xf32>, %b: tensor<64x64xf32>, %i: tensor<64x64xf32>) -> tensor<64x64xf32> {
  %r = linalg.generic {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%a, %b : tensor<64x64xf32>, tensor<64x64xf32>) outs(%i : tensor<64x64xf32>) {
  ^bb0(%x: f32, %y: f32, %o: f32):
    %t = arith.mulf %x, %y : f32
    %u = arith.addf %o, %t : f32
    linalg.yield %u : f32
  } -> tensor<64x64xf32>
  %s = linalg.generic {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%r, %b : tensor<64x64xf32>, tensor<64x64xf32>) outs(%i : tensor<64x64xf32>) {
  ^bb0(%x: f32, %y: f32, %o: f32):
    %t = arith.mulf %x, %y : f32
    %u = arith.addf %o, %t : f32
    linalg.yield %u : f32
  } -> tensor<64x64xf32>
  return %s : tensor<64x64xf32>
}
