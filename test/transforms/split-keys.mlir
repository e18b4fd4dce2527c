// RUN: attn-opt %s --fuse-attention="tile-sizes=16,0,32" --fold-diag --canonicalize --cse --fresh-inits --parallel-loops --canonicalize --defer-division --exp-to-exp2 --split-keys=parts=4 --canonicalize | FileCheck %s
// RUN: attn-opt %s --fuse-attention="tile-sizes=16,0,32" --fold-diag --canonicalize --cse --fresh-inits --parallel-loops --canonicalize --defer-division --split-keys=workers=8 --canonicalize | FileCheck %s --check-prefix=CHOSEN
// RUN: attn-opt %s --fuse-attention="tile-sizes=16,0,32" --fold-diag --canonicalize --cse --fresh-inits --parallel-loops --canonicalize --defer-division --split-keys="workers=8 busy-rows=17" --canonicalize | FileCheck %s --check-prefix=CHOSEN
// RUN: attn-opt %s --fuse-attention="tile-sizes=16,0,32" --fold-diag --canonicalize --cse --fresh-inits --parallel-loops --canonicalize --defer-division --split-keys="workers=8 busy-rows=16" --canonicalize | FileCheck %s --check-prefix=ENOUGH
// RUN: attn-opt %s --fuse-attention="tile-sizes=16,0,32" --fold-diag --canonicalize --cse --fresh-inits --parallel-loops --canonicalize --defer-division --split-keys=workers=4 --canonicalize | FileCheck %s --check-prefix=ENOUGH
// RUN: attn-opt %s --fuse-attention="tile-sizes=16,0,32" --fold-diag --canonicalize --cse --fresh-inits --parallel-loops --canonicalize --defer-division --split-keys="parts=12 together=8" --canonicalize | FileCheck %s --check-prefix=TOGETHER
// RUN: attn-opt %s --fuse-attention="tile-sizes=16,0,32" --fold-diag --canonicalize --cse --fresh-inits --parallel-loops --canonicalize --defer-division --mark-few-rows=rows=16 --split-keys=parts=4 | FileCheck %s --check-prefix=MARKED
// RUN: attn-opt %s --fuse-attention="tile-sizes=16,0,32 tile-interchange=2,1,0" --defer-division --split-keys=parts=4 --remarks 2>&1 | FileCheck %s --check-prefix=REFUSED
// RUN: not attn-opt %s --split-keys=parts=1025 2>&1 | FileCheck %s --check-prefix=BAD
// RUN: not attn-opt %s --split-keys=parts=1025 2>&1 | FileCheck %s --check-prefix=MANY

// 13 tiles of keys are every fourth one's; the state of each part is kept.
// CHECK-DAG: #[[KEY:.*]] = affine_map<(d0, d1) -> (d0 * 4 + d1 * 32)>
// CHECK-DAG: #[[END:.*]] = affine_map<(d0) -> (((-d0 + 13) ceildiv 4) * 32)>
// CHECK:      %[[PARTS:.*]]:3 = scf.forall (%[[I:.*]], %[[P:.*]]) = (0, 0) to (64, 4) step (16, 1) shared_outs(%[[PO:.*]] = %{{.*}}, %{{.*}}, %{{.*}}) -> (tensor<4x64x24xf32>, tensor<4x64xf32>, tensor<4x64xf32>) {
// CHECK:        %[[TILE:.*]] = tensor.extract_slice %[[PO]][%[[P]], %[[I]], 0] [1, 16, 24] [1, 1, 1] : tensor<4x64x24xf32> to tensor<16x24xf32>
// CHECK:        linalg.fill ins(%{{.*}}) outs(%[[TILE]]
// CHECK:        %[[STOP:.*]] = affine.apply #[[END]](%[[P]])
// CHECK:        %[[STATE:.*]]:3 = scf.for %[[T:.*]] = %c0 to %[[STOP]] step %c32
// CHECK:          %[[K:.*]] = affine.apply #[[KEY]](%[[T]], %[[P]])
// CHECK:          tensor.extract_slice %arg1[0, %[[K]]]
// CHECK:          linalg_ext.unnorm_softmax
// CHECK:        tensor.parallel_insert_slice %[[STATE]]#0 into %[[PO]][%[[P]], %[[I]], 0] [1, 16, 24]
// CHECK:      scf.forall (%[[J:.*]]) = (0) to (64) step (16)
// CHECK:        %[[MERGED:.*]]:3 = scf.for %[[Q:.*]] = %c0 to %c4 step %c2
// CHECK:          tensor.extract_slice %[[PARTS]]#0[%[[Q]], %[[J]], 0] [1, 16, 24]
// CHECK:          arith.maxnumf
// CHECK-COUNT-3:  math.exp
// CHECK:        }
// CHECK:        linalg.generic {{.*}} ins(%[[MERGED]]#2 : tensor<16xf32>) outs(%[[MERGED]]#0
// CHECK:          arith.divf

