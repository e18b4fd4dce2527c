// RUN: attn-opt %s --raise-attention | FileCheck %s

#id = affine_map<(i, j) -> (i, j)>
#rows = affine_map<(i, j) -> (i)>

// How many keys of a cache are there is known at run time: the cache is not taken for the keys.
// CHECK-LABEL: func.func @cache(
// CHECK-SAME:    %{{.*}}: tensor<4x8xf32>, %[[CACHE:[^:]*]]: tensor<64x8xf32>
// CHECK:         %[[K:.*]] = tensor.extract_slice %[[CACHE]][0, 0] [%{{.*}}, 8] [1, 1]
// CHECK:         linalg.generic {{.*}} ins(%{{.*}}, %[[K]] : tensor<4x8xf32>, tensor<?x8xf32>)
// CHECK:         linalg_ext.softmax
func.func @cache(%q: tensor<4x8xf32>, %cache: tensor<64x8xf32>, %v: tensor<?x8xf32>) -> tensor<4x8xf32> {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : f32
  %n = tensor.dim %v, %c0 : tensor<?x8xf32>
  %k = tensor.extract_slice %cache[0, 0] [%n, 8] [1, 1] : tensor<64x8xf32> to tensor<?x8xf32>
  %se = tensor.empty(%n) : tensor<4x?xf32>
  %s0 = linalg.fill ins(%zero : f32) outs(%se : tensor<4x?xf32>) -> tensor<4x?xf32>
  %s = linalg_ext.batch_matmul ins(%q, %k : tensor<4x8xf32>, tensor<?x8xf32>) outs(%s0 : tensor<4x?xf32>) layout = "nt"
  %p = linalg.softmax dimension(1) ins(%s : tensor<4x?xf32>) outs(%se : tensor<4x?xf32>) -> tensor<4x?xf32>
  %oe = tensor.empty() : tensor<4x8xf32>
  %o0 = linalg.fill ins(%zero : f32) outs(%oe : tensor<4x8xf32>) -> tensor<4x8xf32>
  %o = linalg.matmul ins(%p, %v : tensor<4x?xf32>, tensor<?x8xf32>) outs(%o0 : tensor<4x8xf32>) -> tensor<4x8xf32>
  return %o : tensor<4x8xf32>
}

// A table may be longer than there are keys: as much of it is read as there are.
// CHECK-LABEL: func.func @table(
// CHECK-SAME:    %[[TABLE:[^:]*]]: tensor<64xf32>
// CHECK:         %[[PART:.*]] = tensor.extract_slice %[[TABLE]][0] [%{{.*}}] [1] : tensor<64xf32> to tensor<?xf32>
// CHECK:         linalg.generic {{.*}} ins(%[[PART]], %{{.*}} : tensor<?xf32>, tensor<4x?xf32>)
// CHECK:         linalg_ext.softmax
func.func @table(%q: tensor<4x8xf32>, %k: tensor<?x8xf32>, %v: tensor<?x8xf32>, %table: tensor<64xf32>) -> tensor<4x8xf32> {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : f32
  %n = tensor.dim %v, %c0 : tensor<?x8xf32>
  %se = tensor.empty(%n) : tensor<4x?xf32>
  %s0 = linalg.fill ins(%zero : f32) outs(%se : tensor<4x?xf32>) -> tensor<4x?xf32>
  %s = linalg_ext.batch_matmul ins(%q, %k : tensor<4x8xf32>, tensor<?x8xf32>) outs(%s0 : tensor<4x?xf32>) layout = "nt"
  %x = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%s : tensor<4x?xf32>) outs(%se : tensor<4x?xf32>) {
  ^bb0(%a: f32, %old: f32):
    %j = linalg.index 1 : index
    %b = tensor.extract %table[%j] : tensor<64xf32>
    %y = arith.addf %a, %b : f32
    linalg.yield %y : f32
  } -> tensor<4x?xf32>
  %p = linalg.softmax dimension(1) ins(%x : tensor<4x?xf32>) outs(%se : tensor<4x?xf32>) -> tensor<4x?xf32>
  %oe = tensor.empty() : tensor<4x8xf32>
  %o0 = linalg.fill ins(%zero : f32) outs(%oe : tensor<4x8xf32>) -> tensor<4x8xf32>
  %o = linalg.matmul ins(%p, %v : tensor<4x?xf32>, tensor<?x8xf32>) outs(%o0 : tensor<4x8xf32>) -> tensor<4x8xf32>
  return %o : tensor<4x8xf32>
}

