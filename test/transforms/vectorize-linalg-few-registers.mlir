// RUN: attn-opt %s --vectorize-linalg="vector-bytes=32 by-two=no" --canonicalize --cse | FileCheck %s

// 16 registers hold 12 accumulators, two vectors of B, and of A one element at a time: both vectors are multiplied by it
// before the next one is.
// CHECK-LABEL: func.func @rows_in_turn
// CHECK: %[[SUMS:.*]]:12 = scf.for
// CHECK: %[[FIRST:.*]] = vector.broadcast
// CHECK: math.fma %[[FIRST]], %[[LEFT:.*]], %{{.*}} : vector<8xf32>
// CHECK-NEXT: math.fma %[[FIRST]], %[[RIGHT:.*]], %{{.*}} : vector<8xf32>
// CHECK: %[[SECOND:.*]] = vector.broadcast
// CHECK: math.fma %[[SECOND]], %[[LEFT]], %{{.*}} : vector<8xf32>
// CHECK-NEXT: math.fma %[[SECOND]], %[[RIGHT]], %{{.*}} : vector<8xf32>
func.func @rows_in_turn(%a: memref<60x7xf32>, %b: memref<7x64xf32>, %c: memref<60x64xf32>) {
  linalg.generic {indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (k, n)>, affine_map<(m, n, k) -> (m, n)>], iterator_types = ["parallel", "parallel", "reduction"]} ins(%a, %b : memref<60x7xf32>, memref<7x64xf32>) outs(%c : memref<60x64xf32>) {
  ^bb0(%x: f32, %y: f32, %z: f32):
    %p = arith.mulf %x, %y : f32
    %s = arith.addf %z, %p : f32
    linalg.yield %s : f32
  }
  return
}
