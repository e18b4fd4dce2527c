// RUN: attn-opt %s --stream-rows="vector-bytes=64" --split-input-file | FileCheck %s

#p = affine_map<(h, d, n) -> (h, n)>
#v = affine_map<(h, d, n) -> (n, d)>
#o = affine_map<(h, d, n) -> (h, d)>

// A register tile has 64 of 128 columns: 16 rows of 512 bytes at a time, so that the second half of them is in the cache.
// CHECK-LABEL: func.func @blocks
// CHECK:       scf.for %[[N:.*]] = %c0 to %c256 step %c16
// CHECK:         %[[P:.*]] = memref.subview %arg0[0, %[[N]]] [4, 16] [1, 1]
// CHECK:         %[[V:.*]] = memref.subview %arg1[%[[N]], 0] [16, 128] [1, 1]
// CHECK:         linalg.generic {{.*}} ins(%[[P]], %[[V]] : {{.*}}) outs(%arg2 : memref<4x128xf32>)
// CHECK-NOT:   linalg.generic
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
