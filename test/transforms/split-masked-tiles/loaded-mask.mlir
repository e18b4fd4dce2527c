// RUN: attn-opt %s --fuse-attention="tile-sizes=16,0,32" --fold-diag --canonicalize --cse --parallel-loops --canonicalize --split-masked-tiles --canonicalize --cse | FileCheck %s
// RUN: attn-opt %s --fuse-attention="tile-sizes=16,0,32" --fold-diag --canonicalize --cse --parallel-loops --canonicalize --split-masked-tiles="tests=false" | FileCheck %s --check-prefix=WHOLE

// The mask is an array: each tile is looked at. It is skipped where no element is live, and computed without the mask
// where all are.

// CHECK-LABEL: func.func @masked
// CHECK:      scf.forall (%[[Q:.*]]) =
// CHECK:        scf.for %[[K:.*]] = %c0 to %c128 step %c32 iter_args(%[[O:.*]] = %{{.*}}, %[[M:.*]] = %{{.*}}, %[[A:.*]] = %{{.*}})
// CHECK:          tensor.extract_slice %arg3[%[[Q]], %[[K]]] [1, 32] [1, 1] : tensor<64x128xi1> to tensor<32xi1>
// CHECK:          %[[ROW:.*]]:2 = linalg.generic {{.*}} iterator_types = ["reduction"]}
// CHECK:          %[[D1:.*]] = tensor.extract %[[ROW]]#0
// CHECK:          %[[L1:.*]] = tensor.extract %[[ROW]]#1
// CHECK:          %[[MAYBE:.*]] = arith.ori %[[D1]], %[[L1]] : i1
// CHECK:          %[[BOTH:.*]]:2 = scf.if %[[MAYBE]] -> (i1, i1) {
// CHECK:            tensor.extract_slice %arg3[%[[Q]], %[[K]]] [16, 32] [1, 1]
// CHECK:          } else {
// CHECK:            scf.yield %[[D1]], %[[L1]]
// CHECK:          %[[R:.*]]:3 = scf.if %[[BOTH]]#0
// CHECK:            scf.yield %[[O]], %[[M]], %[[A]]
// CHECK:          } else {
// CHECK:            %[[R2:.*]]:3 = scf.if %[[BOTH]]#1
// CHECK-NOT:          arith.select
// CHECK:              linalg_ext.softmax
// CHECK:            } else {
// CHECK:              arith.select
// CHECK:              linalg_ext.softmax
// CHECK:            scf.yield %[[R2]]#0, %[[R2]]#1, %[[R2]]#2
// CHECK:          scf.yield %[[R]]#0, %[[R]]#1, %[[R]]#2

// WHOLE-LABEL: func.func @masked
// WHOLE-NOT:     scf.if
// WHOLE:         scf.for %{{.*}} = %c0 to %c128 step %c32
// WHOLE-NOT:     scf.if
// WHOLE:         return
func.func @masked(%q: tensor<64x8xf32>, %k: tensor<8x128xf32>, %v: tensor<128x8xf32>, %mask: tensor<64x128xi1>) -> tensor<64x8xf32> {
  %zero = arith.constant 0.0 : f32
  %minus_inf = arith.constant 0xFF800000 : f32
  %e0 = tensor.empty() : tensor<64x128xf32>
  %e1 = tensor.empty() : tensor<64x8xf32>
  %e2 = tensor.empty() : tensor<64xf32>
  %max = linalg.fill ins(%minus_inf : f32) outs(%e2 : tensor<64xf32>) -> tensor<64xf32>
  %sum = linalg.fill ins(%zero : f32) outs(%e2 : tensor<64xf32>) -> tensor<64xf32>
  %s0 = linalg.fill ins(%zero : f32) outs(%e0 : tensor<64x128xf32>) -> tensor<64x128xf32>
  %o0 = linalg.fill ins(%zero : f32) outs(%e1 : tensor<64x8xf32>) -> tensor<64x8xf32>
  %s = linalg.matmul ins(%q, %k : tensor<64x8xf32>, tensor<8x128xf32>) outs(%s0 : tensor<64x128xf32>) -> tensor<64x128xf32>
  %x = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]} ins(%s, %mask : tensor<64x128xf32>, tensor<64x128xi1>) outs(%e0 : tensor<64x128xf32>) {
  ^bb0(%a: f32, %live: i1, %out: f32):
    %y = arith.select %live, %a, %minus_inf : f32
    linalg.yield %y : f32
  } -> tensor<64x128xf32>
  %p:4 = linalg_ext.softmax dimension(1) ins(%x : tensor<64x128xf32>)
    outs(%e0, %max, %sum, %e2 : tensor<64x128xf32>, tensor<64xf32>, tensor<64xf32>, tensor<64xf32>)
    : tensor<64x128xf32>, tensor<64xf32>, tensor<64xf32>, tensor<64xf32>
  %o = linalg.matmul ins(%p#0, %v : tensor<64x128xf32>, tensor<128x8xf32>) outs(%o0 : tensor<64x8xf32>) -> tensor<64x8xf32>
  return %o : tensor<64x8xf32>
}

