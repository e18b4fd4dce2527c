// RUN: attn-opt %s --split-input-file --join-products | FileCheck %s

// Heads share what is added: it is repeated, and stands beside each one's keys.

// CHECK: #[[HEAD:.*]] = affine_map<(d0, d1, d2) -> (d1, d2)>
// CHECK-LABEL: func.func @shared
// CHECK:         %[[A:.*]] = tensor.concat dim(2) %arg0, %arg2 : {{.*}} -> tensor<8x512x192xf32>
// CHECK:         %[[KEYS:.*]] = linalg.generic {indexing_maps = [#[[HEAD]], {{.*}}ins(%arg3
// CHECK:         %[[B:.*]] = tensor.concat dim(2) %arg1, %[[KEYS]] : {{.*}} -> tensor<8x512x192xf32>
// CHECK:         %[[S:.*]] = linalg.generic {{.*}} ins(%[[A]], %[[B]] :
// CHECK:         linalg.generic {{.*}} ins(%[[S]] : tensor<8x512x512xf32>)
// CHECK-NOT:       arith.addf
// CHECK:           arith.mulf
// CHECK:         linalg_ext.softmax

#q = affine_map<(b, i, j, d) -> (b, i, d)>
#k = affine_map<(b, i, j, d) -> (b, j, d)>
#l = affine_map<(b, i, j, d) -> (j, d)>
#s = affine_map<(b, i, j, d) -> (b, i, j)>
#id = affine_map<(b, i, j) -> (b, i, j)>
#v = affine_map<(b, i, j, d) -> (b, d, j)>
func.func @shared(%q: tensor<8x512x128xf32>, %k: tensor<8x512x128xf32>, %p: tensor<8x512x64xf32>, %l: tensor<512x64xf32>, %values: tensor<8x512x128xf32>) -> tensor<8x512x128xf32> {
  %zero = arith.constant 0.0 : f32
  %low = arith.constant 0xFF800000 : f32
  %e = tensor.empty() : tensor<8x512x512xf32>
  %row = tensor.empty() : tensor<8x512xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<8x512x512xf32>) -> tensor<8x512x512xf32>
  %m0 = linalg.fill ins(%low : f32) outs(%row : tensor<8x512xf32>) -> tensor<8x512xf32>
  %l0 = linalg.fill ins(%zero : f32) outs(%row : tensor<8x512xf32>) -> tensor<8x512xf32>
  %a = linalg.generic {indexing_maps = [#q, #k, #s], iterator_types = ["parallel", "parallel", "parallel", "reduction"]} ins(%q, %k : tensor<8x512x128xf32>, tensor<8x512x128xf32>) outs(%z : tensor<8x512x512xf32>) {
  ^bb0(%x: f32, %y: f32, %acc: f32):
    %t = arith.mulf %x, %y : f32
    %u = arith.addf %acc, %t : f32
    linalg.yield %u : f32
  } -> tensor<8x512x512xf32>
  %r = linalg.generic {indexing_maps = [#q, #l, #s], iterator_types = ["parallel", "parallel", "parallel", "reduction"]} ins(%p, %l : tensor<8x512x64xf32>, tensor<512x64xf32>) outs(%z : tensor<8x512x512xf32>) {
  ^bb0(%x: f32, %y: f32, %acc: f32):
    %t = arith.mulf %x, %y : f32
    %u = arith.addf %acc, %t : f32
    linalg.yield %u : f32
  } -> tensor<8x512x512xf32>
  %scores = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel", "parallel"]} ins(%a, %r : tensor<8x512x512xf32>, tensor<8x512x512xf32>) outs(%e : tensor<8x512x512xf32>) {
  ^bb0(%x: f32, %y: f32, %old: f32):
    %c = arith.constant 0.125 : f32
    %t = arith.addf %x, %y : f32
    %u = arith.mulf %t, %c : f32
    linalg.yield %u : f32
  } -> tensor<8x512x512xf32>
  %w:4 = linalg_ext.softmax dimension(2) ins(%scores : tensor<8x512x512xf32>) outs(%e, %m0, %l0, %row : tensor<8x512x512xf32>, tensor<8x512xf32>, tensor<8x512xf32>, tensor<8x512xf32>) : tensor<8x512x512xf32>, tensor<8x512xf32>, tensor<8x512xf32>, tensor<8x512xf32>
  %oe = tensor.empty() : tensor<8x512x128xf32>
  %oz = linalg.fill ins(%zero : f32) outs(%oe : tensor<8x512x128xf32>) -> tensor<8x512x128xf32>
  %o = linalg.batch_matmul ins(%w#0, %values : tensor<8x512x512xf32>, tensor<8x512x128xf32>) outs(%oz : tensor<8x512x128xf32>) -> tensor<8x512x128xf32>
  return %o : tensor<8x512x128xf32>
}

// -----

// One product is reshaped and transposed before both are multiplied by the same number; sizes are open.

// CHECK-LABEL: func.func @reshaped
// CHECK:         %[[Q:.*]] = tensor.expand_shape %arg0 {{\[\[}}0], [1, 2], [3]]
// CHECK:         %[[QT:.*]] = linalg.generic {{.*}} ins(%[[Q]] : tensor<?x?x4x64xbf16>) outs(%{{.*}} : tensor<?x4x?x64xbf16>)
// CHECK:         tensor.concat dim(3) %arg2, %[[QT]] : {{.*}} -> tensor<?x4x?x96xbf16>
// CHECK:         tensor.concat dim(2) %arg3, %arg1 : {{.*}} -> tensor<?x?x96xbf16>
// CHECK:         linalg.generic {{.*}} outs(%{{.*}} : tensor<?x4x?x?xf32>)
// CHECK:         linalg.generic {{.*}} ins(%{{.*}} : tensor<?x4x?x?xf32>)
// CHECK:           arith.mulf %in, %cst
// CHECK-NOT:       arith.addf
// CHECK:         linalg_ext.softmax

#q = affine_map<(b, i, j, d) -> (b, i, d)>
#k = affine_map<(b, i, j, d) -> (b, j, d)>
#s = affine_map<(b, i, j, d) -> (b, i, j)>
#q4 = affine_map<(b, h, i, j, d) -> (b, h, i, d)>
#k4 = affine_map<(b, h, i, j, d) -> (b, j, d)>
#s4 = affine_map<(b, h, i, j, d) -> (b, h, i, j)>
#id = affine_map<(b, h, i, j) -> (b, h, i, j)>
#turned = affine_map<(b, h, i, j) -> (b, i, h, j)>
#v = affine_map<(b, h, i, d, j) -> (b, j, d)>
#w = affine_map<(b, h, i, d, j) -> (b, h, i, j)>
#o = affine_map<(b, h, i, d, j) -> (b, h, i, d)>
func.func @reshaped(%q: tensor<?x?x64xbf16>, %k: tensor<?x?x64xbf16>, %p: tensor<?x4x?x32xbf16>, %l: tensor<?x?x32xbf16>, %values: tensor<?x?x64xbf16>, %b: index, %rows: index, %i: index, %j: index) -> tensor<?x4x?x64xf32> {
  %zero = arith.constant 0.0 : f32
  %low = arith.constant 0xFF800000 : f32
  %e3 = tensor.empty(%b, %rows, %j) : tensor<?x?x?xf32>
  %z3 = linalg.fill ins(%zero : f32) outs(%e3 : tensor<?x?x?xf32>) -> tensor<?x?x?xf32>
  %e = tensor.empty(%b, %i, %j) : tensor<?x4x?x?xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<?x4x?x?xf32>) -> tensor<?x4x?x?xf32>
  %row = tensor.empty(%b, %i) : tensor<?x4x?xf32>
  %m0 = linalg.fill ins(%low : f32) outs(%row : tensor<?x4x?xf32>) -> tensor<?x4x?xf32>
  %l0 = linalg.fill ins(%zero : f32) outs(%row : tensor<?x4x?xf32>) -> tensor<?x4x?xf32>
  %a = linalg.generic {indexing_maps = [#q, #k, #s], iterator_types = ["parallel", "parallel", "parallel", "reduction"]} ins(%q, %k : tensor<?x?x64xbf16>, tensor<?x?x64xbf16>) outs(%z3 : tensor<?x?x?xf32>) {
  ^bb0(%x: bf16, %y: bf16, %acc: f32):
    %xw = arith.extf %x : bf16 to f32
    %yw = arith.extf %y : bf16 to f32
    %t = arith.mulf %xw, %yw : f32
    %u = arith.addf %acc, %t : f32
    linalg.yield %u : f32
  } -> tensor<?x?x?xf32>
  %wide = tensor.expand_shape %a [[0], [1, 2], [3]] output_shape [%b, %i, 4, %j] : tensor<?x?x?xf32> into tensor<?x?x4x?xf32>
  %r = linalg.generic {indexing_maps = [#q4, #k4, #s4], iterator_types = ["parallel", "parallel", "parallel", "parallel", "reduction"]} ins(%p, %l : tensor<?x4x?x32xbf16>, tensor<?x?x32xbf16>) outs(%z : tensor<?x4x?x?xf32>) {
  ^bb0(%x: bf16, %y: bf16, %acc: f32):
    %xw = arith.extf %x : bf16 to f32
    %yw = arith.extf %y : bf16 to f32
    %t = arith.mulf %xw, %yw : f32
    %u = arith.addf %acc, %t : f32
    linalg.yield %u : f32
  } -> tensor<?x4x?x?xf32>
  %scores = linalg.generic {indexing_maps = [#turned, #id, #id], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%wide, %r : tensor<?x?x4x?xf32>, tensor<?x4x?x?xf32>) outs(%e : tensor<?x4x?x?xf32>) {
  ^bb0(%x: f32, %y: f32, %old: f32):
    %c = arith.constant 0.125 : f32
    %xs = arith.mulf %x, %c : f32
    %ys = arith.mulf %y, %c : f32
    %t = arith.addf %xs, %ys : f32
    linalg.yield %t : f32
  } -> tensor<?x4x?x?xf32>
  %p4:4 = linalg_ext.softmax dimension(3) ins(%scores : tensor<?x4x?x?xf32>) outs(%e, %m0, %l0, %row : tensor<?x4x?x?xf32>, tensor<?x4x?xf32>, tensor<?x4x?xf32>, tensor<?x4x?xf32>) : tensor<?x4x?x?xf32>, tensor<?x4x?xf32>, tensor<?x4x?xf32>, tensor<?x4x?xf32>
  %oe = tensor.empty(%b, %i) : tensor<?x4x?x64xf32>
  %oz = linalg.fill ins(%zero : f32) outs(%oe : tensor<?x4x?x64xf32>) -> tensor<?x4x?x64xf32>
  %out = linalg.generic {indexing_maps = [#w, #v, #o], iterator_types = ["parallel", "parallel", "parallel", "parallel", "reduction"]} ins(%p4#0, %values : tensor<?x4x?x?xf32>, tensor<?x?x64xbf16>) outs(%oz : tensor<?x4x?x64xf32>) {
  ^bb0(%x: f32, %y: bf16, %acc: f32):
    %yw = arith.extf %y : bf16 to f32
    %t = arith.mulf %x, %yw : f32
    %u = arith.addf %acc, %t : f32
    linalg.yield %u : f32
  } -> tensor<?x4x?x64xf32>
  return %out : tensor<?x4x?x64xf32>
}

// -----

// Of few queries all scores are fewer than keys' elements.

// CHECK-LABEL: func.func @few
// CHECK-NOT:     tensor.concat
// CHECK:         arith.addf %in, %in

#q = affine_map<(i, j, d) -> (i, d)>
#k = affine_map<(i, j, d) -> (j, d)>
#s = affine_map<(i, j, d) -> (i, j)>
#id = affine_map<(i, j) -> (i, j)>
func.func @few(%q: tensor<4x64xf32>, %k: tensor<512x64xf32>, %p: tensor<4x64xf32>, %l: tensor<512x64xf32>, %values: tensor<512x64xf32>) -> tensor<4x64xf32> {
  %zero = arith.constant 0.0 : f32
  %low = arith.constant 0xFF800000 : f32
  %e = tensor.empty() : tensor<4x512xf32>
  %row = tensor.empty() : tensor<4xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<4x512xf32>) -> tensor<4x512xf32>
  %m0 = linalg.fill ins(%low : f32) outs(%row : tensor<4xf32>) -> tensor<4xf32>
  %l0 = linalg.fill ins(%zero : f32) outs(%row : tensor<4xf32>) -> tensor<4xf32>
  %a = linalg.generic {indexing_maps = [#q, #k, #s], iterator_types = ["parallel", "parallel", "reduction"]} ins(%q, %k : tensor<4x64xf32>, tensor<512x64xf32>) outs(%z : tensor<4x512xf32>) {
  ^bb0(%x: f32, %y: f32, %acc: f32):
    %t = arith.mulf %x, %y : f32
    %u = arith.addf %acc, %t : f32
    linalg.yield %u : f32
  } -> tensor<4x512xf32>
  %r = linalg.generic {indexing_maps = [#q, #k, #s], iterator_types = ["parallel", "parallel", "reduction"]} ins(%p, %l : tensor<4x64xf32>, tensor<512x64xf32>) outs(%z : tensor<4x512xf32>) {
  ^bb0(%x: f32, %y: f32, %acc: f32):
    %t = arith.mulf %x, %y : f32
    %u = arith.addf %acc, %t : f32
    linalg.yield %u : f32
  } -> tensor<4x512xf32>
  %scores = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]} ins(%a, %r : tensor<4x512xf32>, tensor<4x512xf32>) outs(%e : tensor<4x512xf32>) {
  ^bb0(%x: f32, %y: f32, %old: f32):
    %t = arith.addf %x, %y : f32
    linalg.yield %t : f32
  } -> tensor<4x512xf32>
  %w:4 = linalg_ext.softmax dimension(1) ins(%scores : tensor<4x512xf32>) outs(%e, %m0, %l0, %row : tensor<4x512xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) : tensor<4x512xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
  %oe = tensor.empty() : tensor<4x64xf32>
  %oz = linalg.fill ins(%zero : f32) outs(%oe : tensor<4x64xf32>) -> tensor<4x64xf32>
  %o = linalg.matmul ins(%w#0, %values : tensor<4x512xf32>, tensor<512x64xf32>) outs(%oz : tensor<4x64xf32>) -> tensor<4x64xf32>
  return %o : tensor<4x64xf32>
}
