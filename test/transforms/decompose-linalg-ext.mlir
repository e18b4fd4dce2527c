// RUN: attn-opt %s --decompose-linalg-ext --canonicalize --cse | FileCheck %s

// The row test for m = -inf is outside of the tile's element-wise work: it is on the statistics.
// CHECK-LABEL: func.func @softmax
// CHECK: linalg.generic {{.*}} ins(%arg0 : tensor<4x8xf32>)
// CHECK: arith.maxnumf
// CHECK: linalg.generic {{.*}} outs(%arg1, %arg2, %{{.*}} : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>)
// CHECK: arith.maxnumf
// CHECK: math.exp2
// CHECK: linalg.generic {{.*}} iterator_types = ["parallel", "reduction"]
// CHECK: math.exp2
// CHECK: arith.addf
// CHECK: linalg.generic {{.*}} iterator_types = ["parallel"]
// CHECK: arith.divf
// CHECK: linalg.generic {{.*}} iterator_types = ["parallel", "parallel"]
// CHECK: arith.mulf
// CHECK-NOT: linalg_ext
func.func @softmax(%x: tensor<4x8xf32>, %m: tensor<4xf32>, %a: tensor<4xf32>)
    -> (tensor<4x8xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) {
  %o = tensor.empty() : tensor<4x8xf32>
  %s = tensor.empty() : tensor<4xf32>
  %r:4 = linalg_ext.softmax dimension(1) ins(%x : tensor<4x8xf32>)
    outs(%o, %m, %a, %s : tensor<4x8xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>)
    : tensor<4x8xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
  return %r#0, %r#1, %r#2, %r#3 : tensor<4x8xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
}

// Scores that nothing else needs are overwritten; no division.
// CHECK-LABEL: func.func @unnorm_softmax_in_place
// CHECK: %[[S:.*]] = linalg.matmul
// CHECK: %[[P:.*]]:2 = linalg.generic {{.*}} outs(%[[S]], %{{.*}} : tensor<4x8xf32>, tensor<4xf32>)
// CHECK-NOT: arith.divf
// CHECK: return %[[P]]#0
func.func @unnorm_softmax_in_place(%q: tensor<4x3xf32>, %k: tensor<3x8xf32>, %c: tensor<4x8xf32>, %m: tensor<4xf32>,
    %a: tensor<4xf32>) -> (tensor<4x8xf32>, tensor<4xf32>) {
  %x = linalg.matmul ins(%q, %k : tensor<4x3xf32>, tensor<3x8xf32>) outs(%c : tensor<4x8xf32>) -> tensor<4x8xf32>
  %o = tensor.empty() : tensor<4x8xf32>
  %s = tensor.empty() : tensor<4xf32>
  %r:4 = linalg_ext.unnorm_softmax dimension(1) ins(%x : tensor<4x8xf32>)
    outs(%o, %m, %a, %s : tensor<4x8xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>)
    : tensor<4x8xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
  return %r#0, %r#3 : tensor<4x8xf32>, tensor<4xf32>
}

// CHECK-LABEL: func.func @half
// CHECK: arith.extf %{{.*}} : f16 to f32
// CHECK: math.exp2 %{{.*}} : f32
// CHECK: arith.truncf %{{.*}} : f32 to f16
func.func @half(%x: tensor<?x8xf16>, %o: tensor<?x8xf16>, %m: tensor<?xf32>, %a: tensor<?xf32>, %s: tensor<?xf32>)
    -> tensor<?x8xf16> {
  %r:4 = linalg_ext.softmax dimension(1) ins(%x : tensor<?x8xf16>)
    outs(%o, %m, %a, %s : tensor<?x8xf16>, tensor<?xf32>, tensor<?xf32>, tensor<?xf32>)
    : tensor<?x8xf16>, tensor<?xf32>, tensor<?xf32>, tensor<?xf32>
  return %r#0 : tensor<?x8xf16>
}

// CHECK-LABEL: func.func @batch_matmul
// CHECK: linalg.generic {{.*}} iterator_types = ["parallel", "parallel", "parallel", "reduction"]
// CHECK: arith.extf
// CHECK: arith.mulf %{{.*}} : f32
// CHECK: arith.addf %{{.*}} : f32
func.func @batch_matmul(%a: tensor<2x5x4xbf16>, %b: tensor<2x6x5xbf16>, %c: tensor<2x4x6xf32>) -> tensor<2x4x6xf32> {
  %r = linalg_ext.batch_matmul ins(%a, %b : tensor<2x5x4xbf16>, tensor<2x6x5xbf16>) outs(%c : tensor<2x4x6xf32>)
    layout = "tt"
  return %r : tensor<2x4x6xf32>
}

// CHECK-LABEL: func.func @diag
// CHECK: linalg.index 0
// CHECK: linalg.index 1
// CHECK: arith.select
func.func @diag(%x: tensor<4xf32>, %o: tensor<4x4xf32>) -> tensor<4x4xf32> {
  %r = linalg_ext.diag ins(%x : tensor<4xf32>) outs(%o : tensor<4x4xf32>) : tensor<4x4xf32>
  return %r : tensor<4x4xf32>
}

// The types of operands of one shape may say more or less of it: results keep theirs.
// CHECK-LABEL: func.func @open
// CHECK: return %{{.*}} : tensor<4x8xf32>
func.func @open(%x: tensor<4x?xf32>, %o: tensor<4x8xf32>, %m: tensor<4xf32>, %a: tensor<4xf32>, %s: tensor<4xf32>)
    -> tensor<4x8xf32> {
  %r:4 = linalg_ext.softmax dimension(1) ins(%x : tensor<4x?xf32>)
    outs(%o, %m, %a, %s : tensor<4x8xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>)
  return %r#0 : tensor<4x8xf32>
}

// Elements at places, one after the other; those whose places are none of the target are left out.
// CHECK-LABEL: func.func @put
// CHECK-SAME:    (%[[V:.*]]: tensor<2x3xf32>, %[[PLACES:.*]]: tensor<2x3xi64>, %[[T:.*]]: tensor<4x?xf32>)
// CHECK:         %[[R:.*]] = scf.for %[[I:.*]] = {{.*}} iter_args(%[[ROWS:.*]] = %[[T]])
// CHECK:           scf.for %[[J:.*]] = {{.*}} iter_args(%[[OUT:.*]] = %[[ROWS]])
// CHECK:             %[[PLACE:.*]] = tensor.extract %[[PLACES]][%[[I]], %[[J]]]
// CHECK:             %[[IS:.*]] = arith.cmpi ult, %[[PLACE]], %{{.*}} : i64
// CHECK:             scf.if %[[IS]]
// CHECK:               arith.remui
// CHECK:               arith.remui
// CHECK:               %[[X:.*]] = tensor.extract_slice %[[V]][%[[I]], %[[J]]] [1, 1] [1, 1]
// CHECK:               tensor.insert_slice %[[X]] into %[[OUT]]
// CHECK:             } else {
// CHECK-NEXT:          scf.yield %[[OUT]]
func.func @put(%v: tensor<2x3xf32>, %p: tensor<2x3xi64>, %t: tensor<4x?xf32>) -> tensor<4x?xf32> {
  %r = linalg_ext.put ins(%v, %p : tensor<2x3xf32>, tensor<2x3xi64>) outs(%t : tensor<4x?xf32>)
  return %r : tensor<4x?xf32>
}
