// RUN: attn-opt %s --tile-matmuls | FileCheck %s
// RUN: attn-opt %s --tile-matmuls="multiprocessors=8 rows=128 columns=128" | FileCheck %s --check-prefix=FEW
// RUN: attn-opt %s --tile-matmuls="parts=4" | FileCheck %s --check-prefix=PARTS

#a = affine_map<(m, n, k) -> (m, k)>
#b = affine_map<(m, n, k) -> (n, k)>
#c = affine_map<(m, n, k) -> (m, n)>

// Tiles as large as leave no multiprocessor idle: 16 × 8 of 64 × 64 for 132 of them, 8 × 4 of 128 × 128 for 8. A loop
// goes along the sum, by 512 and 256 bytes.
// CHECK-LABEL: func.func @matmul
// CHECK-SAME:    (%[[A:.*]]: tensor<1024x512xf16>, %[[B:.*]]: tensor<512x512xf16>)
// CHECK:         scf.for %[[I:[^ ]*]] = %{{.*}} to %{{.*}} step %c64
// CHECK:           scf.for %[[J:[^ ]*]] = %{{.*}} to %{{.*}} step %c64
// CHECK:             scf.for %[[K:[^ ]*]] = %{{.*}} to %{{.*}} step %c256
// CHECK:               %[[LEFT:.*]] = tensor.extract_slice %[[A]][%[[I]], %[[K]]] [64, 256] [1, 1]
// CHECK:               %[[RIGHT:.*]] = tensor.extract_slice %[[B]][%[[J]], %[[K]]] [64, 256] [1, 1]
// CHECK:               linalg.generic {{.*}} ins(%[[LEFT]], %[[RIGHT]] :
// FEW-LABEL: func.func @matmul
// FEW:         scf.for {{.*}} step %c128
// FEW:           scf.for {{.*}} step %c128
// FEW:             scf.for {{.*}} step %c128
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

// A sum that starts from a tensor starts from 0, and the tensor is added to it.
// CHECK-LABEL: func.func @added
// CHECK-SAME:    %[[C:[a-z0-9]*]]: tensor<256x512xf32>)
// CHECK:         %[[ZERO:.*]] = linalg.fill
// CHECK:         %[[SUM:.*]] = scf.for {{.*}} iter_args(%{{.*}} = %[[ZERO]])
// CHECK:         linalg.generic {{.*}} ins(%[[SUM]], %[[C]] : tensor<256x512xf32>, tensor<256x512xf32>)
// CHECK:           arith.addf
func.func @added(%a: tensor<256x512xf16>, %b: tensor<512x512xf16>, %i: tensor<256x512xf32>) -> tensor<256x512xf32> {
  %r = linalg.generic {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%a, %b : tensor<256x512xf16>, tensor<512x512xf16>) outs(%i : tensor<256x512xf32>) {
  ^bb0(%x: f16, %y: f16, %o: f32):
    %p = arith.extf %x : f16 to f32
    %q = arith.extf %y : f16 to f32
    %t = arith.mulf %p, %q : f32
    %u = arith.addf %o, %t : f32
    linalg.yield %u : f32
  } -> tensor<256x512xf32>
  return %r : tensor<256x512xf32>
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

// Where the result's tiles are few and the sum is long, it goes in parts, which are added up, then to what there was, if
// that is not 0: the rule takes 8, for 128 tiles.
// CHECK-LABEL: func.func @long
// CHECK-SAME:    (%[[A:.*]]: tensor<16x4096xf16>, %[[B:.*]]: tensor<1024x4096xf16>, %[[C:.*]]: tensor<16x1024xf32>)
// CHECK:         %[[A8:.*]] = tensor.expand_shape %[[A]] {{\[\[}}0], [1, 2]] output_shape [16, 8, 512]
// CHECK:         %[[B8:.*]] = tensor.expand_shape %[[B]] {{\[\[}}0], [1, 2]] output_shape [1024, 8, 512]
// CHECK:         %[[P:.*]] = scf.for %[[S:.*]] = %{{.*}} to %c8{{.*}} step %c1
// CHECK:             scf.for %{{.*}} to %c512{{.*}} step %c256
// CHECK:               tensor.extract_slice %[[A8]][%{{.*}}, %[[S]], %{{.*}}]
// CHECK:         %[[P0:.*]] = tensor.extract_slice %[[P]][0, 0, 0] [1, 16, 1024] [1, 1, 1]
// CHECK:         %[[P7:.*]] = tensor.extract_slice %[[P]][7, 0, 0] [1, 16, 1024] [1, 1, 1]
// CHECK:         %[[SUM:.*]] = linalg.generic {{.*}} ins(%[[P0]], {{.*}}, %[[P7]] :
// CHECK-COUNT-7:   arith.addf
// CHECK:         linalg.generic {{.*}} ins(%[[SUM]], %[[C]] :
// CHECK:           arith.addf
// PARTS-LABEL: func.func @long
// PARTS:         output_shape [16, 4, 1024]
func.func @long(%a: tensor<16x4096xf16>, %b: tensor<1024x4096xf16>, %i: tensor<16x1024xf32>) -> tensor<16x1024xf32> {
  %r = linalg.generic {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%a, %b : tensor<16x4096xf16>, tensor<1024x4096xf16>) outs(%i : tensor<16x1024xf32>) {
  ^bb0(%x: f16, %y: f16, %o: f32):
    %p = arith.extf %x : f16 to f32
    %q = arith.extf %y : f16 to f32
    %t = arith.mulf %p, %q : f32
    %u = arith.addf %o, %t : f32
    linalg.yield %u : f32
  } -> tensor<16x1024xf32>
  return %r : tensor<16x1024xf32>
}

// One row: the parts are vectors; sums from 0 have no other term.
// CHECK-LABEL: func.func @one_row
// CHECK:         %[[P0:.*]] = tensor.extract_slice %[[P:.*]][0, 0, 0] [1, 1, 4096] [1, 1, 1] : {{.*}} to tensor<4096xf32>
// CHECK:         %[[LAST:.*]] = tensor.extract_slice %[[P]][3, 0, 0]
// CHECK:         %[[SUM:.*]] = linalg.generic {{.*}} ins(%[[P0]], {{.*}}, %[[LAST]] :
// CHECK:         tensor.expand_shape %[[SUM]] {{\[\[}}0, 1]] output_shape [1, 4096]
func.func @one_row(%a: tensor<1x4096xf16>, %b: tensor<4096x4096xf16>) -> tensor<1x4096xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<1x4096xf32>
  %i = linalg.fill ins(%zero : f32) outs(%e : tensor<1x4096xf32>) -> tensor<1x4096xf32>
  %r = linalg.generic {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%a, %b : tensor<1x4096xf16>, tensor<4096x4096xf16>) outs(%i : tensor<1x4096xf32>) {
  ^bb0(%x: f16, %y: f16, %o: f32):
    %p = arith.extf %x : f16 to f32
    %q = arith.extf %y : f16 to f32
    %t = arith.mulf %p, %q : f32
    %u = arith.addf %o, %t : f32
    linalg.yield %u : f32
  } -> tensor<1x4096xf32>
  return %r : tensor<1x4096xf32>
}

