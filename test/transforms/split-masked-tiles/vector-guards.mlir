// RUN: attn-opt %s --fuse-attention="tile-sizes=1,16,0,32" --canonicalize --cse --parallel-loops --canonicalize --split-masked-tiles --canonicalize --cse --split-input-file | FileCheck %s

#left = affine_map<(b, i, j, d) -> (b, i, d)>
#right = affine_map<(b, i, j, d) -> (b, j, d)>
#values = affine_map<(b, i, j, d) -> (b, d, j)>
#out = affine_map<(b, i, j, d) -> (b, i, j)>
#id = affine_map<(b, i, j) -> (b, i, j)>
#key = affine_map<(b, i, j) -> (b, j)>
#vector = affine_map<(b, j) -> (b, j)>

// A guard of a number that each key has, such as one of a row's statistics in a derivative: an op on a vector takes less
// time than a test of each tile.
// CHECK-LABEL: func.func @vector
// CHECK:      scf.forall
// CHECK:        scf.for
// CHECK-NOT:      scf.if
// CHECK:          math.exp2
// CHECK-NOT:    scf.for %
func.func @vector(%q: tensor<2x64x8xf32>, %k: tensor<2x128x8xf32>, %v: tensor<2x128x8xf32>, %m: tensor<2x128xf32>) -> tensor<2x64x8xf32> {
  %zero = arith.constant 0.0 : f32
  %minus_inf = arith.constant 0xFF800000 : f32
  %e = tensor.empty() : tensor<2x64x128xf32>
  %e_n = tensor.empty() : tensor<2x128xf32>
  %e_o = tensor.empty() : tensor<2x64x8xf32>
  %s0 = linalg.fill ins(%zero : f32) outs(%e : tensor<2x64x128xf32>) -> tensor<2x64x128xf32>
  %o0 = linalg.fill ins(%zero : f32) outs(%e_o : tensor<2x64x8xf32>) -> tensor<2x64x8xf32>
  %n = linalg.generic {indexing_maps = [#vector, #vector], iterator_types = ["parallel", "parallel"]} ins(%m : tensor<2x128xf32>) outs(%e_n : tensor<2x128xf32>) {
  ^bb0(%x: f32, %_: f32):
    %none = arith.cmpf oeq, %x, %minus_inf : f32
    %y = arith.select %none, %zero, %x : f32
    linalg.yield %y : f32
  } -> tensor<2x128xf32>
  %s = linalg.generic {indexing_maps = [#left, #right, #out], iterator_types = ["parallel", "parallel", "parallel", "reduction"]} ins(%q, %k : tensor<2x64x8xf32>, tensor<2x128x8xf32>) outs(%s0 : tensor<2x64x128xf32>) {
  ^bb0(%x: f32, %y: f32, %z: f32):
    %p = arith.mulf %x, %y : f32
    %r = arith.addf %z, %p : f32
    linalg.yield %r : f32
  } -> tensor<2x64x128xf32>
  %w = linalg.generic {indexing_maps = [#id, #key, #id], iterator_types = ["parallel", "parallel", "parallel"]} ins(%s, %n : tensor<2x64x128xf32>, tensor<2x128xf32>) outs(%e : tensor<2x64x128xf32>) {
  ^bb0(%x: f32, %y: f32, %_: f32):
    %d = arith.subf %x, %y : f32
    %r = math.exp2 %d : f32
    linalg.yield %r : f32
  } -> tensor<2x64x128xf32>
  %o = linalg.generic {indexing_maps = [#left, #values, #out], iterator_types = ["parallel", "parallel", "parallel", "reduction"]} ins(%w, %v : tensor<2x64x128xf32>, tensor<2x128x8xf32>) outs(%o0 : tensor<2x64x8xf32>) {
  ^bb0(%x: f32, %y: f32, %z: f32):
    %p = arith.mulf %x, %y : f32
    %r = arith.addf %z, %p : f32
    linalg.yield %r : f32
  } -> tensor<2x64x8xf32>
  return %o : tensor<2x64x8xf32>
}

// -----

#left = affine_map<(b, i, j, d) -> (b, i, d)>
#right = affine_map<(b, i, j, d) -> (b, j, d)>
#values = affine_map<(b, i, j, d) -> (b, d, j)>
#out = affine_map<(b, i, j, d) -> (b, i, j)>
#id = affine_map<(b, i, j) -> (b, i, j)>
#key = affine_map<(b, i, j) -> (b, j)>

// The same number as a mask of each score.
// CHECK-LABEL: func.func @tile
// CHECK:      scf.forall
// CHECK:        scf.for
// CHECK:          scf.if
// CHECK:          math.exp2
func.func @tile(%q: tensor<2x64x8xf32>, %k: tensor<2x128x8xf32>, %v: tensor<2x128x8xf32>, %m: tensor<2x128xf32>) -> tensor<2x64x8xf32> {
  %zero = arith.constant 0.0 : f32
  %minus_inf = arith.constant 0xFF800000 : f32
  %e = tensor.empty() : tensor<2x64x128xf32>
  %e_o = tensor.empty() : tensor<2x64x8xf32>
  %s0 = linalg.fill ins(%zero : f32) outs(%e : tensor<2x64x128xf32>) -> tensor<2x64x128xf32>
  %o0 = linalg.fill ins(%zero : f32) outs(%e_o : tensor<2x64x8xf32>) -> tensor<2x64x8xf32>
  %s = linalg.generic {indexing_maps = [#left, #right, #out], iterator_types = ["parallel", "parallel", "parallel", "reduction"]} ins(%q, %k : tensor<2x64x8xf32>, tensor<2x128x8xf32>) outs(%s0 : tensor<2x64x128xf32>) {
  ^bb0(%x: f32, %y: f32, %z: f32):
    %p = arith.mulf %x, %y : f32
    %r = arith.addf %z, %p : f32
    linalg.yield %r : f32
  } -> tensor<2x64x128xf32>
  %w = linalg.generic {indexing_maps = [#id, #key, #id], iterator_types = ["parallel", "parallel", "parallel"]} ins(%s, %m : tensor<2x64x128xf32>, tensor<2x128xf32>) outs(%e : tensor<2x64x128xf32>) {
  ^bb0(%x: f32, %y: f32, %_: f32):
    %none = arith.cmpf oeq, %y, %minus_inf : f32
    %t = math.exp2 %x : f32
    %r = arith.select %none, %zero, %t : f32
    linalg.yield %r : f32
  } -> tensor<2x64x128xf32>
  %o = linalg.generic {indexing_maps = [#left, #values, #out], iterator_types = ["parallel", "parallel", "parallel", "reduction"]} ins(%w, %v : tensor<2x64x128xf32>, tensor<2x128x8xf32>) outs(%o0 : tensor<2x64x8xf32>) {
  ^bb0(%x: f32, %y: f32, %z: f32):
    %p = arith.mulf %x, %y : f32
    %r = arith.addf %z, %p : f32
    linalg.yield %r : f32
  } -> tensor<2x64x8xf32>
  return %o : tensor<2x64x8xf32>
}
