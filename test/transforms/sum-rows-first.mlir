// RUN: attn-opt %s --sum-rows-first | FileCheck %s

// A sum of squares over batch entries and queries, for each head: first over the rows of memory, then over their sums.
// CHECK-DAG:   #[[ALL:.*]] = affine_map<(d0, d1, d2) -> (d0, d1, d2)>
// CHECK-DAG:   #[[ROWS:.*]] = affine_map<(d0, d1, d2) -> (d0, d1)>
// CHECK-DAG:   #[[PARTS:.*]] = affine_map<(d0, d1) -> (d0, d1)>
// CHECK-DAG:   #[[HEADS:.*]] = affine_map<(d0, d1) -> (d1)>
// CHECK-LABEL: func.func @heads
// CHECK-SAME:      %[[X:.*]]: tensor<2x16x2048xf32>, %[[START:.*]]: tensor<16xf32>
// CHECK:         %[[ZEROS:.*]] = linalg.fill {{.*}} -> tensor<2x16xf32>
// CHECK:         %[[P:.*]] = linalg.generic {indexing_maps = [#[[ALL]], #[[ROWS]]], iterator_types = ["parallel", "parallel", "reduction"]} ins(%[[X]] : {{.*}}) outs(%[[ZEROS]] :
// CHECK:           arith.mulf
// CHECK:           arith.addf
// CHECK:         linalg.generic {indexing_maps = [#[[PARTS]], #[[HEADS]]], iterator_types = ["reduction", "parallel"]} ins(%[[P]] : {{.*}}) outs(%[[START]] :
// CHECK-NEXT:    ^bb0(%[[PART:.*]]: f32, %[[BEFORE:.*]]: f32):
// CHECK-NEXT:      arith.addf %[[BEFORE]], %[[PART]] : f32
#all = affine_map<(b, h, q) -> (b, h, q)>
func.func @heads(%x: tensor<2x16x2048xf32>, %start: tensor<16xf32>) -> tensor<16xf32> {
  %s = linalg.generic {indexing_maps = [#all, affine_map<(b, h, q) -> (h)>],
      iterator_types = ["reduction", "parallel", "reduction"]} ins(%x : tensor<2x16x2048xf32>) outs(%start : tensor<16xf32>) {
  ^bb0(%a: f32, %o: f32):
    %p = arith.mulf %a, %a : f32
    %t = arith.addf %o, %p : f32
    linalg.yield %t : f32
  } -> tensor<16xf32>
  return %s : tensor<16xf32>
}

// Open sizes are those of what is summed.
// CHECK-LABEL: func.func @open
// CHECK-SAME:      %[[X:.*]]: tensor<?x16x?xf32>
// CHECK:         %[[B:.*]] = tensor.dim %[[X]], %c0
// CHECK:         tensor.empty(%[[B]]) : tensor<?x16xf32>
func.func @open(%x: tensor<?x16x?xf32>, %start: tensor<16xf32>) -> tensor<16xf32> {
  %s = linalg.generic {indexing_maps = [#all, affine_map<(b, h, q) -> (h)>],
      iterator_types = ["reduction", "parallel", "reduction"]} ins(%x : tensor<?x16x?xf32>) outs(%start : tensor<16xf32>) {
  ^bb0(%a: f32, %o: f32):
    %t = arith.addf %o, %a : f32
    linalg.yield %t : f32
  } -> tensor<16xf32>
  return %s : tensor<16xf32>
}

// Rows alone, columns, sums in 16 bits, which would be rounded once more, maxima, and matmuls stay.
// CHECK-LABEL: func.func @others
// CHECK-COUNT-5: linalg.generic
// CHECK-NOT:     linalg.generic
func.func @others(%x: tensor<2x16x2048xf32>, %y: tensor<2x16x2048xf16>, %r: tensor<2x16xf32>, %c: tensor<2048xf32>, %n: tensor<16xf16>,
    %m: tensor<16xf32>, %w: tensor<16x16xf32>) -> (tensor<2x16xf32>, tensor<2048xf32>, tensor<16xf16>, tensor<16xf32>, tensor<16x16xf32>) {
  %0 = linalg.generic {indexing_maps = [#all, affine_map<(b, h, q) -> (b, h)>], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%x : tensor<2x16x2048xf32>) outs(%r : tensor<2x16xf32>) {
  ^bb0(%a: f32, %o: f32):
    %t = arith.addf %o, %a : f32
    linalg.yield %t : f32
  } -> tensor<2x16xf32>
  %1 = linalg.generic {indexing_maps = [#all, affine_map<(b, h, q) -> (q)>], iterator_types = ["reduction", "reduction", "parallel"]}
      ins(%x : tensor<2x16x2048xf32>) outs(%c : tensor<2048xf32>) {
  ^bb0(%a: f32, %o: f32):
    %t = arith.addf %o, %a : f32
    linalg.yield %t : f32
  } -> tensor<2048xf32>
  %2 = linalg.generic {indexing_maps = [#all, affine_map<(b, h, q) -> (h)>], iterator_types = ["reduction", "parallel", "reduction"]}
      ins(%y : tensor<2x16x2048xf16>) outs(%n : tensor<16xf16>) {
  ^bb0(%a: f16, %o: f16):
    %t = arith.addf %o, %a : f16
    linalg.yield %t : f16
  } -> tensor<16xf16>
  %3 = linalg.generic {indexing_maps = [#all, affine_map<(b, h, q) -> (h)>], iterator_types = ["reduction", "parallel", "reduction"]}
      ins(%x : tensor<2x16x2048xf32>) outs(%m : tensor<16xf32>) {
  ^bb0(%a: f32, %o: f32):
    %t = arith.maximumf %o, %a : f32
    linalg.yield %t : f32
  } -> tensor<16xf32>
  %4 = linalg.generic {indexing_maps = [affine_map<(b, h, i, q) -> (b, h, q)>, affine_map<(b, h, i, q) -> (b, i, q)>, affine_map<(b, h, i, q) -> (h, i)>],
      iterator_types = ["reduction", "parallel", "parallel", "reduction"]} ins(%x, %x : tensor<2x16x2048xf32>, tensor<2x16x2048xf32>) outs(%w : tensor<16x16xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %p = arith.mulf %a, %b : f32
    %t = arith.addf %o, %p : f32
    linalg.yield %t : f32
  } -> tensor<16x16xf32>
  return %0, %1, %2, %3, %4 : tensor<2x16xf32>, tensor<2048xf32>, tensor<16xf16>, tensor<16xf32>, tensor<16x16xf32>
}
