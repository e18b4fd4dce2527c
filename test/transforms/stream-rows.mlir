// RUN: attn-opt %s --stream-rows="vector-bytes=64" --split-input-file | FileCheck %s
// RUN: attn-opt %s --stream-rows="vector-bytes=32" --canonicalize --split-input-file | FileCheck %s --check-prefix=NARROW

#p = affine_map<(h, d, n) -> (h, n)>
#v = affine_map<(h, d, n) -> (n, d)>
#o = affine_map<(h, d, n) -> (h, d)>

// A register tile has 64 of 128 columns: 16 rows of 512 bytes at a time, so that the second half of them is in the cache.
// They add up to sums of their own: what was there before would be one of as many terms as there are blocks.
// CHECK-LABEL: func.func @blocks
// CHECK:       %[[SUMS:.*]] = memref.alloca() {alignment = 64 : i64} : memref<4x128xf32>
// CHECK:       linalg.generic {{.*}} ins(%cst : f32) outs(%[[SUMS]] : memref<4x128xf32>)
// CHECK:       scf.for %[[N:.*]] = %c0 to %c256 step %c16
// CHECK:         %[[P:.*]] = memref.subview %arg0[0, %[[N]]] [4, 16] [1, 1]
// CHECK:         %[[V:.*]] = memref.subview %arg1[%[[N]], 0] [16, 128] [1, 1]
// CHECK:         linalg.generic {{.*}} ins(%[[P]], %[[V]] : {{.*}}) outs(%[[SUMS]] : memref<4x128xf32>)
// CHECK:       linalg.generic {{.*}} ins(%[[SUMS]] : memref<4x128xf32>) outs(%arg2 : memref<4x128xf32>)
// CHECK-NOT:   linalg.generic
// With vectors of half a line a register tile has one row from each of four places, and goes along it.
// NARROW-LABEL: func.func @blocks
// NARROW:       %[[SUMS:.*]] = memref.alloca() {alignment = 64 : i64} : memref<4x128xf32>
// NARROW:       %[[P:.*]] = memref.expand_shape %arg0 {{.*}} : memref<4x256xf32> into memref<4x4x64xf32>
// NARROW:       %[[V:.*]] = memref.expand_shape %arg1 {{.*}} : memref<256x128xf32> into memref<4x64x128xf32>
// NARROW:       linalg.generic {{.*}} outs(%[[SUMS]] : memref<4x128xf32>)
// NARROW:       scf.for %[[N:.*]] = %c0 to %c64 step %c1
// NARROW:         %[[OF_P:.*]] = memref.subview %[[P]][0, 0, %[[N]]] [4, 4, 1] [1, 1, 1]
// NARROW:         %[[OF_V:.*]] = memref.subview %[[V]][0, %[[N]], 0] [4, 1, 128] [1, 1, 1]
// NARROW:         linalg.generic {{.*}}["parallel", "parallel", "reduction", "reduction"]} ins(%[[OF_P]], %[[OF_V]] : {{.*}}) outs(%[[SUMS]] : memref<4x128xf32>) attrs = {places = 3 : i64}
// NARROW:       linalg.generic {{.*}} ins(%[[SUMS]] : memref<4x128xf32>) outs(%arg2 : memref<4x128xf32>)
func.func @blocks(%p: memref<4x256xf32>, %values: memref<256x128xf32>, %out: memref<4x128xf32>) {
  linalg.generic {indexing_maps = [#p, #v, #o], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%p, %values : memref<4x256xf32>, memref<256x128xf32>) outs(%out : memref<4x128xf32>) {
  ^bb0(%x: f32, %y: f32, %z: f32):
    %0 = arith.mulf %x, %y : f32
    %1 = arith.addf %z, %0 : f32
    linalg.yield %1 : f32
  }
  return
}

// -----

#p = affine_map<(h, d, n) -> (h, n)>
#v = affine_map<(h, d, n) -> (n, d)>
#o = affine_map<(h, d, n) -> (h, d)>

// Of a length that is not known, the last block is cut.
// CHECK-LABEL: func.func @dynamic
// CHECK:       %[[SIZE:.*]] = memref.dim %arg0
// CHECK:       scf.for %[[N:.*]] = %c0{{.*}} to %[[SIZE]] step %c32
// CHECK:         %[[REST:.*]] = affine.min
// CHECK:         memref.subview %arg1[%[[N]], 0] [%[[REST]], 128] [1, 1]
// Up to three rows are left over.
// NARROW-LABEL: func.func @dynamic
// NARROW:       %[[SIZE:.*]] = memref.dim %arg0
// NARROW:       %[[EACH:.*]] = arith.divui %[[SIZE]], %c4
// NARROW:       %[[WHOLE:.*]] = arith.muli %[[EACH]], %c4
// NARROW:       %[[REST:.*]] = arith.subi %[[SIZE]], %[[WHOLE]]
// NARROW:       %[[LEFT:.*]] = memref.subview %arg1[%[[WHOLE]], 0] [%[[REST]], 128] [1, 1]
// NARROW:       memref.expand_shape {{.*}} output_shape [4, %[[EACH]], 128]
// NARROW:       scf.for
// NARROW:         linalg.generic {{.*}} attrs = {places = 3 : i64}
// NARROW:       scf.for
// NARROW:         memref.subview %[[LEFT]]
func.func @dynamic(%p: memref<4x?xf32>, %values: memref<?x128xf16>, %out: memref<4x128xf32>) {
  linalg.generic {indexing_maps = [#p, #v, #o], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%p, %values : memref<4x?xf32>, memref<?x128xf16>) outs(%out : memref<4x128xf32>) {
  ^bb0(%x: f32, %y: f16, %z: f32):
    %e = arith.extf %y : f16 to f32
    %0 = arith.mulf %x, %e : f32
    %1 = arith.addf %z, %0 : f32
    linalg.yield %1 : f32
  }
  return
}

// -----

#p = affine_map<(h, d, n) -> (h, n)>
#v = affine_map<(h, d, n) -> (n, d)>
#o = affine_map<(h, d, n) -> (h, d)>

// A register tile has whole rows, and all heads.
// CHECK-LABEL: func.func @whole_rows
// CHECK-NOT:   scf.for
// CHECK:       linalg.generic
func.func @whole_rows(%p: memref<4x256xf32>, %values: memref<256x64xf32>, %out: memref<4x64xf32>) {
  linalg.generic {indexing_maps = [#p, #v, #o], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%p, %values : memref<4x256xf32>, memref<256x64xf32>) outs(%out : memref<4x64xf32>) {
  ^bb0(%x: f32, %y: f32, %z: f32):
    %0 = arith.mulf %x, %y : f32
    %1 = arith.addf %z, %0 : f32
    linalg.yield %1 : f32
  }
  return
}

// -----

#p = affine_map<(h, d, n) -> (h, n)>
#v = affine_map<(h, d, n) -> (n, d)>
#o = affine_map<(h, d, n) -> (h, d)>

// Many rows use each value: they stay in the cache.
// CHECK-LABEL: func.func @reused
// CHECK-NOT:   scf.for
// CHECK:       linalg.generic
// NARROW-LABEL: func.func @reused
// NARROW-NOT:   memref.expand_shape
func.func @reused(%p: memref<64x256xf32>, %values: memref<256x128xf32>, %out: memref<64x128xf32>) {
  linalg.generic {indexing_maps = [#p, #v, #o], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%p, %values : memref<64x256xf32>, memref<256x128xf32>) outs(%out : memref<64x128xf32>) {
  ^bb0(%x: f32, %y: f32, %z: f32):
    %0 = arith.mulf %x, %y : f32
    %1 = arith.addf %z, %0 : f32
    linalg.yield %1 : f32
  }
  return
}

// -----

#q = affine_map<(h, g, n, d) -> (h, g, d)>
#k = affine_map<(h, g, n, d) -> (n, h, d)>
#s = affine_map<(h, g, n, d) -> (h, g, n)>

// Keys of eight heads stand side by side: four rows of 4 KB at a time, of which each head has its part.
// NARROW-LABEL: func.func @side_by_side
// NARROW-NOT:   memref.expand_shape
// CHECK-LABEL: func.func @side_by_side
// CHECK:       scf.for %[[N:.*]] = %c0 to %c64 step %c4
// CHECK:         memref.subview %arg1[%[[N]], 0, 0] [4, 8, 128] [1, 1, 1]
// CHECK:         memref.subview %arg2[0, 0, %[[N]]] [8, 4, 4] [1, 1, 1]
// CHECK:         linalg.generic
func.func @side_by_side(%q: memref<8x4x128xf32>, %keys: memref<64x8x128xf32>, %out: memref<8x4x64xf32>) {
  linalg.generic {indexing_maps = [#q, #k, #s], iterator_types = ["parallel", "parallel", "parallel", "reduction"]}
      ins(%q, %keys : memref<8x4x128xf32>, memref<64x8x128xf32>) outs(%out : memref<8x4x64xf32>) {
  ^bb0(%x: f32, %y: f32, %z: f32):
    %0 = arith.mulf %x, %y : f32
    %1 = arith.addf %z, %0 : f32
    linalg.yield %1 : f32
  }
  return
}

// -----

#q = affine_map<(h, g, n, d) -> (h, g, d)>
#k = affine_map<(h, g, n, d) -> (h, n, d)>
#s = affine_map<(h, g, n, d) -> (h, g, n)>

// The rows of a head follow each other: head by head is in order.
// CHECK-LABEL: func.func @head_by_head
// CHECK-NOT:   scf.for
// CHECK:       linalg.generic
// A register tile of 16 registers has 4 × 2 sums along the lanes: two places.
// NARROW-LABEL: func.func @head_by_head
// NARROW:       memref.expand_shape %arg1 {{.*}} : memref<8x64x128xf32> into memref<8x2x32x128xf32>
// NARROW:       memref.expand_shape %arg2 {{.*}} : memref<8x4x64xf32> into memref<8x4x2x32xf32>
// NARROW:       linalg.generic {{.*}}["parallel", "parallel", "parallel", "reduction", "parallel"]} {{.*}} attrs = {places = 4 : i64}
func.func @head_by_head(%q: memref<8x4x128xf32>, %keys: memref<8x64x128xf32>, %out: memref<8x4x64xf32>) {
  linalg.generic {indexing_maps = [#q, #k, #s], iterator_types = ["parallel", "parallel", "parallel", "reduction"]}
      ins(%q, %keys : memref<8x4x128xf32>, memref<8x64x128xf32>) outs(%out : memref<8x4x64xf32>) {
  ^bb0(%x: f32, %y: f32, %z: f32):
    %0 = arith.mulf %x, %y : f32
    %1 = arith.addf %z, %0 : f32
    linalg.yield %1 : f32
  }
  return
}