// A type that leaves open what other types say: here a sum of exponentials.
// CHECK-LABEL: func.func @sums(
// CHECK:         linalg_ext.softmax
// CHECK:         return %{{.*}}, %{{.*}} : tensor<4x8xf32>, tensor<?xf32>
func.func @sums(%q: tensor<4x8xf32>, %k: tensor<6x8xf32>, %v: tensor<6x8xf32>) -> (tensor<4x8xf32>, tensor<?xf32>) {
  %c4 = arith.constant 4 : index
  %zero = arith.constant 0.0 : f32
  %lowest = arith.constant 0xFF800000 : f32
  %se = tensor.empty() : tensor<4x6xf32>
  %s0 = linalg.fill ins(%zero : f32) outs(%se : tensor<4x6xf32>) -> tensor<4x6xf32>
  %s = linalg_ext.batch_matmul ins(%q, %k : tensor<4x8xf32>, tensor<6x8xf32>) outs(%s0 : tensor<4x6xf32>) layout = "nt"
  %re = tensor.empty(%c4) : tensor<?xf32>
  %m0 = linalg.fill ins(%lowest : f32) outs(%re : tensor<?xf32>) -> tensor<?xf32>
  %m = linalg.generic {indexing_maps = [#id, #rows], iterator_types = ["parallel", "reduction"]} ins(%s : tensor<4x6xf32>) outs(%m0 : tensor<?xf32>) {
  ^bb0(%a: f32, %b: f32):
    %y = arith.maximumf %a, %b : f32
    linalg.yield %y : f32
  } -> tensor<?xf32>
  %e = linalg.generic {indexing_maps = [#id, #rows, #id], iterator_types = ["parallel", "parallel"]} ins(%s, %m : tensor<4x6xf32>, tensor<?xf32>) outs(%se : tensor<4x6xf32>) {
  ^bb0(%a: f32, %b: f32, %old: f32):
    %d = arith.subf %a, %b : f32
    %y = math.exp %d : f32
    linalg.yield %y : f32
  } -> tensor<4x6xf32>
  %a0 = linalg.fill ins(%zero : f32) outs(%re : tensor<?xf32>) -> tensor<?xf32>
  %l = linalg.generic {indexing_maps = [#id, #rows], iterator_types = ["parallel", "reduction"]} ins(%e : tensor<4x6xf32>) outs(%a0 : tensor<?xf32>) {
  ^bb0(%a: f32, %b: f32):
    %y = arith.addf %a, %b : f32
    linalg.yield %y : f32
  } -> tensor<?xf32>
  %p = linalg.generic {indexing_maps = [#id, #rows, #id], iterator_types = ["parallel", "parallel"]} ins(%e, %l : tensor<4x6xf32>, tensor<?xf32>) outs(%se : tensor<4x6xf32>) {
  ^bb0(%a: f32, %b: f32, %old: f32):
    %y = arith.divf %a, %b : f32
    linalg.yield %y : f32
  } -> tensor<4x6xf32>
  %oe = tensor.empty() : tensor<4x8xf32>
  %o0 = linalg.fill ins(%zero : f32) outs(%oe : tensor<4x8xf32>) -> tensor<4x8xf32>
  %o = linalg.matmul ins(%p, %v : tensor<4x6xf32>, tensor<6x8xf32>) outs(%o0 : tensor<4x8xf32>) -> tensor<4x8xf32>
  return %o, %l : tensor<4x8xf32>, tensor<?xf32>
}

// Windows of an open number, four of which share a mask: the number of such fours is that of the windows, divided.
// CHECK-LABEL: func.func @windows(
// CHECK-SAME:    %[[Q:[^:]*]]: tensor<?x5x8xf32>
// CHECK:         %[[N:.*]] = tensor.dim %[[Q]], %{{.*}} : tensor<?x5x8xf32>
// CHECK:         arith.divui %[[N]], %c4
// CHECK:         linalg_ext.softmax dimension(3) ins(%{{.*}} : tensor<?x4x5x5xf32>)
func.func @windows(%q: tensor<?x5x8xf32>, %k: tensor<?x8x5xf32>, %v: tensor<?x5x8xf32>, %mask: tensor<4x5x5xf32>) -> tensor<?x5x8xf32> {
  %c0 = arith.constant 0 : index
  %c4 = arith.constant 4 : index
  %zero = arith.constant 0.0 : f32
  %n = tensor.dim %q, %c0 : tensor<?x5x8xf32>
  %b = arith.divui %n, %c4 : index
  %se = tensor.empty(%n) : tensor<?x5x5xf32>
  %s0 = linalg.fill ins(%zero : f32) outs(%se : tensor<?x5x5xf32>) -> tensor<?x5x5xf32>
  %s = linalg.batch_matmul ins(%q, %k : tensor<?x5x8xf32>, tensor<?x8x5xf32>) outs(%s0 : tensor<?x5x5xf32>) -> tensor<?x5x5xf32>
  %s4 = tensor.expand_shape %s [[0, 1], [2], [3]] output_shape [%b, 4, 5, 5] : tensor<?x5x5xf32> into tensor<?x4x5x5xf32>
  %xe = tensor.empty(%b) : tensor<?x4x5x5xf32>
  %x = linalg.generic {indexing_maps = [affine_map<(b, w, i, j) -> (b, w, i, j)>, affine_map<(b, w, i, j) -> (w, i, j)>, affine_map<(b, w, i, j) -> (b, w, i, j)>],
      iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%s4, %mask : tensor<?x4x5x5xf32>, tensor<4x5x5xf32>) outs(%xe : tensor<?x4x5x5xf32>) {
  ^bb0(%a: f32, %m: f32, %old: f32):
    %y = arith.addf %a, %m : f32
    linalg.yield %y : f32
  } -> tensor<?x4x5x5xf32>
  %x3 = tensor.collapse_shape %x [[0, 1], [2], [3]] : tensor<?x4x5x5xf32> into tensor<?x5x5xf32>
  %p = linalg.softmax dimension(2) ins(%x3 : tensor<?x5x5xf32>) outs(%se : tensor<?x5x5xf32>) -> tensor<?x5x5xf32>
  %oe = tensor.empty(%n) : tensor<?x5x8xf32>
  %o0 = linalg.fill ins(%zero : f32) outs(%oe : tensor<?x5x8xf32>) -> tensor<?x5x8xf32>
  %o = linalg.batch_matmul ins(%p, %v : tensor<?x5x5xf32>, tensor<?x5x8xf32>) outs(%o0 : tensor<?x5x8xf32>) -> tensor<?x5x8xf32>
  return %o : tensor<?x5x8xf32>
}
