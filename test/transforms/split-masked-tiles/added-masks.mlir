// RUN: attn-opt %s --split-input-file --fuse-attention="tile-sizes=1,128,0,64" --fold-diag --canonicalize --cse --parallel-loops --canonicalize --split-masked-tiles="tests=false lists=true added=1000000" --canonicalize --cse | FileCheck %s
// RUN: attn-opt %s --split-input-file --fuse-attention="tile-sizes=1,128,0,64" --fold-diag --canonicalize --cse --parallel-loops --canonicalize --split-masked-tiles="tests=false lists=true added=1000000000" --canonicalize --cse | FileCheck %s --check-prefix=BIAS

// Numbers that are added to the scores of all heads, where no loop may ask of each tile (on GPUs). How many of three
// bounds they are below is found of rows of tiles, and the least of that of tiles. A tile is dead if it is 3, for −∞, or
// 2, and none of its rows, as a whole, is below the first bound.

// CHECK-LABEL: func.func @added
// CHECK-DAG:     %[[LOW:.*]] = arith.constant -3.276800e+04 : bf16
// CHECK-DAG:     %[[HALF:.*]] = arith.constant -1.638400e+04 : bf16
// CHECK-DAG:     %[[INF:.*]] = arith.constant 0xFF80 : bf16
// CHECK:         %[[MASK:.*]] = tensor.expand_shape %arg3 {{\[\[}}0], [1, 2]] output_shape [4096, 64, 64]
// CHECK:         %[[ROWS:.*]] = linalg.generic {{.*}} ins(%[[MASK]] : tensor<4096x64x64xbf16>) outs(%{{.*}} : tensor<4096x64xi32>)
// CHECK:           arith.cmpf ole, %{{.*}}, %[[HALF]]
// CHECK:           arith.cmpf ole, %{{.*}}, %[[LOW]]
// CHECK:           arith.cmpf ole, %{{.*}}, %[[INF]]
// CHECK:           arith.minsi
// CHECK:         %[[TILES:.*]] = linalg.generic {{.*}} ins(%{{.*}} : tensor<128xi1>) outs(%{{.*}} : tensor<32x64xi32>)
// CHECK:           tensor.extract %[[ROWS]]
// CHECK:           arith.minsi
// CHECK:         %[[WHOLE:.*]] = linalg.generic {{.*}} ins(%{{.*}} : tensor<64xi1>) outs(%{{.*}} : tensor<32x128xi32>)
// CHECK:           tensor.extract %[[ROWS]]
// CHECK:           arith.minsi
// CHECK:         %[[OF_ROWS:.*]] = linalg.generic {{.*}} ins(%{{.*}} : tensor<128xi1>) outs(%{{.*}} : tensor<32xi32>)
// CHECK:           tensor.extract %[[WHOLE]]
// CHECK:           arith.maxsi
// CHECK:         linalg.generic {{.*}} outs(%{{.*}} : tensor<32x64xi32>)
// CHECK:           %[[LEAST:.*]] = tensor.extract %[[TILES]]
// CHECK:           arith.subi %c3_i64
// CHECK:           arith.subi %c2_i64
// CHECK:           tensor.extract %[[OF_ROWS]]
// CHECK:           arith.andi
// CHECK:           arith.ori
// CHECK:         scf.forall
// CHECK:           scf.for %[[ENTRY:.*]] = %c0 to %{{.*}} step %c1
// CHECK:             tensor.extract %{{.*}}[%{{.*}}, %[[ENTRY]]]
// CHECK:             tensor.extract_slice %arg3
// CHECK:             arith.addf

