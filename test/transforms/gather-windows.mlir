// RUN: attn-opt %s --gather-windows | FileCheck %s
// RUN: attn-opt %s --gather-windows -o /dev/null 2>&1 | FileCheck %s --check-prefix=WARNED
// RUN: attn-opt %s --gather-windows="tiles=1" | FileCheck %s --check-prefix=TILES

#x = affine_map<(n, f, y, c, i) -> (n, c, y * 2 + i)>
#w = affine_map<(n, f, y, c, i) -> (f, c, i)>
#o = affine_map<(n, f, y, c, i) -> (n, f, y)>

// Windows side by side, the dimension that the result has innermost innermost; channels and places in them are one sum.
// CHECK-DAG: #[[READ:.*]] = affine_map<(d0, d1, d2, d3) -> (d0, d1, d3 * 2 + d2)>
// CHECK-DAG: #[[ROWS:.*]] = affine_map<(d0, d1, d2, d3) -> (d0, d3, d2)>
// CHECK-DAG: #[[MATRIX:.*]] = affine_map<(d0, d1, d2, d3) -> (d1, d3)>
// CHECK-DAG: #[[RESULT:.*]] = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2)>
// CHECK-LABEL: func.func @channels_first
// CHECK-SAME: (%[[X:.*]]: tensor<2x3x21xf32>, %[[W:.*]]: tensor<8x3x5xf32>, %[[INIT:.*]]: tensor<2x8x9xf32>)
// CHECK: %[[WINDOWS:.*]] = linalg.generic {indexing_maps = [#[[READ]], #{{.*}}]{{.*}} ins(%[[X]] : tensor<2x3x21xf32>) outs(%{{.*}} : tensor<2x3x5x9xf32>)
// CHECK: %[[R:.*]] = tensor.collapse_shape %[[WINDOWS]] {{\[}}[0], [1, 2], [3]] : tensor<2x3x5x9xf32> into tensor<2x15x9xf32>
// CHECK: %[[M:.*]] = tensor.collapse_shape %[[W]] {{\[}}[0], [1, 2]] : tensor<8x3x5xf32> into tensor<8x15xf32>
// CHECK: linalg.generic {indexing_maps = [#[[ROWS]], #[[MATRIX]], #[[RESULT]]], iterator_types = ["parallel", "parallel", "parallel", "reduction"]} ins(%[[R]], %[[M]] : {{.*}}) outs(%[[INIT]] :

