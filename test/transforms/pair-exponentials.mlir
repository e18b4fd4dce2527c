// RUN: attn-opt %s --split-input-file --pair-exponentials="matrix=dot" | FileCheck %s
// RUN: attn-opt %s --split-input-file --pair-exponentials="matrix=none" | FileCheck %s --check-prefix=NONE
// RUN: attn-opt %s --split-input-file --pair-exponentials="matrix=dot" --vectorize-linalg="vector-bytes=64" --canonicalize | FileCheck %s --check-prefix=VECTORS

#pm = affine_map<(m, p) -> (p, m)>
#m = affine_map<(m, p) -> (m)>

// CHECK-LABEL: func.func @probabilities
// CHECK:       ^bb0(%[[MAX:.*]]: f32, %[[A:.*]]: f32, %[[B:.*]]: f32, %{{.*}}: i32, %[[L:.*]]: f32):
// CHECK:         %[[X:.*]] = arith.subf %{{.*}}, %[[MAX]]
// CHECK:         %[[Y:.*]] = arith.subf %{{.*}}, %[[MAX]]
// CHECK-NEXT:    %[[W:.*]] = pair.exp2 %[[X]], %[[Y]] : (f32, f32) -> (i32)
// CHECK-NEXT:    %[[ONES:.*]] = arith.constant 1065369472 : i32
// CHECK-NEXT:    %[[P:.*]] = pair.product %[[W]], %[[ONES]]
// CHECK-NEXT:    %[[SUM:.*]] = arith.addf %[[L]], %[[P]] : f32
// CHECK-NEXT:    linalg.yield %[[W]], %[[SUM]] : i32, f32
// CHECK:       linalg.generic {{.*}} outs(%{{.*}} : memref<64xf32>) {
// CHECK-NEXT:  ^bb0(%[[TOTAL:.*]]: f32):
// CHECK-NEXT:    %[[MOST:.*]] = arith.constant 1.84467441E+19 : f32
// CHECK-NEXT:    %[[NUMBER:.*]] = arith.cmpf olt, %[[TOTAL]], %[[MOST]] : f32
// CHECK-NEXT:    %[[NAN:.*]] = arith.constant 0x7FC00000 : f32
// CHECK-NEXT:    arith.select %[[NUMBER]], %[[TOTAL]], %[[NAN]] : f32
// NONE-LABEL:  func.func @probabilities
// NONE:        math.exp2
// NONE-NOT:    pair.exp2

