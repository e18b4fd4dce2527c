// RUN: attn-opt %s --fuse-attention="tile-sizes=1,16,0,32" --fold-diag --canonicalize --cse --parallel-loops --canonicalize --split-masked-tiles --canonicalize --cse | FileCheck %s
// RUN: attn-opt %s --fuse-attention="tile-sizes=1,16,0,32" --fold-diag --canonicalize --cse --parallel-loops --canonicalize --mark-few-rows="rows=16" --split-masked-tiles --canonicalize --cse | FileCheck %s --check-prefix=FEW

// A mask that is the same for all heads: its tiles are looked at once, before the loop over heads and queries.

// If rows are few, so are the tables'.
// FEW-LABEL: func.func @shared
// FEW:         scf.forall (%{{.*}}) = (0) to (64) step (16)
// FEW:         } {few_rows}
// FEW:         scf.forall (%{{.*}}, %{{.*}}) = (0, 0) to (8, 64) step (1, 16)
// FEW:         } {few_rows}
// FEW:         return

// CHECK-LABEL: func.func @shared
// CHECK:         %[[T:.*]]:2 = scf.forall (%[[Q:.*]]) = (0) to (64) step (16) shared_outs(%[[D:.*]] = %{{.*}}, %[[L:.*]] = %{{.*}}) -> (tensor<4x4xi1>, tensor<4x4xi1>) {
// CHECK:           %[[ROWS:.*]]:2 = scf.for %[[K:.*]] = %c0 to %c128 step %c32 iter_args(%[[R0:.*]] = %{{.*}}, %[[R1:.*]] = %{{.*}}) -> (tensor<1x4xi1>, tensor<1x4xi1>) {
// CHECK:             tensor.extract_slice %arg3[%[[Q]], %[[K]]] [16, 32]
// CHECK:             tensor.insert %{{.*}} into %[[R0]][%c0, %{{.*}}]
// CHECK:             tensor.insert %{{.*}} into %[[R1]][%c0, %{{.*}}]
// CHECK:           tensor.parallel_insert_slice %[[ROWS]]#0 into %[[D]][%{{.*}}, 0] [1, 4]
// CHECK:         scf.forall (%{{.*}}, %[[Q2:.*]]) = (0, 0) to (8, 64) step (1, 16)
// CHECK:           scf.for
// CHECK-NOT:         tensor.extract_slice %arg3{{.*}} tensor<32xi1>
// CHECK:             %[[DEAD:.*]] = tensor.extract %[[T]]#0[
// CHECK:             %[[LIVE:.*]] = tensor.extract %[[T]]#1[
// CHECK:             scf.if %[[DEAD]]
// CHECK:             scf.if %[[LIVE]]
func.func @shared(%q: tensor<8x64x8xf32>, %k: tensor<8x8x128xf32>, %v: tensor<8x128x8xf32>, %mask: tensor<64x128xi1>) -> tensor<8x64x8xf32> {
  %zero = arith.constant 0.0 : f32
  %minus_inf = arith.constant 0xFF800000 : f32
  %e0 = tensor.empty() : tensor<8x64x128xf32>
  %e1 = tensor.empty() : tensor<8x64x8xf32>
  %e2 = tensor.empty() : tensor<8x64xf32>
  %max = linalg.fill ins(%minus_inf : f32) outs(%e2 : tensor<8x64xf32>) -> tensor<8x64xf32>
  %sum = linalg.fill ins(%zero : f32) outs(%e2 : tensor<8x64xf32>) -> tensor<8x64xf32>
  %s0 = linalg.fill ins(%zero : f32) outs(%e0 : tensor<8x64x128xf32>) -> tensor<8x64x128xf32>
  %o0 = linalg.fill ins(%zero : f32) outs(%e1 : tensor<8x64x8xf32>) -> tensor<8x64x8xf32>
  %s = linalg.batch_matmul ins(%q, %k : tensor<8x64x8xf32>, tensor<8x8x128xf32>) outs(%s0 : tensor<8x64x128xf32>) -> tensor<8x64x128xf32>
  %x = linalg.generic {indexing_maps = [affine_map<(h, i, j) -> (h, i, j)>, affine_map<(h, i, j) -> (i, j)>, affine_map<(h, i, j) -> (h, i, j)>], iterator_types = ["parallel", "parallel", "parallel"]} ins(%s, %mask : tensor<8x64x128xf32>, tensor<64x128xi1>) outs(%e0 : tensor<8x64x128xf32>) {
  ^bb0(%a: f32, %live: i1, %out: f32):
    %y = arith.select %live, %a, %minus_inf : f32
    linalg.yield %y : f32
  } -> tensor<8x64x128xf32>
  %p:4 = linalg_ext.softmax dimension(2) ins(%x : tensor<8x64x128xf32>)
    outs(%e0, %max, %sum, %e2 : tensor<8x64x128xf32>, tensor<8x64xf32>, tensor<8x64xf32>, tensor<8x64xf32>)
    : tensor<8x64x128xf32>, tensor<8x64xf32>, tensor<8x64xf32>, tensor<8x64xf32>
  %o = linalg.batch_matmul ins(%p#0, %v : tensor<8x64x128xf32>, tensor<8x128x8xf32>) outs(%o0 : tensor<8x64x8xf32>) -> tensor<8x64x8xf32>
  return %o : tensor<8x64x8xf32>
}

// A mask for each head: every tile is looked at by the iteration that computes it.
// CHECK-LABEL: func.func @own
// CHECK-COUNT-1: scf.forall (
// CHECK-NOT:     scf.forall (
// CHECK:         return
func.func @own(%q: tensor<8x64x8xf32>, %k: tensor<8x8x128xf32>, %v: tensor<8x128x8xf32>, %mask: tensor<8x64x128xi1>) -> tensor<8x64x8xf32> {
  %zero = arith.constant 0.0 : f32
  %minus_inf = arith.constant 0xFF800000 : f32
  %e0 = tensor.empty() : tensor<8x64x128xf32>
  %e1 = tensor.empty() : tensor<8x64x8xf32>
  %e2 = tensor.empty() : tensor<8x64xf32>
  %max = linalg.fill ins(%minus_inf : f32) outs(%e2 : tensor<8x64xf32>) -> tensor<8x64xf32>
  %sum = linalg.fill ins(%zero : f32) outs(%e2 : tensor<8x64xf32>) -> tensor<8x64xf32>
  %s0 = linalg.fill ins(%zero : f32) outs(%e0 : tensor<8x64x128xf32>) -> tensor<8x64x128xf32>
  %o0 = linalg.fill ins(%zero : f32) outs(%e1 : tensor<8x64x8xf32>) -> tensor<8x64x8xf32>
  %s = linalg.batch_matmul ins(%q, %k : tensor<8x64x8xf32>, tensor<8x8x128xf32>) outs(%s0 : tensor<8x64x128xf32>) -> tensor<8x64x128xf32>
  %x = linalg.generic {indexing_maps = [affine_map<(h, i, j) -> (h, i, j)>, affine_map<(h, i, j) -> (h, i, j)>, affine_map<(h, i, j) -> (h, i, j)>], iterator_types = ["parallel", "parallel", "parallel"]} ins(%s, %mask : tensor<8x64x128xf32>, tensor<8x64x128xi1>) outs(%e0 : tensor<8x64x128xf32>) {
  ^bb0(%a: f32, %live: i1, %out: f32):
    %y = arith.select %live, %a, %minus_inf : f32
    linalg.yield %y : f32
  } -> tensor<8x64x128xf32>
  %p:4 = linalg_ext.softmax dimension(2) ins(%x : tensor<8x64x128xf32>)
    outs(%e0, %max, %sum, %e2 : tensor<8x64x128xf32>, tensor<8x64xf32>, tensor<8x64xf32>, tensor<8x64xf32>)
    : tensor<8x64x128xf32>, tensor<8x64xf32>, tensor<8x64xf32>, tensor<8x64xf32>
  %o = linalg.batch_matmul ins(%p#0, %v : tensor<8x64x128xf32>, tensor<8x128x8xf32>) outs(%o0 : tensor<8x64x8xf32>) -> tensor<8x64x8xf32>
  return %o : tensor<8x64x8xf32>
}
