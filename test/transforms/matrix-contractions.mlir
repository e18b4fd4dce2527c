// RUN: attn-opt %s --split-input-file --matrix-contractions="matrix=amx-bf16" --canonicalize | FileCheck %s --check-prefixes=CHECK,TILES
// RUN: attn-opt %s --split-input-file --matrix-contractions="matrix=dot" | FileCheck %s --check-prefix=NONE
// RUN: attn-opt %s --split-input-file --matrix-contractions="matrix=none" | FileCheck %s --check-prefix=NONE
// RUN: not attn-opt %s --split-input-file --matrix-contractions="matrix=amx" 2>&1 | FileCheck %s --check-prefix=UNKNOWN

// UNKNOWN: unknown matrix instructions 'amx'; known: amx-fp16, amx-bf16, dot, none

#mk = affine_map<(m, n, k) -> (m, k)>
#nk = affine_map<(m, n, k) -> (n, k)>
#mn = affine_map<(m, n, k) -> (m, n)>
#scalar = affine_map<(m, n) -> ()>
#id = affine_map<(m, n) -> (m, n)>

// B goes into a panel of pairs, transposed in registers; A is read where it stands; the sums start from zero.
// CHECK-LABEL: func.func @scores
// NONE-LABEL:  func.func @scores
// CHECK:       %[[PANEL:.*]] = memref.alloca() {alignment = 64 : i64} : memref<4x1x16x32xbf16>
// CHECK-NOT:   linalg.generic
// CHECK:       vector.load %{{.*}} : memref<64x32xbf16>, vector<32xbf16>
// CHECK:       vector.shuffle {{.*}} : vector<16xi32>
// CHECK:       vector.store %{{.*}}, %[[PANEL]]
// TILES:       x86.amx.tile_zero
// TILES:       x86.amx.tile_load %arg0
// TILES:       x86.amx.tile_load %[[PANEL]]
// TILES-COUNT-4: x86.amx.tile_mulf {{.*}} : !x86.amx.tile<16x32xbf16>, !x86.amx.tile<16x32xbf16>, !x86.amx.tile<16x16xf32>
// TILES:       x86.amx.tile_store
// NONE:        linalg.generic
func.func @scores(%q: memref<32x32xbf16>, %k: memref<64x32xbf16>) -> memref<32x64xf32> {
  %zero = arith.constant 0.0 : f32
  %s = memref.alloc() : memref<32x64xf32>
  linalg.generic {indexing_maps = [#scalar, #id], iterator_types = ["parallel", "parallel"]}
      ins(%zero : f32) outs(%s : memref<32x64xf32>) {
  ^bb0(%x: f32, %y: f32):
    linalg.yield %x : f32
  }
  linalg.generic {indexing_maps = [#mk, #nk, #mn], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%q, %k : memref<32x32xbf16>, memref<64x32xbf16>) outs(%s : memref<32x64xf32>) {
  ^bb0(%a: bf16, %b: bf16, %c: f32):
    %0 = arith.extf %a : bf16 to f32
    %1 = arith.extf %b : bf16 to f32
    %2 = arith.mulf %0, %1 : f32
    %3 = arith.addf %c, %2 : f32
    linalg.yield %3 : f32
  }
  return %s : memref<32x64xf32>
}

// -----

#mk = affine_map<(m, n, k) -> (m, k)>
#kn = affine_map<(m, n, k) -> (k, n)>
#mn = affine_map<(m, n, k) -> (m, n)>

// Tasks that read the same B: it is packed before their loop. Its pairs are interleaved rows. A task reads a tile of
// it once.
// CHECK-LABEL: func.func @values
// NONE-LABEL:  func.func @values
// CHECK:       %[[PANEL:.*]] = memref.alloc() {alignment = 64 : i64} : memref<2x4x16x32xbf16>
// CHECK:       vector.interleave
// CHECK:       vector.store %{{.*}}, %[[PANEL]]
// CHECK:       scf.parallel
// CHECK-NOT:     vector.interleave
// TILES:         x86.amx.tile_load %[[PANEL]]{{.*}} {streamed}
// CHECK:       memref.dealloc %[[PANEL]]
func.func @values(%p: memref<64x128xbf16>, %v: memref<128x32xbf16>, %o: memref<64x32xf32>) {
  %c0 = arith.constant 0 : index
  %c16 = arith.constant 16 : index
  %c32 = arith.constant 32 : index
  %c64 = arith.constant 64 : index
  %c128 = arith.constant 128 : index
  scf.parallel (%i) = (%c0) to (%c64) step (%c16) {
    %c = memref.subview %o[%i, 0] [16, 32] [1, 1] : memref<64x32xf32> to memref<16x32xf32, strided<[32, 1], offset: ?>>
    scf.for %j = %c0 to %c128 step %c32 {
      %a = memref.subview %p[%i, %j] [16, 32] [1, 1]
          : memref<64x128xbf16> to memref<16x32xbf16, strided<[128, 1], offset: ?>>
      %b = memref.subview %v[%j, 0] [32, 32] [1, 1]
          : memref<128x32xbf16> to memref<32x32xbf16, strided<[32, 1], offset: ?>>
      linalg.generic {indexing_maps = [#mk, #kn, #mn], iterator_types = ["parallel", "parallel", "reduction"]}
          ins(%a, %b : memref<16x32xbf16, strided<[128, 1], offset: ?>>, memref<32x32xbf16, strided<[32, 1], offset: ?>>)
          outs(%c : memref<16x32xf32, strided<[32, 1], offset: ?>>) {
      ^bb0(%x: bf16, %y: bf16, %z: f32):
        %0 = arith.extf %x : bf16 to f32
        %1 = arith.extf %y : bf16 to f32
        %2 = arith.mulf %0, %1 : f32
        %3 = arith.addf %z, %2 : f32
        linalg.yield %3 : f32
      }
    }
    scf.reduce
  }
  return
}

// -----

#mk = affine_map<(m, n, k) -> (m, k)>
#nk = affine_map<(m, n, k) -> (n, k)>
#mn = affine_map<(m, n, k) -> (m, n)>

// f16 by tiles of bf16: two parts each, three products.
// CHECK-LABEL: func.func @parts
// NONE-LABEL:  func.func @parts
// TILES-DAG:   memref.alloca() {alignment = 64 : i64} : memref<2x2x16x32xbf16>
// TILES-DAG:   memref.alloca() {alignment = 64 : i64} : memref<2x32x32xbf16>
// TILES:       arith.andi
// TILES:       arith.subf
// TILES-COUNT-3: x86.amx.tile_mulf
func.func @parts(%q: memref<16x32xf16>, %k: memref<16x32xf16>, %s: memref<16x16xf32>) {
  linalg.generic {indexing_maps = [#mk, #nk, #mn], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%q, %k : memref<16x32xf16>, memref<16x32xf16>) outs(%s : memref<16x16xf32>) {
  ^bb0(%a: f16, %b: f16, %c: f32):
    %0 = arith.extf %a : f16 to f32
    %1 = arith.extf %b : f16 to f32
    %2 = arith.mulf %0, %1 : f32
    %3 = arith.addf %c, %2 : f32
    linalg.yield %3 : f32
  }
  return
}

// -----

#mk = affine_map<(m, n, k) -> (m, k)>
#nk = affine_map<(m, n, k) -> (n, k)>
#mn = affine_map<(m, n, k) -> (m, n)>

// One row fills no tiles.
// CHECK-LABEL: func.func @few_rows
// NONE-LABEL:  func.func @few_rows
// CHECK:       linalg.generic
func.func @few_rows(%q: memref<1x32xbf16>, %k: memref<64x32xbf16>, %s: memref<1x64xf32>) {
  linalg.generic {indexing_maps = [#mk, #nk, #mn], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%q, %k : memref<1x32xbf16>, memref<64x32xbf16>) outs(%s : memref<1x64xf32>) {
  ^bb0(%a: bf16, %b: bf16, %c: f32):
    %0 = arith.extf %a : bf16 to f32
    %1 = arith.extf %b : bf16 to f32
    %2 = arith.mulf %0, %1 : f32
    %3 = arith.addf %c, %2 : f32
    linalg.yield %3 : f32
  }
  return
}

// -----

#mk = affine_map<(m, n, k) -> (m, k)>
#nk = affine_map<(m, n, k) -> (n, k)>
#mn = affine_map<(m, n, k) -> (m, n)>

// Floats of 8 bits become bf16 in panels.
// CHECK-LABEL: func.func @narrow
// CHECK:       memref.alloca() {alignment = 64 : i64} : memref<4x1x16x32xbf16>
// CHECK:       arith.extf %{{.*}} : vector<32xf8E4M3FN> to vector<32xbf16>
// TILES:       x86.amx.tile_mulf {{.*}} : !x86.amx.tile<16x32xbf16>, !x86.amx.tile<16x32xbf16>, !x86.amx.tile<16x16xf32>
func.func @narrow(%q: memref<32x32xf8E4M3FN>, %k: memref<64x32xf8E4M3FN>, %s: memref<32x64xf32>) {
  linalg.generic {indexing_maps = [#mk, #nk, #mn], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%q, %k : memref<32x32xf8E4M3FN>, memref<64x32xf8E4M3FN>) outs(%s : memref<32x64xf32>) {
  ^bb0(%a: f8E4M3FN, %b: f8E4M3FN, %c: f32):
    %0 = arith.extf %a : f8E4M3FN to f32
    %1 = arith.extf %b : f8E4M3FN to f32
    %2 = arith.mulf %0, %1 : f32
    %3 = arith.addf %c, %2 : f32
    linalg.yield %3 : f32
  }
  return
}

// -----

#mk = affine_map<(m, n, k) -> (m, k)>
#nk = affine_map<(m, n, k) -> (n, k)>
#mn = affine_map<(m, n, k) -> (m, n)>

// B is contiguous along neither dimension: its elements are copied one by one, in a loop.
// CHECK-LABEL: func.func @elements
// NONE-LABEL:  func.func @elements
// CHECK:       %[[PANEL:.*]] = memref.alloca() {alignment = 64 : i64} : memref<2x1x16x32xbf16>
// CHECK:       scf.for %[[LANE:.*]] = %c0 to %c32 step %c1
// CHECK:         arith.remui %[[LANE]], %c2
// CHECK:         arith.divui %[[LANE]], %c2
// CHECK:         memref.load %arg1
// CHECK:         memref.store %{{.*}}, %[[PANEL]][{{.*}}, %[[LANE]]]
// TILES:       x86.amx.tile_mulf
func.func @elements(%q: memref<16x32xbf16>, %k: memref<16x32xbf16, strided<[64, 2]>>, %s: memref<16x16xf32>) {
  linalg.generic {indexing_maps = [#mk, #nk, #mn], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%q, %k : memref<16x32xbf16>, memref<16x32xbf16, strided<[64, 2]>>) outs(%s : memref<16x16xf32>) {
  ^bb0(%a: bf16, %b: bf16, %c: f32):
    %0 = arith.extf %a : bf16 to f32
    %1 = arith.extf %b : bf16 to f32
    %2 = arith.mulf %0, %1 : f32
    %3 = arith.addf %c, %2 : f32
    linalg.yield %3 : f32
  }
  return
}

// -----

#mk = affine_map<(m, n, k) -> (m, k)>
#nk = affine_map<(m, n, k) -> (n, k)>
#mn = affine_map<(m, n, k) -> (m, n)>

// Blocks of 32 columns, of which there may be any number. A last one of at most 16 is one tile wide: a panel that was
// packed before has no second one there.
// CHECK-LABEL: func.func @open
// TILES:       scf.for
// TILES-COUNT-4: x86.amx.tile_mulf
// TILES:       %[[LEFT:.*]] = arith.subi %[[N:.*]], %{{.*}} : index
// TILES:       arith.cmpi ugt, %[[LEFT]], %c16
// TILES:       scf.if
// TILES-COUNT-4: x86.amx.tile_mulf
// TILES:       } else {
// TILES-NEXT:    arith.cmpi ugt, %[[LEFT]], %c0
// TILES-NEXT:    scf.if
// TILES-COUNT-2: x86.amx.tile_mulf
// TILES-NOT:     x86.amx.tile_mulf
// NONE-LABEL:  func.func @open
func.func @open(%q: memref<32x32xbf16>, %k: memref<?x32xbf16>, %s: memref<32x?xf32>) {
  linalg.generic {indexing_maps = [#mk, #nk, #mn], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%q, %k : memref<32x32xbf16>, memref<?x32xbf16>) outs(%s : memref<32x?xf32>) {
  ^bb0(%a: bf16, %b: bf16, %c: f32):
    %0 = arith.extf %a : bf16 to f32
    %1 = arith.extf %b : bf16 to f32
    %2 = arith.mulf %0, %1 : f32
    %3 = arith.addf %c, %2 : f32
    linalg.yield %3 : f32
  }
  return
}
