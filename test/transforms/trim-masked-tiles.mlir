// RUN: attn-opt %s --trim-masked-tiles="vector-bytes=64" --canonicalize --cse --split-input-file | FileCheck %s
// RUN: not attn-opt %s --trim-masked-tiles="vector-bytes=1" --split-input-file 2>&1 | FileCheck %s --check-prefix=BAD
// BAD: error: pass 'trim-masked-tiles': vector-bytes is 1, but must be one of 0, 16, 32, 64

// 32 keys × 32 queries, causal. Of 16 queries from %i on the keys up to their last one are computed, in steps of 16:
// all ops work on these parts. Each contraction goes over all queries before the next op does.
// CHECK-LABEL: func.func @causal
// CHECK-SAME:    %{{.*}}: index, %[[K:.*]]: memref<64x8xf32>, %{{.*}}: memref<8x32xf32>, %[[MAX:.*]]: memref<32xf32>, %[[O:.*]]: memref<8x32xf32>)
// CHECK:       scf.for %[[N:.*]] = %c0 to %c64 step %c32 {
// CHECK-DAG:     %[[KEYS:.*]] = memref.subview %[[K]][%[[N]], 0] [32, 8]
// CHECK:         scf.for %[[I:.*]] = %c0 to %c32 step %c16 {
// CHECK:           affine.max
// CHECK:           %[[HIGH:.*]] = affine.min
// CHECK:           memref.subview %[[KEYS]][0, 0] [%[[HIGH]], 8]
// CHECK:           %[[S:.*]] = memref.subview %{{.*}}[0, %[[I]]] [%[[HIGH]], 16] [1, 1] : memref<32x32xf32> to memref<?x16xf32
// CHECK:           linalg.generic {{.*}} outs(%[[S]] : {{.*}} attrs = {part} {
// CHECK:         scf.for %[[I2:.*]] = %c0 to %c32 step %c16 {
// CHECK:           %[[S2:.*]] = memref.subview %{{.*}}[0, %[[I2]]] [%{{.*}}, 16]
// CHECK:           %[[M:.*]] = memref.subview %[[MAX]][%[[I2]]] [16]
// CHECK:           linalg.generic {{.*}} outs(%[[S2]], %[[M]] : {{.*}}>) {
// CHECK:             %[[INDEX:.*]] = linalg.index 1
// CHECK-NEXT:        arith.addi %[[INDEX]], %[[I2]]
// CHECK:           linalg.generic {{.*}} ins(%[[M]] : {{.*}}) outs(%[[S2]] :
// CHECK:         scf.for %[[I3:.*]] = %c0 to %c32 step %c16 {
// CHECK:           linalg.generic {{.*}} outs(%{{.*}} : memref<8x16xf32{{.*}} attrs = {part} {
// CHECK-NOT:   linalg.generic
// CHECK:       return
#nm = affine_map<(n, m) -> (n, m)>
#m = affine_map<(n, m) -> (m)>
func.func @causal(%q0: index, %k: memref<64x8xf32>, %q: memref<8x32xf32>, %max: memref<32xf32>, %o: memref<8x32xf32>) {
  %c0 = arith.constant 0 : index
  %c32 = arith.constant 32 : index
  %c64 = arith.constant 64 : index
  %zero = arith.constant 0.0 : f32
  %minus_inf = arith.constant 0xFF800000 : f32
  %s = memref.alloca() : memref<32x32xf32>
  scf.for %n = %c0 to %c64 step %c32 {
    %k1 = memref.subview %k[%n, 0] [32, 8] [1, 1] : memref<64x8xf32> to memref<32x8xf32, strided<[8, 1], offset: ?>>
    linalg.generic {indexing_maps = [affine_map<(n, m, d) -> (n, d)>, affine_map<(n, m, d) -> (d, m)>, affine_map<(n, m, d) -> (n, m)>], iterator_types = ["parallel", "parallel", "reduction"]}
        ins(%k1, %q : memref<32x8xf32, strided<[8, 1], offset: ?>>, memref<8x32xf32>) outs(%s : memref<32x32xf32>) {
    ^bb0(%a: f32, %b: f32, %sum: f32):
      %p = arith.mulf %a, %b : f32
      %t = arith.addf %sum, %p : f32
      linalg.yield %t : f32
    }
    linalg.generic {indexing_maps = [#nm, #m], iterator_types = ["reduction", "parallel"]} outs(%s, %max : memref<32x32xf32>, memref<32xf32>) {
    ^bb0(%x: f32, %t: f32):
      %i = linalg.index 1 : index
      %i1 = arith.addi %i, %q0 : index
      %j = linalg.index 0 : index
      %j1 = arith.addi %j, %n : index
      %late = arith.cmpi sgt, %j1, %i1 : index
      %y = arith.select %late, %minus_inf, %x : f32
      %u = arith.maxnumf %y, %t : f32
      linalg.yield %y, %u : f32, f32
    }
    linalg.generic {indexing_maps = [#m, #nm], iterator_types = ["parallel", "parallel"]} ins(%max : memref<32xf32>) outs(%s : memref<32x32xf32>) {
    ^bb0(%t: f32, %x: f32):
      %none = arith.cmpf oeq, %t, %minus_inf : f32
      %u = arith.select %none, %zero, %t : f32
      %d = arith.subf %x, %u : f32
      %e = math.exp2 %d : f32
      linalg.yield %e : f32
    }
    linalg.generic {indexing_maps = [affine_map<(d, m, n) -> (n, m)>, affine_map<(d, m, n) -> (n, d)>, affine_map<(d, m, n) -> (d, m)>], iterator_types = ["parallel", "parallel", "reduction"]}
        ins(%s, %k1 : memref<32x32xf32>, memref<32x8xf32, strided<[8, 1], offset: ?>>) outs(%o : memref<8x32xf32>) {
    ^bb0(%a: f32, %b: f32, %sum: f32):
      %p = arith.mulf %a, %b : f32
      %t = arith.addf %sum, %p : f32
      linalg.yield %t : f32
    }
  }
  return
}

// -----

// The sum of masked elements is not what it was: their exponentials are of m − x. And masked scores that someone else
// reads stay.
// CHECK-LABEL: func.func @counted
// CHECK-NOT:     memref.subview
// CHECK:         return
// CHECK-LABEL: func.func @read
// CHECK-NOT:     memref.subview
// CHECK:         return
#nm = affine_map<(n, m) -> (n, m)>
#m = affine_map<(n, m) -> (m)>
func.func @counted(%k0: index, %n: index, %sum: memref<32xf32>) {
  %c0 = arith.constant 0 : index
  %c32 = arith.constant 32 : index
  %minus_inf = arith.constant 0xFF800000 : f32
  %s = memref.alloca() : memref<32x32xf32>
  scf.for %k = %c0 to %n step %c32 {
    linalg.generic {indexing_maps = [#nm, #m], iterator_types = ["reduction", "parallel"]} outs(%s, %sum : memref<32x32xf32>, memref<32xf32>) {
    ^bb0(%x: f32, %t: f32):
      %i = linalg.index 1 : index
      %j = linalg.index 0 : index
      %late = arith.cmpi sgt, %j, %i : index
      %y = arith.select %late, %minus_inf, %x : f32
      %d = arith.subf %t, %y : f32
      %e = math.exp2 %d : f32
      %u = arith.addf %e, %t : f32
      linalg.yield %y, %u : f32, f32
    }
  }
  return
}

func.func @read(%n: index, %max: memref<32xf32>, %out: memref<32x32xf32>) {
  %c0 = arith.constant 0 : index
  %c32 = arith.constant 32 : index
  %minus_inf = arith.constant 0xFF800000 : f32
  scf.for %k = %c0 to %n step %c32 {
    linalg.generic {indexing_maps = [#nm, #m], iterator_types = ["reduction", "parallel"]} outs(%out, %max : memref<32x32xf32>, memref<32xf32>) {
    ^bb0(%x: f32, %t: f32):
      %i = linalg.index 1 : index
      %j = linalg.index 0 : index
      %late = arith.cmpi sgt, %j, %i : index
      %y = arith.select %late, %minus_inf, %x : f32
      %u = arith.maxnumf %y, %t : f32
      linalg.yield %y, %u : f32, f32
    }
  }
  return
}

// -----

// Keys in pairs: half as many of them, of the rows of scores that make them, of probabilities and of values. What
// converts values for all queries stays as it is, before the loop that uses them.
// CHECK-LABEL: func.func @pairs
// CHECK:       scf.for %[[N:.*]] = %c0 to %c64 step %c32 {
// CHECK:         scf.for %[[I:.*]] = %c0 to %c32 step %c16 {
// CHECK:           %[[HIGH:.*]] = affine.min
// CHECK:           memref.subview %[[S:.*]][0, %[[I]]] [%[[HIGH]], 16]
// CHECK:           memref.subview %[[EVEN:.*]][0, %[[I]]] [%[[HALF:.*]], 16] [1, 1] : memref<16x32xf32, strided<[64, 1]>>
// CHECK:           memref.subview %[[ODD:.*]][0, %[[I]]] [%[[HALF]], 16] [1, 1] : memref<16x32xf32, strided<[64, 1], offset: 32>>
// CHECK:           %[[P:.*]] = memref.subview %[[WORDS:.*]][0, %[[I]]] [%[[HALF]], 16]
// CHECK:           linalg.generic {{.*}} outs(%[[P]] :
// CHECK:             pair.pack
// CHECK:         linalg.generic {{.*}} outs(%[[VALUES:.*]] : memref<16x8xi32>)
// CHECK:         scf.for %[[I2:.*]] = %c0 to %c32 step %c16 {
// CHECK:           %[[HIGH2:.*]] = affine.min
// CHECK:           %[[HALF2:.*]] = arith.divui %[[HIGH2]], %c2
// CHECK:           memref.subview %[[WORDS]][0, %[[I2]]] [%[[HALF2]], 16]
// CHECK:           memref.subview %[[VALUES]][0, 0] [%[[HALF2]], 8]
// CHECK:           linalg.generic
// CHECK:             pair.product
// CHECK-NOT:   linalg.generic
// CHECK:       return
#nm = affine_map<(n, m) -> (n, m)>
#m = affine_map<(n, m) -> (m)>
func.func @pairs(%q0: index, %v: memref<32x8xi32>, %max: memref<32xf32>, %o: memref<8x32xf32>) {
  %c0 = arith.constant 0 : index
  %c32 = arith.constant 32 : index
  %c64 = arith.constant 64 : index
  %zero = arith.constant 0.0 : f32
  %minus_inf = arith.constant 0xFF800000 : f32
  %s = memref.alloca() : memref<32x32xf32>
  %p = memref.alloca() : memref<16x32xi32>
  %values = memref.alloca() : memref<16x8xi32>
  scf.for %n = %c0 to %c64 step %c32 {
    linalg.generic {indexing_maps = [#nm, #m], iterator_types = ["reduction", "parallel"]} outs(%s, %max : memref<32x32xf32>, memref<32xf32>) {
    ^bb0(%x: f32, %t: f32):
      %i = linalg.index 1 : index
      %i1 = arith.addi %i, %q0 : index
      %j = linalg.index 0 : index
      %j1 = arith.addi %j, %n : index
      %late = arith.cmpi sgt, %j1, %i1 : index
      %y = arith.select %late, %minus_inf, %x : f32
      %u = arith.maxnumf %y, %t : f32
      linalg.yield %y, %u : f32, f32
    }
    %even = memref.subview %s[0, 0] [16, 32] [2, 1] : memref<32x32xf32> to memref<16x32xf32, strided<[64, 1]>>
    %odd = memref.subview %s[1, 0] [16, 32] [2, 1] : memref<32x32xf32> to memref<16x32xf32, strided<[64, 1], offset: 32>>
    linalg.generic {indexing_maps = [#m, #nm, #nm, #nm], iterator_types = ["parallel", "parallel"]}
        ins(%max, %even, %odd : memref<32xf32>, memref<16x32xf32, strided<[64, 1]>>, memref<16x32xf32, strided<[64, 1], offset: 32>>) outs(%p : memref<16x32xi32>) {
    ^bb0(%t: f32, %x: f32, %y: f32, %out: i32):
      %none = arith.cmpf oeq, %t, %minus_inf : f32
      %u = arith.select %none, %zero, %t : f32
      %dx = arith.subf %x, %u : f32
      %ex = math.exp2 %dx : f32
      %dy = arith.subf %y, %u : f32
      %ey = math.exp2 %dy : f32
      %w = pair.pack %ex, %ey : (f32, f32) -> (i32)
      linalg.yield %w : i32
    }
    %c2 = arith.constant 2 : index
    %n2 = arith.divui %n, %c2 : index
    %v1 = memref.subview %v[%n2, 0] [16, 8] [1, 1] : memref<32x8xi32> to memref<16x8xi32, strided<[8, 1], offset: ?>>
    linalg.generic {indexing_maps = [#nm, #nm], iterator_types = ["parallel", "parallel"]} ins(%v1 : memref<16x8xi32, strided<[8, 1], offset: ?>>) outs(%values : memref<16x8xi32>) {
    ^bb0(%x: i32, %out: i32):
      linalg.yield %x : i32
    }
    linalg.generic {indexing_maps = [affine_map<(d, m, n) -> (n, m)>, affine_map<(d, m, n) -> (n, d)>, affine_map<(d, m, n) -> (d, m)>], iterator_types = ["parallel", "parallel", "reduction"]}
        ins(%p, %values : memref<16x32xi32>, memref<16x8xi32>) outs(%o : memref<8x32xf32>) {
    ^bb0(%a: i32, %b: i32, %sum: f32):
      %w = pair.product %a, %b : (i32, i32) -> (f32)
      %t = arith.addf %sum, %w : f32
      linalg.yield %t : f32
    }
  }
  return
}

// -----

// A view of the scores whose rows are not all of a pair: someone else reads them.
// CHECK-LABEL: func.func @half
// CHECK-NOT:     scf.for {{.*}} step %c16
// CHECK:         return
#nm = affine_map<(n, m) -> (n, m)>
#m = affine_map<(n, m) -> (m)>
func.func @half(%n: index, %max: memref<32xf32>, %out: memref<32xf32>) {
  %c0 = arith.constant 0 : index
  %c32 = arith.constant 32 : index
  %minus_inf = arith.constant 0xFF800000 : f32
  %s = memref.alloca() : memref<32x32xf32>
  scf.for %k = %c0 to %n step %c32 {
    linalg.generic {indexing_maps = [#nm, #m], iterator_types = ["reduction", "parallel"]} outs(%s, %max : memref<32x32xf32>, memref<32xf32>) {
    ^bb0(%x: f32, %t: f32):
      %i = linalg.index 1 : index
      %j = linalg.index 0 : index
      %late = arith.cmpi sgt, %j, %i : index
      %y = arith.select %late, %minus_inf, %x : f32
      %u = arith.maxnumf %y, %t : f32
      linalg.yield %y, %u : f32, f32
    }
    %some = memref.subview %s[8, 0] [8, 32] [1, 1] : memref<32x32xf32> to memref<8x32xf32, strided<[32, 1], offset: 256>>
    linalg.generic {indexing_maps = [#nm, #m], iterator_types = ["reduction", "parallel"]} ins(%some : memref<8x32xf32, strided<[32, 1], offset: 256>>) outs(%out : memref<32xf32>) {
    ^bb0(%x: f32, %t: f32):
      %u = arith.maxnumf %x, %t : f32
      linalg.yield %u : f32
    }
  }
  return
}