// What x is computed by takes its factor 1/64 along.
// VECTORS-LABEL: func.func @probabilities
// VECTORS-DAG: %[[UNIT:.*]] = arith.constant dense<1.562500e-02> : vector<16xf32>
// VECTORS-DAG: %[[SHIFT:.*]] = arith.constant dense<3.98{{.*}}> : vector<16xf32>
// VECTORS-DAG: %[[SCALE:.*]] = arith.constant dense<3.906250e-03> : vector<16xf32>
// VECTORS:     %[[M:.*]] = math.fma %{{.*}}, %[[UNIT]], %[[SHIFT]]
// VECTORS:     %[[T:.*]] = math.fma %{{.*}}, %[[SCALE]], %[[M]]
// VECTORS:     %[[W:.*]] = vector.shuffle %{{.*}}, %{{.*}} [1, 2, 65, 66, 5, 6, 69, 70,
// VECTORS:     %[[BITS:.*]] = vector.bitcast %[[W]] : vector<64xi8> to vector<32xi16>
// VECTORS:     %[[LINEAR:.*]] = arith.minui %[[BITS]]
// VECTORS:     %[[PART:.*]] = arith.shrui %[[LINEAR]]
// VECTORS:     %[[ABOVE:.*]] = llvm.call_intrinsic "llvm.x86.avx512.vpermi2var.hi.512"(%{{.*}}, %[[PART]], %{{.*}})
// VECTORS:     arith.xori %[[LINEAR]], %[[ABOVE]]
// VECTORS:     arith.ori %[[LINEAR]], %[[ABOVE]]
// VECTORS:     x86.avx512.dot
func.func @probabilities(%max: memref<64xf32>, %s0: memref<8x64xf32>, %s1: memref<8x64xf32>, %w: memref<8x64xi32>,
                         %l: memref<64xf32>) {
  %c = arith.constant 0.25 : f32
  linalg.generic {indexing_maps = [#m, #pm, #pm, #pm, #m], iterator_types = ["parallel", "reduction"]}
      ins(%max, %s0, %s1 : memref<64xf32>, memref<8x64xf32>, memref<8x64xf32>)
      outs(%w, %l : memref<8x64xi32>, memref<64xf32>) {
  ^bb0(%m: f32, %a: f32, %b: f32, %old: i32, %sum: f32):
    %as = arith.mulf %a, %c : f32
    %x = arith.subf %as, %m : f32
    %ex = math.exp2 %x {linalg_ext.not_positive} : f32
    %sx = arith.addf %sum, %ex : f32
    %tx = arith.truncf %ex : f32 to bf16
    %rx = arith.extf %tx : bf16 to f32
    %bs = arith.mulf %b, %c : f32
    %y = arith.subf %bs, %m : f32
    %ey = math.exp2 %y {linalg_ext.not_positive} : f32
    %sy = arith.addf %sx, %ey : f32
    %ty = arith.truncf %ey : f32 to bf16
    %ry = arith.extf %ty : bf16 to f32
    %word = pair.pack %rx, %ry : (f32, f32) -> (i32)
    linalg.yield %word, %sy : i32, f32
  }
  return
}

// -----

// Nothing is known of the argument; a power is needed for more than the sum; a logarithm asks for an exact sum.
// CHECK-LABEL: func.func @unknown
// CHECK-NOT:   pair.exp2
func.func @unknown(%x: f32, %sum: f32) -> (i32, f32) {
  %e = math.exp2 %x : f32
  %s = arith.addf %sum, %e : f32
  %s2 = arith.addf %s, %e : f32
  %t = arith.truncf %e : f32 to bf16
  %r = arith.extf %t : bf16 to f32
  %word = pair.pack %r, %r : (f32, f32) -> (i32)
  return %word, %s2 : i32, f32
}

// -----

// CHECK-LABEL: func.func @used
// CHECK-NOT:   pair.exp2
func.func @used(%x: f32, %y: f32, %sum: f32) -> (i32, f32, f32) {
  %e = math.exp2 %x {linalg_ext.not_positive} : f32
  %f = math.exp2 %y {linalg_ext.not_positive} : f32
  %s = arith.addf %sum, %e : f32
  %s2 = arith.addf %s, %f : f32
  %t = arith.truncf %e : f32 to bf16
  %r = arith.extf %t : bf16 to f32
  %u = arith.truncf %f : f32 to bf16
  %v = arith.extf %u : bf16 to f32
  %word = pair.pack %r, %v : (f32, f32) -> (i32)
  return %word, %s2, %f : i32, f32, f32
}

// -----

// CHECK-LABEL: func.func @logarithm
// CHECK-NOT:   pair.exp2
func.func @logarithm(%x: f32, %y: f32, %sum: f32) -> (i32, f32) {
  %e = math.exp2 %x {linalg_ext.not_positive} : f32
  %f = math.exp2 %y {linalg_ext.not_positive} : f32
  %s = arith.addf %sum, %e : f32
  %s2 = arith.addf %s, %f : f32
  %t = arith.truncf %e : f32 to bf16
  %r = arith.extf %t : bf16 to f32
  %u = arith.truncf %f : f32 to bf16
  %v = arith.extf %u : bf16 to f32
  %word = pair.pack %r, %v : (f32, f32) -> (i32)
  %log = math.log %s2 : f32
  return %word, %log : i32, f32
}
