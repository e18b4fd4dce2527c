// RUN: attn-opt %s --parallelize-linalg | FileCheck %s

#id = affine_map<(i, j) -> (i, j)>
#row = affine_map<(i, j) -> (i)>

// CHECK-LABEL: func.func @large
// CHECK: scf.parallel (%[[I:.*]]) = (%{{.*}}) to (%{{.*}}) step (%{{.*}})
// CHECK: %[[N:.*]] = affine.min
// CHECK: memref.subview %arg0[%[[I]]] [%[[N]]] [1] : memref<1001xf32>
// CHECK: memref.subview %arg1[%[[I]], 0] [%[[N]], 4096] [1, 1] : memref<1001x4096xf32>
// CHECK: linalg.generic
func.func @large(%a: memref<1001xf32>, %b: memref<1001x4096xf32>) {
  linalg.generic {indexing_maps = [#row, #id], iterator_types = ["parallel", "parallel"]}
      ins(%a : memref<1001xf32>) outs(%b : memref<1001x4096xf32>) {
  ^bb0(%x: f32, %y: f32):
    %z = arith.mulf %x, %y : f32
    linalg.yield %z : f32
  }
  return
}

// In a sequential loop tasks are larger: 2097152 iterations.
// CHECK-LABEL: func.func @in_a_loop
// CHECK: scf.for
// CHECK: scf.parallel (%{{.*}}) = (%{{.*}}) to (%{{.*}}) step (%c512{{.*}})
// CHECK-NOT: scf.parallel
func.func @in_a_loop(%a: memref<1024xf32>, %b: memref<1024x4096xf32>, %c: memref<512xf32>, %d: memref<512x4096xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c8 = arith.constant 8 : index
  scf.for %i = %c0 to %c8 step %c1 {
    linalg.generic {indexing_maps = [#row, #id], iterator_types = ["parallel", "parallel"]}
        ins(%a : memref<1024xf32>) outs(%b : memref<1024x4096xf32>) {
    ^bb0(%x: f32, %y: f32):
      linalg.yield %x : f32
    }
    linalg.generic {indexing_maps = [#row, #id], iterator_types = ["parallel", "parallel"]}
        ins(%c : memref<512xf32>) outs(%d : memref<512x4096xf32>) {
    ^bb0(%x: f32, %y: f32):
      linalg.yield %x : f32
    }
  }
  return
}

// Small ones, and those in a parallel loop, are left.
// CHECK-LABEL: func.func @left_alone
// CHECK-COUNT-1: scf.parallel
// CHECK-NOT: scf.parallel
func.func @left_alone(%a: memref<16xf32>, %b: memref<16x64xf32>, %c: memref<1001xf32>, %d: memref<1001x4096xf32>) {
  linalg.generic {indexing_maps = [#row, #id], iterator_types = ["parallel", "parallel"]}
      ins(%a : memref<16xf32>) outs(%b : memref<16x64xf32>) {
  ^bb0(%x: f32, %y: f32):
    linalg.yield %x : f32
  }
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  scf.parallel (%i) = (%c0) to (%c1) step (%c1) {
    linalg.generic {indexing_maps = [#row, #id], iterator_types = ["parallel", "parallel"]}
        ins(%c : memref<1001xf32>) outs(%d : memref<1001x4096xf32>) {
    ^bb0(%x: f32, %y: f32):
      linalg.yield %x : f32
    }
  }
  return
}

#xk = affine_map<(b, m, n, k) -> (b, m, k)>
#kn = affine_map<(b, m, n, k) -> (k, n)>
#xn = affine_map<(b, m, n, k) -> (b, m, n)>

// A matrix that all rows are multiplied by: a task has some of its columns, and all rows.
// CHECK-LABEL: func.func @columns
// CHECK-DAG:   %[[N:.*]] = arith.constant 512 : index
// CHECK-DAG:   %[[STEP:.*]] = arith.constant 64 : index
// CHECK:       scf.parallel (%[[J:.*]]) = (%{{.*}}) to (%[[N]]) step (%[[STEP]])
// CHECK:         memref.subview %arg1[0, %[[J]]] [128, 64] [1, 1] : memref<128x512xf32>
// CHECK:         memref.subview %arg2[0, 0, %[[J]]] [8, 16, 64] [1, 1, 1] : memref<8x16x512xf32>
func.func @columns(%x: memref<8x16x128xf32>, %w: memref<128x512xf32>, %y: memref<8x16x512xf32>) {
  linalg.generic {indexing_maps = [#xk, #kn, #xn], iterator_types = ["parallel", "parallel", "parallel", "reduction"]}
      ins(%x, %w : memref<8x16x128xf32>, memref<128x512xf32>) outs(%y : memref<8x16x512xf32>) {
  ^bb0(%a: f32, %b: f32, %s: f32):
    %p = arith.mulf %a, %b : f32
    %t = arith.addf %s, %p : f32
    linalg.yield %t : f32
  }
  return
}

// One of few columns is split along the rows too, of which a task has 64 at least: here eight batch entries of 16, as four tasks are enough.
// CHECK-LABEL: func.func @rows
// CHECK-DAG:   %[[B:.*]] = arith.constant 32 : index
// CHECK-DAG:   %[[STEP:.*]] = arith.constant 8 : index
// CHECK:       scf.parallel (%[[I:.*]]) = (%{{.*}}) to (%[[B]]) step (%[[STEP]])
// CHECK:         memref.subview %arg0[%[[I]], 0, 0] [8, 16, 128] [1, 1, 1] : memref<32x16x128xf32>
func.func @rows(%x: memref<32x16x128xf32>, %w: memref<128x64xf32>, %y: memref<32x16x64xf32>) {
  linalg.generic {indexing_maps = [#xk, #kn, #xn], iterator_types = ["parallel", "parallel", "parallel", "reduction"]}
      ins(%x, %w : memref<32x16x128xf32>, memref<128x64xf32>) outs(%y : memref<32x16x64xf32>) {
  ^bb0(%a: f32, %b: f32, %s: f32):
    %p = arith.mulf %a, %b : f32
    %t = arith.addf %s, %p : f32
    linalg.yield %t : f32
  }
  return
}
