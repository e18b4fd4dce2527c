// RUN: attn-opt %s --recompute-elements --canonicalize --cse | FileCheck %s

#id = affine_map<(i, j) -> (i, j)>
#column = affine_map<(i, j) -> (j)>
#whole = affine_map<(b, i, j) -> (b, i, j)>
#last = affine_map<(b, i, j) -> (j)>

// A sigmoid in f32, of what the loop reads in f16 anyway, is computed on the tile. So is what it is computed to for
// another reader: each has its own. The reshape goes before both.
// CHECK-LABEL: func.func @sigmoid
// CHECK-SAME:    (%[[G3:.*]]: tensor<2x64x96xf16>, %[[B:.*]]: tensor<96xf16>,
// CHECK:         math.exp
// CHECK:         %[[G:.*]] = tensor.collapse_shape %[[G3]] {{.*}} into tensor<128x96xf16>
// CHECK:         scf.forall (%[[I:.*]], %[[J:.*]]) =
// CHECK-DAG:       %[[GT:.*]] = tensor.extract_slice %[[G]][%[[I]], %[[J]]] [32, 48]
// CHECK-DAG:       %[[BT:.*]] = tensor.extract_slice %[[B]][%[[J]]] [48]
// CHECK:           %[[S:.*]] = linalg.generic {{.*}} ins(%[[GT]], %[[BT]] :
// CHECK:             math.exp
// CHECK:           linalg.generic {{.*}} ins(%[[GT]], %[[S]] :
// CHECK:         return
func.func @sigmoid(%g3: tensor<2x64x96xf16>, %bias: tensor<96xf16>, %out: tensor<128x96xf16>)
    -> (tensor<128x96xf16>, tensor<2x64x96xf16>) {
  %one = arith.constant 1.0 : f32
  %e3 = tensor.empty() : tensor<2x64x96xf32>
  %s3 = linalg.generic {indexing_maps = [#whole, #last, #whole], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%g3, %bias : tensor<2x64x96xf16>, tensor<96xf16>) outs(%e3 : tensor<2x64x96xf32>) {
  ^bb0(%x: f16, %b: f16, %o: f32):
    %sum = arith.addf %x, %b : f16
    %w = arith.extf %sum : f16 to f32
    %n = arith.negf %w : f32
    %p = math.exp %n : f32
    %q = arith.addf %p, %one : f32
    %r = arith.divf %one, %q : f32
    linalg.yield %r : f32
  } -> tensor<2x64x96xf32>
  %g = tensor.collapse_shape %g3 [[0, 1], [2]] : tensor<2x64x96xf16> into tensor<128x96xf16>
  %s = tensor.collapse_shape %s3 [[0, 1], [2]] : tensor<2x64x96xf32> into tensor<128x96xf32>
  %r = scf.forall (%i, %j) = (0, 0) to (128, 96) step (32, 48) shared_outs(%o = %out) -> (tensor<128x96xf16>) {
    %gt = tensor.extract_slice %g[%i, %j] [32, 48] [1, 1] : tensor<128x96xf16> to tensor<32x48xf16>
    %st = tensor.extract_slice %s[%i, %j] [32, 48] [1, 1] : tensor<128x96xf32> to tensor<32x48xf32>
    %ot = tensor.extract_slice %o[%i, %j] [32, 48] [1, 1] : tensor<128x96xf16> to tensor<32x48xf16>
    %t = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
        ins(%gt, %st : tensor<32x48xf16>, tensor<32x48xf32>) outs(%ot : tensor<32x48xf16>) {
    ^bb0(%x: f16, %y: f32, %old: f16):
      %w = arith.extf %x : f16 to f32
      %z = arith.mulf %w, %y : f32
      %n = arith.truncf %z : f32 to f16
      linalg.yield %n : f16
    } -> tensor<32x48xf16>
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %t into %o[%i, %j] [32, 48] [1, 1] : tensor<32x48xf16> into tensor<128x96xf16>
    }
  }
  %e = tensor.empty() : tensor<2x64x96xf16>
  %h = linalg.generic {indexing_maps = [#whole, #whole], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%s3 : tensor<2x64x96xf32>) outs(%e : tensor<2x64x96xf16>) {
  ^bb0(%x: f32, %o: f16):
    %n = arith.truncf %x : f32 to f16
    linalg.yield %n : f16
  } -> tensor<2x64x96xf16>
  return %r, %h : tensor<128x96xf16>, tensor<2x64x96xf16>
}

// What comes from more than it takes, what is returned, and what another loop reads stays in memory.
// CHECK-LABEL: func.func @others
// CHECK-COUNT-3: linalg.generic {{.*}} outs(%{{.*}} : tensor<128x96xf32>)
// CHECK:         scf.forall
// CHECK-COUNT-1:   linalg.generic
// CHECK-NOT:       linalg.generic
// CHECK:           scf.forall.in_parallel
func.func @others(%x: tensor<128x96xf32>, %y: tensor<128x96xf32>, %out: tensor<128x96xf32>, %sums: tensor<128xf32>)
    -> (tensor<128x96xf32>, tensor<128x96xf32>, tensor<128xf32>) {
  %e = tensor.empty() : tensor<128x96xf32>
  %a = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x, %y : tensor<128x96xf32>, tensor<128x96xf32>) outs(%e : tensor<128x96xf32>) {
  ^bb0(%u: f32, %v: f32, %o: f32):
    %z = arith.mulf %u, %v : f32
    linalg.yield %z : f32
  } -> tensor<128x96xf32>
  %b = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<128x96xf32>) outs(%e : tensor<128x96xf32>) {
  ^bb0(%u: f32, %o: f32):
    %z = math.exp %u : f32
    linalg.yield %z : f32
  } -> tensor<128x96xf32>
  %c = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<128x96xf32>) outs(%e : tensor<128x96xf32>) {
  ^bb0(%u: f32, %o: f32):
    %z = math.sqrt %u : f32
    linalg.yield %z : f32
  } -> tensor<128x96xf32>
  %r = scf.forall (%i, %j) = (0, 0) to (128, 96) step (32, 48) shared_outs(%o = %out) -> (tensor<128x96xf32>) {
    %at = tensor.extract_slice %a[%i, %j] [32, 48] [1, 1] : tensor<128x96xf32> to tensor<32x48xf32>
    %bt = tensor.extract_slice %b[%i, %j] [32, 48] [1, 1] : tensor<128x96xf32> to tensor<32x48xf32>
    %ct = tensor.extract_slice %c[%i, %j] [32, 48] [1, 1] : tensor<128x96xf32> to tensor<32x48xf32>
    %ot = tensor.extract_slice %o[%i, %j] [32, 48] [1, 1] : tensor<128x96xf32> to tensor<32x48xf32>
    %t = linalg.generic {indexing_maps = [#id, #id, #id, #id], iterator_types = ["parallel", "parallel"]}
        ins(%at, %bt, %ct : tensor<32x48xf32>, tensor<32x48xf32>, tensor<32x48xf32>) outs(%ot : tensor<32x48xf32>) {
    ^bb0(%u: f32, %v: f32, %w: f32, %old: f32):
      %z = arith.mulf %u, %v : f32
      %n = arith.addf %z, %w : f32
      linalg.yield %n : f32
    } -> tensor<32x48xf32>
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %t into %o[%i, %j] [32, 48] [1, 1] : tensor<32x48xf32> into tensor<128x96xf32>
    }
  }
  %s = linalg.generic {indexing_maps = [#id, affine_map<(i, j) -> (i)>], iterator_types = ["parallel", "reduction"]}
      ins(%c : tensor<128x96xf32>) outs(%sums : tensor<128xf32>) {
  ^bb0(%u: f32, %o: f32):
    %z = arith.addf %u, %o : f32
    linalg.yield %z : f32
  } -> tensor<128xf32>
  return %r, %b, %s : tensor<128x96xf32>, tensor<128x96xf32>, tensor<128xf32>
}

// So does what is multiplied, too, as where a matmul's own rows are added to its result.
// CHECK-LABEL: func.func @own_rows
// CHECK:         linalg.generic {{.*}} outs(%{{.*}} : tensor<128x96xf16>)
// CHECK:           math.exp
// CHECK:         scf.forall
// CHECK-NOT:       math.exp
// CHECK:           return
func.func @own_rows(%x: tensor<128x96xf16>, %w: tensor<96x96xf16>, %out: tensor<128x96xf32>) -> tensor<128x96xf32> {
  %c0 = arith.constant 0 : index
  %c48 = arith.constant 48 : index
  %c96 = arith.constant 96 : index
  %e = tensor.empty() : tensor<128x96xf16>
  %y = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<128x96xf16>) outs(%e : tensor<128x96xf16>) {
  ^bb0(%u: f16, %o: f16):
    %z = math.exp %u : f16
    linalg.yield %z : f16
  } -> tensor<128x96xf16>
  %r = scf.forall (%i, %j) = (0, 0) to (128, 96) step (32, 48) shared_outs(%o = %out) -> (tensor<128x96xf32>) {
    %ot = tensor.extract_slice %o[%i, %j] [32, 48] [1, 1] : tensor<128x96xf32> to tensor<32x48xf32>
    %s = scf.for %k = %c0 to %c96 step %c48 iter_args(%acc = %ot) -> (tensor<32x48xf32>) {
      %a = tensor.extract_slice %y[%i, %k] [32, 48] [1, 1] : tensor<128x96xf16> to tensor<32x48xf16>
      %b = tensor.extract_slice %w[%k, %j] [48, 48] [1, 1] : tensor<96x96xf16> to tensor<48x48xf16>
      %m = linalg.matmul ins(%a, %b : tensor<32x48xf16>, tensor<48x48xf16>) outs(%acc : tensor<32x48xf32>) -> tensor<32x48xf32>
      scf.yield %m : tensor<32x48xf32>
    }
    %yt = tensor.extract_slice %y[%i, %j] [32, 48] [1, 1] : tensor<128x96xf16> to tensor<32x48xf16>
    %t = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
        ins(%s, %yt : tensor<32x48xf32>, tensor<32x48xf16>) outs(%ot : tensor<32x48xf32>) {
    ^bb0(%u: f32, %v: f16, %old: f32):
      %w0 = arith.extf %v : f16 to f32
      %z = arith.addf %u, %w0 : f32
      linalg.yield %z : f32
    } -> tensor<32x48xf32>
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %t into %o[%i, %j] [32, 48] [1, 1] : tensor<32x48xf32> into tensor<128x96xf32>
    }
  }
  return %r : tensor<128x96xf32>
}
