// RUN: attn-opt %s --drop-units | FileCheck %s

#id3 = affine_map<(d0, d1, d2) -> (d0, d1, d2)>
#id2 = affine_map<(d0, d1) -> (d0, d1)>

// What is computed from a result of the loops with a dimension of one element more is computed without it.
// CHECK-LABEL: func.func @kept_dimension
// CHECK:         %[[R:.*]] = scf.forall
// CHECK:         %[[A:.*]] = linalg.generic {{.*}} iterator_types = ["parallel", "parallel"]} ins(%[[R]] : tensor<8x64xf32>)
// CHECK:           math.absf
// CHECK:         %[[B:.*]] = linalg.generic {{.*}} ins(%[[A]], %[[R]] :
// CHECK:         return %[[B]]
func.func @kept_dimension(%x: f32, %a0: tensor<8x64xf32>) -> tensor<8x64xf32> {
  %r = scf.forall (%i) = (0) to (8) step (1) shared_outs(%a = %a0) -> (tensor<8x64xf32>) {
    %at = tensor.extract_slice %a[%i, 0] [1, 64] [1, 1] : tensor<8x64xf32> to tensor<1x64xf32>
    %a1 = linalg.fill ins(%x : f32) outs(%at : tensor<1x64xf32>) -> tensor<1x64xf32>
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %a1 into %a[%i, 0] [1, 64] [1, 1] : tensor<1x64xf32> into tensor<8x64xf32>
    }
  }
  %e = tensor.expand_shape %r [[0], [1, 2]] output_shape [8, 64, 1] : tensor<8x64xf32> into tensor<8x64x1xf32>
  %o = tensor.empty() : tensor<8x64x1xf32>
  %abs = linalg.generic {indexing_maps = [#id3, #id3], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%e : tensor<8x64x1xf32>) outs(%o : tensor<8x64x1xf32>) {
  ^bb0(%u: f32, %v: f32):
    %f = math.absf %u : f32
    linalg.yield %f : f32
  } -> tensor<8x64x1xf32>
  %c = tensor.collapse_shape %abs [[0], [1, 2]] : tensor<8x64x1xf32> into tensor<8x64xf32>
  %p = tensor.empty() : tensor<8x64xf32>
  %s = linalg.generic {indexing_maps = [#id2, #id2, #id2], iterator_types = ["parallel", "parallel"]}
      ins(%c, %r : tensor<8x64xf32>, tensor<8x64xf32>) outs(%p : tensor<8x64xf32>) {
  ^bb0(%u: f32, %v: f32, %w: f32):
    %f = arith.addf %u, %v : f32
    linalg.yield %f : f32
  } -> tensor<8x64xf32>
  return %s : tensor<8x64xf32>
}

// So is a sum, and what has nothing to do with the loops that there are: ops of a batch of one are of one shape with
// others. What is returned is written as it is.
// CHECK-LABEL: func.func @batch_of_one
// CHECK-SAME:    (%[[X:[^ ]*]]: tensor<1x8x64xf32>,
// CHECK:         %[[C:.*]] = tensor.collapse_shape %[[X]] {{.*}} into tensor<8x64xf32>
// CHECK:         %[[A:.*]] = linalg.generic {{.*}} iterator_types = ["parallel", "parallel"]} ins(%[[C]] : tensor<8x64xf32>)
// CHECK:           math.absf
// CHECK:         %[[S:.*]] = linalg.generic {{.*}} iterator_types = ["parallel", "reduction"]} ins(%[[A]] : tensor<8x64xf32>)
// CHECK-SAME:      outs(%{{.*}} : tensor<8xf32>)
// CHECK:         %[[E:.*]] = tensor.expand_shape %[[S]] {{.*}} into tensor<1x8xf32>
// CHECK:         %[[R:.*]] = linalg.generic {{.*}} ins(%[[E]] : tensor<1x8xf32>)
// CHECK:         return %[[R]],
func.func @batch_of_one(%x: tensor<1x8x64xf32>, %init: tensor<1x8xf32>, %f: f32, %a0: tensor<8x64xf32>)
    -> (tensor<1x8xf32>, tensor<8x64xf32>) {
  %loop = scf.forall (%i) = (0) to (8) step (1) shared_outs(%a = %a0) -> (tensor<8x64xf32>) {
    %at = tensor.extract_slice %a[%i, 0] [1, 64] [1, 1] : tensor<8x64xf32> to tensor<1x64xf32>
    %a1 = linalg.fill ins(%f : f32) outs(%at : tensor<1x64xf32>) -> tensor<1x64xf32>
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %a1 into %a[%i, 0] [1, 64] [1, 1] : tensor<1x64xf32> into tensor<8x64xf32>
    }
  }
  %o = tensor.empty() : tensor<1x8x64xf32>
  %abs = linalg.generic {indexing_maps = [#id3, #id3], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%x : tensor<1x8x64xf32>) outs(%o : tensor<1x8x64xf32>) {
  ^bb0(%u: f32, %v: f32):
    %g = math.absf %u : f32
    linalg.yield %g : f32
  } -> tensor<1x8x64xf32>
  %s = linalg.generic {indexing_maps = [#id3, affine_map<(d0, d1, d2) -> (d0, d1)>],
      iterator_types = ["parallel", "parallel", "reduction"]} ins(%abs : tensor<1x8x64xf32>) outs(%init : tensor<1x8xf32>) {
  ^bb0(%u: f32, %v: f32):
    %g = arith.addf %u, %v : f32
    linalg.yield %g : f32
  } -> tensor<1x8xf32>
  %e = tensor.empty() : tensor<1x8xf32>
  %r = linalg.generic {indexing_maps = [#id2, #id2], iterator_types = ["parallel", "parallel"]}
      ins(%s : tensor<1x8xf32>) outs(%e : tensor<1x8xf32>) {
  ^bb0(%u: f32, %v: f32):
    %g = math.rsqrt %u : f32
    linalg.yield %g : f32
  } -> tensor<1x8xf32>
  return %r, %loop : tensor<1x8xf32>, tensor<8x64xf32>
}

// A sum over one element is that element, and what was there.
// CHECK-LABEL: func.func @single
// CHECK-SAME:    (%[[X:.*]]: tensor<1x16xf32>, %[[INIT:.*]]: tensor<16xf32>)
// CHECK:         linalg.generic {{.*}} iterator_types = ["parallel"]} ins(%[[X]], %[[INIT]] : tensor<1x16xf32>, tensor<16xf32>)
// CHECK-NEXT:    ^bb0(%[[A:.*]]: f32, %[[B:.*]]: f32, %{{.*}}: f32):
// CHECK-NEXT:      %[[S:.*]] = arith.addf %[[B]], %[[A]]
// CHECK-NEXT:      linalg.yield %[[S]]
func.func @single(%x: tensor<1x16xf32>, %init: tensor<16xf32>) -> tensor<16xf32> {
  %r = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (j)>],
      iterator_types = ["reduction", "parallel"]} ins(%x : tensor<1x16xf32>) outs(%init : tensor<16xf32>) {
  ^bb0(%a: f32, %b: f32):
    %s = arith.addf %b, %a : f32
    linalg.yield %s : f32
  } -> tensor<16xf32>
  return %r : tensor<16xf32>
}
