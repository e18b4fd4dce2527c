// RUN: attn-opt %s --fuse-attention="tile-sizes=1,16,0,32" | FileCheck %s --check-prefix=FUSED
// RUN: attn-opt %s --fuse-attention="tile-sizes=1,16,0,32" --split-masked-tiles | FileCheck %s --check-prefix=SPLIT
// RUN: attn-opt %s --fuse-attention="tile-sizes=1,16,0,32" --canonicalize --cse --parallel-loops --split-keys=parts=4 | FileCheck %s --check-prefix=PARTS
// RUN: attn-opt %s --fuse-attention | FileCheck %s --check-prefix=CHOSEN

// Without a softmax the loops carry the output alone, and nothing rescales it.
// FUSED:       scf.for %{{.*}} to %c2 step %c1
// FUSED:         scf.for %{{.*}} to %c64 step %c16
// FUSED:           scf.for %[[K:.*]] = %{{.*}} to %c128 step %c32 iter_args(%[[OLD:.*]] = %{{[^ ,]*}})
// FUSED:             %[[S:.*]] = linalg.batch_matmul
// FUSED:             %[[P:.*]] = linalg.generic {{.*}} ins(%[[S]] : tensor<1x16x32xf32>)
// FUSED:             %[[O:.*]] = tensor.extract_slice %[[OLD]]
// FUSED:             linalg.batch_matmul ins(%[[P]], %{{.*}}) outs(%[[O]] : tensor<1x16x24xf32>)

// A mask makes weights 0: tiles that are dead as a whole are skipped, live ones are computed without it.
// SPLIT:         scf.for
// SPLIT:           scf.for
// SPLIT:             %[[FIRST:.*]] = scf.for %{{.*}} = %{{.*}} to %[[LIVE:.*]] step
// SPLIT-NOT:           arith.select
// SPLIT:               linalg.batch_matmul
// SPLIT:             scf.for %{{.*}} = %[[LIVE]] to %{{.*}} step %{{.*}} iter_args(%{{.*}} = %[[FIRST]])
// SPLIT:               arith.select
// SPLIT-NOT:         scf.for

// Parts of the keys are added.
// PARTS:       %[[OUT:.*]] = scf.forall (%{{.*}}, %{{.*}}, %[[P:.*]]) = (0, 0, 0) to (2, 64, 4) step (1, 16, 1) {{.*}} -> (tensor<4x2x64x24xf32>)
// PARTS:       scf.forall
// PARTS:         scf.for %[[Q:.*]] = %c0{{.*}} to %c4 step %c2
// PARTS:           %[[A:.*]] = tensor.extract_slice %[[OUT]][%[[Q]],
// PARTS:           %[[B:.*]] = tensor.extract_slice %[[OUT]]
// PARTS:           linalg.generic {{.*}} ins(%[[A]], %[[B]]
// PARTS-NOT:         arith.mulf
// PARTS:             arith.addf
// PARTS:             arith.addf
// PARTS:             linalg.yield

// CHOSEN:        scf.for %{{.*}} to %c2 step %c1
// CHOSEN:          scf.for %{{.*}} to %c64 step %c64
// CHOSEN:            linalg.batch_matmul
// CHOSEN:            linalg.batch_matmul
#id = affine_map<(b, i, j) -> (b, i, j)>
func.func @causal_sigmoid(%q: tensor<2x64x24xf32>, %k: tensor<2x24x128xf32>, %v: tensor<2x128x24xf32>) -> tensor<2x64x24xf32> {
  %zero = arith.constant 0.0 : f32
  %one = arith.constant 1.0 : f32
  %e_s = tensor.empty() : tensor<2x64x128xf32>
  %z_s = linalg.fill ins(%zero : f32) outs(%e_s : tensor<2x64x128xf32>) -> tensor<2x64x128xf32>
  %s = linalg.batch_matmul ins(%q, %k : tensor<2x64x24xf32>, tensor<2x24x128xf32>) outs(%z_s : tensor<2x64x128xf32>) -> tensor<2x64x128xf32>
  %p = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel", "parallel"]} ins(%s : tensor<2x64x128xf32>) outs(%e_s : tensor<2x64x128xf32>) {
  ^bb0(%x: f32, %o: f32):
    %i = linalg.index 1 : index
    %j = linalg.index 2 : index
    %is = arith.cmpi sle, %j, %i : index
    %n = arith.negf %x : f32
    %e = math.exp %n : f32
    %d = arith.addf %e, %one : f32
    %w = arith.divf %one, %d : f32
    %r = arith.select %is, %w, %zero : f32
    linalg.yield %r : f32
  } -> tensor<2x64x128xf32>
  %e_o = tensor.empty() : tensor<2x64x24xf32>
  %z_o = linalg.fill ins(%zero : f32) outs(%e_o : tensor<2x64x24xf32>) -> tensor<2x64x24xf32>
  %o = linalg.batch_matmul ins(%p, %v : tensor<2x64x128xf32>, tensor<2x128x24xf32>) outs(%z_o : tensor<2x64x24xf32>) -> tensor<2x64x24xf32>
  return %o : tensor<2x64x24xf32>
}
