// RUN: attn-opt %s --pack-contractions="vector-bytes=32" | FileCheck %s

#a = affine_map<(m, n, k) -> (m, k)>
#b = affine_map<(m, n, k) -> (n, k)>
#c = affine_map<(m, n, k) -> (m, n)>

// K is contiguous along the reduction: its panels are transposed, and extended to f32.
// CHECK-LABEL: func.func @transposed
// CHECK: %[[BYTES:.*]] = memref.alloca() {alignment = 64 : i64} : memref<32768xi8>
// CHECK: %[[PANEL:.*]] = memref.view %[[BYTES]][%{{.*}}][] : memref<32768xi8> to memref<{{.*}}xf32>
// CHECK: scf.for
// CHECK: linalg.generic {{.*}} outs(%[[PANEL]] :
// CHECK: arith.extf
// CHECK: linalg.generic {{.*}} ins(%{{.*}}, %[[PANEL]] :
func.func @transposed(%a: memref<64x64xf16>, %b: memref<96x64xf16>, %c: memref<64x96xf32>) {
  linalg.generic {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%a, %b : memref<64x64xf16>, memref<96x64xf16>) outs(%c : memref<64x96xf32>) {
  ^bb0(%x: f16, %y: f16, %z: f32):
    %0 = arith.extf %x : f16 to f32
    %1 = arith.extf %y : f16 to f32
    %2 = arith.mulf %0, %1 : f32
    %3 = arith.addf %z, %2 : f32
    linalg.yield %3 : f32
  }
  return
}

// Too few rows reuse a panel.
// CHECK-LABEL: func.func @few_rows
// CHECK-NOT: memref.alloca
func.func @few_rows(%a: memref<2x64xf32>, %b: memref<128x64xf32>, %c: memref<2x128xf32>) {
  linalg.generic {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%a, %b : memref<2x64xf32>, memref<128x64xf32>) outs(%c : memref<2x128xf32>) {
  ^bb0(%x: f32, %y: f32, %z: f32):
    %0 = arith.mulf %x, %y : f32
    %1 = arith.addf %z, %0 : f32
    linalg.yield %1 : f32
  }
  return
}

#q = affine_map<(h, n, k) -> (h, k)>
#k = affine_map<(h, n, k) -> (n, k)>
#s = affine_map<(h, n, k) -> (h, n)>

// Decoding in f16: queries, which all keys are multiplied by, are converted once; keys, where they are used.
// CHECK-LABEL: func.func @few_queries
// CHECK: %[[QUERIES:.*]] = memref.view %{{.*}} to memref<4x{{.*}}xf32>
// CHECK: linalg.generic {{.*}} ins(%arg0 : memref<4x64xf16>) outs(
// CHECK: arith.extf
// CHECK: linalg.generic {{.*}} ins(%{{.*}}, %arg1 : memref<4x64xf32, {{.*}}>, memref<256x64xf16>)
func.func @few_queries(%q: memref<4x64xf16>, %keys: memref<256x64xf16>, %x: memref<4x256xf32>) {
  linalg.generic {indexing_maps = [#q, #k, #s], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%q, %keys : memref<4x64xf16>, memref<256x64xf16>) outs(%x : memref<4x256xf32>) {
  ^bb0(%u: f16, %v: f16, %w: f32):
    %d = arith.extf %u : f16 to f32
    %e = arith.extf %v : f16 to f32
    %0 = arith.mulf %d, %e : f32
    %1 = arith.addf %w, %0 : f32
    linalg.yield %1 : f32
  }
  return
}

#q3 = affine_map<(h, g, n, k) -> (h, g, k)>
#k3 = affine_map<(h, g, n, k) -> (n, h, k)>
#s3 = affine_map<(h, g, n, k) -> (h, g, n)>

// Queries of several heads are few: all of them are converted at once, and keys are read in one go.
// CHECK-LABEL: func.func @heads_side_by_side
// CHECK-NOT: scf.for
// CHECK: linalg.generic {{.*}} ins(%arg0 : memref<8x4x64xf16>) outs(%{{.*}} : memref<8x4x64xf32, strided<[320, 80, 1]>>)
// CHECK: linalg.generic {{.*}} ins(%{{.*}}, %arg1 : memref<8x4x64xf32, {{.*}}>, memref<256x8x64xf16>)
func.func @heads_side_by_side(%q: memref<8x4x64xf16>, %keys: memref<256x8x64xf16>, %x: memref<8x4x256xf32>) {
  linalg.generic {indexing_maps = [#q3, #k3, #s3], iterator_types = ["parallel", "parallel", "parallel", "reduction"]}
      ins(%q, %keys : memref<8x4x64xf16>, memref<256x8x64xf16>) outs(%x : memref<8x4x256xf32>) {
  ^bb0(%u: f16, %v: f16, %w: f32):
    %d = arith.extf %u : f16 to f32
    %e = arith.extf %v : f16 to f32
    %0 = arith.mulf %d, %e : f32
    %1 = arith.addf %w, %0 : f32
    linalg.yield %1 : f32
  }
  return
}

#p = affine_map<(v, m, n) -> (n, m)>
#nv = affine_map<(v, m, n) -> (n, v)>
#o = affine_map<(v, m, n) -> (v, m)>
#vm = affine_map<(v, m) -> (v, m)>
#m = affine_map<(v, m) -> (m)>

// What sums start from stays next to them, so that it is computed when they are: values are converted before it.
// CHECK-LABEL: func.func @rescaled
// CHECK: linalg.generic {{.*}} ins(%arg1 : memref<64x64xf16>)
// CHECK: arith.extf
// CHECK: linalg.generic {{.*}} ins(%arg2 : memref<32xf32>) outs(%[[O:.*]] : memref<64x32xf32>)
// CHECK: arith.mulf
// CHECK: linalg.generic {{.*}} ins(%arg0, %{{.*}} : {{.*}}) outs(%[[O]] : memref<64x32xf32>)
func.func @rescaled(%p: memref<64x32xf32>, %values: memref<64x64xf16>, %scale: memref<32xf32>, %n: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %out = memref.alloca() : memref<64x32xf32>
  scf.for %i = %c0 to %n step %c1 {
    linalg.generic {indexing_maps = [#m, #vm], iterator_types = ["parallel", "parallel"]}
        ins(%scale : memref<32xf32>) outs(%out : memref<64x32xf32>) {
    ^bb0(%a: f32, %x: f32):
      %0 = arith.mulf %a, %x : f32
      linalg.yield %0 : f32
    }
    linalg.generic {indexing_maps = [#p, #nv, #o], iterator_types = ["parallel", "parallel", "reduction"]}
        ins(%p, %values : memref<64x32xf32>, memref<64x64xf16>) outs(%out : memref<64x32xf32>) {
    ^bb0(%a: f32, %b: f16, %x: f32):
      %e = arith.extf %b : f16 to f32
      %0 = arith.mulf %a, %e : f32
      %1 = arith.addf %x, %0 : f32
      linalg.yield %1 : f32
    }
  }
  return
}
