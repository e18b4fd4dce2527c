// RUN: attn-opt %s --vectorize-linalg="vector-bytes=64 by-two=no" --canonicalize --cse --split-input-file 2>%t | FileCheck %s
// RUN: FileCheck --check-prefix=WARNING %s < %t

#a = affine_map<(m, n, k) -> (m, k)>
#b = affine_map<(m, n, k) -> (k, n)>
#c = affine_map<(m, n, k) -> (m, n)>

// Sums start from zero before the reduction loop and are carried through it; what was there is added after it: a sum of
// sums rounds less than one chain.
// CHECK-LABEL: func.func @contraction
// CHECK: %[[R:.*]]:{{[0-9]+}} = scf.for {{.*}} iter_args
// CHECK: memref.load %arg0
// CHECK: vector.load %arg1
// CHECK: vector.broadcast
// CHECK: math.fma
// CHECK-NOT: vector.store
// CHECK: scf.yield
// CHECK: %[[OLD:.*]] = vector.load %arg2
// CHECK: %[[NEW:.*]] = arith.addf %[[OLD]], %[[R]]#0
// CHECK: vector.store %[[NEW]], %arg2
// CHECK-NOT: linalg.generic
func.func @contraction(%a: memref<64x64xf32>, %b: memref<64x128xf32>, %c: memref<64x128xf32>) {
  linalg.generic {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%a, %b : memref<64x64xf32>, memref<64x128xf32>) outs(%c : memref<64x128xf32>) {
  ^bb0(%x: f32, %y: f32, %z: f32):
    %0 = arith.mulf %x, %y : f32
    %1 = arith.addf %z, %0 : f32
    linalg.yield %1 : f32
  }
  return
}

// -----

#id = affine_map<(i, j) -> (i, j)>
#row = affine_map<(i, j) -> (i)>

// Lanes along the reduction: partial results, combined after the loop, those of neighbours together; a masked loop over
// the rest.
// CHECK-LABEL: func.func @row_maximum
// CHECK: scf.for
// CHECK: vector.load %arg0
// CHECK: arith.maxnumf {{.*}} : vector<16xf32>
// CHECK: vector.create_mask
// CHECK: vector.maskedload %arg0
// CHECK: arith.select
// CHECK: vector.shuffle {{.*}} : vector<16xf32>, vector<16xf32>
// CHECK: vector.shuffle {{.*}} : vector<8xf32>, vector<8xf32>
// CHECK: arith.maxnumf {{.*}} : vector<4xf32>
// CHECK: vector.store %{{.*}}, %arg1[{{.*}}] : memref<4xf32>, vector<4xf32>
func.func @row_maximum(%a: memref<4x?xf32>, %b: memref<4xf32>) {
  linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]}
      ins(%a : memref<4x?xf32>) outs(%b : memref<4xf32>) {
  ^bb0(%x: f32, %y: f32):
    %0 = arith.maxnumf %y, %x : f32
    linalg.yield %0 : f32
  }
  return
}

// -----

#id = affine_map<(i, j) -> (i, j)>
#transposed = affine_map<(i, j) -> (j, i)>

