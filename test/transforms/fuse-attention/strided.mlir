// RUN: attn-opt %s --fuse-attention="tile-sizes=1,4,0" | FileCheck %s

// Along a dimension that tiles go through one by one a slice may have a stride: every second head. Rows that have one
// stay a slice before the loops.
// CHECK: #[[TWICE:.*]] = affine_map<(d0) -> (d0 * 2 + 1)>
// CHECK-LABEL: func.func @heads(
// CHECK-SAME:    %[[A:[^:]*]]: tensor<4x8x6xf32>, %[[B:[^:]*]]: tensor<2x6x10xf32>
// CHECK-NOT:     tensor.extract_slice
// CHECK:         scf.for %[[H:.*]] = %c0 to %c2
// CHECK:           %[[AT:.*]] = affine.apply #[[TWICE]](%[[H]])
// CHECK:           tensor.extract_slice %[[A]][%[[AT]], %{{.*}}, 0] [1, 4, 6] [1, 1, 1]
func.func @heads(%a: tensor<4x8x6xf32>, %b: tensor<2x6x10xf32>, %o: tensor<2x8x10xf32>) -> tensor<2x8x10xf32> {
  %h = tensor.extract_slice %a[1, 0, 0] [2, 8, 6] [2, 1, 1] : tensor<4x8x6xf32> to tensor<2x8x6xf32>
  %r = linalg.batch_matmul {__root__} ins(%h, %b : tensor<2x8x6xf32>, tensor<2x6x10xf32>) outs(%o : tensor<2x8x10xf32>) -> tensor<2x8x10xf32>
  return %r : tensor<2x8x10xf32>
}

// CHECK-LABEL: func.func @rows(
// CHECK-SAME:    %[[A:[^:]*]]: tensor<2x16x6xf32>
// CHECK:         %[[ROWS:.*]] = tensor.extract_slice %[[A]][0, 0, 0] [2, 8, 6] [1, 2, 1]
// CHECK:         scf.for
// CHECK:           tensor.extract_slice %[[ROWS]]
func.func @rows(%a: tensor<2x16x6xf32>, %b: tensor<2x6x10xf32>, %o: tensor<2x8x10xf32>) -> tensor<2x8x10xf32> {
  %h = tensor.extract_slice %a[0, 0, 0] [2, 8, 6] [1, 2, 1] : tensor<2x16x6xf32> to tensor<2x8x6xf32>
  %r = linalg.batch_matmul {__root__} ins(%h, %b : tensor<2x8x6xf32>, tensor<2x6x10xf32>) outs(%o : tensor<2x8x10xf32>) -> tensor<2x8x10xf32>
  return %r : tensor<2x8x10xf32>
}
