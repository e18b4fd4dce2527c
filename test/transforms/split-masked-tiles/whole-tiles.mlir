// RUN: attn-opt %s --fuse-attention="tile-sizes=16,0,32" --split-masked-tiles="whole-tiles=1" --canonicalize --cse | FileCheck %s
// RUN: attn-opt %s --fuse-attention="tile-sizes=16,0,32" --split-masked-tiles --canonicalize --cse | FileCheck %s --check-prefix=PLAIN

// Tiles of the loops that the mask makes have 32 keys; the cut one comes last, with the mask, if one of its keys is seen.
// CHECK-DAG:  #[[WHOLE:.*]] = affine_map<()[s0] -> ((s0 floordiv 32) * 32, 0)>
// CHECK:        %[[END:.*]] = affine.max #[[WHOLE]]()[%[[N:.*]]]
// CHECK:        scf.for %{{.*}} = %c0 to %[[LIVE:.*]] step
// CHECK-NOT:      arith.select
// CHECK:          tensor<?x32xbf16>
// CHECK:          linalg_ext.softmax
// CHECK:        %[[LAST:.*]]:3 = scf.for %{{.*}} = %[[LIVE]] to %{{.*}} step
// CHECK:          tensor<?x32xbf16>
// CHECK:          arith.select
// CHECK:          linalg_ext.softmax
// CHECK:        %[[ALIVE:.*]] = arith.cmpi slt
// CHECK:        %[[TO:.*]] = arith.select %[[ALIVE]], %[[N]], %[[END]]
// CHECK:        scf.for %[[I:.*]] = %[[END]] to %[[TO]] step %c32 iter_args(%{{.*}} = %[[LAST]]#0
// CHECK:          affine.min #{{.*}}(%[[I]])[%[[N]]]
// CHECK:          arith.select
// CHECK:          linalg_ext.softmax
// CHECK-NOT:    linalg_ext.softmax

// PLAIN-NOT:  floordiv
// PLAIN-COUNT-2: linalg_ext.softmax
// PLAIN-NOT:  linalg_ext.softmax
func.func @causal(%q: tensor<?x8xbf16>, %k: tensor<8x?xbf16>, %v: tensor<?x24xbf16>) -> tensor<?x24xbf16> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %m = tensor.dim %q, %c0 : tensor<?x8xbf16>
  %n = tensor.dim %k, %c1 : tensor<8x?xbf16>
  %zero = arith.constant 0.0 : bf16
  %minus_inf = arith.constant 0xFF80 : bf16
  %e0 = tensor.empty(%m, %n) : tensor<?x?xbf16>
  %e1 = tensor.empty(%m) : tensor<?x24xbf16>
  %e2 = tensor.empty(%m) : tensor<?xbf16>
  %max = linalg.fill ins(%minus_inf : bf16) outs(%e2 : tensor<?xbf16>) -> tensor<?xbf16>
  %sum = linalg.fill ins(%zero : bf16) outs(%e2 : tensor<?xbf16>) -> tensor<?xbf16>
  %s0 = linalg.fill ins(%zero : bf16) outs(%e0 : tensor<?x?xbf16>) -> tensor<?x?xbf16>
  %o0 = linalg.fill ins(%zero : bf16) outs(%e1 : tensor<?x24xbf16>) -> tensor<?x24xbf16>
  %s = linalg.matmul ins(%q, %k : tensor<?x8xbf16>, tensor<8x?xbf16>) outs(%s0 : tensor<?x?xbf16>) -> tensor<?x?xbf16>
  %x = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]} ins(%s : tensor<?x?xbf16>) outs(%e0 : tensor<?x?xbf16>) {
  ^bb0(%in: bf16, %out: bf16):
    %i = linalg.index 0 : index
    %j = linalg.index 1 : index
    %visible = arith.cmpi sle, %j, %i : index
    %y = arith.select %visible, %in, %minus_inf : bf16
    linalg.yield %y : bf16
  } -> tensor<?x?xbf16>
  %p:4 = linalg_ext.softmax dimension(1) ins(%x : tensor<?x?xbf16>) outs(%e0, %max, %sum, %e2 : tensor<?x?xbf16>, tensor<?xbf16>, tensor<?xbf16>, tensor<?xbf16>)
  %o = linalg.matmul ins(%p#0, %v : tensor<?x?xbf16>, tensor<?x24xbf16>) outs(%o0 : tensor<?x24xbf16>) -> tensor<?x24xbf16>
  return %o : tensor<?x24xbf16>
}
