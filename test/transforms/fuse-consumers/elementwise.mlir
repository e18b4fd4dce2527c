// RUN: attn-opt %s --fuse-consumers | FileCheck %s

#id = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<(d0, d1) -> (d0)>

// The quotient of two results, rounded and moved by its position, is computed on the tiles. Nothing else of them stays.
// CHECK-LABEL: func.func @quotient
// CHECK:         %[[E:.*]] = tensor.empty() : tensor<96x32xf16>
// CHECK:         %[[R:.*]] = scf.forall (%[[I:.*]]) = (0) to (96) step (64) shared_outs(%[[O:.*]] = %[[E]]) -> (tensor<96x32xf16>)
// CHECK:           %[[SIZE:.*]] = affine.min
// CHECK:           %[[A:.*]] = linalg.fill
// CHECK:           %[[B:.*]] = linalg.fill
// CHECK:           %[[OUT:.*]] = tensor.extract_slice %[[O]][%[[I]], 0] [%[[SIZE]], 32] [1, 1]
// CHECK:           %[[Q:.*]] = linalg.generic {{.*}} ins(%[[A]], %[[B]] : {{.*}}) outs(%[[OUT]] :
// CHECK:             %[[AT:.*]] = linalg.index 0
// CHECK:             arith.addi %[[AT]], %[[I]]
// CHECK:             arith.divf
// CHECK:           scf.forall.in_parallel
// CHECK-NEXT:        tensor.parallel_insert_slice %[[Q]] into %[[O]][%[[I]], 0] [%[[SIZE]], 32] [1, 1]
// CHECK:         return %[[R]]
func.func @quotient(%x: f32, %a0: tensor<96x32xf32>, %b0: tensor<96xf32>) -> tensor<96x32xf16> {
  %r:2 = scf.forall (%i) = (0) to (96) step (64) shared_outs(%a = %a0, %b = %b0) -> (tensor<96x32xf32>, tensor<96xf32>) {
    %n = affine.min affine_map<(d0) -> (64, 96 - d0)>(%i)
    %at = tensor.extract_slice %a[%i, 0] [%n, 32] [1, 1] : tensor<96x32xf32> to tensor<?x32xf32>
    %bt = tensor.extract_slice %b[%i] [%n] [1] : tensor<96xf32> to tensor<?xf32>
    %a1 = linalg.fill ins(%x : f32) outs(%at : tensor<?x32xf32>) -> tensor<?x32xf32>
    %b1 = linalg.fill ins(%x : f32) outs(%bt : tensor<?xf32>) -> tensor<?xf32>
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %a1 into %a[%i, 0] [%n, 32] [1, 1] : tensor<?x32xf32> into tensor<96x32xf32>
      tensor.parallel_insert_slice %b1 into %b[%i] [%n] [1] : tensor<?xf32> into tensor<96xf32>
    }
  }
  %e = tensor.empty() : tensor<96x32xf16>
  %q = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]}
      ins(%r#0, %r#1 : tensor<96x32xf32>, tensor<96xf32>) outs(%e : tensor<96x32xf16>) {
  ^bb0(%u: f32, %v: f32, %w: f16):
    %i = linalg.index 0 : index
    %j = arith.index_cast %i : index to i32
    %f = arith.sitofp %j : i32 to f32
    %d = arith.divf %u, %v : f32
    %s = arith.addf %d, %f : f32
    %t = arith.truncf %s : f32 to f16
    linalg.yield %t : f16
  } -> tensor<96x32xf16>
  return %q : tensor<96x32xf16>
}

