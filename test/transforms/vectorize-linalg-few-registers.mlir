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

// Sums of four heads with the keys of two places: what the keys are multiplied by is loaded when it is needed. The lanes
// of all eight are summed together; results are not neighbours.
// CHECK-LABEL: func.func @places
// CHECK: scf.for %[[N:.*]] = %c0 to %c32 step %c1
// CHECK: scf.for
// CHECK-NOT: memref.prefetch
// CHECK: vector.load %arg1[%c0, %[[N]], %{{.*}}] : memref<2x32x128xf32>, vector<8xf32>
// CHECK: math.fma
// CHECK: vector.load %arg0[%c1,
// CHECK-COUNT-8: memref.store {{.*}} : memref<4x2x32xf32>
func.func @places(%q: memref<4x128xf32>, %keys: memref<2x32x128xf32>, %out: memref<4x2x32xf32>) {
  linalg.generic {indexing_maps = [affine_map<(h, n, d, p) -> (h, d)>, affine_map<(h, n, d, p) -> (p, n, d)>, affine_map<(h, n, d, p) -> (h, p, n)>], iterator_types = ["parallel", "parallel", "reduction", "parallel"]} ins(%q, %keys : memref<4x128xf32>, memref<2x32x128xf32>) outs(%out : memref<4x2x32xf32>) attrs = {places = 3 : i64} {
  ^bb0(%x: f32, %y: f32, %z: f32):
    %p = arith.mulf %x, %y : f32
    %s = arith.addf %z, %p : f32
    linalg.yield %s : f32
  }
  return
}

// A line of bf16 has 16 vectors of products: it is asked for 2 KB ahead, once.
// CHECK-LABEL: func.func @narrow_places
// CHECK: scf.for %[[N:.*]] = %c0 to %c32 step %c1
// CHECK: scf.for
// CHECK: vector.load %arg1[%c0, %[[N]], %{{.*}}] : memref<2x32x128xbf16>, vector<8xbf16>
// CHECK-NEXT: %[[AHEAD:.*]] = arith.addi %[[N]], %c8
// CHECK-NEXT: memref.prefetch %arg1[%c0, %[[AHEAD]], %{{.*}}]
// CHECK: memref.prefetch %arg1[%c1, %[[AHEAD]], %{{.*}}]
// CHECK-NOT: memref.prefetch
// CHECK-COUNT-8: memref.store {{.*}} : memref<4x2x32xf32>
func.func @narrow_places(%q: memref<4x128xf32>, %keys: memref<2x32x128xbf16>, %out: memref<4x2x32xf32>) {
  linalg.generic {indexing_maps = [affine_map<(h, n, d, p) -> (h, d)>, affine_map<(h, n, d, p) -> (p, n, d)>, affine_map<(h, n, d, p) -> (h, p, n)>], iterator_types = ["parallel", "parallel", "reduction", "parallel"]} ins(%q, %keys : memref<4x128xf32>, memref<2x32x128xbf16>) outs(%out : memref<4x2x32xf32>) attrs = {places = 3 : i64} {
  ^bb0(%x: f32, %y: bf16, %z: f32):
    %w = arith.extf %y : bf16 to f32
    %p = arith.mulf %x, %w : f32
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
