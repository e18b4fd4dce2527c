// RUN: attn-opt %s --vectorize-linalg="vector-bytes=64 by-two=no ahead=l2" --canonicalize --cse --split-input-file | FileCheck %s
// RUN: not attn-opt %s --vectorize-linalg="ahead=l3" --split-input-file 2>&1 | FileCheck --check-prefix=UNKNOWN %s

// UNKNOWN: error: pass 'vectorize-linalg': ahead is 'l3', but must be one of l1, l2

#q = affine_map<(h, n, k) -> (h, k)>
#k = affine_map<(h, n, k) -> (n, k)>
#s = affine_map<(h, n, k) -> (h, n)>

// Where the L1 cache has few buffers for misses, keys that come from memory are asked for into the L2 cache (locality 2),
// four times, 16, 12, 8 and 6 KB ahead of their use: rows of 512 bytes.
// CHECK-LABEL: func.func @read_ahead
// CHECK:           %[[KEY:.*]] = vector.load %arg1[%[[N:.*]], %[[D:.*]]] : memref<?x128xf32>, vector<16xf32>
// CHECK-NEXT:      %[[FIRST:.*]] = arith.addi %[[N]], %c32
// CHECK-NEXT:      memref.prefetch %arg1[%[[FIRST]], %[[D]]], read, locality<2>, data : memref<?x128xf32>
// CHECK-NEXT:      %[[SECOND:.*]] = arith.addi %[[N]], %c24
// CHECK-NEXT:      memref.prefetch %arg1[%[[SECOND]], %[[D]]], read, locality<2>, data : memref<?x128xf32>
// CHECK-NEXT:      %[[THIRD:.*]] = arith.addi %[[N]], %c16
// CHECK-NEXT:      memref.prefetch %arg1[%[[THIRD]], %[[D]]], read, locality<2>, data : memref<?x128xf32>
// CHECK-NEXT:      %[[LAST:.*]] = arith.addi %[[N]], %c12
// CHECK-NEXT:      memref.prefetch %arg1[%[[LAST]], %[[D]]], read, locality<2>, data : memref<?x128xf32>
// CHECK-NEXT:      llvm.inline_asm has_side_effects "", "~{memory}"
// CHECK-NOT:       locality<3>
func.func @read_ahead(%q: memref<4x128xf32>, %keys: memref<?x128xf32>, %x: memref<4x?xf32>) {
  linalg.generic {indexing_maps = [#q, #k, #s], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%q, %keys : memref<4x128xf32>, memref<?x128xf32>) outs(%x : memref<4x?xf32>) {
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

// Eight rows of queries are two register tiles, which read the same keys: each asks twice.
// CHECK-LABEL: func.func @two_passes
// CHECK:           vector.load %arg1[%[[N:.*]], %[[D:.*]]] : memref<?x128xf32>, vector<16xf32>
// CHECK-NEXT:      %[[FAR:.*]] = arith.addi %[[N]], %c32
// CHECK-NEXT:      memref.prefetch %arg1[%[[FAR]], %[[D]]], read, locality<2>, data : memref<?x128xf32>
// CHECK-NEXT:      %[[NEAR:.*]] = arith.addi %[[N]], %c16
// CHECK-NEXT:      memref.prefetch %arg1[%[[NEAR]], %[[D]]], read, locality<2>, data : memref<?x128xf32>
// CHECK-NEXT:      llvm.inline_asm has_side_effects "", "~{memory}"
func.func @two_passes(%q: memref<8x128xf32>, %keys: memref<?x128xf32>, %x: memref<8x?xf32>) {
  linalg.generic {indexing_maps = [#q, #k, #s], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%q, %keys : memref<8x128xf32>, memref<?x128xf32>) outs(%x : memref<8x?xf32>) {
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

// So do few keys, which stay in the L3 cache.
// CHECK-LABEL: func.func @few_keys
// CHECK:           vector.load %arg1[%[[N:.*]], %[[D:.*]]] : memref<256x128xf32>, vector<16xf32>
// CHECK-NEXT:      %[[FAR:.*]] = arith.addi %[[N]], %c32
// CHECK-NEXT:      memref.prefetch %arg1[%[[FAR]], %[[D]]], read, locality<2>, data : memref<256x128xf32>
// CHECK-NEXT:      %[[NEAR:.*]] = arith.addi %[[N]], %c16
// CHECK-NEXT:      memref.prefetch %arg1[%[[NEAR]], %[[D]]], read, locality<2>, data : memref<256x128xf32>
// CHECK-NEXT:      llvm.inline_asm has_side_effects "", "~{memory}"
func.func @few_keys(%q: memref<4x128xf32>, %keys: memref<256x128xf32>, %x: memref<4x256xf32>) {
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

// The rest of a row, which is no whole vector, is asked for, too.
// CHECK-LABEL: func.func @rest_of_rows
// CHECK:           vector.load %arg1[%{{.*}}, %{{.*}}] : memref<?x40xf32>, vector<16xf32>
// CHECK:           vector.maskedload %arg1[%[[N:.*]], %[[D:.*]]], %{{.*}} : memref<?x40xf32>
// CHECK-NEXT:      %[[FAR:.*]] = arith.addi %[[N]], %c102
// CHECK-NEXT:      memref.prefetch %arg1[%[[FAR]], %[[D]]], read, locality<2>, data : memref<?x40xf32>
func.func @rest_of_rows(%q: memref<4x40xf32>, %keys: memref<?x40xf32>, %x: memref<4x?xf32>) {
  linalg.generic {indexing_maps = [#q, #k, #s], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%q, %keys : memref<4x40xf32>, memref<?x40xf32>) outs(%x : memref<4x?xf32>) {
  ^bb0(%u: f32, %v: f32, %w: f32):
    %0 = arith.mulf %u, %v : f32
    %1 = arith.addf %w, %0 : f32
    linalg.yield %1 : f32
  }
  return
}

// -----

#q = affine_map<(n, r, k) -> (k, r)>
#k = affine_map<(n, r, k) -> (n, k)>
#s = affine_map<(n, r, k) -> (n, r)>

// So are keys that are broadcast, 16 at a time: here 32 rows, 16 KB, ahead.
// CHECK-LABEL: func.func @keys_are_broadcast
// CHECK:       %[[KEYS:.*]] = memref.subview %arg1
// CHECK:       scf.for %[[N:.*]] = %c0 to %c256 step %c16
// CHECK:         scf.for %[[D:.*]] = %c0 to %c128 step %c1
// CHECK:           %[[KEY:.*]] = arith.andi %[[D]], %c15
// CHECK:           %[[LINE:.*]] = arith.subi %[[D]], %[[KEY]]
// CHECK:           %[[NEXT:.*]] = arith.addi %[[N]], %c32
// CHECK:           %[[ROW:.*]] = arith.addi %[[NEXT]], %[[KEY]]
// CHECK:           memref.prefetch %[[KEYS]][%[[ROW]], %[[LINE]]], read, locality<2>
// CHECK-NOT:       locality<3>
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