// What is added is looked at likewise: tiles of −∞ are skipped. Zeros are added as other numbers are.
// CHECK-LABEL: func.func @added
// CHECK:      scf.forall
// CHECK:        scf.for
// CHECK:          arith.cmpf oeq, %{{.*}}, %cst_0 : f32
// CHECK:          scf.if %{{.*}} -> (tensor<16x8xf32>, tensor<16xf32>, tensor<16xf32>) {
// CHECK-NEXT:       scf.yield
// CHECK-NOT:        scf.if
// CHECK:            arith.addf
// CHECK:            linalg_ext.softmax

// WHOLE-LABEL: func.func @added
// WHOLE-NOT:     scf.if
// WHOLE:         return
func.func @added(%q: tensor<64x8xf32>, %k: tensor<8x128xf32>, %v: tensor<128x8xf32>, %mask: tensor<64x128xf32>) -> tensor<64x8xf32> {
  %zero = arith.constant 0.0 : f32
  %minus_inf = arith.constant 0xFF800000 : f32
  %e0 = tensor.empty() : tensor<64x128xf32>
  %e1 = tensor.empty() : tensor<64x8xf32>
  %e2 = tensor.empty() : tensor<64xf32>
  %max = linalg.fill ins(%minus_inf : f32) outs(%e2 : tensor<64xf32>) -> tensor<64xf32>
  %sum = linalg.fill ins(%zero : f32) outs(%e2 : tensor<64xf32>) -> tensor<64xf32>
  %s0 = linalg.fill ins(%zero : f32) outs(%e0 : tensor<64x128xf32>) -> tensor<64x128xf32>
  %o0 = linalg.fill ins(%zero : f32) outs(%e1 : tensor<64x8xf32>) -> tensor<64x8xf32>
  %s = linalg.matmul ins(%q, %k : tensor<64x8xf32>, tensor<8x128xf32>) outs(%s0 : tensor<64x128xf32>) -> tensor<64x128xf32>
  %x = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]} ins(%s, %mask : tensor<64x128xf32>, tensor<64x128xf32>) outs(%e0 : tensor<64x128xf32>) {
  ^bb0(%a: f32, %m: f32, %out: f32):
    %y = arith.addf %a, %m : f32
    linalg.yield %y : f32
  } -> tensor<64x128xf32>
  %p:4 = linalg_ext.softmax dimension(1) ins(%x : tensor<64x128xf32>)
    outs(%e0, %max, %sum, %e2 : tensor<64x128xf32>, tensor<64xf32>, tensor<64xf32>, tensor<64xf32>)
    : tensor<64x128xf32>, tensor<64xf32>, tensor<64xf32>, tensor<64xf32>
  %o = linalg.matmul ins(%p#0, %v : tensor<64x128xf32>, tensor<128x8xf32>) outs(%o0 : tensor<64x8xf32>) -> tensor<64x8xf32>
  return %o : tensor<64x8xf32>
}
