// RUN: attn-opt %s --raise-attention --infinite-masks --split-input-file | FileCheck %s

// All queries see the first key; the scale that follows is one of the mask's number, too.
// CHECK-LABEL: func.func @causal
// CHECK:         %[[LOW:.*]] = arith.constant 0xFF800000 : f32
// CHECK-NEXT:    arith.select %{{.*}}, %{{.*}}, %[[LOW]] : f32
func.func @causal(%q: tensor<2x64x32xf32>, %k: tensor<2x32x64xf32>, %v: tensor<2x64x32xf32>) -> tensor<2x64x32xf32> {
  %zero = arith.constant 0.0 : f32
  %scale = arith.constant 0.125 : f32
  %low = arith.constant -1.0e9 : f32
  %e = tensor.empty() : tensor<2x64x64xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<2x64x64xf32>) -> tensor<2x64x64xf32>
  %s = linalg.batch_matmul ins(%q, %k : tensor<2x64x32xf32>, tensor<2x32x64xf32>) outs(%z : tensor<2x64x64xf32>) -> tensor<2x64x64xf32>
  %x = linalg.generic {indexing_maps = [affine_map<(b, m, n) -> (b, m, n)>, affine_map<(b, m, n) -> (b, m, n)>], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%s : tensor<2x64x64xf32>) outs(%e : tensor<2x64x64xf32>) {
  ^bb0(%a: f32, %o: f32):
    %i = linalg.index 1 : index
    %j = linalg.index 2 : index
    %live = arith.cmpi sle, %j, %i : index
    %b = arith.select %live, %a, %low : f32
    %c = arith.mulf %b, %scale : f32
    linalg.yield %c : f32
  } -> tensor<2x64x64xf32>
  %p = linalg.softmax dimension(2) ins(%x : tensor<2x64x64xf32>) outs(%e : tensor<2x64x64xf32>) -> tensor<2x64x64xf32>
  %eo = tensor.empty() : tensor<2x64x32xf32>
  %zo = linalg.fill ins(%zero : f32) outs(%eo : tensor<2x64x32xf32>) -> tensor<2x64x32xf32>
  %r = linalg.batch_matmul ins(%p, %v : tensor<2x64x64xf32>, tensor<2x64x32xf32>) outs(%zo : tensor<2x64x32xf32>) -> tensor<2x64x32xf32>
  return %r : tensor<2x64x32xf32>
}

// -----

// Padding that is loaded may leave a row no key, whose result is the mean of all values then. Where the first key or the
// last one is there, or the query's own, rows have one.
// CHECK-LABEL: func.func @padding
// CHECK-SAME:      %[[THERE:[a-z0-9]+]]: tensor<2x64xi1>)
// CHECK:         %[[FIRST:.*]] = tensor.extract_slice %[[THERE]][0, 0] [2, 1] [1, 1] : tensor<2x64xi1> to tensor<2xi1>
// CHECK:         %[[LAST:.*]] = tensor.extract_slice %[[THERE]][0, 63] [2, 1] [1, 1] : tensor<2x64xi1> to tensor<2xi1>
// CHECK:         %[[OWN:.*]] = tensor.extract_slice %[[THERE]][0, 0] [2, 64] [1, 1]
// CHECK:         %[[LIVE:.*]] = linalg.generic {{.*}} ins(%[[FIRST]], %[[LAST]], %[[OWN]] : tensor<2xi1>, tensor<2xi1>, tensor<2x64xi1>)
// CHECK:         linalg.generic {{.*}} ins(%{{.*}}, %{{.*}}, %[[LIVE]] : {{.*}}, tensor<2x64xi1>)
// CHECK:         ^bb0(%{{.*}}, %{{.*}}, %[[IS:.*]]: i1, %{{.*}}: f32):
// CHECK:         %[[LOW:.*]] = arith.constant -1.000000e+09 : f32
// CHECK-NEXT:    %[[C:.*]] = arith.select %[[THERE_J:.*]], %{{.*}}, %[[LOW]] : f32
// CHECK:         %[[NOT:.*]] = arith.xori %[[THERE_J]], %{{.*}} : i1
// CHECK:         %[[DEAD:.*]] = arith.andi %[[NOT]], %[[IS]] : i1
// CHECK:         arith.select %[[DEAD]], %{{.*}}, %[[C]] : f32
func.func @padding(%q: tensor<2x64x32xf32>, %k: tensor<2x32x64xf32>, %v: tensor<2x64x32xf32>, %there: tensor<2x64xi1>) -> tensor<2x64x32xf32> {
  %zero = arith.constant 0.0 : f32
  %low = arith.constant -1.0e9 : f32
  %e = tensor.empty() : tensor<2x64x64xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<2x64x64xf32>) -> tensor<2x64x64xf32>
  %s = linalg.batch_matmul ins(%q, %k : tensor<2x64x32xf32>, tensor<2x32x64xf32>) outs(%z : tensor<2x64x64xf32>) -> tensor<2x64x64xf32>
  %x = linalg.generic {indexing_maps = [affine_map<(b, m, n) -> (b, n)>, affine_map<(b, m, n) -> (b, m, n)>, affine_map<(b, m, n) -> (b, m, n)>], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%there, %s : tensor<2x64xi1>, tensor<2x64x64xf32>) outs(%e : tensor<2x64x64xf32>) {
  ^bb0(%live: i1, %a: f32, %o: f32):
    %b = arith.select %live, %a, %low : f32
    linalg.yield %b : f32
  } -> tensor<2x64x64xf32>
  %p = linalg.softmax dimension(2) ins(%x : tensor<2x64x64xf32>) outs(%e : tensor<2x64x64xf32>) -> tensor<2x64x64xf32>
  %eo = tensor.empty() : tensor<2x64x32xf32>
  %zo = linalg.fill ins(%zero : f32) outs(%eo : tensor<2x64x32xf32>) -> tensor<2x64x32xf32>
  %r = linalg.batch_matmul ins(%p, %v : tensor<2x64x64xf32>, tensor<2x64x32xf32>) outs(%zo : tensor<2x64x32xf32>) -> tensor<2x64x32xf32>
  return %r : tensor<2x64x32xf32>
}

