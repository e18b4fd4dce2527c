// RUN: attn-opt %s --fuse-attention="tile-sizes=16,0,32" --defer-division | FileCheck %s --check-prefix=NEST
// RUN: attn-opt %s --fuse-attention="tile-sizes=16,0,32 tile-interchange=2,1,0" --defer-division | FileCheck %s --check-prefix=NEST
// RUN: attn-opt %s --fuse-attention="tile-sizes=16,0,32" --fold-diag --canonicalize --cse --parallel-loops --defer-division | FileCheck %s --check-prefix=FORALL
// RUN: attn-opt %s --fuse-attention="tile-sizes=16" --defer-division | FileCheck %s --check-prefix=WHOLE
// RUN: attn-opt %s --defer-division | FileCheck %s --check-prefix=GRAPH

// After the nest, in either order of the loops; the maximum, which is returned, stays what it was.
// NEST:       %[[LOOP:[0-9]+]]:3 = scf.for
// NEST:         scf.for
// NEST:           linalg_ext.unnorm_softmax
// NEST:       }
// NEST:       %[[O:[0-9]+]] = linalg.generic {{.*}} ins(%[[LOOP]]#2 : tensor<64xf32>) outs(%[[LOOP]]#0 : tensor<64x24xf32>) {
// NEST-NEXT:  ^bb0(%[[A:.*]]: f32, %[[X:.*]]: f32):
// NEST-NEXT:    %[[EMPTY:.*]] = arith.cmpf oeq, %[[A]], %[[ZERO:.*]] : f32
// NEST-NEXT:    %[[INVERSE:.*]] = arith.divf %{{.*}}, %[[A]] : f32
// NEST-NEXT:    %[[FACTOR:.*]] = arith.select %[[EMPTY]], %[[ZERO]], %[[INVERSE]] : f32
// NEST-NEXT:    arith.mulf %[[X]], %[[FACTOR]] : f32
// NEST:       return %[[O]], %[[LOOP]]#1

// In the parallel loop, on its tile.
// FORALL:     scf.forall
// FORALL:       %[[LOOP:[0-9]+]]:3 = scf.for
// FORALL:         linalg_ext.unnorm_softmax
// FORALL:       }
// FORALL:       linalg.generic {{.*}} ins(%[[LOOP]]#2 : tensor<16xf32>) outs(%[[LOOP]]#0 : tensor<16x24xf32>)
// FORALL:         arith.divf

// All keys at once: after the matmul of the tile, or of the graph.
// WHOLE:      %[[P:[0-9]+]]:4 = linalg_ext.unnorm_softmax
// WHOLE:      %[[U:[0-9]+]] = linalg.matmul {{.*}}ins(%[[P]]#0
// WHOLE:      linalg.generic {{.*}} ins(%[[P]]#2 : tensor<16xf32>) outs(%[[U]] : tensor<16x24xf32>)
// GRAPH:      %[[P:[0-9]+]]:4 = linalg_ext.unnorm_softmax
// GRAPH:      %[[U:[0-9]+]] = linalg.matmul {{.*}}ins(%[[P]]#0
// GRAPH:      linalg.generic {{.*}} ins(%[[P]]#2 : tensor<64xf32>) outs(%[[U]] : tensor<64x24xf32>)
func.func @attention(%q: tensor<64x8xf32>, %k: tensor<8x96xf32>, %v: tensor<96x24xf32>) -> (tensor<64x24xf32>, tensor<64xf32>) {
  %zero = arith.constant 0.0 : f32
  %minus_inf = arith.constant 0xFF800000 : f32
  %e0 = tensor.empty() : tensor<64x96xf32>
  %e1 = tensor.empty() : tensor<64x24xf32>
  %e2 = tensor.empty() : tensor<64xf32>
  %max = linalg.fill ins(%minus_inf : f32) outs(%e2 : tensor<64xf32>) -> tensor<64xf32>
  %sum = linalg.fill ins(%zero : f32) outs(%e2 : tensor<64xf32>) -> tensor<64xf32>
  %s0 = linalg.fill ins(%zero : f32) outs(%e0 : tensor<64x96xf32>) -> tensor<64x96xf32>
  %o0 = linalg.fill ins(%zero : f32) outs(%e1 : tensor<64x24xf32>) -> tensor<64x24xf32>
  %s = linalg.matmul ins(%q, %k : tensor<64x8xf32>, tensor<8x96xf32>) outs(%s0 : tensor<64x96xf32>) -> tensor<64x96xf32>
  %p:4 = linalg_ext.softmax dimension(1) ins(%s : tensor<64x96xf32>) outs(%e0, %max, %sum, %e2 : tensor<64x96xf32>, tensor<64xf32>, tensor<64xf32>, tensor<64xf32>) : tensor<64x96xf32>, tensor<64xf32>, tensor<64xf32>, tensor<64xf32>
  %o = linalg.matmul ins(%p#0, %v : tensor<64x96xf32>, tensor<96x24xf32>) outs(%o0 : tensor<64x24xf32>) -> tensor<64x24xf32>
  return %o, %p#1 : tensor<64x24xf32>, tensor<64xf32>
}
