// RUN: attn-opt %s --split-input-file --sink-scales | FileCheck %s

// The maximum is multiplied once per row; where the exponential is taken, the product is next to its subtraction.
// CHECK-LABEL: func.func @softmax
// CHECK:       %[[S:.*]] = linalg.exp
// CHECK:       %[[N:.*]] = linalg.generic {{.*}} ins(%[[S]] : tensor<4x8xf32>) outs(%{{.*}} : tensor<8xf32>)
// CHECK-NOT:     arith.mulf
// CHECK:         arith.maxnumf
// CHECK:       %[[M:.*]] = linalg.generic {{.*}} ins(%[[N]] : tensor<8xf32>)
// CHECK:         arith.mulf
// CHECK:       linalg.generic {{.*}} ins(%[[M]] : tensor<8xf32>) outs(%[[S]] : tensor<4x8xf32>)
// CHECK:         arith.mulf %out, %{{.*}} {linalg_ext.rounded_first}
// CHECK:         arith.subf
// CHECK:         math.exp2
#id = affine_map<(j, i) -> (j, i)>
#row = affine_map<(j, i) -> (i)>
func.func @softmax(%a: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %minus_inf = arith.constant 0xFF800000 : f32
  %scale = arith.constant 0.125 : f32
  %e = tensor.empty() : tensor<4x8xf32>
  %r = tensor.empty() : tensor<8xf32>
  %s = linalg.exp ins(%a : tensor<4x8xf32>) outs(%e : tensor<4x8xf32>) -> tensor<4x8xf32>
  %x = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%s : tensor<4x8xf32>) outs(%e : tensor<4x8xf32>) {
  ^bb0(%in: f32, %out: f32):
    %y = arith.mulf %in, %scale : f32
    linalg.yield %y : f32
  } -> tensor<4x8xf32>
  %i = linalg.generic {indexing_maps = [affine_map<(i) -> ()>, affine_map<(i) -> (i)>], iterator_types = ["parallel"]} ins(%minus_inf : f32) outs(%r : tensor<8xf32>) {
  ^bb0(%in: f32, %out: f32):
    linalg.yield %in : f32
  } -> tensor<8xf32>
  %m = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["reduction", "parallel"]} ins(%x : tensor<4x8xf32>) outs(%i : tensor<8xf32>) {
  ^bb0(%in: f32, %out: f32):
    %y = arith.maxnumf %in, %out : f32
    linalg.yield %y : f32
  } -> tensor<8xf32>
  %p = linalg.generic {indexing_maps = [#row, #id], iterator_types = ["parallel", "parallel"]} ins(%m : tensor<8xf32>) outs(%x : tensor<4x8xf32>) {
  ^bb0(%in: f32, %out: f32):
    %d = arith.subf %out, %in : f32
    %y = math.exp2 %d : f32
    linalg.yield %y : f32
  } -> tensor<4x8xf32>
  return %p : tensor<4x8xf32>
}

// -----

// A mask is put over scores that are not multiplied yet.
// CHECK-LABEL: func.func @masked
// CHECK:       %[[X:.*]] = linalg.generic
// CHECK-NOT:     arith.mulf
// CHECK:         %[[DEAD:.*]] = arith.cmpi
// CHECK-NEXT:    arith.select %[[DEAD]], %cst{{.*}}, %in
// CHECK:       %[[P:.*]] = linalg.generic {{.*}} outs(%[[X]] :
// CHECK:         arith.mulf %out, %cst
// CHECK:         math.exp2
// CHECK-NOT:     arith.mulf
// CHECK:       return %[[P]]
#id = affine_map<(j, i) -> (j, i)>
func.func @masked(%a: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %minus_inf = arith.constant 0xFF800000 : f32
  %scale = arith.constant 0.125 : f32
  %e = tensor.empty() : tensor<4x8xf32>
  %s = linalg.exp ins(%a : tensor<4x8xf32>) outs(%e : tensor<4x8xf32>) -> tensor<4x8xf32>
  %x = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%s : tensor<4x8xf32>) outs(%e : tensor<4x8xf32>) {
  ^bb0(%in: f32, %out: f32):
    %y = arith.mulf %in, %scale : f32
    %j = linalg.index 0 : index
    %i = linalg.index 1 : index
    %dead = arith.cmpi sgt, %j, %i : index
    %z = arith.select %dead, %minus_inf, %y : f32
    linalg.yield %z : f32
  } -> tensor<4x8xf32>
  %p = linalg.generic {indexing_maps = [#id], iterator_types = ["parallel", "parallel"]} outs(%x : tensor<4x8xf32>) {
  ^bb0(%out: f32):
    %y = math.exp2 %out : f32
    linalg.yield %y : f32
  } -> tensor<4x8xf32>
  return %p : tensor<4x8xf32>
}

