// RUN: attn-opt %s --fuse-attention="tile-sizes=16,0,32" --split-masked-tiles | FileCheck %s --check-prefix=NEST
// RUN: attn-opt %s --fuse-attention="tile-sizes=16,0,32 tile-interchange=2,1,0" --split-masked-tiles | FileCheck %s --check-prefix=KEYS
// RUN: attn-opt %s --fuse-attention="tile-sizes=16,0,32" --canonicalize --cse --parallel-loops --defer-division --split-masked-tiles --canonicalize | FileCheck %s --check-prefix=FORALL
// RUN: attn-opt %s --fuse-attention="tile-sizes=16" --split-masked-tiles | FileCheck %s --check-prefix=WHOLE

// NEST-DAG:   #[[LIVE:.*]] = affine_map<(d0) -> (((d0 - 30) ceildiv 32) * 32, 0)>
// NEST-DAG:   #[[DEAD:.*]] = affine_map<(d0) -> (((d0 + 16) ceildiv 32) * 32, 0)>
// NEST:       scf.for %[[Q:.*]] = %{{.*}} to %{{.*}} step
// NEST-DAG:     %[[RAW_END:.*]] = affine.max #[[DEAD]](%[[Q]])
// NEST-DAG:     %[[END:.*]] = affine.min #{{.*}}(%[[RAW_END]])
// NEST-DAG:     %[[RAW_LIVE:.*]] = affine.max #[[LIVE]](%[[Q]])
// NEST-DAG:     %[[LIVE_END:.*]] = affine.min #{{.*}}(%[[RAW_LIVE]])
// NEST-DAG:     %[[FROM:.*]] = affine.min #{{.*}}(%[[LIVE_END]], %[[END]])
// NEST:         %[[FIRST:.*]]:3 = scf.for %{{.*}} = %{{.*}} to %[[FROM]] step
// NEST-NOT:       arith.select
// NEST:           linalg_ext.softmax
// NEST:         scf.for %{{.*}} = %[[FROM]] to %[[END]] step %{{.*}} iter_args(%{{.*}} = %[[FIRST]]#0, %{{.*}} = %[[FIRST]]#1, %{{.*}} = %[[FIRST]]#2)
// NEST:           arith.select
// NEST:           linalg_ext.softmax
// NEST-NOT:     linalg_ext.softmax

// With keys outside, the loop over queries starts where the mask lets the first of them see.
// KEYS:       scf.for %[[K:.*]] = %{{.*}} to %c128
// KEYS:         scf.for
// KEYS:           arith.select
// KEYS:         scf.for
// KEYS-NOT:       arith.select
// KEYS:           linalg_ext.softmax
// KEYS-NOT:     linalg_ext.softmax

// FORALL:     scf.forall
// FORALL:       scf.for
// FORALL-NOT:     arith.select
// FORALL:         linalg_ext.unnorm_softmax
// FORALL:       scf.for
// FORALL:         arith.select
// FORALL:         linalg_ext.unnorm_softmax
// FORALL:       scf.forall.in_parallel

// All keys in one tile: no query but the last ones sees all, and each sees some.
// WHOLE:      scf.for
// WHOLE:        linalg_ext.softmax
// WHOLE-NOT:    linalg_ext.softmax
func.func @causal(%q: tensor<128x8xf32>, %k: tensor<8x128xf32>, %v: tensor<128x24xf32>) -> tensor<128x24xf32> {
  %zero = arith.constant 0.0 : f32
  %minus_inf = arith.constant 0xFF800000 : f32
  %e0 = tensor.empty() : tensor<128x128xf32>
  %e1 = tensor.empty() : tensor<128x24xf32>
  %e2 = tensor.empty() : tensor<128xf32>
  %max = linalg.fill ins(%minus_inf : f32) outs(%e2 : tensor<128xf32>) -> tensor<128xf32>
  %sum = linalg.fill ins(%zero : f32) outs(%e2 : tensor<128xf32>) -> tensor<128xf32>
  %s0 = linalg.fill ins(%zero : f32) outs(%e0 : tensor<128x128xf32>) -> tensor<128x128xf32>
  %o0 = linalg.fill ins(%zero : f32) outs(%e1 : tensor<128x24xf32>) -> tensor<128x24xf32>
  %s = linalg.matmul ins(%q, %k : tensor<128x8xf32>, tensor<8x128xf32>) outs(%s0 : tensor<128x128xf32>) -> tensor<128x128xf32>
  %x = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]} ins(%s : tensor<128x128xf32>) outs(%e0 : tensor<128x128xf32>) {
  ^bb0(%in: f32, %out: f32):
    %i = linalg.index 0 : index
    %j = linalg.index 1 : index
    %visible = arith.cmpi sle, %j, %i : index
    %y = arith.select %visible, %in, %minus_inf : f32
    linalg.yield %y : f32
  } -> tensor<128x128xf32>
  %p:4 = linalg_ext.softmax dimension(1) ins(%x : tensor<128x128xf32>) outs(%e0, %max, %sum, %e2 : tensor<128x128xf32>, tensor<128xf32>, tensor<128xf32>, tensor<128xf32>) : tensor<128x128xf32>, tensor<128xf32>, tensor<128xf32>, tensor<128xf32>
  %o = linalg.matmul ins(%p#0, %v : tensor<128x128xf32>, tensor<128x24xf32>) outs(%o0 : tensor<128x24xf32>) -> tensor<128x24xf32>
  return %o : tensor<128x24xf32>
}