// Rows and a dimension of a batch that one operand alone has are no loop together, since the result's columns stand
// between them: the batch's is one of the grid. Columns of the result are what stands side by side: B·A is tiled for A·B.
// CHECK-LABEL: func.func @pixels
// CHECK-SAME:    (%[[X:.*]]: tensor<4x16x8x640xf16>, %[[W:.*]]: tensor<320x640xf16>)
// CHECK:         %[[P:.*]] = tensor.collapse_shape %[[X]] {{\[\[}}0], [1, 2], [3]] : {{.*}} into tensor<4x128x640xf16>
// CHECK:         scf.for %[[N:.*]] = %{{.*}} to %c4{{.*}} step %c1
// CHECK:           tensor.extract_slice %[[W]][
// CHECK:           tensor.extract_slice %[[P]][%[[N]], %{{.*}}, %{{.*}}] [1,
func.func @pixels(%x: tensor<4x16x8x640xf16>, %w: tensor<320x640xf16>) -> tensor<4x320x16x8xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<4x320x16x8xf32>
  %i = linalg.fill ins(%zero : f32) outs(%e : tensor<4x320x16x8xf32>) -> tensor<4x320x16x8xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(n, f, y, x, k) -> (n, y, x, k)>, affine_map<(n, f, y, x, k) -> (f, k)>,
      affine_map<(n, f, y, x, k) -> (n, f, y, x)>], iterator_types = ["parallel", "parallel", "parallel", "parallel", "reduction"]}
      ins(%x, %w : tensor<4x16x8x640xf16>, tensor<320x640xf16>) outs(%i : tensor<4x320x16x8xf32>) {
  ^bb0(%a: f16, %b: f16, %o: f32):
    %p = arith.extf %a : f16 to f32
    %q = arith.extf %b : f16 to f32
    %t = arith.mulf %p, %q : f32
    %u = arith.addf %o, %t : f32
    linalg.yield %u : f32
  } -> tensor<4x320x16x8xf32>
  return %r : tensor<4x320x16x8xf32>
}

// 16 × 8 tiles of 192 × 96, for 24 × 6 of 128 × 128: as many as a multiprocessor each.
// CHECK-LABEL: func.func @one_turn
// CHECK:         scf.for %{{.*}} step %c192
// CHECK:           scf.for %{{.*}} step %c96
// FEW-LABEL: func.func @one_turn
// FEW:         scf.for %{{.*}} step %c128
// FEW:           scf.for %{{.*}} step %c128
func.func @one_turn(%a: tensor<3072x2048xf16>, %b: tensor<768x2048xf16>) -> tensor<3072x768xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<3072x768xf32>
  %i = linalg.fill ins(%zero : f32) outs(%e : tensor<3072x768xf32>) -> tensor<3072x768xf32>
  %r = linalg.generic {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%a, %b : tensor<3072x2048xf16>, tensor<768x2048xf16>) outs(%i : tensor<3072x768xf32>) {
  ^bb0(%x: f16, %y: f16, %o: f32):
    %p = arith.extf %x : f16 to f32
    %q = arith.extf %y : f16 to f32
    %t = arith.mulf %p, %q : f32
    %u = arith.addf %o, %t : f32
    linalg.yield %u : f32
  } -> tensor<3072x768xf32>
  return %r : tensor<3072x768xf32>
}
