// RUN: attn-opt %s --join-pieces | FileCheck %s

#id = affine_map<(i, j) -> (i, j)>

// The gradient of a rotary embedding: of two halves, added to another term one after the other.
// CHECK-LABEL: func.func @halves
// CHECK-SAME:      %[[P:.*]]: tensor<8x32xf32>, %[[X:.*]]: tensor<8x16xf32>, %[[Y:.*]]: tensor<8x16xf32>
// CHECK-NOT:     tensor.insert_slice
// CHECK:         %[[BOTH:.*]] = tensor.concat dim(1) %[[Y]], %[[X]]
// CHECK-NEXT:    %[[SUM:.*]] = linalg.generic {{.*}} ins(%[[P]], %[[BOTH]] :
// CHECK:           arith.addf
// CHECK-NOT:     linalg.generic
// CHECK:         return %[[SUM]]
func.func @halves(%p: tensor<8x32xf32>, %x: tensor<8x16xf32>, %y: tensor<8x16xf32>) -> tensor<8x32xf32> {
  %zeros = arith.constant dense<0.0> : tensor<8x32xf32>
  %e = tensor.empty() : tensor<8x32xf32>
  %a = tensor.insert_slice %x into %zeros[0, 16] [8, 16] [1, 1] : tensor<8x16xf32> into tensor<8x32xf32>
  %s = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%p, %a : tensor<8x32xf32>, tensor<8x32xf32>) outs(%e : tensor<8x32xf32>) {
  ^bb0(%u: f32, %v: f32, %o: f32):
    %t = arith.addf %u, %v : f32
    linalg.yield %t : f32
  } -> tensor<8x32xf32>
  %b = tensor.insert_slice %y into %zeros[0, 0] [8, 16] [1, 1] : tensor<8x16xf32> into tensor<8x32xf32>
  %r = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%s, %b : tensor<8x32xf32>, tensor<8x32xf32>) outs(%e : tensor<8x32xf32>) {
  ^bb0(%u: f32, %v: f32, %o: f32):
    %t = arith.addf %u, %v : f32
    linalg.yield %t : f32
  } -> tensor<8x32xf32>
  return %r : tensor<8x32xf32>
}

// Pieces with something between them, of an open number of rows, are written to one tensor of zeros.
// CHECK-LABEL: func.func @apart
// CHECK-SAME:      %{{.*}}: index, %[[X:arg[0-9]]]: tensor<?x8xf16>, %[[Y:arg[0-9]]]: tensor<?x8xf16>,
// CHECK:         %[[FILLED:.*]] = linalg.fill
// CHECK:         %[[ONE:.*]] = tensor.insert_slice %[[Y]] into %[[FILLED]][0, 8]
// CHECK-NEXT:    %[[TWO:.*]] = tensor.insert_slice %[[X]] into %[[ONE]][0, 24]
// CHECK-NEXT:    return %[[TWO]]
func.func @apart(%n: index, %x: tensor<?x8xf16>, %y: tensor<?x8xf16>, %e: tensor<?x32xf16>) -> tensor<?x32xf16> {
  %zero = arith.constant 0.0 : f16
  %zeros = linalg.fill ins(%zero : f16) outs(%e : tensor<?x32xf16>) -> tensor<?x32xf16>
  %a = tensor.insert_slice %x into %zeros[0, 24] [%n, 8] [1, 1] : tensor<?x8xf16> into tensor<?x32xf16>
  %b = tensor.insert_slice %y into %zeros[0, 8] [%n, 8] [1, 1] : tensor<?x8xf16> into tensor<?x32xf16>
  %s = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%a, %b : tensor<?x32xf16>, tensor<?x32xf16>) outs(%e : tensor<?x32xf16>) {
  ^bb0(%u: f16, %v: f16, %o: f16):
    %t = arith.addf %u, %v : f16
    linalg.yield %t : f16
  } -> tensor<?x32xf16>
  return %s : tensor<?x32xf16>
}

// Those that have an element in common, are parts of other numbers than 0, or are read by others, stay as they are.
// CHECK-LABEL: func.func @others
// CHECK-COUNT-6: tensor.insert_slice
// CHECK-NOT:     tensor.concat
func.func @others(%x: tensor<8x16xf32>, %y: tensor<8x16xf32>)
    -> (tensor<8x32xf32>, tensor<8x32xf32>, tensor<8x32xf32>, tensor<8x32xf32>) {
  %zeros = arith.constant dense<0.0> : tensor<8x32xf32>
  %ones = arith.constant dense<1.0> : tensor<8x32xf32>
  %e = tensor.empty() : tensor<8x32xf32>
  %a = tensor.insert_slice %x into %zeros[0, 8] [8, 16] [1, 1] : tensor<8x16xf32> into tensor<8x32xf32>
  %b = tensor.insert_slice %y into %zeros[0, 0] [8, 16] [1, 1] : tensor<8x16xf32> into tensor<8x32xf32>
  %s = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%a, %b : tensor<8x32xf32>, tensor<8x32xf32>) outs(%e : tensor<8x32xf32>) {
  ^bb0(%u: f32, %v: f32, %o: f32):
    %t = arith.addf %u, %v : f32
    linalg.yield %t : f32
  } -> tensor<8x32xf32>
  %c = tensor.insert_slice %x into %ones[0, 16] [8, 16] [1, 1] : tensor<8x16xf32> into tensor<8x32xf32>
  %d = tensor.insert_slice %y into %zeros[0, 0] [8, 16] [1, 1] : tensor<8x16xf32> into tensor<8x32xf32>
  %r = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%c, %d : tensor<8x32xf32>, tensor<8x32xf32>) outs(%e : tensor<8x32xf32>) {
  ^bb0(%u: f32, %v: f32, %o: f32):
    %t = arith.addf %u, %v : f32
    linalg.yield %t : f32
  } -> tensor<8x32xf32>
  %f = tensor.insert_slice %x into %zeros[0, 16] [8, 16] [1, 1] : tensor<8x16xf32> into tensor<8x32xf32>
  %g = tensor.insert_slice %y into %zeros[0, 0] [8, 16] [1, 1] : tensor<8x16xf32> into tensor<8x32xf32>
  %q = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%f, %g : tensor<8x32xf32>, tensor<8x32xf32>) outs(%e : tensor<8x32xf32>) {
  ^bb0(%u: f32, %v: f32, %o: f32):
    %t = arith.addf %u, %v : f32
    linalg.yield %t : f32
  } -> tensor<8x32xf32>
  return %s, %r, %q, %f : tensor<8x32xf32>, tensor<8x32xf32>, tensor<8x32xf32>, tensor<8x32xf32>
}