// Four blocks, eight workers: two tasks for each; blocks that are busy all the time would save less than merging takes.
// CHOSEN:     scf.forall (%{{.*}}, %{{.*}}) = (0, 0) to (64, 4) step (16, 1)
// ENOUGH:     scf.forall (%{{.*}}) = (0) to (64) step (16)
// ENOUGH-NOT: scf.forall (

// Of 12 parts, six at a time: a maximum, and a weight for each and for what was merged before.
// TOGETHER:         scf.for %{{.*}} = %c0 to %c12 step %c6
// TOGETHER-COUNT-6:   tensor.extract_slice %{{.*}} [1, 16, 24] [1, 1, 1] : tensor<12x64x24xf32>
// TOGETHER-COUNT-7:   math.exp
// TOGETHER-NOT:       math.exp

// Blocks of few rows: so are their parts, and what merges them.
// MARKED-COUNT-2: } {few_rows}

// REFUSED: remark: keys are not split over workers: output and statistics are not carried by one loop, over keys, in parallel ones
// BAD: error: parts must be 0 to 1024 and workers 1 or more, but are 1025, 1
// MANY: error: parts must be 0 to 1024 and workers 1 or more, but are 1025, 1
func.func @attention(%q: tensor<64x8xf32>, %k: tensor<8x416xf32>, %v: tensor<416x24xf32>) -> tensor<64x24xf32> {
  %zero = arith.constant 0.0 : f32
  %minus_inf = arith.constant 0xFF800000 : f32
  %e0 = tensor.empty() : tensor<64x416xf32>
  %e1 = tensor.empty() : tensor<64x24xf32>
  %e2 = tensor.empty() : tensor<64xf32>
  %max = linalg.fill ins(%minus_inf : f32) outs(%e2 : tensor<64xf32>) -> tensor<64xf32>
  %sum = linalg.fill ins(%zero : f32) outs(%e2 : tensor<64xf32>) -> tensor<64xf32>
  %s0 = linalg.fill ins(%zero : f32) outs(%e0 : tensor<64x416xf32>) -> tensor<64x416xf32>
  %o0 = linalg.fill ins(%zero : f32) outs(%e1 : tensor<64x24xf32>) -> tensor<64x24xf32>
  %s = linalg.matmul ins(%q, %k : tensor<64x8xf32>, tensor<8x416xf32>) outs(%s0 : tensor<64x416xf32>) -> tensor<64x416xf32>
  %p:4 = linalg_ext.softmax dimension(1) ins(%s : tensor<64x416xf32>) outs(%e0, %max, %sum, %e2 : tensor<64x416xf32>, tensor<64xf32>, tensor<64xf32>, tensor<64xf32>) : tensor<64x416xf32>, tensor<64xf32>, tensor<64xf32>, tensor<64xf32>
  %o = linalg.matmul ins(%p#0, %v : tensor<64x416xf32>, tensor<416x24xf32>) outs(%o0 : tensor<64x24xf32>) -> tensor<64x24xf32>
  return %o : tensor<64x24xf32>
}
