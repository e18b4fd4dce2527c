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

// Tiles of 12 products take four steps of the sum per iteration: 48 products.
// CHECK-LABEL: func.func @four_steps
// CHECK:     %[[STEP:.*]] = arith.constant 4 : index
// CHECK:     scf.for %{{.*}} = %{{.*}} to %{{.*}} step %[[STEP]] iter_args
// CHECK-COUNT-48: math.fma
// CHECK-NOT: math.fma
// CHECK:     scf.yield
func.func @four_steps(%a: memref<6x64xf32>, %b: memref<64x16xf32>, %c: memref<6x16xf32>) {
  linalg.generic {indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (k, n)>, affine_map<(m, n, k) -> (m, n)>], iterator_types = ["parallel", "parallel", "reduction"]} ins(%a, %b : memref<6x64xf32>, memref<64x16xf32>) outs(%c : memref<6x16xf32>) {
  ^bb0(%x: f32, %y: f32, %z: f32):
    %p = arith.mulf %x, %y : f32
    %s = arith.addf %z, %p : f32
    linalg.yield %s : f32
  }
  return
}

// 48 rows of 4 lines, by 8 register tiles in each of 4 columns: each of these asks for 6 lines, from where it stands in
// all columns on.
// CHECK-LABEL: func.func @columns
// CHECK:     scf.for %{{.*}} = %{{.*}} to %{{.*}} step %c48 {
// CHECK:     scf.for %[[COLUMN:.*]] = %{{.*}} to %{{.*}} step %{{.*}} {
// CHECK:     scf.for %[[ROW:.*]] = %{{.*}} to %{{.*}} step %{{.*}} {
// CHECK:     %[[NUMBER:.*]] = arith.divui %[[COLUMN]], %{{.*}} : index
// CHECK:     %[[BEFORE:.*]] = arith.muli %[[NUMBER]], %{{.*}} : index
// CHECK:     arith.addi %[[ROW]], %[[BEFORE]] : index
// CHECK-COUNT-6: memref.prefetch %arg1
// CHECK-NOT: memref.prefetch
// CHECK:     math.fma
func.func @columns(%q: memref<64x64xf32>, %keys: memref<192x64xf32>, %s: memref<48x64xf32>) {
  %c0 = arith.constant 0 : index
  %c48 = arith.constant 48 : index
  %c192 = arith.constant 192 : index
  scf.for %i = %c0 to %c192 step %c48 {
    %k = memref.subview %keys[%i, 0] [48, 64] [1, 1] : memref<192x64xf32> to memref<48x64xf32, strided<[64, 1], offset: ?>>
    linalg.generic {indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (k, n)>, affine_map<(m, n, k) -> (m, n)>], iterator_types = ["parallel", "parallel", "reduction"]} ins(%k, %q : memref<48x64xf32, strided<[64, 1], offset: ?>>, memref<64x64xf32>) outs(%s : memref<48x64xf32>) {
    ^bb0(%x: f32, %y: f32, %z: f32):
      %p = arith.mulf %x, %y : f32
      %r = arith.addf %z, %p : f32
      linalg.yield %r : f32
    }
  }
  return
}

// So does a sum of unknown length, and its rest one by one.
// CHECK-LABEL: func.func @unknown_steps
// CHECK-COUNT-48: math.fma
// CHECK:     scf.yield
// CHECK:     scf.for
// CHECK-COUNT-12: math.fma
// CHECK-NOT: math.fma
func.func @unknown_steps(%a: memref<6x?xf32>, %b: memref<?x16xf32>, %c: memref<6x16xf32>) {
  linalg.generic {indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (k, n)>, affine_map<(m, n, k) -> (m, n)>], iterator_types = ["parallel", "parallel", "reduction"]} ins(%a, %b : memref<6x?xf32>, memref<?x16xf32>) outs(%c : memref<6x16xf32>) {
  ^bb0(%x: f32, %y: f32, %z: f32):
    %p = arith.mulf %x, %y : f32
    %s = arith.addf %z, %p : f32
    linalg.yield %s : f32
  }
  return
}
