// RUN: attn-opt %s --collapse-loops | FileCheck %s

#qt = affine_map<(n, h, m, d) -> (d, h, m)>
#kd = affine_map<(n, h, m, d) -> (n, d)>
#st = affine_map<(n, h, m, d) -> (n, h, m)>
#id = affine_map<(n, h, m) -> (n, h, m)>
#hm = affine_map<(n, h, m) -> (h, m)>
#only_m = affine_map<(n, h, m) -> (m)>

// Four heads of four queries are sixteen rows; one view for all ops that use the buffer.
// CHECK-DAG: #[[DR:.*]] = affine_map<(d0, d1, d2) -> (d2, d1)>
// CHECK-DAG: #[[ND:.*]] = affine_map<(d0, d1, d2) -> (d0, d2)>
// CHECK-DAG: #[[NR:.*]] = affine_map<(d0, d1, d2) -> (d0, d1)>
// CHECK-LABEL: func.func @rows
// CHECK-SAME: (%[[Q:.*]]: memref<64x4x4xf32>, %[[K:.*]]: memref<?x64xf32>, %[[S:.*]]: memref<?x4x4xf32>,
// CHECK: %[[SR:.*]] = memref.collapse_shape %[[S]] {{\[\[}}0], [1, 2]] : memref<?x4x4xf32> into memref<?x16xf32>
// CHECK: %[[QR:.*]] = memref.collapse_shape %[[Q]] {{\[\[}}0], [1, 2]] : memref<64x4x4xf32> into memref<64x16xf32>
// CHECK: linalg.generic {indexing_maps = [#[[DR]], #[[ND]], #[[NR]]], iterator_types = ["parallel", "parallel", "reduction"]} ins(%[[QR]], %[[K]] : {{.*}} outs(%[[SR]] :
// The queries' numbers are those of rows.
// CHECK: linalg.generic {{.*}} iterator_types = ["parallel", "parallel"]} outs(%[[SR]] :
// CHECK:   %[[R:.*]] = linalg.index 1 : index
// CHECK:   arith.remui %[[R]], %c4
func.func @rows(%q: memref<64x4x4xf32>, %k: memref<?x64xf32>, %s: memref<?x4x4xf32>, %x: f32) {
  linalg.generic {indexing_maps = [#qt, #kd, #st], iterator_types = ["parallel", "parallel", "parallel", "reduction"]}
    ins(%q, %k : memref<64x4x4xf32>, memref<?x64xf32>) outs(%s : memref<?x4x4xf32>) {
    ^bb0(%a: f32, %b: f32, %c: f32):
      %p = arith.mulf %a, %b : f32
      %u = arith.addf %c, %p : f32
      linalg.yield %u : f32
  }
  linalg.generic {indexing_maps = [#id], iterator_types = ["parallel", "parallel", "parallel"]} outs(%s : memref<?x4x4xf32>) {
    ^bb0(%c: f32):
      %n = linalg.index 0 : index
      %m = linalg.index 2 : index
      %dead = arith.cmpi ugt, %n, %m : index
      %u = arith.select %dead, %x, %c : f32
      linalg.yield %u : f32
  }
  return
}

// Not where the outer loop's steps leave gaps, where an operand has one of the loops only, or where the inner loop fills vectors.
// CHECK-LABEL: func.func @left
// CHECK-NOT:   collapse_shape
func.func @left(%s: memref<8x4x4xf32, strided<[64, 8, 1]>>, %t: memref<8x4x4xf32>, %b: memref<4xf32>, %w: memref<8x4x16xf32>, %x: f32) {
  linalg.generic {indexing_maps = [affine_map<(n, h, m) -> ()>, #id], iterator_types = ["parallel", "parallel", "parallel"]}
    ins(%x : f32) outs(%s : memref<8x4x4xf32, strided<[64, 8, 1]>>) {
    ^bb0(%a: f32, %c: f32):
      linalg.yield %a : f32
  }
  linalg.generic {indexing_maps = [#only_m, #id], iterator_types = ["parallel", "parallel", "parallel"]}
    ins(%b : memref<4xf32>) outs(%t : memref<8x4x4xf32>) {
    ^bb0(%a: f32, %c: f32):
      linalg.yield %a : f32
  }
  linalg.generic {indexing_maps = [affine_map<(n, h, m) -> ()>, #id], iterator_types = ["parallel", "parallel", "parallel"]}
    ins(%x : f32) outs(%w : memref<8x4x16xf32>) {
    ^bb0(%a: f32, %c: f32):
      linalg.yield %a : f32
  }
  return
}

// What one operand's type leaves open another's says; of a part of something larger nothing does.
// CHECK-LABEL: func.func @open
// CHECK: memref.collapse_shape %{{.*}} {{\[\[}}0, 1]] : memref<8x4xf32> into memref<32xf32>
// CHECK: memref.collapse_shape %{{.*}} {{\[\[}}0, 1]] : memref<?x4xf32> into memref<?xf32>
// CHECK: linalg.generic {{.*}} iterator_types = ["parallel", "parallel"]} ins(%{{.*}} : memref<?x?xf32, strided<[?, 1]>>)
func.func @open(%x: memref<?x4xf32>, %part: memref<?x?xf32, strided<[?, 1]>>, %o: memref<8x4xf32>) {
  linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]}
    ins(%x : memref<?x4xf32>) outs(%o : memref<8x4xf32>) {
    ^bb0(%a: f32, %c: f32):
      linalg.yield %a : f32
  }
  linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]}
    ins(%part : memref<?x?xf32, strided<[?, 1]>>) outs(%o : memref<8x4xf32>) {
    ^bb0(%a: f32, %c: f32):
      linalg.yield %a : f32
  }
  return
}
