// RUN: attn-opt %s --fuse-attention="tile-sizes=16,0,32" --fold-diag --canonicalize --cse --parallel-loops --canonicalize --split-masked-tiles --canonicalize --cse | FileCheck %s

// Where each query's keys start is loaded: the least start of a tile's queries says where its first keys are, the
// greatest one from where on all of its keys are live. Both are found for all tiles before the loop.

// CHECK-LABEL: func.func @masked
// CHECK:      %[[EXTREMES:.*]]:2 = linalg.generic {{.*}} iterator_types = ["parallel", "reduction"]} {{.*}} outs({{.*}} : tensor<4xi32>, tensor<4xi32>)
// CHECK:        tensor.extract %arg3
// CHECK:        arith.maxsi
// CHECK:        arith.minsi
// CHECK:      scf.forall (%[[Q:.*]]) =
// CHECK:        %[[TILE:.*]] = affine.apply #{{.*}}(%[[Q]])
// CHECK-DAG:    tensor.extract %[[EXTREMES]]#0[%[[TILE]]]
// CHECK-DAG:    tensor.extract %[[EXTREMES]]#1[%[[TILE]]]
// CHECK:        %[[A:.*]]:3 = scf.for %{{.*}} step %c32 iter_args
// CHECK:          arith.cmpi
// CHECK:          linalg_ext.softmax
// CHECK:        scf.for %{{.*}} step %c32 iter_args(%{{.*}} = %[[A]]#0
// CHECK-NOT:      arith.cmpi
// CHECK:          linalg_ext.softmax
func.func @masked(%q: tensor<64x8xf32>, %k: tensor<8x128xf32>, %v: tensor<128x8xf32>, %first: tensor<64xi32>) -> tensor<64x8xf32> {
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
  %x = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>, affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]} ins(%s, %first : tensor<64x128xf32>, tensor<64xi32>) outs(%e0 : tensor<64x128xf32>) {
  ^bb0(%a: f32, %start: i32, %out: f32):
    %j = linalg.index 1 : index
    %at = arith.index_cast %start : i32 to index
    %live = arith.cmpi sge, %j, %at : index
    %y = arith.select %live, %a, %minus_inf : f32
    linalg.yield %y : f32
  } -> tensor<64x128xf32>
  %p:4 = linalg_ext.softmax dimension(1) ins(%x : tensor<64x128xf32>)
    outs(%e0, %max, %sum, %e2 : tensor<64x128xf32>, tensor<64xf32>, tensor<64xf32>, tensor<64xf32>)
    : tensor<64x128xf32>, tensor<64xf32>, tensor<64xf32>, tensor<64xf32>
  %o = linalg.matmul ins(%p#0, %v : tensor<64x128xf32>, tensor<128x8xf32>) outs(%o0 : tensor<64x8xf32>) -> tensor<64x8xf32>
  return %o : tensor<64x8xf32>
}