// -----

// A low number that is added to scores where they are masked becomes −∞, too, if each row has a live key.
// CHECK-LABEL: func.func @added
// CHECK-DAG:     %[[ZERO:.*]] = arith.constant 0.000000e+00 : f32
// CHECK-DAG:     %[[INF:.*]] = arith.constant 0xFF800000 : f32
// CHECK:         arith.select %{{.*}}, %{{.*}}, %[[INF]] : f32
// CHECK-NOT:     -6.000000e+04
func.func @added(%q: tensor<2x64x32xf32>, %k: tensor<2x32x64xf32>, %v: tensor<2x64x32xf32>) -> tensor<2x64x32xf32> {
  %zero = arith.constant 0.0 : f32
  %low = arith.constant -6.0e4 : f32
  %e = tensor.empty() : tensor<2x64x64xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<2x64x64xf32>) -> tensor<2x64x64xf32>
  %s = linalg.batch_matmul ins(%q, %k : tensor<2x64x32xf32>, tensor<2x32x64xf32>) outs(%z : tensor<2x64x64xf32>) -> tensor<2x64x64xf32>
  %x = linalg.generic {indexing_maps = [affine_map<(b, m, n) -> (b, m, n)>, affine_map<(b, m, n) -> (b, m, n)>], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%s : tensor<2x64x64xf32>) outs(%e : tensor<2x64x64xf32>) {
  ^bb0(%a: f32, %o: f32):
    %i = linalg.index 1 : index
    %j = linalg.index 2 : index
    %live = arith.cmpi sle, %j, %i : index
    %b = arith.select %live, %zero, %low : f32
    %c = arith.addf %a, %b : f32
    linalg.yield %c : f32
  } -> tensor<2x64x64xf32>
  %p = linalg.softmax dimension(2) ins(%x : tensor<2x64x64xf32>) outs(%e : tensor<2x64x64xf32>) -> tensor<2x64x64xf32>
  %eo = tensor.empty() : tensor<2x64x32xf32>
  %zo = linalg.fill ins(%zero : f32) outs(%eo : tensor<2x64x32xf32>) -> tensor<2x64x32xf32>
  %r = linalg.batch_matmul ins(%p, %v : tensor<2x64x64xf32>, tensor<2x64x32xf32>) outs(%zo : tensor<2x64x32xf32>) -> tensor<2x64x32xf32>
  return %r : tensor<2x64x32xf32>
}