// What needs rows of other tiles stays where it is.
// CHECK-LABEL: func.func @reduction
// CHECK:         scf.forall
// CHECK:         linalg.generic
func.func @reduction(%x: f32, %a0: tensor<96x32xf32>, %z: tensor<32xf32>) -> tensor<32xf32> {
  %r = scf.forall (%i) = (0) to (96) step (32) shared_outs(%a = %a0) -> (tensor<96x32xf32>) {
    %at = tensor.extract_slice %a[%i, 0] [32, 32] [1, 1] : tensor<96x32xf32> to tensor<32x32xf32>
    %a1 = linalg.fill ins(%x : f32) outs(%at : tensor<32x32xf32>) -> tensor<32x32xf32>
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %a1 into %a[%i, 0] [32, 32] [1, 1] : tensor<32x32xf32> into tensor<96x32xf32>
    }
  }
  %s = linalg.generic {indexing_maps = [#id, affine_map<(d0, d1) -> (d1)>], iterator_types = ["reduction", "parallel"]}
      ins(%r : tensor<96x32xf32>) outs(%z : tensor<32xf32>) {
  ^bb0(%u: f32, %v: f32):
    %t = arith.addf %u, %v : f32
    linalg.yield %t : f32
  } -> tensor<32xf32>
  return %s : tensor<32xf32>
}

// What rounds each element of a result goes before a reshape of it.
// CHECK-LABEL: func.func @reshaped
// CHECK:         %[[R:.*]] = scf.forall {{.*}} -> (tensor<4x?x32xf16>)
// CHECK:           arith.truncf
// CHECK:           scf.forall.in_parallel
// CHECK:         %[[C:.*]] = tensor.collapse_shape %[[R]] {{.*}} : tensor<4x?x32xf16> into tensor<?x32xf16>
// CHECK-NEXT:    return %[[C]]
func.func @reshaped(%x: f32, %n: index) -> tensor<?x32xf16> {
  %a0 = tensor.empty(%n) : tensor<4x?x32xf32>
  %r = scf.forall (%h, %i) = (0, 0) to (4, %n) step (1, 64) shared_outs(%a = %a0) -> (tensor<4x?x32xf32>) {
    %m = affine.min affine_map<(d0)[s0] -> (64, s0 - d0)>(%i)[%n]
    %at = tensor.extract_slice %a[%h, %i, 0] [1, %m, 32] [1, 1, 1] : tensor<4x?x32xf32> to tensor<1x?x32xf32>
    %a1 = linalg.fill ins(%x : f32) outs(%at : tensor<1x?x32xf32>) -> tensor<1x?x32xf32>
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %a1 into %a[%h, %i, 0] [1, %m, 32] [1, 1, 1] : tensor<1x?x32xf32> into tensor<4x?x32xf32>
    }
  }
  %c = tensor.collapse_shape %r [[0, 1], [2]] : tensor<4x?x32xf32> into tensor<?x32xf32>
  %c4 = arith.constant 4 : index
  %n4 = arith.muli %n, %c4 : index
  %e = tensor.empty(%n4) : tensor<?x32xf16>
  %q = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%c : tensor<?x32xf32>) outs(%e : tensor<?x32xf16>) {
  ^bb0(%u: f32, %w: f16):
    %t = arith.truncf %u : f32 to f16
    linalg.yield %t : f16
  } -> tensor<?x32xf16>
  return %q : tensor<?x32xf16>
}

// What reads the result at other places than its own, besides, stays behind the loop.
// CHECK-LABEL: func.func @reversed
// CHECK:         %[[R:.*]] = scf.forall
// CHECK-NOT:       tensor.extract %
// CHECK:           scf.forall.in_parallel
// CHECK:         linalg.generic
// CHECK:           tensor.extract %[[R]]
func.func @reversed(%x: f32) -> tensor<128x32xf32> {
  %c127 = arith.constant 127 : index
  %a0 = tensor.empty() : tensor<128x32xf32>
  %r = scf.forall (%i) = (0) to (128) step (64) shared_outs(%a = %a0) -> (tensor<128x32xf32>) {
    %at = tensor.extract_slice %a[%i, 0] [64, 32] [1, 1] : tensor<128x32xf32> to tensor<64x32xf32>
    %a1 = linalg.fill ins(%x : f32) outs(%at : tensor<64x32xf32>) -> tensor<64x32xf32>
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %a1 into %a[%i, 0] [64, 32] [1, 1] : tensor<64x32xf32> into tensor<128x32xf32>
    }
  }
  %e = tensor.empty() : tensor<128x32xf32>
  %q = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%r : tensor<128x32xf32>) outs(%e : tensor<128x32xf32>) {
  ^bb0(%u: f32, %w: f32):
    %i = linalg.index 0 : index
    %j = linalg.index 1 : index
    %k = arith.subi %c127, %i : index
    %t = tensor.extract %r[%k, %j] : tensor<128x32xf32>
    linalg.yield %t : f32
  } -> tensor<128x32xf32>
  return %q : tensor<128x32xf32>
}