// A square is read along its rows and transposed by shuffles; no gather. LLVM sees two stages of them at once.
// CHECK-LABEL: func.func @transpose
// CHECK-COUNT-16: vector.load %arg0
// CHECK-COUNT-32: vector.shuffle
// CHECK-COUNT-16: llvm.call_intrinsic "llvm.arithmetic.fence.v16f32"
// CHECK-COUNT-32: vector.shuffle
// CHECK-COUNT-16: vector.store
// CHECK-NOT: vector.gather
func.func @transpose(%a: memref<16x16xf32>, %b: memref<16x16xf32>) {
  linalg.generic {indexing_maps = [#transposed, #id], iterator_types = ["parallel", "parallel"]}
      ins(%a : memref<16x16xf32>) outs(%b : memref<16x16xf32>) {
  ^bb0(%x: f32, %y: f32):
    linalg.yield %x : f32
  }
  return
}

// -----

#id = affine_map<(i) -> (i)>

// i1 is a byte in memory; f16 is f32 in registers.
// CHECK-LABEL: func.func @types
// CHECK: vector.load %{{.*}} : memref<32xi8>, vector<16xi8>
// CHECK: arith.cmpi ne
// CHECK: arith.extf %{{.*}} : vector<16xf16> to vector<16xf32>
// CHECK: arith.select %{{.*}} : vector<16xi1>, vector<16xf32>
// CHECK: arith.truncf %{{.*}} : vector<16xf32> to vector<16xf16>
func.func @types(%mask: memref<32xi1>, %a: memref<32xf16>, %b: memref<32xf16>) {
  linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel"]}
      ins(%mask, %a : memref<32xi1>, memref<32xf16>) outs(%b : memref<32xf16>) {
  ^bb0(%m: i1, %x: f16, %y: f16):
    %0 = arith.addf %x, %x : f16
    %1 = arith.select %m, %0, %x : f16
    linalg.yield %1 : f16
  }
  return
}

// -----

#window = affine_map<(i, k) -> (i + k)>
#w = affine_map<(i, k) -> (k)>
#o = affine_map<(i, k) -> (i)>

// CHECK-LABEL: func.func @window
// CHECK: linalg.generic
// WARNING: warning: runs as scalar loops: an indexing map that is no projection
func.func @window(%x: memref<20xf32>, %k: memref<5xf32>, %y: memref<16xf32>) {
  linalg.generic {indexing_maps = [#window, #w, #o], iterator_types = ["parallel", "reduction"]}
      ins(%x, %k : memref<20xf32>, memref<5xf32>) outs(%y : memref<16xf32>) {
  ^bb0(%a: f32, %b: f32, %c: f32):
    %0 = arith.mulf %a, %b : f32
    %1 = arith.addf %c, %0 : f32
    linalg.yield %1 : f32
  }
  return
}

// -----

#id = affine_map<(i, j) -> (i, j)>
#transposed = affine_map<(i, j) -> (j, i)>
#column = affine_map<(i, j) -> (j)>

// A bias that is contiguous along the reduction: read as squares, transposed in registers; four partial maxima.
// CHECK-LABEL: func.func @biased_maximum
// CHECK-NOT: vector.gather
// CHECK: scf.for {{.*}} iter_args(%{{.*}} = %{{.*}}, %{{.*}} = %{{.*}}, %{{.*}} = %{{.*}}, %{{.*}} = %{{.*}})
// CHECK-COUNT-16: vector.load %arg0
// CHECK-COUNT-64: vector.shuffle
// CHECK: scf.yield
// CHECK-COUNT-3: arith.maxnumf
// CHECK: vector.store %{{.*}}, %arg2
func.func @biased_maximum(%bias: memref<16x32xf32>, %s: memref<32x16xf32>, %m: memref<16xf32>) {
  linalg.generic {indexing_maps = [#transposed, #id, #column], iterator_types = ["reduction", "parallel"]}
      ins(%bias : memref<16x32xf32>) outs(%s, %m : memref<32x16xf32>, memref<16xf32>) {
  ^bb0(%x: f32, %y: f32, %z: f32):
    %0 = arith.addf %x, %y : f32
    %1 = arith.maxnumf %0, %z : f32
    linalg.yield %0, %1 : f32, f32
  }
  return
}

// -----

#a = affine_map<(m, n, k) -> (k, m)>
#b = affine_map<(m, n, k) -> (n, k)>
#c = affine_map<(m, n, k) -> (n, m)>

// The keys of the next iteration are prefetched, four rows per register tile; what stays, or is scratch, is not.
// CHECK-LABEL: func.func @streamed
// CHECK: scf.for %[[K:.*]] = %c0 to %c256 step %c64
// CHECK:   scf.for %[[R:.*]] = %c0 to %c64 step %c4
// CHECK:     %[[NEXT:.*]] = arith.addi %[[K]], %c64 : index
// CHECK:     arith.addi %[[NEXT]], %{{.*}} : index
// CHECK-COUNT-8: memref.prefetch %arg1[%{{.*}}, %{{.*}}], read, locality<2>, data : memref<256x32xf32>
// CHECK-NOT: memref.prefetch
func.func @streamed(%q: memref<32x64xf32>, %keys: memref<256x32xf32>, %x: memref<256x64xf32>) {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  %c256 = arith.constant 256 : index
  scf.for %k = %c0 to %c256 step %c64 {
    %s = memref.alloca() : memref<64x64xf32>
    %t = memref.subview %keys[%k, 0] [64, 32] [1, 1] : memref<256x32xf32> to memref<64x32xf32, strided<[32, 1], offset: ?>>
    linalg.generic {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "reduction"]}
        ins(%q, %t : memref<32x64xf32>, memref<64x32xf32, strided<[32, 1], offset: ?>>) outs(%s : memref<64x64xf32>) {
    ^bb0(%u: f32, %v: f32, %w: f32):
      %0 = arith.mulf %u, %v : f32
      %1 = arith.addf %w, %0 : f32
      linalg.yield %1 : f32
    }
  }
  return
}

// -----

#a = affine_map<(m, n, k) -> (m, k)>
#b = affine_map<(m, n, k) -> (k, n)>
#c = affine_map<(m, n, k) -> (m, n)>
#id = affine_map<(i, j) -> (i, j)>
#row = affine_map<(i, j) -> (j)>

// An output that is rescaled right before, in no pass of its own: the sum starts from zero, the output is added after it.
// CHECK-LABEL: func.func @rescaled
// CHECK:       %[[ZERO:.*]] = arith.constant dense<-0.000000e+00> : vector<16xf32>
// CHECK:       %[[SUM:.*]]:4 = scf.for {{.*}} iter_args(%{{.*}} = %[[ZERO]],
// CHECK:       math.fma
// CHECK:       %[[ALPHA:.*]] = vector.load %arg2
// CHECK:       %[[O:.*]] = vector.load %[[BUFFER:.*]][
// CHECK:       %[[OLD:.*]] = arith.mulf %[[ALPHA]], %[[O]] : vector<16xf32>
// CHECK:       %[[NEW:.*]] = arith.addf %[[OLD]], %[[SUM]]#0
// CHECK:       vector.store %[[NEW]], %[[BUFFER]]
func.func @rescaled(%a: memref<4x64xf32>, %b: memref<64x16xf32>, %alpha: memref<16xf32>) {
  %o = memref.alloca() : memref<4x16xf32>
  linalg.generic {indexing_maps = [#row, #id], iterator_types = ["parallel", "parallel"]}
      ins(%alpha : memref<16xf32>) outs(%o : memref<4x16xf32>) {
  ^bb0(%x: f32, %y: f32):
    %0 = arith.mulf %x, %y : f32
    linalg.yield %0 : f32
  }
  linalg.generic {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%a, %b : memref<4x64xf32>, memref<64x16xf32>) outs(%o : memref<4x16xf32>) {
  ^bb0(%x: f32, %y: f32, %z: f32):
    %0 = arith.mulf %x, %y : f32
    %1 = arith.addf %z, %0 : f32
    linalg.yield %1 : f32
  }
  return
}

// -----

#a = affine_map<(m, n, k) -> (k, m)>
#b = affine_map<(m, n, k) -> (n, k)>
#c = affine_map<(m, n, k) -> (n, m)>
#id = affine_map<(i, j) -> (i, j)>
#transposed = affine_map<(i, j) -> (j, i)>

// Besides the next keys, here rows in pairs, the next task's queries are prefetched, 64 further on, and this task's
// output: in two turns. Of 24 lines 12 at a time, before each half of the sum.
// CHECK-LABEL: func.func @task
// CHECK: scf.parallel (%[[H:.*]], %[[I:.*]]) =
// CHECK:   scf.for %[[K:.*]] = %c0 to %c256 step %c64
// CHECK:     scf.for %{{.*}} = %c0 to %c32 step %c4
// CHECK:       scf.for %[[PART:.*]] = %c0 to %c2 step %c1 iter_args
// CHECK:         arith.addi %{{.*}}, %c32 : index
// CHECK-COUNT-4: memref.prefetch %arg1[
// CHECK:         arith.addi %[[I]], %c64 : index
// CHECK:         %[[NUMBER:.*]] = arith.divui %[[K]], %c64 : index
// CHECK:         %[[TURN:.*]] = arith.remui %[[NUMBER]], %c2
// CHECK:         arith.muli %[[TURN]], %c32 : index
// CHECK-COUNT-4: memref.prefetch %arg0[%[[H]],
// CHECK-COUNT-4: memref.prefetch %arg2[%[[H]],
// CHECK-NOT:     memref.prefetch
// CHECK:         %[[FIRST:.*]] = arith.muli %[[PART]], %c16 : index
// CHECK:         %[[END:.*]] = arith.addi %[[FIRST]], %c16 : index
// CHECK:         scf.for %{{.*}} = %[[FIRST]] to %[[END]] step %c2
// CHECK-NOT:   memref.prefetch
// CHECK:     return
func.func @task(%queries: memref<2x256x32xf32>, %keys: memref<128x32xf32>, %out: memref<2x256x32xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %c64 = arith.constant 64 : index
  %c256 = arith.constant 256 : index
  scf.parallel (%h, %i) = (%c0, %c0) to (%c2, %c256) step (%c1, %c64) {
    %q = memref.alloca() : memref<32x64xf32>
    %s = memref.alloca() : memref<32x64xf32>
    %rows = memref.subview %queries[%h, %i, 0] [1, 64, 32] [1, 1, 1] : memref<2x256x32xf32> to memref<64x32xf32, strided<[32, 1], offset: ?>>
    linalg.generic {indexing_maps = [#transposed, #id], iterator_types = ["parallel", "parallel"]}
        ins(%rows : memref<64x32xf32, strided<[32, 1], offset: ?>>) outs(%q : memref<32x64xf32>) {
    ^bb0(%x: f32, %y: f32):
      linalg.yield %x : f32
    }
    scf.for %k = %c0 to %c256 step %c64 {
      %half = arith.divui %k, %c2 : index
      %t = memref.subview %keys[%half, 0] [32, 32] [1, 1] : memref<128x32xf32> to memref<32x32xf32, strided<[32, 1], offset: ?>>
      linalg.generic {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "reduction"]}
          ins(%q, %t : memref<32x64xf32>, memref<32x32xf32, strided<[32, 1], offset: ?>>) outs(%s : memref<32x64xf32>) {
      ^bb0(%u: f32, %v: f32, %w: f32):
        %0 = arith.mulf %u, %v : f32
        %1 = arith.addf %w, %0 : f32
        linalg.yield %1 : f32
      }
    }
    %to = memref.subview %out[%h, %i, 0] [1, 64, 32] [1, 1, 1] : memref<2x256x32xf32> to memref<64x32xf32, strided<[32, 1], offset: ?>>
    linalg.generic {indexing_maps = [#transposed, #id], iterator_types = ["parallel", "parallel"]}
        ins(%s : memref<32x64xf32>) outs(%to : memref<64x32xf32, strided<[32, 1], offset: ?>>) {
    ^bb0(%x: f32, %y: f32):
      linalg.yield %x : f32
    }
    scf.reduce
  }
  return
}

// -----

#a = affine_map<(m, n, k) -> (k, m)>
#b = affine_map<(m, n, k) -> (n, k)>
#c = affine_map<(m, n, k) -> (n, m)>

// Of sizes that are seen to be multiples of 16 no rest is left: one loop over rows, one over the sum.
// CHECK-LABEL: func.func @multiples
// CHECK-COUNT-2: scf.for
// CHECK-NOT:     scf.for
// CHECK:         return
func.func @multiples(%q: memref<64x16xf32>, %keys: memref<64x64xf32>, %s: memref<64x16xf32>, %n: index) {
  %c2 = arith.constant 2 : index
  %some = affine.min affine_map<(d0) -> ((d0 floordiv 16) * 16, 64)>(%n)
  %half = arith.divui %some, %c2 : index
  %k = memref.subview %keys[0, 0] [%some, %half] [1, 1] : memref<64x64xf32> to memref<?x?xf32, strided<[64, 1]>>
  %p = memref.subview %q[0, 0] [%half, 16] [1, 1] : memref<64x16xf32> to memref<?x16xf32, strided<[16, 1]>>
  %r = memref.subview %s[0, 0] [%some, 16] [1, 1] : memref<64x16xf32> to memref<?x16xf32, strided<[16, 1]>>
  linalg.generic {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%p, %k : memref<?x16xf32, strided<[16, 1]>>, memref<?x?xf32, strided<[64, 1]>>) outs(%r : memref<?x16xf32, strided<[16, 1]>>) {
  ^bb0(%u: f32, %v: f32, %w: f32):
    %0 = arith.mulf %u, %v : f32
    %1 = arith.addf %w, %0 : f32
    linalg.yield %1 : f32
  }
  return
}

// -----

#q = affine_map<(h, n, k) -> (h, k)>
#k = affine_map<(h, n, k) -> (n, k)>
#s = affine_map<(h, n, k) -> (h, n)>

// Decoding: keys come from memory and go. Each vector is loaded right before its first use, and what is 8 and 4 KB
// further on asked for; requests stay where they are. The lanes of all sums of the tile are combined together.
// CHECK-LABEL: func.func @read_ahead
// CHECK:       scf.for
// CHECK:         scf.for
// CHECK:           %[[KEY:.*]] = vector.load %arg1[%[[N:.*]], %[[D:.*]]] : memref<256x128xf32>, vector<16xf32>
// CHECK-NEXT:      %[[FAR:.*]] = arith.addi %[[N]], %c16
// CHECK-NEXT:      memref.prefetch %arg1[%[[FAR]], %[[D]]], read, locality<3>, data : memref<256x128xf32>
// CHECK-NEXT:      %[[NEAR:.*]] = arith.addi %[[N]], %c8
// CHECK-NEXT:      memref.prefetch %arg1[%[[NEAR]], %[[D]]], read, locality<3>, data : memref<256x128xf32>
// CHECK-NEXT:      llvm.inline_asm has_side_effects "", "~{memory}"
// CHECK-NEXT:      math.fma %{{.*}}, %[[KEY]],
// CHECK:         scf.yield
// CHECK-COUNT-30: vector.shuffle {{.*}} : vector<16xf32>, vector<16xf32>
// CHECK-NOT:     vector.shuffle
// CHECK:         %[[HEAD:.*]] = vector.extract_strided_slice %{{.*}} {offsets = [0], sizes = [4], strides = [1]} : vector<16xf32> to vector<4xf32>
// CHECK:         vector.store %{{.*}}, %arg2[%c0, %{{.*}}] : memref<4x256xf32>, vector<4xf32>
func.func @read_ahead(%q: memref<4x128xf32>, %keys: memref<256x128xf32>, %x: memref<4x256xf32>) {
  linalg.generic {indexing_maps = [#q, #k, #s], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%q, %keys : memref<4x128xf32>, memref<256x128xf32>) outs(%x : memref<4x256xf32>) {
  ^bb0(%u: f32, %v: f32, %w: f32):
    %0 = arith.mulf %u, %v : f32
    %1 = arith.addf %w, %0 : f32
    linalg.yield %1 : f32
  }
  return
}

// -----

#q = affine_map<(h, n, k) -> (h, k)>
#k = affine_map<(h, n, k) -> (n, k)>
#s = affine_map<(h, n, k) -> (h, n)>

// 7 rows are 4 and 3.
// CHECK-LABEL: func.func @seven_rows
// CHECK:       scf.for
// CHECK:         scf.for
// CHECK-COUNT-16:  math.fma
// CHECK:         scf.for
// CHECK-COUNT-12:  math.fma
// CHECK-NOT:       math.fma
func.func @seven_rows(%q: memref<7x128xf32>, %keys: memref<256x128xf32>, %x: memref<7x256xf32>) {
  linalg.generic {indexing_maps = [#q, #k, #s], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%q, %keys : memref<7x128xf32>, memref<256x128xf32>) outs(%x : memref<7x256xf32>) {
  ^bb0(%u: f32, %v: f32, %w: f32):
    %0 = arith.mulf %u, %v : f32
    %1 = arith.addf %w, %0 : f32
    linalg.yield %1 : f32
  }
  return
}

// -----

#q = affine_map<(h, n, k) -> (h, k)>
#k = affine_map<(h, n, k) -> (n, k)>
#s = affine_map<(h, n, k) -> (h, n)>

// Two vectors of f16 are a line, which is asked for once at each distance: 4 keys, 2 vectors of each.
// CHECK-LABEL: func.func @lines_of_f16
// CHECK:       scf.for
// CHECK:         scf.for
// CHECK-COUNT-8:   memref.prefetch
// CHECK-NOT:       memref.prefetch
// CHECK:         scf.yield
func.func @lines_of_f16(%q: memref<4x64xf32>, %keys: memref<256x64xf16>, %x: memref<4x256xf32>) {
  linalg.generic {indexing_maps = [#q, #k, #s], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%q, %keys : memref<4x64xf32>, memref<256x64xf16>) outs(%x : memref<4x256xf32>) {
  ^bb0(%u: f32, %v: f16, %w: f32):
    %e = arith.extf %v : f16 to f32
    %0 = arith.mulf %u, %e : f32
    %1 = arith.addf %w, %0 : f32
    linalg.yield %1 : f32
  }
  return
}

// -----

#q = affine_map<(n, r, k) -> (k, r)>
#k = affine_map<(n, r, k) -> (n, k)>
#s = affine_map<(n, r, k) -> (n, r)>

// A vector of rows, and keys that are broadcast from where they stand, 16 at a time: each step along them asks for a line
// of the 16 keys after these, at elements 0 to 15 of a line for that of keys 0 to 15.
// CHECK-LABEL: func.func @keys_are_broadcast
// CHECK:       %[[KEYS:.*]] = memref.subview %arg1
// CHECK:       scf.for %[[N:.*]] = %c0 to %c256 step %c16
// CHECK:         scf.for %[[D:.*]] = %c0 to %c128 step %c1
// CHECK:           memref.load %[[KEYS]][%[[N]], %[[D]]]
// CHECK:           %[[KEY:.*]] = arith.andi %[[D]], %c15
// CHECK:           %[[LINE:.*]] = arith.subi %[[D]], %[[KEY]]
// CHECK:           %[[NEXT:.*]] = arith.addi %[[N]], %c16
// CHECK:           %[[ROW:.*]] = arith.addi %[[NEXT]], %[[KEY]]
// CHECK:           memref.prefetch %[[KEYS]][%[[ROW]], %[[LINE]]], read, locality<3>
// CHECK-NEXT:      llvm.inline_asm has_side_effects "", "~{memory}"
// CHECK-NOT:       memref.prefetch
func.func @keys_are_broadcast(%q: memref<128x16xf32>, %all: memref<1024x128xf32>, %x: memref<256x16xf32>) {
  %c0 = arith.constant 0 : index
  %c256 = arith.constant 256 : index
  %c1024 = arith.constant 1024 : index
  scf.for %i = %c0 to %c1024 step %c256 {
    %keys = memref.subview %all[%i, 0] [256, 128] [1, 1] : memref<1024x128xf32> to memref<256x128xf32, strided<[128, 1], offset: ?>>
    linalg.generic {indexing_maps = [#q, #k, #s], iterator_types = ["parallel", "parallel", "reduction"]}
        ins(%q, %keys : memref<128x16xf32>, memref<256x128xf32, strided<[128, 1], offset: ?>>) outs(%x : memref<256x16xf32>) {
    ^bb0(%u: f32, %v: f32, %w: f32):
      %0 = arith.mulf %u, %v : f32
      %1 = arith.addf %w, %0 : f32
      linalg.yield %1 : f32
    }
  }
  return
}

// -----

#q = affine_map<(n, r, k) -> (k, r)>
#k = affine_map<(n, r, k) -> (n, k)>
#s = affine_map<(n, r, k) -> (n, r)>

// The same of a part of a tile's rows (`trim-masked-tiles`): the keys are in the cache, and two steps make an iteration.
// CHECK-LABEL: func.func @part_of_a_tile
// CHECK:         scf.for %{{.*}} = %{{.*}} to %{{.*}} step %c2 iter_args
// CHECK-NOT:       memref.prefetch %{{.*}} locality<3>
// CHECK:         return
func.func @part_of_a_tile(%q: memref<128x16xf32>, %all: memref<1024x128xf32>, %x: memref<256x16xf32>) {
  %c0 = arith.constant 0 : index
  %c256 = arith.constant 256 : index
  %c1024 = arith.constant 1024 : index
  scf.for %i = %c0 to %c1024 step %c256 {
    %keys = memref.subview %all[%i, 0] [256, 128] [1, 1] : memref<1024x128xf32> to memref<256x128xf32, strided<[128, 1], offset: ?>>
    linalg.generic {indexing_maps = [#q, #k, #s], iterator_types = ["parallel", "parallel", "reduction"], part}
        ins(%q, %keys : memref<128x16xf32>, memref<256x128xf32, strided<[128, 1], offset: ?>>) outs(%x : memref<256x16xf32>) {
    ^bb0(%u: f32, %v: f32, %w: f32):
      %0 = arith.mulf %u, %v : f32
      %1 = arith.addf %w, %0 : f32
      linalg.yield %1 : f32
    }
  }
  return
}

// -----

#s = affine_map<(k, r) -> (k, r)>

// Positions of a window are compared in 32 bits, as i − j, which two comparisons have in common; where the tile starts is
// brought near to 0 first.
// CHECK-LABEL: func.func @window
// CHECK-SAME:    %[[Q:[^:]*]]: index, %[[K:[^:]*]]: index
// CHECK-DAG:   %[[LANES:.*]] = arith.constant dense<[0, 1, 2, {{.*}}, 15]> : vector<16xi32>
// CHECK-DAG:   %[[NONE:.*]] = arith.constant dense<0> : vector<16xi32>
// CHECK-DAG:   %[[LAST:.*]] = arith.constant dense<255> : vector<16xi32>
// CHECK:         scf.for %[[J:.*]] = %c0 to %c64
// CHECK:         scf.for %[[I:.*]] = %c0 to %c64
// CHECK:           arith.minsi %{{.*}}, %c1073741824
// CHECK:           arith.maxsi %{{.*}}, %c-1073741824
// CHECK:           vector.broadcast %{{.*}} : i32 to vector<16xi32>
// CHECK:           arith.addi %{{.*}}, %[[LANES]] : vector<16xi32>
// CHECK:           %[[X:.*]] = arith.subi %{{.*}} : vector<16xi32>
// CHECK-DAG:       arith.cmpi sgt, %[[X]], %[[LAST]] : vector<16xi32>
// CHECK-DAG:       arith.cmpi slt, %[[X]], %[[NONE]] : vector<16xi32>
func.func @window(%q: index, %k: index, %s: memref<64x64xf32>) {
  %low = arith.constant -255 : index
  %high = arith.constant 0 : index
  %minf = arith.constant 0xFF800000 : f32
  linalg.generic {indexing_maps = [#s], iterator_types = ["parallel", "parallel"]} outs(%s : memref<64x64xf32>) {
  ^bb0(%x: f32):
    %j0 = linalg.index 0 : index
    %j = arith.addi %j0, %k : index
    %i0 = linalg.index 1 : index
    %i = arith.addi %i0, %q : index
    %d = arith.subi %j, %i : index
    %early = arith.cmpi slt, %d, %low : index
    %0 = arith.select %early, %minf, %x : f32
    %late = arith.cmpi sgt, %d, %high : index
    %1 = arith.select %late, %minf, %0 : f32
    linalg.yield %1 : f32
  }
  return
}

// -----

#s = affine_map<(k, r) -> (k, r)>

// Not where a number may be too large for that, as here, or where not how far the op goes.
// CHECK-LABEL: func.func @far_window
// CHECK:         arith.cmpi slt, {{.*}} : vector<16xindex>
func.func @far_window(%s: memref<64x64xf32>) {
  %low = arith.constant -1000000000 : index
  %minf = arith.constant 0xFF800000 : f32
  linalg.generic {indexing_maps = [#s], iterator_types = ["parallel", "parallel"]} outs(%s : memref<64x64xf32>) {
  ^bb0(%x: f32):
    %j = linalg.index 0 : index
    %i = linalg.index 1 : index
    %d = arith.subi %j, %i : index
    %early = arith.cmpi slt, %d, %low : index
    %0 = arith.select %early, %minf, %x : f32
    linalg.yield %0 : f32
  }
  return
}

// CHECK-LABEL: func.func @of_any_size
// CHECK:         arith.cmpi slt, {{.*}} : vector<16xindex>
func.func @of_any_size(%q: index, %s: memref<64x?xf32>) {
  %minf = arith.constant 0xFF800000 : f32
  linalg.generic {indexing_maps = [#s], iterator_types = ["parallel", "parallel"]} outs(%s : memref<64x?xf32>) {
  ^bb0(%x: f32):
    %i = linalg.index 1 : index
    %early = arith.cmpi slt, %i, %q : index
    %0 = arith.select %early, %minf, %x : f32
    linalg.yield %0 : f32
  }
  return
}

// Tensors, in loops of any kind, are left alone.
// CHECK-LABEL: func.func @on_tensors
// CHECK:         scf.forall
// CHECK:           linalg.generic
func.func @on_tensors(%x: tensor<64x8xf32>, %y: tensor<8x16xf32>, %o: tensor<64x16xf32>) -> tensor<64x16xf32> {
  %r = scf.forall (%i) = (0) to (64) step (16) shared_outs(%whole = %o) -> (tensor<64x16xf32>) {
    %xt = tensor.extract_slice %x[%i, 0] [16, 8] [1, 1] : tensor<64x8xf32> to tensor<16x8xf32>
    %ot = tensor.extract_slice %whole[%i, 0] [16, 16] [1, 1] : tensor<64x16xf32> to tensor<16x16xf32>
    %p = linalg.generic {indexing_maps = [affine_map<(i, j, d) -> (i, d)>, affine_map<(i, j, d) -> (d, j)>, affine_map<(i, j, d) -> (i, j)>],
        iterator_types = ["parallel", "parallel", "reduction"]}
        ins(%xt, %y : tensor<16x8xf32>, tensor<8x16xf32>) outs(%ot : tensor<16x16xf32>) {
    ^bb0(%a: f32, %b: f32, %c: f32):
      %t = arith.mulf %a, %b : f32
      %u = arith.addf %c, %t : f32
      linalg.yield %u : f32
    } -> tensor<16x16xf32>
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %p into %whole[%i, 0] [16, 16] [1, 1] : tensor<16x16xf32> into tensor<64x16xf32>
    }
  }
  return %r : tensor<64x16xf32>
}

// -----

// One input is read in squares that are transposed in registers; another one, whose elements are four apart in both
// directions, is no such square: it is gathered.
// CHECK-LABEL: func.func @apart
//       CHECK: vector.load {{.*}} : memref<8x8xf32>, vector<8xf32>
//       CHECK: vector.gather
//   CHECK-NOT: vector.load {{.*}} strided<[32, 4]>
func.func @apart(%x: memref<8x8xf32>, %y: memref<8x8xf32, strided<[32, 4]>>, %out: memref<8x8xf32>) {
  linalg.generic {
      indexing_maps = [affine_map<(i, j) -> (j, i)>, affine_map<(i, j) -> (j, i)>, affine_map<(i, j) -> (i, j)>],
      iterator_types = ["parallel", "parallel"]}
      ins(%x, %y : memref<8x8xf32>, memref<8x8xf32, strided<[32, 4]>>) outs(%out : memref<8x8xf32>) {
    ^bb0(%a: f32, %b: f32, %c: f32):
      %d = arith.addf %a, %b : f32
      linalg.yield %d : f32
  }
  return
}
