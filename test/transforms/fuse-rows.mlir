// RUN: attn-opt %s --fuse-rows="task=512 tile=64" | FileCheck %s
// RUN: attn-opt %s --fuse-rows | FileCheck %s --check-prefix=SMALL

// All of it stays in the cache.
// SMALL-NOT: scf.for

#all = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<(d0, d1) -> (d0)>
#along = affine_map<(d0, d1) -> (d1)>

// A norm by rows, with the sum before it, which is returned as well; weights are the same for all rows.
// CHECK-LABEL: func.func @norm
// CHECK-SAME:    (%[[X:.*]]: tensor<64x64xf32>, %[[Y:.*]]: tensor<64x64xf32>, %[[W:.*]]: tensor<64xf32>)
// CHECK-NOT:     linalg.generic
// CHECK:         %[[R:.*]]:2 = scf.for %[[I:[^ ]*]] = %{{.*}} to %{{.*}} step %[[STEP:.*]] iter_args(
// CHECK:           scf.for %[[J:[^ ]*]] =
// CHECK:             tensor.extract_slice %[[X]][{{.*}}, 0] [1, 64] [1, 1]
// CHECK:             tensor.extract_slice %[[Y]][{{.*}}, 0] [1, 64] [1, 1]
// CHECK:             %[[A:.*]] = linalg.generic {{.*}} outs(%{{.*}} : tensor<1x64xf32>)
// CHECK:             %[[S:.*]] = linalg.generic {{.*}} "reduction"]} ins(%[[A]] : {{.*}} outs(%{{.*}} : tensor<1xf32>)
// CHECK:             %[[Z:.*]] = linalg.generic {{.*}} ins(%[[A]], %[[S]], %[[W]] : {{.*}} outs(%{{.*}} : tensor<1x64xf32>)
// CHECK-DAG:         tensor.insert_slice %[[Z]] into %{{.*}}[%[[J]], 0] [1, 64] [1, 1] : tensor<1x64xf32> into tensor<8x64xf32>
// CHECK-DAG:         tensor.insert_slice %[[A]] into %{{.*}}[%[[J]], 0] [1, 64] [1, 1] : tensor<1x64xf32> into tensor<8x64xf32>
// CHECK-COUNT-2:   tensor.insert_slice {{.*}} [8, 64] [1, 1] : tensor<8x64xf32> into tensor<64x64xf32>
// CHECK:         return %[[R]]#{{[01]}}, %[[R]]#{{[01]}}
func.func @norm(%x: tensor<64x64xf32>, %y: tensor<64x64xf32>, %w: tensor<64xf32>)
    -> (tensor<64x64xf32>, tensor<64x64xf32>) {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<64x64xf32>
  %r = tensor.empty() : tensor<64xf32>
  %zeros = linalg.fill ins(%zero : f32) outs(%r : tensor<64xf32>) -> tensor<64xf32>
  %a = linalg.generic {indexing_maps = [#all, #all, #all], iterator_types = ["parallel", "parallel"]}
      ins(%x, %y : tensor<64x64xf32>, tensor<64x64xf32>) outs(%e : tensor<64x64xf32>) {
  ^bb0(%p: f32, %q: f32, %o: f32):
    %t = arith.addf %p, %q : f32
    linalg.yield %t : f32
  } -> tensor<64x64xf32>
  %s = linalg.generic {indexing_maps = [#all, #row], iterator_types = ["parallel", "reduction"]}
      ins(%a : tensor<64x64xf32>) outs(%zeros : tensor<64xf32>) {
  ^bb0(%p: f32, %o: f32):
    %t = arith.addf %p, %o : f32
    linalg.yield %t : f32
  } -> tensor<64xf32>
  %z = linalg.generic {indexing_maps = [#all, #row, #along, #all], iterator_types = ["parallel", "parallel"]}
      ins(%a, %s, %w : tensor<64x64xf32>, tensor<64xf32>, tensor<64xf32>) outs(%e : tensor<64x64xf32>) {
  ^bb0(%p: f32, %q: f32, %v: f32, %o: f32):
    %t = arith.divf %p, %q : f32
    %u = arith.mulf %t, %v : f32
    linalg.yield %u : f32
  } -> tensor<64x64xf32>
  return %z, %a : tensor<64x64xf32>, tensor<64x64xf32>
}

// A product with a matrix is not computed by rows, and what depends on it comes after it.
// CHECK-LABEL: func.func @product
// CHECK:         scf.for
// CHECK:           scf.for
// CHECK:         linalg.matmul
// CHECK-NOT:     scf.for
// CHECK:         linalg.generic
// CHECK:         return
func.func @product(%x: tensor<64x64xf32>, %w: tensor<64x64xf32>) -> tensor<64x64xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<64x64xf32>
  %r = tensor.empty() : tensor<64xf32>
  %zeros = linalg.fill ins(%zero : f32) outs(%r : tensor<64xf32>) -> tensor<64xf32>
  %s = linalg.generic {indexing_maps = [#all, #row], iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<64x64xf32>) outs(%zeros : tensor<64xf32>) {
  ^bb0(%p: f32, %o: f32):
    %t = arith.addf %p, %o : f32
    linalg.yield %t : f32
  } -> tensor<64xf32>
  %y = linalg.generic {indexing_maps = [#all, #row, #all], iterator_types = ["parallel", "parallel"]}
      ins(%x, %s : tensor<64x64xf32>, tensor<64xf32>) outs(%e : tensor<64x64xf32>) {
  ^bb0(%p: f32, %q: f32, %o: f32):
    %t = arith.divf %p, %q : f32
    linalg.yield %t : f32
  } -> tensor<64x64xf32>
  %init = linalg.fill ins(%zero : f32) outs(%e : tensor<64x64xf32>) -> tensor<64x64xf32>
  %m = linalg.matmul ins(%y, %w : tensor<64x64xf32>, tensor<64x64xf32>) outs(%init : tensor<64x64xf32>)
      -> tensor<64x64xf32>
  %z = linalg.generic {indexing_maps = [#all, #all, #row, #all], iterator_types = ["parallel", "parallel"]}
      ins(%m, %y, %s : tensor<64x64xf32>, tensor<64x64xf32>, tensor<64xf32>) outs(%e : tensor<64x64xf32>) {
  ^bb0(%p: f32, %q: f32, %v: f32, %o: f32):
    %t = arith.addf %p, %q : f32
    %u = arith.mulf %t, %v : f32
    linalg.yield %u : f32
  } -> tensor<64x64xf32>
  return %z : tensor<64x64xf32>
}

// Columns: 64 of them at a time, which lie side by side.
// CHECK-LABEL: func.func @columns
// CHECK:         scf.for
// CHECK:           tensor.extract_slice %{{.*}}[0, %{{.*}}] [16, 64] [1, 1] : tensor<16x256xf32> to tensor<16x64xf32>
func.func @columns(%x: tensor<16x256xf32>) -> tensor<16x256xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<16x256xf32>
  %r = tensor.empty() : tensor<256xf32>
  %zeros = linalg.fill ins(%zero : f32) outs(%r : tensor<256xf32>) -> tensor<256xf32>
  %s = linalg.generic {indexing_maps = [#all, #along], iterator_types = ["reduction", "parallel"]}
      ins(%x : tensor<16x256xf32>) outs(%zeros : tensor<256xf32>) {
  ^bb0(%p: f32, %o: f32):
    %t = arith.addf %p, %o : f32
    linalg.yield %t : f32
  } -> tensor<256xf32>
  %y = linalg.generic {indexing_maps = [#all, #along, #all], iterator_types = ["parallel", "parallel"]}
      ins(%x, %s : tensor<16x256xf32>, tensor<256xf32>) outs(%e : tensor<16x256xf32>) {
  ^bb0(%p: f32, %q: f32, %o: f32):
    %t = arith.divf %p, %q : f32
    linalg.yield %t : f32
  } -> tensor<16x256xf32>
  return %y : tensor<16x256xf32>
}

// A sum that nothing is computed from row by row stays as it is.
// CHECK-LABEL: func.func @sums
// CHECK-NOT:     scf.for
// CHECK:         return
func.func @sums(%x: tensor<64x64xf32>, %zeros: tensor<64xf32>) -> tensor<64xf32> {
  %s = linalg.generic {indexing_maps = [#all, #row], iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<64x64xf32>) outs(%zeros : tensor<64xf32>) {
  ^bb0(%p: f32, %o: f32):
    %t = arith.addf %p, %o : f32
    linalg.yield %t : f32
  } -> tensor<64xf32>
  return %s : tensor<64xf32>
}

// What is compared with all others of its row is the same sum for each of them: computed once, a contraction or not. In
// two copies, added up in different orders, it would not be equal to itself.
// CHECK-LABEL: func.func @ranks
// CHECK:         linalg.generic {{.*}} ins(%{{.*}}, %{{.*}} : tensor<64x32xf32>, tensor<8x32xf32>)
// CHECK:           arith.mulf
// CHECK:         linalg.generic {{.*}} ins(%{{.*}}, %{{.*}} : tensor<64x32xf32>, tensor<8x32xf32>)
// CHECK:           arith.subf
// CHECK-NOT:     arith.mulf
// CHECK-NOT:     arith.subf
// CHECK:         return
#i_k = affine_map<(i, j, k) -> (i, k)>
#j_k = affine_map<(i, j, k) -> (j, k)>
#i_j = affine_map<(i, j, k) -> (i, j)>
func.func @ranks(%x: tensor<64x32xf32>, %w: tensor<8x32xf32>) -> tensor<64x8xi32> {
  %zero = arith.constant 0.0 : f32
  %none = arith.constant 0 : i32
  %e = tensor.empty() : tensor<64x8xf32>
  %zeros = linalg.fill ins(%zero : f32) outs(%e : tensor<64x8xf32>) -> tensor<64x8xf32>
  %h = tensor.empty() : tensor<64x8xi32>
  %nones = linalg.fill ins(%none : i32) outs(%h : tensor<64x8xi32>) -> tensor<64x8xi32>
  %s = linalg.generic {indexing_maps = [#i_k, #j_k, #i_j], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%x, %w : tensor<64x32xf32>, tensor<8x32xf32>) outs(%zeros : tensor<64x8xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %p = arith.mulf %a, %b : f32
    %t = arith.addf %o, %p : f32
    linalg.yield %t : f32
  } -> tensor<64x8xf32>
  %d = linalg.generic {indexing_maps = [#i_k, #j_k, #i_j], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%x, %w : tensor<64x32xf32>, tensor<8x32xf32>) outs(%s : tensor<64x8xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %p = arith.subf %a, %b : f32
    %t = arith.addf %o, %p : f32
    linalg.yield %t : f32
  } -> tensor<64x8xf32>
  %r = linalg.generic {indexing_maps = [#i_j, #i_k, #i_j], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%d, %d : tensor<64x8xf32>, tensor<64x8xf32>) outs(%nones : tensor<64x8xi32>) {
  ^bb0(%a: f32, %b: f32, %o: i32):
    %c = arith.cmpf ogt, %b, %a : f32
    %n = arith.extui %c : i1 to i32
    %t = arith.addi %o, %n : i32
    linalg.yield %t : i32
  } -> tensor<64x8xi32>
  return %r : tensor<64x8xi32>
}
