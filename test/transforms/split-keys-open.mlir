// RUN: attn-opt %s --fuse-attention="tile-sizes=16,0,32" --fold-diag --canonicalize --cse --fresh-inits --parallel-loops --canonicalize --defer-division --exp-to-exp2 --split-keys="workers=66 together=8" --cse --canonicalize | FileCheck %s
// RUN: attn-opt %s --fuse-attention="tile-sizes=16,0,32" --fold-diag --canonicalize --cse --fresh-inits --parallel-loops --canonicalize --defer-division --exp-to-exp2 --split-keys="workers=66 together=32" --cse --canonicalize | FileCheck %s --check-prefix=AT-ONCE
// RUN: attn-opt %s --fuse-attention="tile-sizes=16,0,32" --fold-diag --canonicalize --cse --fresh-inits --parallel-loops --canonicalize --defer-division --exp-to-exp2 --split-keys="workers=66 together=8" --split-masked-tiles --cse --canonicalize | FileCheck %s --check-prefix=MASKED
// RUN: attn-opt %s --fuse-attention="tile-sizes=16,0,32" --fold-diag --canonicalize --cse --fresh-inits --parallel-loops --canonicalize --defer-division --exp-to-exp2 --split-keys="workers=66 together=8" --remarks 2>&1 | FileCheck %s --check-prefix=REMARK

// Few blocks, however many: two tasks for each of 66 workers, of at least two tiles of 32 keys.
// CHECK-DAG:  #[[KEY:.*]] = affine_map<(d0, d1) -> (d0 + d1 * 32)>
// CHECK-DAG:  %[[Q:.*]] = tensor.dim %arg0, %c0
// CHECK-DAG:  %[[N:.*]] = tensor.dim %arg1, %c1
// CHECK:      %[[BLOCKS:.*]] = arith.divui %{{.*}}, %c16
// CHECK:      %[[LEAST:.*]] = arith.maxsi %[[BLOCKS]], %c1
// CHECK:      %[[TASKS:.*]] = arith.divui %c132, %[[LEAST]]
// CHECK:      %[[TILES:.*]] = arith.divui %{{.*}}, %c32
// CHECK:      %[[MOST:.*]] = arith.divui %[[TILES]], %c2
// CHECK:      %[[FOUND:.*]] = arith.minsi %[[TASKS]], %[[MOST]]
// CHECK:      %[[COUNT:.*]] = arith.maxsi %[[FOUND]], %c1
// CHECK:      %[[PARTS:.*]]:3 = scf.forall (%[[I:.*]], %[[P:.*]]) = (0, 0) to (%[[Q]], %[[COUNT]]) step (16, 1)
// CHECK:        scf.for %[[T:.*]] = %c0 to %{{.*}} step %c32
// CHECK:          %[[TURN:.*]] = arith.muli %[[T]], %[[COUNT]]
// CHECK:          %[[K:.*]] = affine.apply #[[KEY]](%[[TURN]], %[[P]])
// CHECK:          tensor.extract_slice %arg1[0, %[[K]]]

// Merged four at a time, and then the rest, one at a time. (Of 32 it would be 16, and then 4, those over the end as −∞.)
// CHECK:      scf.forall (%{{.*}}) = (0) to (%[[Q]]) step (16)
// CHECK:        %[[REST:.*]] = arith.remui %[[COUNT]], %c4
// CHECK:        %[[WHOLE:.*]] = arith.subi %[[COUNT]], %[[REST]]
// CHECK:        %[[STATE:.*]]:3 = scf.for %{{.*}} = %c0 to %[[WHOLE]] step %c4
// CHECK:        scf.for %[[AT:.*]] = %[[WHOLE]] to %[[COUNT]] step %c1 iter_args(%{{.*}} = %[[STATE]]#0,
// CHECK-NOT:      arith.minsi
// CHECK:        linalg.generic
// CHECK:          arith.divf