// What is added to a result whose dimensions are split, at the same places, is read as it is before that.
// CHECK-LABEL: func.func @residual
// CHECK-SAME:    (%[[X:.*]]: tensor<4x8x32xf32>, %[[C:.*]]: tensor<32xf32>
// CHECK:         %[[J:.*]] = tensor.collapse_shape %[[X]] {{\[\[}}0, 1], [2]] : tensor<4x8x32xf32> into tensor<32x32xf32>
// CHECK:         %[[R:.*]] = scf.forall
// CHECK-DAG:       tensor.extract_slice %[[J]]
// CHECK:           arith.addf
// CHECK:         tensor.expand_shape %[[R]] {{\[\[}}0, 1], [2]]
// CHECK-NOT:     linalg.generic
// CHECK:         return
func.func @residual(%x: tensor<4x8x32xf32>, %c: tensor<32xf32>, %f: f32) -> tensor<4x8x32xf32> {
  %e = tensor.empty() : tensor<32x32xf32>
  %r = scf.forall (%i) = (0) to (32) step (16) shared_outs(%o = %e) -> (tensor<32x32xf32>) {
    %s = tensor.empty() : tensor<16x32xf32>
    %t = linalg.fill ins(%f : f32) outs(%s : tensor<16x32xf32>) -> tensor<16x32xf32>
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %t into %o[%i, 0] [16, 32] [1, 1] : tensor<16x32xf32> into tensor<32x32xf32>
    }
  }
  %w = tensor.expand_shape %r [[0, 1], [2]] output_shape [4, 8, 32] : tensor<32x32xf32> into tensor<4x8x32xf32>
  %n = tensor.empty() : tensor<4x8x32xf32>
  %y = linalg.generic {indexing_maps = [affine_map<(a, b, d) -> (a, b, d)>, affine_map<(a, b, d) -> (a, b, d)>,
          affine_map<(a, b, d) -> (d)>, affine_map<(a, b, d) -> (a, b, d)>],
      iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%w, %x, %c : tensor<4x8x32xf32>, tensor<4x8x32xf32>, tensor<32xf32>) outs(%n : tensor<4x8x32xf32>) {
  ^bb0(%p: f32, %q: f32, %v: f32, %z: f32):
    %0 = arith.addf %p, %q : f32
    %1 = arith.mulf %0, %v : f32
    linalg.yield %1 : f32
  } -> tensor<4x8x32xf32>
  return %y : tensor<4x8x32xf32>
}

// What is multiplied with a result may be computed behind the loop, in several steps: these move before it, where tiles
// can read what they give.
// CHECK-LABEL: func.func @computed_behind
// CHECK-SAME:    (%[[X:.*]]: tensor<1x32x32xf32>
// CHECK:         %[[A:.*]] = linalg.generic {{.*}} ins(%[[X]] :
// CHECK:           math.absf
// CHECK:         %[[J:.*]] = tensor.collapse_shape %[[A]]
// CHECK:         %[[R:.*]] = scf.forall
// CHECK-DAG:       tensor.extract_slice %[[J]]
// CHECK:           arith.mulf
// CHECK:         return %[[R]]
func.func @computed_behind(%x: tensor<1x32x32xf32>, %f: f32) -> tensor<32x32xf32> {
  %e = tensor.empty() : tensor<32x32xf32>
  %r = scf.forall (%i) = (0) to (32) step (16) shared_outs(%o = %e) -> (tensor<32x32xf32>) {
    %s = tensor.empty() : tensor<16x32xf32>
    %t = linalg.fill ins(%f : f32) outs(%s : tensor<16x32xf32>) -> tensor<16x32xf32>
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %t into %o[%i, 0] [16, 32] [1, 1] : tensor<16x32xf32> into tensor<32x32xf32>
    }
  }
  %n = tensor.empty() : tensor<1x32x32xf32>
  %a = linalg.generic {indexing_maps = [affine_map<(a, b, d) -> (a, b, d)>, affine_map<(a, b, d) -> (a, b, d)>],
      iterator_types = ["parallel", "parallel", "parallel"]} ins(%x : tensor<1x32x32xf32>) outs(%n : tensor<1x32x32xf32>) {
  ^bb0(%p: f32, %z: f32):
    %0 = math.absf %p : f32
    linalg.yield %0 : f32
  } -> tensor<1x32x32xf32>
  %j = tensor.collapse_shape %a [[0, 1], [2]] : tensor<1x32x32xf32> into tensor<32x32xf32>
  %y = linalg.generic {indexing_maps = [affine_map<(b, d) -> (b, d)>, affine_map<(b, d) -> (b, d)>,
      affine_map<(b, d) -> (b, d)>], iterator_types = ["parallel", "parallel"]}
      ins(%r, %j : tensor<32x32xf32>, tensor<32x32xf32>) outs(%e : tensor<32x32xf32>) {
  ^bb0(%p: f32, %q: f32, %z: f32):
    %0 = arith.mulf %p, %q : f32
    linalg.yield %0 : f32
  } -> tensor<32x32xf32>
  return %y : tensor<32x32xf32>
}
