// RUN: attn-opt %s --fuse-attention="tile-sizes=1,1,16,0,32 tile-interchange=0,1,2,4,3" --fold-diag --canonicalize --cse --parallel-loops --canonicalize --split-masked-tiles --canonicalize --cse | FileCheck %s

// The mask is a tensor of its own, without heads: a window of 40 keys, and the length of each batch entry, which is
// loaded. It is added as 0 or −∞. Two bounds of the window and the length make three loops; the length is read before
// them. The loop without masks adds nothing and compares nothing.

// CHECK:      scf.forall (%[[B:.*]], %[[H:.*]], %[[Q:.*]]) =
// CHECK:        %[[N:.*]] = tensor.extract %arg3[%[[B]]] : tensor<2xi32>
// CHECK:        %[[NEAR:.*]] = arith.minsi
// CHECK:        arith.index_cast %[[NEAR]] : i32 to index
// CHECK:        %[[A:.*]]:3 = scf.for
// CHECK:          arith.cmpi
// CHECK:          linalg_ext.softmax
// CHECK:        %[[C:.*]]:3 = scf.for {{.*}} iter_args(%{{.*}} = %[[A]]#0
// CHECK-NOT:      arith.cmpi
// CHECK:          %[[S:[0-9]+]] = linalg_ext.batch_matmul
// CHECK-NEXT:     tensor.empty
// CHECK-NEXT:     linalg_ext.softmax dimension(3) ins(%[[S]] :
// CHECK:        scf.for {{.*}} iter_args(%{{.*}} = %[[C]]#0
// CHECK:          arith.cmpi
// CHECK:          linalg_ext.softmax
// CHECK-NOT:      linalg_ext.softmax
func.func @window(%q: tensor<2x3x256x8xf32>, %k: tensor<2x3x8x256xf32>, %v: tensor<2x3x256x8xf32>, %lengths: tensor<2xi32>) -> tensor<2x3x256x8xf32> {
  %zero = arith.constant 0.0 : f32
  %minus_inf = arith.constant 0xFF800000 : f32
  %e0 = tensor.empty() : tensor<2x3x256x256xf32>
  %e1 = tensor.empty() : tensor<2x3x256x8xf32>
  %e2 = tensor.empty() : tensor<2x3x256xf32>
  %e3 = tensor.empty() : tensor<2x256x256xf32>
  %max = linalg.fill ins(%minus_inf : f32) outs(%e2 : tensor<2x3x256xf32>) -> tensor<2x3x256xf32>
  %sum = linalg.fill ins(%zero : f32) outs(%e2 : tensor<2x3x256xf32>) -> tensor<2x3x256xf32>
  %s0 = linalg.fill ins(%zero : f32) outs(%e0 : tensor<2x3x256x256xf32>) -> tensor<2x3x256x256xf32>
  %o0 = linalg.fill ins(%zero : f32) outs(%e1 : tensor<2x3x256x8xf32>) -> tensor<2x3x256x8xf32>
  %s = linalg_ext.batch_matmul ins(%q, %k : tensor<2x3x256x8xf32>, tensor<2x3x8x256xf32>) outs(%s0 : tensor<2x3x256x256xf32>) layout = "nn"
  %mask = linalg.generic {indexing_maps = [affine_map<(b, i, j) -> (b)>, affine_map<(b, i, j) -> (b, i, j)>], iterator_types = ["parallel", "parallel", "parallel"]} ins(%lengths : tensor<2xi32>) outs(%e3 : tensor<2x256x256xf32>) {
  ^bb0(%length: i32, %out: f32):
    %i = linalg.index 1 : index
    %j = linalg.index 2 : index
    %j32 = arith.index_cast %j : index to i32
    %inside = arith.cmpi slt, %j32, %length : i32
    %d = arith.subi %i, %j : index
    %width = arith.constant 40 : index
    %distance = math.absi %d : index
    %near = arith.cmpi slt, %distance, %width : index
    %visible = arith.andi %inside, %near : i1
    %bias = arith.select %visible, %zero, %minus_inf : f32
    linalg.yield %bias : f32
  } -> tensor<2x256x256xf32>
  %x = linalg.generic {indexing_maps = [affine_map<(b, h, i, j) -> (b, h, i, j)>, affine_map<(b, h, i, j) -> (b, i, j)>, affine_map<(b, h, i, j) -> (b, h, i, j)>], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%s, %mask : tensor<2x3x256x256xf32>, tensor<2x256x256xf32>) outs(%e0 : tensor<2x3x256x256xf32>) {
  ^bb0(%in: f32, %bias: f32, %out: f32):
    %y = arith.addf %in, %bias : f32
    linalg.yield %y : f32
  } -> tensor<2x3x256x256xf32>
  %p:4 = linalg_ext.softmax dimension(3) ins(%x : tensor<2x3x256x256xf32>) outs(%e0, %max, %sum, %e2 : tensor<2x3x256x256xf32>, tensor<2x3x256xf32>, tensor<2x3x256xf32>, tensor<2x3x256xf32>) : tensor<2x3x256x256xf32>, tensor<2x3x256xf32>, tensor<2x3x256xf32>, tensor<2x3x256xf32>
  %o = linalg_ext.batch_matmul ins(%p#0, %v : tensor<2x3x256x256xf32>, tensor<2x3x256x8xf32>) outs(%o0 : tensor<2x3x256x8xf32>) layout = "nn"
  return %o : tensor<2x3x256x8xf32>
}