// -----

// Not by a negative constant, which would turn the maximum into a minimum; nor into a contraction, which reads an
// element often.
// CHECK-LABEL: func.func @stays
// CHECK-COUNT-2: arith.mulf %{{.*}}, %cst
#id = affine_map<(j, i) -> (j, i)>
func.func @stays(%a: tensor<4x4xf32>) -> (tensor<4x4xf32>, tensor<4x4xf32>) {
  %minus = arith.constant -2.0 : f32
  %two = arith.constant 2.0 : f32
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<4x4xf32>
  %s = linalg.exp ins(%a : tensor<4x4xf32>) outs(%e : tensor<4x4xf32>) -> tensor<4x4xf32>
  %x = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%s : tensor<4x4xf32>) outs(%e : tensor<4x4xf32>) {
  ^bb0(%in: f32, %out: f32):
    %y = arith.mulf %in, %minus : f32
    linalg.yield %y : f32
  } -> tensor<4x4xf32>
  %p = linalg.exp ins(%x : tensor<4x4xf32>) outs(%e : tensor<4x4xf32>) -> tensor<4x4xf32>
  %y = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%s : tensor<4x4xf32>) outs(%e : tensor<4x4xf32>) {
  ^bb0(%in: f32, %out: f32):
    %y = arith.mulf %in, %two : f32
    linalg.yield %y : f32
  } -> tensor<4x4xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<4x4xf32>) -> tensor<4x4xf32>
  %c = linalg.generic {indexing_maps = [affine_map<(i, j, k) -> (i, k)>, affine_map<(i, j, k) -> (k, j)>, affine_map<(i, j, k) -> (i, j)>], iterator_types = ["parallel", "parallel", "reduction"]} ins(%y, %a : tensor<4x4xf32>, tensor<4x4xf32>) outs(%z : tensor<4x4xf32>) {
  ^bb0(%l: f32, %r: f32, %out: f32):
    %q = arith.mulf %l, %r : f32
    %t = arith.addf %out, %q : f32
    linalg.yield %t : f32
  } -> tensor<4x4xf32>
  return %p, %c : tensor<4x4xf32>, tensor<4x4xf32>
}

// -----

// An op of two inputs that reads each element once is no contraction, even if a second result of it is a sum.
// CHECK-LABEL: func.func @two_inputs
// CHECK:       %[[S:.*]] = linalg.exp
// CHECK-NOT:   arith.mulf
// CHECK:       linalg.generic {{.*}} ins(%[[S]], %{{.*}} : tensor<4x8xf32>, tensor<8xf32>)
// CHECK-NEXT:  ^bb0(%[[IN:.*]]: f32, %{{.*}}: f32, %{{.*}}: f32, %{{.*}}: f32):
// CHECK:         arith.mulf %[[IN]], %{{.*}} {linalg_ext.rounded_first}
#id = affine_map<(j, i) -> (j, i)>
#row = affine_map<(j, i) -> (i)>
func.func @two_inputs(%a: tensor<4x8xf32>, %m: tensor<8xf32>, %sums: tensor<8xf32>) -> (tensor<4x8xf32>, tensor<8xf32>) {
  %scale = arith.constant 0.125 : f32
  %e = tensor.empty() : tensor<4x8xf32>
  %s = linalg.exp ins(%a : tensor<4x8xf32>) outs(%e : tensor<4x8xf32>) -> tensor<4x8xf32>
  %x = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%s : tensor<4x8xf32>) outs(%e : tensor<4x8xf32>) {
  ^bb0(%in: f32, %out: f32):
    %y = arith.mulf %in, %scale : f32
    linalg.yield %y : f32
  } -> tensor<4x8xf32>
  %p:2 = linalg.generic {indexing_maps = [#id, #row, #id, #row], iterator_types = ["reduction", "parallel"]} ins(%x, %m : tensor<4x8xf32>, tensor<8xf32>) outs(%e, %sums : tensor<4x8xf32>, tensor<8xf32>) {
  ^bb0(%in: f32, %max: f32, %out: f32, %sum: f32):
    %d = arith.subf %in, %max : f32
    %y = math.exp2 %d : f32
    %t = arith.addf %sum, %y : f32
    linalg.yield %y, %t : f32, f32
  } -> (tensor<4x8xf32>, tensor<8xf32>)
  return %p#0, %p#1 : tensor<4x8xf32>, tensor<8xf32>
}
