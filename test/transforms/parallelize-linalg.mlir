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
