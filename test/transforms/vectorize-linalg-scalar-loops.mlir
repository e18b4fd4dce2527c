// RUN: attn-opt %s --vectorize-linalg 2>/dev/null | FileCheck %s
// RUN: attn-opt %s --vectorize-linalg 2>/dev/null | FileCheck %s --check-prefix=MARK

// What is left to loops over scalars, and long, is marked: LLVM's own vectoriser is to look at it.
// MARK: module attributes {linalg_ext.scalar_loops}
// CHECK-LABEL: func.func @sums
// CHECK:         linalg.generic
func.func @sums(%x: memref<?xf32>, %o: memref<?xf32>, %n: memref<3xf32>) {
  linalg.generic {indexing_maps = [affine_map<(i, j) -> (i + j)>, affine_map<(i, j) -> (j)>, affine_map<(i, j) -> (i)>],
      iterator_types = ["parallel", "reduction"]} ins(%x, %n : memref<?xf32>, memref<3xf32>) outs(%o : memref<?xf32>) {
  ^bb0(%a: f32, %b: f32, %c: f32):
    %0 = arith.mulf %a, %b : f32
    %1 = arith.addf %c, %0 : f32
    linalg.yield %1 : f32
  }
  return
}
