// RUN: attn-opt %s --fuse-attention="tile-sizes=16,0,32" --canonicalize --cse --parallel-loops --defer-division --split-masked-tiles --canonicalize --remarks 2>&1 | FileCheck %s
// RUN: attn-opt %s --fuse-attention="tile-sizes=16,0,32" --canonicalize --cse --parallel-loops --split-masked-tiles="tests=false" | FileCheck %s --check-prefix=TWO

// A row that is masked as a whole is the mean of all values: tiles of masked scores come last, and count if need be.

// CHECK:      remark: skips masked tiles unless a row has no other keys and computes live tiles without the mask: 3 loops
// CHECK:      scf.forall
// CHECK:        scf.for
// CHECK-NOT:      arith.select
// CHECK:          linalg_ext.unnorm_softmax
// CHECK:        %[[REST:.*]]:3 = scf.for %{{.*}} = %{{.*}} to %{{.*}} step
// CHECK:          arith.select
// CHECK:          linalg_ext.unnorm_softmax
// CHECK:        %[[GAP:.*]] = linalg.generic {{.*}} ins(%[[REST]]#1 : tensor<16xf32>)
// CHECK:          arith.subf %{{.*}}, %{{.*}} : f32
// CHECK:          arith.maximumf
// CHECK:        %[[MOST:.*]] = tensor.extract %[[GAP]][]
// CHECK:        %[[CLEAR:.*]] = arith.cmpf ole, %[[MOST]], %{{.*}}
// CHECK:        %[[END:.*]] = arith.select %[[CLEAR]], %[[START:.*]], %c128
// CHECK:        scf.for %{{.*}} = %[[START]] to %[[END]] step %{{.*}} iter_args(%{{.*}} = %[[REST]]#0, %{{.*}} = %[[REST]]#1, %{{.*}} = %[[REST]]#2)
// CHECK:          arith.select
// CHECK:          linalg_ext.unnorm_softmax
// CHECK:      scf.forall.in_parallel

// Where no tile can be tested, as on GPUs, all are computed, those that no mask changes without it.
// TWO:         scf.for
// TWO-NOT:       arith.select
// TWO:           linalg_ext.softmax
// TWO:         scf.for
// TWO:           arith.select
// TWO:           linalg_ext.softmax
// TWO-NOT:     linalg_ext.softmax
func.func @causal(%q: tensor<128x8xf32>, %k: tensor<8x128xf32>, %v: tensor<128x24xf32>) -> tensor<128x24xf32> {
  %zero = arith.constant 0.0 : f32
  %low = arith.constant -1.0e9 : f32
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
    %y = arith.select %visible, %in, %low : f32
    linalg.yield %y : f32
  } -> tensor<128x128xf32>
  %p:4 = linalg_ext.softmax dimension(1) ins(%x : tensor<128x128xf32>) outs(%e0, %max, %sum, %e2 : tensor<128x128xf32>, tensor<128xf32>, tensor<128xf32>, tensor<128xf32>) : tensor<128x128xf32>, tensor<128xf32>, tensor<128xf32>, tensor<128xf32>
  %o = linalg.matmul ins(%p#0, %v : tensor<128x128xf32>, tensor<128x24xf32>) outs(%o0 : tensor<128x24xf32>) -> tensor<128x24xf32>
  return %o : tensor<128x24xf32>
}