// AT-ONCE:    %[[FOUND:.*]] = arith.minsi
// AT-ONCE:    %[[COUNT:.*]] = arith.maxsi %[[FOUND]], %c1
// AT-ONCE:    scf.for %{{.*}} step %c16
// AT-ONCE:    scf.for %[[AT:.*]] = %{{.*}} to %[[COUNT]] step %c4
// AT-ONCE:      %[[LAST:.*]] = arith.subi %[[COUNT]], %c1
// AT-ONCE:      arith.minsi %[[AT]], %[[LAST]]
// AT-ONCE:      linalg.generic
// AT-ONCE-COUNT-4: arith.cmpi slt, %{{.*}}, %[[COUNT]]

// The first turn of a part whose tile is dead: 32·p + %turn ≥ %limit, from a division by the number of parts on.
// MASKED:     %[[FOUND:.*]] = arith.minsi
// MASKED:     %[[COUNT:.*]] = arith.maxsi %[[FOUND]], %c1
// MASKED:     scf.forall (%[[I:.*]], %[[P:.*]]) =
// MASKED:       %[[LIMIT:.*]] = affine.max #{{.*}}(%[[P]], %{{.*}})
// MASKED-NEXT:  %[[MORE:.*]] = arith.subi %[[COUNT]], %c1
// MASKED-NEXT:  %[[SUM:.*]] = arith.addi %[[LIMIT]], %[[MORE]]
// MASKED-NEXT:  %[[TURN:.*]] = arith.divui %[[SUM]], %[[COUNT]]
// MASKED-NEXT:  affine.max #{{.*}}(%[[TURN]])

// REMARK: remark: keys are split into as many parts as workers have time for, merged by their maxima and sums
func.func @attention(%q: tensor<?x8xf32>, %k: tensor<8x?xf32>, %v: tensor<?x24xf32>) -> tensor<?x24xf32> {
  %zero = arith.constant 0.0 : f32
  %minus_inf = arith.constant 0xFF800000 : f32
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %m = tensor.dim %q, %c0 : tensor<?x8xf32>
  %n = tensor.dim %k, %c1 : tensor<8x?xf32>
  %e0 = tensor.empty(%m, %n) : tensor<?x?xf32>
  %e1 = tensor.empty(%m) : tensor<?x24xf32>
  %e2 = tensor.empty(%m) : tensor<?xf32>
  %max = linalg.fill ins(%minus_inf : f32) outs(%e2 : tensor<?xf32>) -> tensor<?xf32>
  %sum = linalg.fill ins(%zero : f32) outs(%e2 : tensor<?xf32>) -> tensor<?xf32>
  %s0 = linalg.fill ins(%zero : f32) outs(%e0 : tensor<?x?xf32>) -> tensor<?x?xf32>
  %o0 = linalg.fill ins(%zero : f32) outs(%e1 : tensor<?x24xf32>) -> tensor<?x24xf32>
  %s = linalg.matmul ins(%q, %k : tensor<?x8xf32>, tensor<8x?xf32>) outs(%s0 : tensor<?x?xf32>) -> tensor<?x?xf32>
  %causal = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]} ins(%s : tensor<?x?xf32>) outs(%e0 : tensor<?x?xf32>) {
  ^bb0(%x: f32, %old: f32):
    %i = linalg.index 0 : index
    %j = linalg.index 1 : index
    %visible = arith.cmpi sle, %j, %i : index
    %y = arith.select %visible, %x, %minus_inf : f32
    linalg.yield %y : f32
  } -> tensor<?x?xf32>
  %p:4 = linalg_ext.softmax dimension(1) ins(%causal : tensor<?x?xf32>) outs(%e0, %max, %sum, %e2 : tensor<?x?xf32>, tensor<?xf32>, tensor<?xf32>, tensor<?xf32>) : tensor<?x?xf32>, tensor<?xf32>, tensor<?xf32>, tensor<?xf32>
  %o = linalg.matmul {few_blocks} ins(%p#0, %v : tensor<?x?xf32>, tensor<?x24xf32>) outs(%o0 : tensor<?x24xf32>) -> tensor<?x24xf32>
  return %o : tensor<?x24xf32>
}
