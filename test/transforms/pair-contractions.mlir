// RUN: attn-opt %s --split-input-file --pair-contractions="matrix=dot" --canonicalize --cse | FileCheck %s
// RUN: attn-opt %s --split-input-file --pair-contractions="matrix=none" | FileCheck %s --check-prefix=NONE
// RUN: attn-opt %s --split-input-file --pair-contractions="matrix=dot" --vectorize-linalg="vector-bytes=64" | FileCheck %s --check-prefix=VECTORS

#dm = affine_map<(n, m, d) -> (m, d)>
#nd = affine_map<(n, m, d) -> (n, d)>
#nm = affine_map<(n, m, d) -> (n, m)>

// The keys are read where they stand; the queries, the lanes, are transposed as words in front of the loop.
// CHECK-LABEL: func.func @scores
// NONE-LABEL:  func.func @scores
// VECTORS-LABEL: func.func @scores
// CHECK:       %[[PANEL:.*]] = memref.alloca() {alignment = 64 : i64} : memref<16x64xi32>
// CHECK:       %[[Q:.*]] = pair.view %arg0 : (memref<64x32xbf16>) -> (memref<64x16xi32, strided<[16, 1]>>)
// CHECK:       linalg.generic {{.*}} ins(%[[Q]] : {{.*}}) outs(%[[PANEL]] : memref<16x64xi32>)
// CHECK:       scf.for
// CHECK:         %[[TILE:.*]] = memref.subview %arg1
// CHECK:         %[[K:.*]] = pair.view %[[TILE]]
// CHECK:         linalg.generic {{.*}} ins(%[[PANEL]], %[[K]] : memref<16x64xi32>, memref<32x16xi32, strided<[16, 1]>>)
// CHECK:           %[[P:.*]] = pair.product
// CHECK:           arith.addf %{{.*}}, %[[P]] : f32
// NONE-NOT:    pair.
// VECTORS:     memref.load %{{.*}} : memref<32x16xi32, strided<[16, 1]>>
// VECTORS:     %[[A:.*]] = vector.bitcast %{{.*}} : vector<16xi32> to vector<32xbf16>
// VECTORS:     x86.avx512.dot %{{.*}} : vector<32xbf16> -> vector<16xf32>
func.func @scores(%q: memref<64x32xbf16>, %k: memref<128x32xbf16>, %s: memref<32x64xf32>) {
  %c0 = arith.constant 0 : index
  %c32 = arith.constant 32 : index
  %c128 = arith.constant 128 : index
  scf.for %j = %c0 to %c128 step %c32 {
    %tile = memref.subview %k[%j, 0] [32, 32] [1, 1]
        : memref<128x32xbf16> to memref<32x32xbf16, strided<[32, 1], offset: ?>>
    linalg.generic {indexing_maps = [#dm, #nd, #nm], iterator_types = ["parallel", "parallel", "reduction"]}
        ins(%q, %tile : memref<64x32xbf16>, memref<32x32xbf16, strided<[32, 1], offset: ?>>) outs(%s : memref<32x64xf32>) {
    ^bb0(%a: bf16, %b: bf16, %c: f32):
      %0 = arith.extf %a : bf16 to f32
      %1 = arith.extf %b : bf16 to f32
      %2 = arith.mulf %0, %1 : f32
      %3 = arith.addf %c, %2 : f32
      linalg.yield %3 : f32
    }
  }
  return
}

// -----

#nm = affine_map<(m, n) -> (n, m)>
#m = affine_map<(m, n) -> (m)>
#knm = affine_map<(v, m, n) -> (n, m)>
#knv = affine_map<(v, m, n) -> (n, v)>
#kvm = affine_map<(v, m, n) -> (v, m)>

// The op that computes the probabilities writes pairs of their rows; values, which tasks share, are interleaved once.
// Probabilities are in the cache, however few columns the values have.
// CHECK-LABEL: func.func @values
// CHECK:       %[[V:.*]] = memref.alloc() {alignment = 64 : i64} : memref<128x32xi32>
// CHECK:       scf.parallel
// CHECK:         %[[EVEN:.*]] = vector.load %arg1
// CHECK:         %[[ODD:.*]] = vector.load %arg1
// CHECK:         vector.interleave %[[EVEN]], %[[ODD]] : vector<16xbf16> -> vector<32xbf16>
// CHECK:         vector.store %{{.*}}, %[[V]]
// CHECK:       scf.parallel
// CHECK:         %[[P:.*]] = memref.alloca() {alignment = 64 : i64} : memref<16x64xi32>
// CHECK:         scf.for
// CHECK:           %[[S0:.*]] = memref.subview %{{.*}}[0, 0] [16, 64] [2, 1]
// CHECK:           %[[S1:.*]] = memref.subview %{{.*}}[1, 0] [16, 64] [2, 1]
// CHECK:           linalg.generic {{.*}} ins(%[[S0]], %[[S1]] : {{.*}}) outs(%[[P]], %{{.*}} : memref<16x64xi32>, memref<64xf32>)
// CHECK-COUNT-2:     math.exp2
// CHECK:             pair.pack
// CHECK:           %[[TILE:.*]] = memref.subview %[[V]]
// CHECK:           linalg.generic {{.*}} ins(%[[P]], %[[TILE]] : {{.*}})
// CHECK:             pair.product
// CHECK:       memref.dealloc %[[V]]
// VECTORS-LABEL: func.func @values
// VECTORS:     llvm.call_intrinsic "llvm.x86.avx512bf16.cvtne2ps2bf16.512"
// VECTORS:     vector.shuffle %{{.*}}, %{{.*}} [0, 16, 1, 17,
func.func @values(%s: memref<32x64xf32>, %v: memref<256x32xbf16>, %out: memref<64x32x64xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c32 = arith.constant 32 : index
  %c64 = arith.constant 64 : index
  %c256 = arith.constant 256 : index
  scf.parallel (%i) = (%c0) to (%c64) step (%c1) {
    %scratch = memref.alloca() : memref<4096xi8>
    %l = memref.alloca() : memref<64xf32>
    %o = memref.alloca() : memref<32x64xf32>
    scf.for %j = %c0 to %c256 step %c32 {
      %p = memref.view %scratch[%c0][] : memref<4096xi8> to memref<32x64xbf16>
      linalg.generic {indexing_maps = [#nm, #nm, #m], iterator_types = ["parallel", "reduction"]}
          ins(%s : memref<32x64xf32>) outs(%p, %l : memref<32x64xbf16>, memref<64xf32>) {
      ^bb0(%x: f32, %y: bf16, %sum: f32):
        %0 = math.exp2 %x : f32
        %1 = arith.addf %sum, %0 : f32
        %2 = arith.truncf %0 : f32 to bf16
        linalg.yield %2, %1 : bf16, f32
      }
      %tile = memref.subview %v[%j, 0] [32, 32] [1, 1]
          : memref<256x32xbf16> to memref<32x32xbf16, strided<[32, 1], offset: ?>>
      linalg.generic {indexing_maps = [#knm, #knv, #kvm], iterator_types = ["parallel", "parallel", "reduction"]}
          ins(%p, %tile : memref<32x64xbf16>, memref<32x32xbf16, strided<[32, 1], offset: ?>>)
          outs(%o : memref<32x64xf32>) {
      ^bb0(%a: bf16, %b: bf16, %c: f32):
        %0 = arith.extf %a : bf16 to f32
        %1 = arith.extf %b : bf16 to f32
        %2 = arith.mulf %0, %1 : f32
        %3 = arith.addf %c, %2 : f32
        linalg.yield %3 : f32
      }
    }
    scf.reduce
  }
  return
}

// -----

#mk = affine_map<(m, n, k) -> (m, k)>
#kn = affine_map<(m, n, k) -> (k, n)>
#mn = affine_map<(m, n, k) -> (m, n)>

// A factor that is used too seldom to be copied: its rows are joined in registers, two by two.
// CHECK-LABEL: func.func @few_rows
// CHECK:       %[[P:.*]] = pair.view %arg0
// CHECK:       %[[V0:.*]] = memref.subview %arg1[0, 0] [16, 64] [2, 1]
// CHECK:       %[[V1:.*]] = memref.subview %arg1[1, 0] [16, 64] [2, 1]
// CHECK:       linalg.generic {{.*}} ins(%[[P]], %[[V0]], %[[V1]] : {{.*}}) outs(%arg2
// CHECK:       ^bb0(%[[WORD:.*]]: i32, %[[X:.*]]: bf16, %[[Y:.*]]: bf16, %{{.*}}: f32):
// CHECK-DAG:     %[[LOW:.*]] = arith.extf %[[X]]
// CHECK-DAG:     %[[HIGH:.*]] = arith.extf %[[Y]]
// CHECK:         %[[JOINED:.*]] = pair.pack %[[LOW]], %[[HIGH]]
// CHECK:         pair.product %[[WORD]], %[[JOINED]]
// VECTORS-LABEL: func.func @few_rows
// VECTORS:     vector.interleave %{{.*}}, %{{.*}} : vector<16xbf16> -> vector<32xbf16>
// VECTORS:     x86.avx512.dot
func.func @few_rows(%p: memref<1x32xbf16>, %v: memref<32x64xbf16>, %o: memref<1x64xf32>) {
  linalg.generic {indexing_maps = [#mk, #kn, #mn], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%p, %v : memref<1x32xbf16>, memref<32x64xbf16>) outs(%o : memref<1x64xf32>) {
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
#kn = affine_map<(m, n, k) -> (k, n)>
#mn = affine_map<(m, n, k) -> (m, n)>

// The same with rows as far apart as an open size says: the even ones begin where all do, the odd ones somewhere.
// CHECK-LABEL: func.func @few_rows_of_an_open_size
// CHECK:       memref.subview %arg1[0, 0] [16, %{{.*}}] [2, 1] {{.*}} to memref<16x?xbf16, strided<[?, 1]>>
// CHECK:       memref.subview %arg1[1, 0] [16, %{{.*}}] [2, 1] {{.*}} to memref<16x?xbf16, strided<[?, 1], offset: ?>>
func.func @few_rows_of_an_open_size(%p: memref<1x32xbf16>, %v: memref<32x?xbf16>, %o: memref<1x?xf32>) {
  linalg.generic {indexing_maps = [#mk, #kn, #mn], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%p, %v : memref<1x32xbf16>, memref<32x?xbf16>) outs(%o : memref<1x?xf32>) {
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
#kn = affine_map<(m, n, k) -> (k, n)>
#mn = affine_map<(m, n, k) -> (m, n)>

// The same with an odd number of rows: the last one has no partner, and is not read beyond the end, but added in f32.
// CHECK-LABEL: func.func @few_odd_rows
// CHECK:       memref.subview %arg1[0, 0] [15, 64] [2, 1]
// CHECK:       memref.subview %arg1[1, 0] [15, 64] [2, 1]
// CHECK:       linalg.generic
// CHECK:         pair.product
// CHECK:       %[[P:.*]] = memref.subview %arg0[0, 30] [1, 1] [1, 1]
// CHECK:       %[[V:.*]] = memref.subview %arg1[30, 0] [1, 64] [1, 1]
// CHECK:       linalg.generic {{.*}} ins(%[[P]], %[[V]] : {{.*}}) outs(%arg2
// CHECK:         arith.mulf
func.func @few_odd_rows(%p: memref<1x31xbf16>, %v: memref<31x64xbf16>, %o: memref<1x64xf32>) {
  linalg.generic {indexing_maps = [#mk, #kn, #mn], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%p, %v : memref<1x31xbf16>, memref<31x64xbf16>) outs(%o : memref<1x64xf32>) {
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

#rest = affine_map<(i)[n] -> (-i + n, 32)>
#mk = affine_map<(m, n, k) -> (m, k)>
#kn = affine_map<(m, n, k) -> (k, n)>
#mn = affine_map<(m, n, k) -> (m, n)>

// The same of a number that only a call tells. Rows of scratch get room for the most they can have, so that words start
// with rows; what is scaled first starts the sum of the pairs.
// CHECK-LABEL: func.func @any_number_of_rows
// CHECK:         %[[SIZE:.*]] = affine.min
// CHECK:         %[[WIDE:.*]] = memref.view %{{.*}}[%c0][] : memref<256xi8> to memref<4x32xbf16>
// CHECK:         %[[P:.*]] = memref.subview %[[WIDE]][0, 0] [4, %[[SIZE]]] [1, 1]
// CHECK:         linalg.generic {{.*}} outs(%[[P]] :
// CHECK:         %[[WORDS:.*]] = pair.view %[[WIDE]] : (memref<4x32xbf16>) -> (memref<4x16xi32, strided<[16, 1]>>)
// CHECK-DAG:     %[[PAIRS:.*]] = arith.divui %[[SIZE]], %c2
// CHECK-DAG:     %[[V0:.*]] = memref.subview %[[V:.*]][0, 0] [%[[PAIRS]], 64] [2, 1]
// CHECK-DAG:     %[[V1:.*]] = memref.subview %[[V]][1, 0] [%[[PAIRS]], 64] [2, 1]
// CHECK-DAG:     %[[PW:.*]] = memref.subview %[[WORDS]][0, 0] [4, %[[PAIRS]]] [1, 1]
// CHECK:         linalg.generic
// CHECK:           arith.mulf
// CHECK:         linalg.generic {{.*}} ins(%[[PW]], %[[V0]], %[[V1]] :
// CHECK:           pair.product
// CHECK:         %[[REST:.*]] = arith.remui %[[SIZE]], %c2
// CHECK:         %[[ODD:.*]] = arith.cmpi ne, %[[REST]], %c0
// CHECK:         scf.if %[[ODD]] {
// CHECK:           %[[AT:.*]] = arith.subi %[[SIZE]], %c1
// CHECK:           %[[P1:.*]] = memref.subview %[[P]][0, %[[AT]]] [4, 1] [1, 1]
// CHECK:           %[[V2:.*]] = memref.subview %[[V]][%[[AT]], 0] [1, 64] [1, 1]
// CHECK:           linalg.generic {{.*}} iterator_types = ["parallel", "parallel"]} ins(%[[P1]], %[[V2]] :
// CHECK-NOT:         pair.
func.func @any_number_of_rows(%s: memref<4x?xf32>, %v: memref<?x64xbf16>, %out: memref<4x64xf32>) {
  %c0 = arith.constant 0 : index
  %c32 = arith.constant 32 : index
  %half = arith.constant 0.5 : f32
  %n = memref.dim %v, %c0 : memref<?x64xbf16>
  %bytes = memref.alloca() : memref<256xi8>
  %o = memref.alloca() : memref<4x64xf32>
  scf.for %i = %c0 to %n step %c32 {
    %size = affine.min #rest(%i)[%n]
    %p = memref.view %bytes[%c0][%size] : memref<256xi8> to memref<4x?xbf16>
    %part = memref.subview %s[0, %i] [4, %size] [1, 1] : memref<4x?xf32> to memref<4x?xf32, strided<[?, 1], offset: ?>>
    linalg.generic {indexing_maps = [affine_map<(m, k) -> (m, k)>, affine_map<(m, k) -> (m, k)>],
                    iterator_types = ["parallel", "parallel"]}
        ins(%part : memref<4x?xf32, strided<[?, 1], offset: ?>>) outs(%p : memref<4x?xbf16>) {
    ^bb0(%x: f32, %y: bf16):
      %0 = arith.truncf %x : f32 to bf16
      linalg.yield %0 : bf16
    }
    %tile = memref.subview %v[%i, 0] [%size, 64] [1, 1]
        : memref<?x64xbf16> to memref<?x64xbf16, strided<[64, 1], offset: ?>>
    linalg.generic {indexing_maps = [affine_map<(m, n) -> (m, n)>], iterator_types = ["parallel", "parallel"]}
        outs(%o : memref<4x64xf32>) {
    ^bb0(%x: f32):
      %0 = arith.mulf %x, %half : f32
      linalg.yield %0 : f32
    }
    linalg.generic {indexing_maps = [#mk, #kn, #mn], iterator_types = ["parallel", "parallel", "reduction"]}
        ins(%p, %tile : memref<4x?xbf16>, memref<?x64xbf16, strided<[64, 1], offset: ?>>) outs(%o : memref<4x64xf32>) {
    ^bb0(%a: bf16, %b: bf16, %c: f32):
      %0 = arith.extf %a : bf16 to f32
      %1 = arith.extf %b : bf16 to f32
      %2 = arith.mulf %0, %1 : f32
      %3 = arith.addf %c, %2 : f32
      linalg.yield %3 : f32
    }
  }
  memref.copy %o, %out : memref<4x64xf32> to memref<4x64xf32>
  return
}

// -----

#mk = affine_map<(m, n, k) -> (m, k)>
#nk = affine_map<(m, n, k) -> (n, k)>
#mn = affine_map<(m, n, k) -> (m, n)>

// An odd number of elements along the sum: rows are copied, and padded with zeros.
// CHECK-LABEL: func.func @odd
// CHECK:       memref.alloca() {alignment = 64 : i64} : memref<16x16xi32>
// CHECK:       vector.maskedload %arg1{{.*}} : memref<16x5xbf16>, vector<32xi1>, vector<32xbf16> into vector<32xbf16>
// CHECK:       pair.product
func.func @odd(%a: memref<16x5xbf16>, %b: memref<16x5xbf16>, %c: memref<16x16xf32>) {
  linalg.generic {indexing_maps = [#mk, #nk, #mn], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%a, %b : memref<16x5xbf16>, memref<16x5xbf16>) outs(%c : memref<16x16xf32>) {
  ^bb0(%x: bf16, %y: bf16, %z: f32):
    %0 = arith.extf %x : bf16 to f32
    %1 = arith.extf %y : bf16 to f32
    %2 = arith.mulf %0, %1 : f32
    %3 = arith.addf %z, %2 : f32
    linalg.yield %3 : f32
  }
  return
}

// -----

#mk = affine_map<(m, n, k) -> (0, m, 0, k)>
#nk = affine_map<(m, n, k) -> (0, n, 0, k)>
#mn = affine_map<(m, n, k) -> (m, n)>

// Parts of a packed array, which got dimensions of size 1 after they were cut out of it, are seen as parts.
// CHECK-LABEL: func.func @packed
// CHECK:       %[[E:.*]] = memref.expand_shape %arg0 {{.*}} output_shape [1, 64, 1, 96]
// CHECK:       memref.subview %[[E]][0, 0, 0, %{{.*}}] [1, 64, 1, 32] [1, 1, 1, 1]
// CHECK:       memref.subview %[[E]][0, 0, 0, 64] [1, 64, 1, 32] [1, 1, 1, 1]
// CHECK-COUNT-2: pair.view
// CHECK:       pair.product
func.func @packed(%x: memref<1x64x96xbf16>, %h: index, %s: memref<64x64xf32>) {
  %at = affine.apply affine_map<(h) -> (h * 32)>(%h)
  %q3 = memref.subview %x[0, 0, %at] [1, 64, 32] [1, 1, 1]
      : memref<1x64x96xbf16> to memref<1x64x32xbf16, strided<[6144, 96, 1], offset: ?>>
  %q = memref.expand_shape %q3 [[0], [1], [2, 3]] output_shape [1, 64, 1, 32]
      : memref<1x64x32xbf16, strided<[6144, 96, 1], offset: ?>> into memref<1x64x1x32xbf16, strided<[6144, 96, 32, 1], offset: ?>>
  %k3 = memref.subview %x[0, 0, 64] [1, 64, 32] [1, 1, 1]
      : memref<1x64x96xbf16> to memref<1x64x32xbf16, strided<[6144, 96, 1], offset: 64>>
  %k = memref.expand_shape %k3 [[0], [1], [2, 3]] output_shape [1, 64, 1, 32]
      : memref<1x64x32xbf16, strided<[6144, 96, 1], offset: 64>> into memref<1x64x1x32xbf16, strided<[6144, 96, 32, 1], offset: 64>>
  linalg.generic {indexing_maps = [#mk, #nk, #mn], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%q, %k : memref<1x64x1x32xbf16, strided<[6144, 96, 32, 1], offset: ?>>, memref<1x64x1x32xbf16, strided<[6144, 96, 32, 1], offset: 64>>)
      outs(%s : memref<64x64xf32>) {
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

#dm = affine_map<(n, m, d) -> (m, d)>
#nd = affine_map<(n, m, d) -> (n, d)>
#nm = affine_map<(n, m, d) -> (n, m)>

// Keys of 8 bits that are used often become bf16 in a panel.
// CHECK-LABEL: func.func @narrow
// CHECK:       arith.extf %{{.*}} : vector<32xf8E4M3FN> to vector<32xbf16>
// CHECK:       linalg.generic {{.*}} ins(%{{.*}}, %{{.*}} : memref<16x64xi32>, memref<32x16xi32>)
// CHECK:         pair.product
func.func @narrow(%q: memref<64x32xbf16>, %k: memref<32x32xf8E4M3FN>, %s: memref<32x64xf32>) {
  linalg.generic {indexing_maps = [#dm, #nd, #nm], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%q, %k : memref<64x32xbf16>, memref<32x32xf8E4M3FN>) outs(%s : memref<32x64xf32>) {
  ^bb0(%a: bf16, %b: f8E4M3FN, %c: f32):
    %0 = arith.extf %a : bf16 to f32
    %1 = arith.extf %b : f8E4M3FN to f32
    %2 = arith.mulf %0, %1 : f32
    %3 = arith.addf %c, %2 : f32
    linalg.yield %3 : f32
  }
  return
}

// -----

#md = affine_map<(m, n, d) -> (m, d)>
#nd = affine_map<(m, n, d) -> (n, d)>
#mn = affine_map<(m, n, d) -> (m, n)>

// Where they are used by few rows they become that in registers.
// CHECK-LABEL: func.func @narrow_for_few_rows
// CHECK:       %[[K:.*]] = pair.view %arg1 : (memref<256x128xf8E5M2>) -> (memref<256x64xi16, strided<[64, 1]>>)
// CHECK:       linalg.generic {{.*}} ins(%{{.*}}, %[[K]] : {{.*}}, memref<256x64xi16, strided<[64, 1]>>)
// CHECK:         %[[W:.*]] = pair.widen %{{.*}} {element = f8E5M2} : (i16) -> (i32)
// CHECK:         pair.product %{{.*}}, %[[W]]
// VECTORS-LABEL: func.func @narrow_for_few_rows
// VECTORS:     vector.bitcast %{{.*}} : vector<16xi16> to vector<32xf8E5M2>
// VECTORS:     arith.extf %{{.*}} : vector<32xf8E5M2> to vector<32xbf16>
func.func @narrow_for_few_rows(%q: memref<4x128xbf16>, %k: memref<256x128xf8E5M2>, %s: memref<4x256xf32>) {
  linalg.generic {indexing_maps = [#md, #nd, #mn], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%q, %k : memref<4x128xbf16>, memref<256x128xf8E5M2>) outs(%s : memref<4x256xf32>) {
  ^bb0(%a: bf16, %b: f8E5M2, %c: f32):
    %0 = arith.extf %a : bf16 to f32
    %1 = arith.extf %b : f8E5M2 to f32
    %2 = arith.mulf %0, %1 : f32
    %3 = arith.addf %c, %2 : f32
    linalg.yield %3 : f32
  }
  return
}

// -----

#md = affine_map<(m, n, d) -> (m, d)>
#nd = affine_map<(m, n, d) -> (n, d)>
#mn = affine_map<(m, n, d) -> (m, n)>

// An open number of keys, which are the lanes: no panel has room for them all, so that their words are gathered.
// CHECK-LABEL: func.func @open_lanes
// CHECK-NOT:   memref.alloca
// CHECK:       %[[K:.*]] = pair.view %arg1 : (memref<?x32xbf16>) -> (memref<?x16xi32, strided<[16, 1]>>)
// CHECK:       linalg.generic {{.*}} ins(%{{.*}}, %[[K]] : {{.*}}, memref<?x16xi32, strided<[16, 1]>>)
func.func @open_lanes(%q: memref<64x32xbf16>, %k: memref<?x32xbf16>, %s: memref<64x?xf32>) {
  linalg.generic {indexing_maps = [#md, #nd, #mn], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%q, %k : memref<64x32xbf16>, memref<?x32xbf16>) outs(%s : memref<64x?xf32>) {
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

#md = affine_map<(m, n, d) -> (m, d)>
#nd = affine_map<(m, n, d) -> (n, d)>
#mn = affine_map<(m, n, d) -> (m, n)>

// A matrix larger than the stack of a task is gathered, too.
// CHECK-LABEL: func.func @large
// CHECK-NOT:   memref.alloca
// CHECK:       %[[W:.*]] = pair.view %arg1 : (memref<8192x4096xbf16>) -> (memref<8192x2048xi32, strided<[2048, 1]>>)
// CHECK:       linalg.generic {{.*}} ins(%{{.*}}, %[[W]] : {{.*}}, memref<8192x2048xi32, strided<[2048, 1]>>)
// CHECK:         pair.product
func.func @large(%x: memref<64x4096xbf16>, %w: memref<8192x4096xbf16>, %y: memref<64x8192xf32>) {
  linalg.generic {indexing_maps = [#md, #nd, #mn], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%x, %w : memref<64x4096xbf16>, memref<8192x4096xbf16>) outs(%y : memref<64x8192xf32>) {
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

#md = affine_map<(m, n, d) -> (m, d)>
#nd = affine_map<(m, n, d) -> (n, d)>
#mn = affine_map<(m, n, d) -> (m, n)>

// With an odd number of elements in a row it could only be copied: no panel has room for it, so that it stays in f32.
// CHECK-LABEL: func.func @large_and_odd
// CHECK-NOT:   memref.alloca
// CHECK-NOT:   pair.
// CHECK:       return
func.func @large_and_odd(%x: memref<64x4095xbf16>, %w: memref<8192x4095xbf16>, %y: memref<64x8192xf32>) {
  linalg.generic {indexing_maps = [#md, #nd, #mn], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%x, %w : memref<64x4095xbf16>, memref<8192x4095xbf16>) outs(%y : memref<64x8192xf32>) {
  ^bb0(%a: bf16, %b: bf16, %c: f32):
    %0 = arith.extf %a : bf16 to f32
    %1 = arith.extf %b : bf16 to f32
    %2 = arith.mulf %0, %1 : f32
    %3 = arith.addf %c, %2 : f32
    linalg.yield %3 : f32
  }
  return
}