// For tiles what is added up is innermost.
// TILES-DAG: #[[ONE:.*]] = affine_map<(d0, d1, d2, d3) -> (d0, d3, d2)>
// TILES-DAG: #[[OF_ONE:.*]] = affine_map<(d0, d1, d2, d3) -> (d1, d3)>
// TILES-LABEL: func.func @channels_first
// TILES: %[[WINDOWS:.*]] = linalg.generic {{.*}} outs(%{{.*}} : tensor<2x9x3x5xf32>)
// TILES: tensor.collapse_shape %[[WINDOWS]] {{\[}}[0], [1], [2, 3]] : tensor<2x9x3x5xf32> into tensor<2x9x15xf32>
func.func @channels_first(%x: tensor<2x3x21xf32>, %w: tensor<8x3x5xf32>, %init: tensor<2x8x9xf32>) -> tensor<2x8x9xf32> {
  %y = linalg.generic {indexing_maps = [#x, #w, #o], iterator_types = ["parallel", "parallel", "parallel", "reduction", "reduction"]}
      ins(%x, %w : tensor<2x3x21xf32>, tensor<8x3x5xf32>) outs(%init : tensor<2x8x9xf32>) {
  ^bb0(%a: f32, %b: f32, %s: f32):
    %p = arith.mulf %a, %b : f32
    %t = arith.addf %s, %p : f32
    linalg.yield %t : f32
  } -> tensor<2x8x9xf32>
  return %y : tensor<2x8x9xf32>
}

#xl = affine_map<(n, y, f, i, c) -> (n, y + i, c)>
#wl = affine_map<(n, y, f, i, c) -> (i, c, f)>
#ol = affine_map<(n, y, f, i, c) -> (n, y, f)>

// With channels last windows are read in place, but not as tiles.
// CHECK-LABEL: func.func @channels_last
// CHECK-COUNT-1: linalg.generic
// CHECK-NOT: linalg.generic
// TILES-LABEL: func.func @channels_last
// TILES: tensor.collapse_shape %{{.*}} {{\[}}[0], [1], [2, 3]] : tensor<2x17x5x3xf32> into tensor<2x17x15xf32>
func.func @channels_last(%x: tensor<2x21x3xf32>, %w: tensor<5x3x8xf32>, %init: tensor<2x17x8xf32>) -> tensor<2x17x8xf32> {
  %y = linalg.generic {indexing_maps = [#xl, #wl, #ol], iterator_types = ["parallel", "parallel", "parallel", "reduction", "reduction"]}
      ins(%x, %w : tensor<2x21x3xf32>, tensor<5x3x8xf32>) outs(%init : tensor<2x17x8xf32>) {
  ^bb0(%a: f32, %b: f32, %s: f32):
    %p = arith.mulf %a, %b : f32
    %t = arith.addf %s, %p : f32
    linalg.yield %t : f32
  } -> tensor<2x17x8xf32>
  return %y : tensor<2x17x8xf32>
}

#x1 = affine_map<(n, f, y, c, i) -> (n, c, y + i)>

// So are many that follow one another by single steps, which fill vectors; of 17 most of the second one would be empty.
// CHECK-LABEL: func.func @many
// CHECK-COUNT-1: linalg.generic
// CHECK-NOT: linalg.generic
// CHECK-LABEL: func.func @few
// CHECK-COUNT-2: linalg.generic
func.func @many(%x: tensor<2x3x104xf32>, %w: tensor<8x3x5xf32>, %init: tensor<2x8x100xf32>) -> tensor<2x8x100xf32> {
  %y = linalg.generic {indexing_maps = [#x1, #w, #o], iterator_types = ["parallel", "parallel", "parallel", "reduction", "reduction"]}
      ins(%x, %w : tensor<2x3x104xf32>, tensor<8x3x5xf32>) outs(%init : tensor<2x8x100xf32>) {
  ^bb0(%a: f32, %b: f32, %s: f32):
    %p = arith.mulf %a, %b : f32
    %t = arith.addf %s, %p : f32
    linalg.yield %t : f32
  } -> tensor<2x8x100xf32>
  return %y : tensor<2x8x100xf32>
}
func.func @few(%x: tensor<2x3x21xf32>, %w: tensor<8x3x5xf32>, %init: tensor<2x8x17xf32>) -> tensor<2x8x17xf32> {
  %y = linalg.generic {indexing_maps = [#x1, #w, #o], iterator_types = ["parallel", "parallel", "parallel", "reduction", "reduction"]}
      ins(%x, %w : tensor<2x3x21xf32>, tensor<8x3x5xf32>) outs(%init : tensor<2x8x17xf32>) {
  ^bb0(%a: f32, %b: f32, %s: f32):
    %p = arith.mulf %a, %b : f32
    %t = arith.addf %s, %p : f32
    linalg.yield %t : f32
  } -> tensor<2x8x17xf32>
  return %y : tensor<2x8x17xf32>
}

#xd = affine_map<(n, c, y, i) -> (n, c, y + i)>
#wd = affine_map<(n, c, y, i) -> (c, i)>
#od = affine_map<(n, c, y, i) -> (n, c, y)>

// Where each element is in few products, a copy would cost more than it saves.
// CHECK-LABEL: func.func @depthwise
// CHECK-COUNT-1: linalg.generic
// CHECK-NOT: linalg.generic
func.func @depthwise(%x: tensor<2x3x21xf32>, %w: tensor<3x5xf32>, %init: tensor<2x3x17xf32>) -> tensor<2x3x17xf32> {
  %y = linalg.generic {indexing_maps = [#xd, #wd, #od], iterator_types = ["parallel", "parallel", "parallel", "reduction"]}
      ins(%x, %w : tensor<2x3x21xf32>, tensor<3x5xf32>) outs(%init : tensor<2x3x17xf32>) {
  ^bb0(%a: f32, %b: f32, %s: f32):
    %p = arith.mulf %a, %b : f32
    %t = arith.addf %s, %p : f32
    linalg.yield %t : f32
  } -> tensor<2x3x17xf32>
  return %y : tensor<2x3x17xf32>
}

#all = affine_map<(i, j) -> (i, j)>
#one = affine_map<(i, j) -> (0, j)>

// What is repeated along a dimension of one element is no window.
// CHECK-LABEL: func.func @scaled
// CHECK-COUNT-1: linalg.generic
// CHECK-NOT: linalg.generic
func.func @scaled(%x: tensor<4x8xf32>, %b: tensor<1x8xf32>, %y: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %r = linalg.generic {indexing_maps = [#all, #one, #all], iterator_types = ["parallel", "parallel"]}
      ins(%x, %b : tensor<4x8xf32>, tensor<1x8xf32>) outs(%y : tensor<4x8xf32>) {
  ^bb0(%a: f32, %c: f32, %s: f32):
    %p = arith.mulf %a, %c : f32
    %t = arith.addf %p, %c : f32
    linalg.yield %t : f32
  } -> tensor<4x8xf32>
  return %r : tensor<4x8xf32>
}

#xh = affine_map<(f, y, c, i) -> (c, y * 2 + i)>
#wh = affine_map<(f, y, c, i) -> (f, c, i)>
#oh = affine_map<(f, y, c, i) -> (f, y)>

// What would take too much memory is told.
// WARNED: warning: the windows of this convolution are read in place, which takes up to twice as long: side by side they would be more than 67108864 elements; split its input
// CHECK-LABEL: func.func @huge
// CHECK-COUNT-1: linalg.generic
// CHECK-NOT: linalg.generic
func.func @huge(%x: tensor<64x2000005xf32>, %w: tensor<8x64x7xf32>, %init: tensor<8x1000000xf32>) -> tensor<8x1000000xf32> {
  %y = linalg.generic {indexing_maps = [#xh, #wh, #oh], iterator_types = ["parallel", "parallel", "reduction", "reduction"]}
      ins(%x, %w : tensor<64x2000005xf32>, tensor<8x64x7xf32>) outs(%init : tensor<8x1000000xf32>) {
  ^bb0(%a: f32, %b: f32, %s: f32):
    %p = arith.mulf %a, %b : f32
    %t = arith.addf %s, %p : f32
    linalg.yield %t : f32
  } -> tensor<8x1000000xf32>
  return %y : tensor<8x1000000xf32>
}

#xu = affine_map<(n, f, y, c, i) -> (n, c, y + i)>

// Windows of one element are none: what is read is a matrix.
// CHECK-LABEL: func.func @one
// TILES-LABEL: func.func @one
// TILES: %[[M:.*]] = tensor.collapse_shape %{{.*}} {{\[}}[0], [1, 2]] : tensor<8x3x1xf32> into tensor<8x3xf32>
// TILES-NEXT: linalg.generic {indexing_maps = [#[[ONE]], #[[OF_ONE]], #{{.*}}]
// TILES-NOT: linalg.generic
// TILES-LABEL: func.func @end
func.func @one(%x: tensor<2x3x9xf32>, %w: tensor<8x3x1xf32>, %init: tensor<2x8x9xf32>) -> tensor<2x8x9xf32> {
  %y = linalg.generic {indexing_maps = [#xu, #w, #o], iterator_types = ["parallel", "parallel", "parallel", "reduction", "reduction"]}
      ins(%x, %w : tensor<2x3x9xf32>, tensor<8x3x1xf32>) outs(%init : tensor<2x8x9xf32>) {
  ^bb0(%a: f32, %b: f32, %s: f32):
    %p = arith.mulf %a, %b : f32
    %t = arith.addf %s, %p : f32
    linalg.yield %t : f32
  } -> tensor<2x8x9xf32>
  return %y : tensor<2x8x9xf32>
}

func.func @end() {
  return
}
