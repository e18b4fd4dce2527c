// RUN: attn-opt %s --vectorize-linalg="vector-bytes=64 halves=yes" --canonicalize --cse --split-input-file | FileCheck %s
// RUN: attn-opt %s --vectorize-linalg="vector-bytes=64 halves=no" --canonicalize --cse --split-input-file | FileCheck --check-prefix=WHOLE %s

#q = affine_map<(h, n, k) -> (h, k)>
#k = affine_map<(h, n, k) -> (n, k)>
#s = affine_map<(h, n, k) -> (h, n)>

// Where vectors of 64 bytes are computed with by halves, keys of f16 are converted by halves: a line is 4 vectors.
// CHECK-LABEL: func.func @keys_of_f16
// CHECK:       %[[KEYS:.*]] = memref.subview %arg1
// CHECK:         scf.for %{{.*}} = %c0 to %c128 step %c32
// CHECK:           vector.load %[[KEYS]][%{{.*}}, %{{.*}}] : memref<256x128xf16, {{.*}}>, vector<8xf16>
// CHECK:           math.fma %{{.*}} : vector<8xf32>
// Lanes are summed by halves first, of two rows each.
// CHECK:         vector.shuffle %[[A:.*]], %[[B:.*]] [0, 1, 2, 3, 12, 13, 14, 15] : vector<8xf32>
// CHECK-NEXT:    vector.shuffle %[[A]], %[[B]] [4, 5, 6, 7, 8, 9, 10, 11] : vector<8xf32>
// CHECK-NEXT:    arith.addf
// WHOLE-LABEL: func.func @keys_of_f16
// WHOLE:       %[[KEYS:.*]] = memref.subview %arg1
// WHOLE:         scf.for %{{.*}} = %c0 to %c128 step %c32
// WHOLE:           vector.load %[[KEYS]][%{{.*}}, %{{.*}}] : memref<256x128xf16, {{.*}}>, vector<16xf16>
func.func @keys_of_f16(%q: memref<4x128xf32>, %all: memref<1024x128xf16>, %x: memref<4x256xf32>) {
  %c0 = arith.constant 0 : index
  %c256 = arith.constant 256 : index
  %c1024 = arith.constant 1024 : index
  scf.for %i = %c0 to %c1024 step %c256 {
    %keys = memref.subview %all[%i, 0] [256, 128] [1, 1] : memref<1024x128xf16> to memref<256x128xf16, strided<[128, 1], offset: ?>>
    linalg.generic {indexing_maps = [#q, #k, #s], iterator_types = ["parallel", "parallel", "reduction"]}
        ins(%q, %keys : memref<4x128xf32>, memref<256x128xf16, strided<[128, 1], offset: ?>>) outs(%x : memref<4x256xf32>) {
    ^bb0(%u: f32, %v: f16, %w: f32):
      %e = arith.extf %v : f16 to f32
      %0 = arith.mulf %u, %e : f32
      %1 = arith.addf %w, %0 : f32
      linalg.yield %1 : f32
    }
  }
  return
}

// -----

#p = affine_map<(h, n, k) -> (h, k)>
#v = affine_map<(h, n, k) -> (k, n)>
#o = affine_map<(h, n, k) -> (h, n)>

// Beside conversions each multiply-add broadcasts its own element: those of all rows are loaded for each vector.
// CHECK-LABEL: func.func @values_of_f16
// CHECK:           vector.load {{.*}}, vector<16xf16>
// CHECK-COUNT-4:   memref.load %arg0
// CHECK-COUNT-4:   math.fma
// CHECK:           llvm.inline_asm has_side_effects "", "~{memory}"
// CHECK:           vector.load {{.*}}, vector<16xf16>
// CHECK-COUNT-4:   memref.load %arg0
// WHOLE-LABEL: func.func @values_of_f16
// WHOLE-COUNT-4:   memref.load %arg0
// WHOLE-NOT:       memref.load
// WHOLE:           return
func.func @values_of_f16(%p: memref<4x256xf32>, %all: memref<1024x64xf16>, %x: memref<4x64xf32>) {
  %c0 = arith.constant 0 : index
  %c256 = arith.constant 256 : index
  %c1024 = arith.constant 1024 : index
  scf.for %i = %c0 to %c1024 step %c256 {
    %values = memref.subview %all[%i, 0] [256, 64] [1, 1] : memref<1024x64xf16> to memref<256x64xf16, strided<[64, 1], offset: ?>>
    linalg.generic {indexing_maps = [#p, #v, #o], iterator_types = ["parallel", "parallel", "reduction"]}
        ins(%p, %values : memref<4x256xf32>, memref<256x64xf16, strided<[64, 1], offset: ?>>) outs(%x : memref<4x64xf32>) {
    ^bb0(%u: f32, %v: f16, %w: f32):
      %e = arith.extf %v : f16 to f32
      %0 = arith.mulf %u, %e : f32
      %1 = arith.addf %w, %0 : f32
      linalg.yield %1 : f32
    }
  }
  return
}
