// RUN: attn-opt %s --vectorize-linalg="vector-bytes=64 by-two=yes" --canonicalize --cse --split-input-file | FileCheck %s

#q = affine_map<(n, r, k) -> (k, r)>
#k = affine_map<(n, r, k) -> (n, k)>
#s = affine_map<(n, r, k) -> (n, r)>

// One vector of rows, keys that are broadcast: of every second key two neighbours come by one load, of which the first is
// multiplied in the first step of the sum.
// CHECK-LABEL: func.func @along_the_sum
// CHECK:       scf.for %[[N:.*]] = %c0 to %c32 step %c16
// CHECK:         scf.for %[[D:.*]] = %c0 to %c64 step %c2
// CHECK:           %[[KEY:.*]] = memref.load %arg1[%[[N]], %[[D]]]
// CHECK-NEXT:      vector.broadcast %[[KEY]] : f32 to vector<16xf32>
// CHECK-NEXT:      math.fma
// CHECK:           %[[PAIR:.*]] = vector.load %arg1[%{{.*}}, %[[D]]] : memref<32x64xf32>, vector<2xf32>
// CHECK-NEXT:      %[[BITS:.*]] = vector.bitcast %[[PAIR]] : vector<2xf32> to vector<1xf64>
// CHECK-NEXT:      %[[BOTH:.*]] = vector.extract %[[BITS]][0]
// CHECK-NEXT:      %[[TURNS:.*]] = vector.broadcast %[[BOTH]] : f64 to vector<8xf64>
// CHECK-NEXT:      %[[EVEN:.*]] = llvm.inline_asm "vmovsldup $1, $0", "=v,v" %[[TURNS]] : (vector<8xf64>) -> vector<16xf32>
// CHECK-NEXT:      %[[ODD:.*]] = llvm.inline_asm "vmovshdup $1, $0", "=v,v" %[[TURNS]] : (vector<8xf64>) -> vector<16xf32>
// CHECK-NEXT:      math.fma %{{.*}}, %[[EVEN]],
// CHECK-NEXT:      memref.load %arg1
// CHECK:           math.fma %{{.*}}, %[[ODD]],
func.func @along_the_sum(%q: memref<64x16xf32>, %keys: memref<32x64xf32>, %s: memref<32x16xf32>) {
  linalg.generic {indexing_maps = [#q, #k, #s], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%q, %keys : memref<64x16xf32>, memref<32x64xf32>) outs(%s : memref<32x16xf32>) {
  ^bb0(%u: f32, %v: f32, %w: f32):
    %0 = arith.mulf %u, %v : f32
    %1 = arith.addf %w, %0 : f32
    linalg.yield %1 : f32
  }
  return
}

// -----

#p = affine_map<(d, r, k) -> (k, r)>
#v = affine_map<(d, r, k) -> (k, d)>
#o = affine_map<(d, r, k) -> (d, r)>

// Neighbours that belong to two sums, here words of two bf16; the sum may have any length.
// CHECK-LABEL: func.func @across_sums
// CHECK:       scf.for %{{.*}} = %c0 to %{{.*}} step %c1
// CHECK-COUNT-2: memref.load %arg1
// CHECK:         vector.load %arg1{{.*}} : memref<?x16xi32>, vector<2xi32>
// CHECK-NEXT:    vector.bitcast {{.*}} : vector<2xi32> to vector<1xf64>
// CHECK:         %[[EVEN:.*]] = llvm.inline_asm "vmovsldup
// CHECK-NEXT:    llvm.inline_asm "vmovshdup
// CHECK-NEXT:    %[[WORDS:.*]] = vector.bitcast %[[EVEN]] : vector<16xf32> to vector<32xbf16>
// CHECK-NEXT:    x86.avx512.dot %{{.*}}, %{{.*}}, %[[WORDS]]
func.func @across_sums(%p: memref<?x16xi32>, %v: memref<?x16xi32>, %o: memref<16x16xf32>) {
  linalg.generic {indexing_maps = [#p, #v, #o], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%p, %v : memref<?x16xi32>, memref<?x16xi32>) outs(%o : memref<16x16xf32>) {
  ^bb0(%a: i32, %b: i32, %c: f32):
    %0 = pair.product %a, %b : (i32, i32) -> (f32)
    %1 = arith.addf %c, %0 : f32
    linalg.yield %1 : f32
  }
  return
}

// -----

// Vectors that share what is broadcast do with a load for each element, and doubles are no pairs.
// CHECK-LABEL: func.func @others
// CHECK-NOT:   llvm.inline_asm
#q = affine_map<(n, r, k) -> (k, r)>
#k = affine_map<(n, r, k) -> (n, k)>
#s = affine_map<(n, r, k) -> (n, r)>
func.func @others(%q: memref<64x32xf32>, %k: memref<32x64xf32>, %s: memref<32x32xf32>,
                  %a: memref<64x8xf64>, %b: memref<32x64xf64>, %c: memref<32x8xf64>) {
  linalg.generic {indexing_maps = [#q, #k, #s], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%q, %k : memref<64x32xf32>, memref<32x64xf32>) outs(%s : memref<32x32xf32>) {
  ^bb0(%u: f32, %v: f32, %w: f32):
    %0 = arith.mulf %u, %v : f32
    %1 = arith.addf %w, %0 : f32
    linalg.yield %1 : f32
  }
  linalg.generic {indexing_maps = [#q, #k, #s], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%a, %b : memref<64x8xf64>, memref<32x64xf64>) outs(%c : memref<32x8xf64>) {
  ^bb0(%u: f64, %v: f64, %w: f64):
    %0 = arith.mulf %u, %v : f64
    %1 = arith.addf %w, %0 : f64
    linalg.yield %1 : f64
  }
  return
}