// BIAS-LABEL:  func.func @added
// BIAS-NOT:      tensor.expand_shape
// BIAS:          scf.for %{{.*}} = %c0 to %c4096 step %c64
func.func @added(%q: tensor<32x4096x64xf32>, %k: tensor<32x64x4096xf32>, %v: tensor<32x4096x64xf32>, %mask: tensor<4096x4096xbf16>) -> tensor<32x4096x64xf32> {
  %zero = arith.constant 0.0 : f32
  %minus_inf = arith.constant 0xFF800000 : f32
  %e0 = tensor.empty() : tensor<32x4096x4096xf32>
  %e1 = tensor.empty() : tensor<32x4096x64xf32>
  %e2 = tensor.empty() : tensor<32x4096xf32>
  %max = linalg.fill ins(%minus_inf : f32) outs(%e2 : tensor<32x4096xf32>) -> tensor<32x4096xf32>
  %sum = linalg.fill ins(%zero : f32) outs(%e2 : tensor<32x4096xf32>) -> tensor<32x4096xf32>
  %s0 = linalg.fill ins(%zero : f32) outs(%e0 : tensor<32x4096x4096xf32>) -> tensor<32x4096x4096xf32>
  %o0 = linalg.fill ins(%zero : f32) outs(%e1 : tensor<32x4096x64xf32>) -> tensor<32x4096x64xf32>
  %s = linalg.batch_matmul ins(%q, %k : tensor<32x4096x64xf32>, tensor<32x64x4096xf32>) outs(%s0 : tensor<32x4096x4096xf32>) -> tensor<32x4096x4096xf32>
  %x = linalg.generic {indexing_maps = [affine_map<(h, i, j) -> (h, i, j)>, affine_map<(h, i, j) -> (i, j)>, affine_map<(h, i, j) -> (h, i, j)>], iterator_types = ["parallel", "parallel", "parallel"]} ins(%s, %mask : tensor<32x4096x4096xf32>, tensor<4096x4096xbf16>) outs(%e0 : tensor<32x4096x4096xf32>) {
  ^bb0(%a: f32, %m: bf16, %out: f32):
    %wide = arith.extf %m : bf16 to f32
    %y = arith.addf %a, %wide : f32
    linalg.yield %y : f32
  } -> tensor<32x4096x4096xf32>
  %p:4 = linalg_ext.softmax dimension(2) ins(%x : tensor<32x4096x4096xf32>)
    outs(%e0, %max, %sum, %e2 : tensor<32x4096x4096xf32>, tensor<32x4096xf32>, tensor<32x4096xf32>, tensor<32x4096xf32>)
    : tensor<32x4096x4096xf32>, tensor<32x4096xf32>, tensor<32x4096xf32>, tensor<32x4096xf32>
  %o = linalg.batch_matmul ins(%p#0, %v : tensor<32x4096x4096xf32>, tensor<32x4096x64xf32>) outs(%o0 : tensor<32x4096x64xf32>) -> tensor<32x4096x64xf32>
  return %o : tensor<32x4096x64xf32>
}

// -----

// Beside another mask they are taken for a bias: that one may leave a row only such keys as are low, and has its loops.

// CHECK-LABEL: func.func @beside_another
// CHECK-NOT:     tensor.expand_shape
// CHECK:         scf.forall
// CHECK:           scf.for
// CHECK:           scf.for
func.func @beside_another(%q: tensor<32x4096x64xf32>, %k: tensor<32x64x4096xf32>, %v: tensor<32x4096x64xf32>, %mask: tensor<4096x4096xf32>) -> tensor<32x4096x64xf32> {
  %zero = arith.constant 0.0 : f32
  %minus_inf = arith.constant 0xFF800000 : f32
  %e0 = tensor.empty() : tensor<32x4096x4096xf32>
  %e1 = tensor.empty() : tensor<32x4096x64xf32>
  %e2 = tensor.empty() : tensor<32x4096xf32>
  %max = linalg.fill ins(%minus_inf : f32) outs(%e2 : tensor<32x4096xf32>) -> tensor<32x4096xf32>
  %sum = linalg.fill ins(%zero : f32) outs(%e2 : tensor<32x4096xf32>) -> tensor<32x4096xf32>
  %s0 = linalg.fill ins(%zero : f32) outs(%e0 : tensor<32x4096x4096xf32>) -> tensor<32x4096x4096xf32>
  %o0 = linalg.fill ins(%zero : f32) outs(%e1 : tensor<32x4096x64xf32>) -> tensor<32x4096x64xf32>
  %s = linalg.batch_matmul ins(%q, %k : tensor<32x4096x64xf32>, tensor<32x64x4096xf32>) outs(%s0 : tensor<32x4096x4096xf32>) -> tensor<32x4096x4096xf32>
  %x = linalg.generic {indexing_maps = [affine_map<(h, i, j) -> (h, i, j)>, affine_map<(h, i, j) -> (i, j)>, affine_map<(h, i, j) -> (h, i, j)>], iterator_types = ["parallel", "parallel", "parallel"]} ins(%s, %mask : tensor<32x4096x4096xf32>, tensor<4096x4096xf32>) outs(%e0 : tensor<32x4096x4096xf32>) {
  ^bb0(%a: f32, %m: f32, %out: f32):
    %i = linalg.index 1 : index
    %j = linalg.index 2 : index
    %y = arith.addf %a, %m : f32
    %seen = arith.cmpi sle, %j, %i : index
    %z = arith.select %seen, %y, %minus_inf : f32
    linalg.yield %z : f32
  } -> tensor<32x4096x4096xf32>
  %p:4 = linalg_ext.softmax dimension(2) ins(%x : tensor<32x4096x4096xf32>)
    outs(%e0, %max, %sum, %e2 : tensor<32x4096x4096xf32>, tensor<32x4096xf32>, tensor<32x4096xf32>, tensor<32x4096xf32>)
    : tensor<32x4096x4096xf32>, tensor<32x4096xf32>, tensor<32x4096xf32>, tensor<32x4096xf32>
  %o = linalg.batch_matmul ins(%p#0, %v : tensor<32x4096x4096xf32>, tensor<32x4096x64xf32>) outs(%o0 : tensor<32x4096x64xf32>) -> tensor<32x4096x64xf32>
  return %o : tensor<32x4096x64xf32>
}
