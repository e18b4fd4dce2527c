// RUN: attn-opt %s --view-windows | FileCheck %s

#x = affine_map<(c, x, i) -> (c, x * 2 + i)>
#w = affine_map<(c, x, i) -> (c, i)>
#o = affine_map<(c, x, i) -> (c, x)>

// A dimension for the place of a window, and one for the place in it; lanes, which are parallel, come last.
// CHECK-DAG:   #[[X:.*]] = affine_map<(d0, d1, d2) -> (d0, d2, d1)>
// CHECK-LABEL: func.func @depthwise
// CHECK-SAME:    (%[[X0:.*]]: memref<8x33xf32>, %[[W:.*]]: memref<8x3xf32>, %[[Y:.*]]: memref<8x16xf32>)
// CHECK:         %[[V:.*]] = memref.reinterpret_cast %[[X0]] to offset: [0], sizes: [8, 3, 16], strides: [33, 1, 2]
// CHECK:         linalg.generic {indexing_maps = [#[[X]], #{{.*}}, #{{.*}}]{{.*}} ins(%[[V]], %[[W]] : {{.*}}) outs(%[[Y]] :
func.func @depthwise(%x: memref<8x33xf32>, %w: memref<8x3xf32>, %y: memref<8x16xf32>) {
  linalg.generic {indexing_maps = [#x, #w, #o], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%x, %w : memref<8x33xf32>, memref<8x3xf32>) outs(%y : memref<8x16xf32>) {
  ^bb0(%a: f32, %b: f32, %s: f32):
    %p = arith.mulf %a, %b : f32
    %t = arith.addf %s, %p : f32
    linalg.yield %t : f32
  }
  return
}

#x1 = affine_map<(c, x, i) -> (c, x * 2 + i + 1)>

// Open sizes, and a part of a buffer, in which the first window begins with the second element.
// CHECK-LABEL: func.func @open
// CHECK-SAME:    (%[[X0:.*]]: memref<?x?xf32, strided<[?, 1], offset: ?>>, %[[W:.*]]: memref<?x?xf32>, %[[Y:.*]]: memref<?x?xf32>)
// CHECK-DAG:     %{{.*}}, %[[START:.*]], %{{.*}}:2, %[[APART:.*]]:2 = memref.extract_strided_metadata %[[X0]]
// CHECK-DAG:     %[[FIRST:.*]] = arith.addi %[[START]], %{{.*}} : index
// CHECK:         memref.reinterpret_cast %[[X0]] to offset: [%[[FIRST]]], sizes: [%{{.*}}, %{{.*}}, %{{.*}}], strides: [%[[APART]]#0, 1, 2]
func.func @open(%x: memref<?x?xf32, strided<[?, 1], offset: ?>>, %w: memref<?x?xf32>, %y: memref<?x?xf32>) {
  linalg.generic {indexing_maps = [#x1, #w, #o], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%x, %w : memref<?x?xf32, strided<[?, 1], offset: ?>>, memref<?x?xf32>) outs(%y : memref<?x?xf32>) {
  ^bb0(%a: f32, %b: f32, %s: f32):
    %p = arith.mulf %a, %b : f32
    %t = arith.addf %s, %p : f32
    linalg.yield %t : f32
  }
  return
}

// A pool stays as it is, and so does a loop along two dimensions.
// CHECK-LABEL: func.func @others
// CHECK-NOT:     reinterpret_cast
// CHECK:         return
func.func @others(%x: memref<8x33xf32>, %size: memref<3xf32>, %w: memref<8x3xf32>, %y: memref<8x16xf32>, %z: memref<23x33xf32>) {
  linalg.generic {indexing_maps = [#x, affine_map<(c, x, i) -> (i)>, #o], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%x, %size : memref<8x33xf32>, memref<3xf32>) outs(%y : memref<8x16xf32>) {
  ^bb0(%a: f32, %b: f32, %s: f32):
    %t = arith.maximumf %s, %a : f32
    linalg.yield %t : f32
  }
  linalg.generic {indexing_maps = [affine_map<(c, x, i) -> (c + x, x + i)>, #w, #o], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%z, %w : memref<23x33xf32>, memref<8x3xf32>) outs(%y : memref<8x16xf32>) {
  ^bb0(%a: f32, %b: f32, %s: f32):
    %p = arith.mulf %a, %b : f32
    %t = arith.addf %s, %p : f32
    linalg.yield %t : f32
  }
  return
}
