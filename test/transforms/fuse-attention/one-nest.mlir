// RUN: attn-opt %s --fuse-attention --split-input-file | FileCheck %s
// RUN: attn-opt %s --fuse-attention=threads=2 --split-input-file | FileCheck %s
// RUN: attn-opt %s --fuse-attention=threads=5 --split-input-file | FileCheck %s --check-prefix=APART
// RUN: attn-opt %s --fuse-attention=machine=sm_90a --split-input-file | FileCheck %s --check-prefix=APART
// RUN: attn-opt %s --pass-pipeline="builtin.module(fuse-attention,canonicalize,cse,parallel-loops,canonicalize,fuse-siblings)" --split-input-file | FileCheck %s --check-prefix=ONE

#rows = affine_map<(h, i, j, d) -> (h, i, d)>
#cols = affine_map<(h, i, j, d) -> (h, j, d)>
#tile = affine_map<(h, i, j, d) -> (h, i, j)>
#id = affine_map<(h, i, j) -> (h, i, j)>
#by_row = affine_map<(h, i, j) -> (h, i)>
#by_col = affine_map<(h, i, j) -> (h, j)>
#weights = affine_map<(h, i, d, j) -> (h, i, j)>
#values = affine_map<(h, i, d, j) -> (h, j, d)>
#out = affine_map<(h, i, d, j) -> (h, i, d)>

// By queries and by keys: the weights of the first are those of the second, turned. Both go over the keys first, which
// are parallel for the second alone; threads share the heads. One nest then computes the scores, and the weights, once.
// CHECK-LABEL: func.func @queries_and_keys
// CHECK:       scf.for {{.*}} to %c2{{.*}}
// CHECK:         scf.for {{.*}} to %c192{{.*}}
// CHECK:           scf.for %[[I:.*]] = {{.*}} to %c128{{.*}} iter_args(%[[DQ:.*]] = %{{.*}}) -> (tensor<2x128x8xf32>)
// CHECK:             %[[S:.*]] = linalg.generic
// CHECK:             arith.addf
// CHECK:             %[[E:.*]] = linalg.generic {{.*}}, %[[S]] :
// CHECK:             math.exp2
// CHECK:             %[[OLD:.*]] = tensor.extract_slice %[[DQ]][%{{.*}}, %[[I]], 0]
// CHECK:             linalg.generic {{.*}} ins(%[[E]], {{.*}} outs(%[[OLD]] : tensor<1x64x8xf32>)
// CHECK:         } {__sequential__}
// CHECK:       } {__byteir_parallel__}
// CHECK:       scf.for {{.*}} to %c2{{.*}}
// CHECK:         scf.for %[[J:.*]] = {{.*}} to %c192{{.*}}
// CHECK:           scf.for {{.*}} to %c128{{.*}} -> (tensor<2x192x8xf32>)
// CHECK:             tensor.extract_slice %{{.*}}[%{{.*}}, %[[J]], 0] [1, 64, 8]
// CHECK:         } {__sequential__}
// CHECK:       } {__byteir_parallel__}
// APART-LABEL: func.func @queries_and_keys
// APART-NOT:   __sequential__
// ONE-LABEL:   func.func @queries_and_keys
// ONE:         scf.forall (%[[H:.*]]) in (2) shared_outs
// ONE:           scf.for %[[J:.*]] = %c0 to %c192 step %c64
// ONE:             %{{.*}}:2 = scf.for %[[I:.*]] = %c0 to %c128 step %c64
// ONE:               arith.addf
// ONE:               math.exp2
// ONE-NOT:           math.exp2
// ONE:               arith.addf
// ONE:               arith.addf
// ONE-NOT:           arith.addf
// ONE:           scf.forall.in_parallel
// ONE-NOT:     scf.forall
func.func @queries_and_keys(%q: tensor<2x128x8xf32>, %k: tensor<2x192x8xf32>, %n: tensor<2x128xf32>)
    -> (tensor<2x128x8xf32>, tensor<2x192x8xf32>) {
  %zero = arith.constant 0.0 : f32
  %e0 = tensor.empty() : tensor<2x128x192xf32>
  %z0 = linalg.fill ins(%zero : f32) outs(%e0 : tensor<2x128x192xf32>) -> tensor<2x128x192xf32>
  %s = linalg.generic {indexing_maps = [#rows, #cols, #tile], iterator_types = ["parallel", "parallel", "parallel", "reduction"]}
      ins(%q, %k : tensor<2x128x8xf32>, tensor<2x192x8xf32>) outs(%z0 : tensor<2x128x192xf32>) {
    ^bb0(%a: f32, %b: f32, %c: f32):
      %x = arith.mulf %a, %b : f32
      %y = arith.addf %c, %x : f32
      linalg.yield %y : f32
    } -> tensor<2x128x192xf32>
  %p = linalg.generic {indexing_maps = [#id, #by_row, #id], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%s, %n : tensor<2x128x192xf32>, tensor<2x128xf32>) outs(%e0 : tensor<2x128x192xf32>) {
    ^bb0(%a: f32, %b: f32, %c: f32):
      %x = arith.subf %a, %b : f32
      %y = math.exp2 %x : f32
      linalg.yield %y : f32
    } -> tensor<2x128x192xf32>
  %e1 = tensor.empty() : tensor<2x128x8xf32>
  %z1 = linalg.fill ins(%zero : f32) outs(%e1 : tensor<2x128x8xf32>) -> tensor<2x128x8xf32>
  %dq = linalg.generic {indexing_maps = [#weights, #values, #out], iterator_types = ["parallel", "parallel", "parallel", "reduction"]}
      ins(%p, %k : tensor<2x128x192xf32>, tensor<2x192x8xf32>) outs(%z1 : tensor<2x128x8xf32>) {
    ^bb0(%a: f32, %b: f32, %c: f32):
      %x = arith.mulf %a, %b : f32
      %y = arith.addf %c, %x : f32
      linalg.yield %y : f32
    } -> tensor<2x128x8xf32>
  %e2 = tensor.empty() : tensor<2x192x128xf32>
  %z2 = linalg.fill ins(%zero : f32) outs(%e2 : tensor<2x192x128xf32>) -> tensor<2x192x128xf32>
  %t = linalg.generic {indexing_maps = [#rows, #cols, #tile], iterator_types = ["parallel", "parallel", "parallel", "reduction"]}
      ins(%k, %q : tensor<2x192x8xf32>, tensor<2x128x8xf32>) outs(%z2 : tensor<2x192x128xf32>) {
    ^bb0(%a: f32, %b: f32, %c: f32):
      %x = arith.mulf %a, %b : f32
      %y = arith.addf %c, %x : f32
      linalg.yield %y : f32
    } -> tensor<2x192x128xf32>
  %u = linalg.generic {indexing_maps = [#by_col, #id, #id], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%n, %t : tensor<2x128xf32>, tensor<2x192x128xf32>) outs(%e2 : tensor<2x192x128xf32>) {
    ^bb0(%a: f32, %b: f32, %c: f32):
      %x = arith.subf %b, %a : f32
      %y = math.exp2 %x : f32
      linalg.yield %y : f32
    } -> tensor<2x192x128xf32>
  %e3 = tensor.empty() : tensor<2x192x8xf32>
  %z3 = linalg.fill ins(%zero : f32) outs(%e3 : tensor<2x192x8xf32>) -> tensor<2x192x8xf32>
  %dk = linalg.generic {indexing_maps = [#weights, #values, #out], iterator_types = ["parallel", "parallel", "parallel", "reduction"]}
      ins(%u, %q : tensor<2x192x128xf32>, tensor<2x128x8xf32>) outs(%z3 : tensor<2x192x8xf32>) {
    ^bb0(%a: f32, %b: f32, %c: f32):
      %x = arith.mulf %a, %b : f32
      %y = arith.addf %c, %x : f32
      linalg.yield %y : f32
    } -> tensor<2x192x8xf32>
  return %dq, %dk : tensor<2x128x8xf32>, tensor<2x192x8xf32>
}

// -----

#rows = affine_map<(h, i, j, d) -> (h, i, d)>
#cols = affine_map<(h, i, j, d) -> (h, j, d)>
#tile = affine_map<(h, i, j, d) -> (h, i, j)>
#id = affine_map<(h, i, j) -> (h, i, j)>
#by_row = affine_map<(h, i, j) -> (h, i)>
#by_col = affine_map<(h, i, j) -> (h, j)>
#weights = affine_map<(h, i, d, j) -> (h, i, j)>
#values = affine_map<(h, i, d, j) -> (h, j, d)>
#out = affine_map<(h, i, d, j) -> (h, i, d)>

// Not where weights are others (n − s for s − n),
// CHECK-LABEL: func.func @other_weights
// CHECK-NOT:   __sequential__
// APART-LABEL: func.func @other_weights
// ONE-LABEL:   func.func @other_weights
func.func @other_weights(%q: tensor<2x128x8xf32>, %k: tensor<2x192x8xf32>, %n: tensor<2x128xf32>)
    -> (tensor<2x128x8xf32>, tensor<2x192x8xf32>) {
  %zero = arith.constant 0.0 : f32
  %e0 = tensor.empty() : tensor<2x128x192xf32>
  %z0 = linalg.fill ins(%zero : f32) outs(%e0 : tensor<2x128x192xf32>) -> tensor<2x128x192xf32>
  %s = linalg.generic {indexing_maps = [#rows, #cols, #tile], iterator_types = ["parallel", "parallel", "parallel", "reduction"]}
      ins(%q, %k : tensor<2x128x8xf32>, tensor<2x192x8xf32>) outs(%z0 : tensor<2x128x192xf32>) {
    ^bb0(%a: f32, %b: f32, %c: f32):
      %x = arith.mulf %a, %b : f32
      %y = arith.addf %c, %x : f32
      linalg.yield %y : f32
    } -> tensor<2x128x192xf32>
  %p = linalg.generic {indexing_maps = [#id, #by_row, #id], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%s, %n : tensor<2x128x192xf32>, tensor<2x128xf32>) outs(%e0 : tensor<2x128x192xf32>) {
    ^bb0(%a: f32, %b: f32, %c: f32):
      %x = arith.subf %a, %b : f32
      %y = math.exp2 %x : f32
      linalg.yield %y : f32
    } -> tensor<2x128x192xf32>
  %e1 = tensor.empty() : tensor<2x128x8xf32>
  %z1 = linalg.fill ins(%zero : f32) outs(%e1 : tensor<2x128x8xf32>) -> tensor<2x128x8xf32>
  %dq = linalg.generic {indexing_maps = [#weights, #values, #out], iterator_types = ["parallel", "parallel", "parallel", "reduction"]}
      ins(%p, %k : tensor<2x128x192xf32>, tensor<2x192x8xf32>) outs(%z1 : tensor<2x128x8xf32>) {
    ^bb0(%a: f32, %b: f32, %c: f32):
      %x = arith.mulf %a, %b : f32
      %y = arith.addf %c, %x : f32
      linalg.yield %y : f32
    } -> tensor<2x128x8xf32>
  %e2 = tensor.empty() : tensor<2x192x128xf32>
  %z2 = linalg.fill ins(%zero : f32) outs(%e2 : tensor<2x192x128xf32>) -> tensor<2x192x128xf32>
  %t = linalg.generic {indexing_maps = [#rows, #cols, #tile], iterator_types = ["parallel", "parallel", "parallel", "reduction"]}
      ins(%k, %q : tensor<2x192x8xf32>, tensor<2x128x8xf32>) outs(%z2 : tensor<2x192x128xf32>) {
    ^bb0(%a: f32, %b: f32, %c: f32):
      %x = arith.mulf %a, %b : f32
      %y = arith.addf %c, %x : f32
      linalg.yield %y : f32
    } -> tensor<2x192x128xf32>
  %u = linalg.generic {indexing_maps = [#by_col, #id, #id], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%n, %t : tensor<2x128xf32>, tensor<2x192x128xf32>) outs(%e2 : tensor<2x192x128xf32>) {
    ^bb0(%a: f32, %b: f32, %c: f32):
      %x = arith.subf %a, %b : f32
      %y = math.exp2 %x : f32
      linalg.yield %y : f32
    } -> tensor<2x192x128xf32>
  %e3 = tensor.empty() : tensor<2x192x8xf32>
  %z3 = linalg.fill ins(%zero : f32) outs(%e3 : tensor<2x192x8xf32>) -> tensor<2x192x8xf32>
  %dk = linalg.generic {indexing_maps = [#weights, #values, #out], iterator_types = ["parallel", "parallel", "parallel", "reduction"]}
      ins(%u, %q : tensor<2x192x128xf32>, tensor<2x128x8xf32>) outs(%z3 : tensor<2x192x8xf32>) {
    ^bb0(%a: f32, %b: f32, %c: f32):
      %x = arith.mulf %a, %b : f32
      %y = arith.addf %c, %x : f32
      linalg.yield %y : f32
    } -> tensor<2x192x8xf32>
  return %dq, %dk : tensor<2x128x8xf32>, tensor<2x192x8xf32>
}

// or few rows.
// CHECK-LABEL: func.func @few_queries
// CHECK-NOT:   __sequential__
// APART-LABEL: func.func @few_queries
// ONE-LABEL:   func.func @few_queries
func.func @few_queries(%q: tensor<2x48x8xf32>, %k: tensor<2x192x8xf32>, %n: tensor<2x48xf32>)
    -> (tensor<2x48x8xf32>, tensor<2x192x8xf32>) {
  %zero = arith.constant 0.0 : f32
  %e0 = tensor.empty() : tensor<2x48x192xf32>
  %z0 = linalg.fill ins(%zero : f32) outs(%e0 : tensor<2x48x192xf32>) -> tensor<2x48x192xf32>
  %s = linalg.generic {indexing_maps = [#rows, #cols, #tile], iterator_types = ["parallel", "parallel", "parallel", "reduction"]}
      ins(%q, %k : tensor<2x48x8xf32>, tensor<2x192x8xf32>) outs(%z0 : tensor<2x48x192xf32>) {
    ^bb0(%a: f32, %b: f32, %c: f32):
      %x = arith.mulf %a, %b : f32
      %y = arith.addf %c, %x : f32
      linalg.yield %y : f32
    } -> tensor<2x48x192xf32>
  %p = linalg.generic {indexing_maps = [#id, #by_row, #id], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%s, %n : tensor<2x48x192xf32>, tensor<2x48xf32>) outs(%e0 : tensor<2x48x192xf32>) {
    ^bb0(%a: f32, %b: f32, %c: f32):
      %x = arith.subf %a, %b : f32
      %y = math.exp2 %x : f32
      linalg.yield %y : f32
    } -> tensor<2x48x192xf32>
  %e1 = tensor.empty() : tensor<2x48x8xf32>
  %z1 = linalg.fill ins(%zero : f32) outs(%e1 : tensor<2x48x8xf32>) -> tensor<2x48x8xf32>
  %dq = linalg.generic {indexing_maps = [#weights, #values, #out], iterator_types = ["parallel", "parallel", "parallel", "reduction"]}
      ins(%p, %k : tensor<2x48x192xf32>, tensor<2x192x8xf32>) outs(%z1 : tensor<2x48x8xf32>) {
    ^bb0(%a: f32, %b: f32, %c: f32):
      %x = arith.mulf %a, %b : f32
      %y = arith.addf %c, %x : f32
      linalg.yield %y : f32
    } -> tensor<2x48x8xf32>
  %e2 = tensor.empty() : tensor<2x192x48xf32>
  %z2 = linalg.fill ins(%zero : f32) outs(%e2 : tensor<2x192x48xf32>) -> tensor<2x192x48xf32>
  %t = linalg.generic {indexing_maps = [#rows, #cols, #tile], iterator_types = ["parallel", "parallel", "parallel", "reduction"]}
      ins(%k, %q : tensor<2x192x8xf32>, tensor<2x48x8xf32>) outs(%z2 : tensor<2x192x48xf32>) {
    ^bb0(%a: f32, %b: f32, %c: f32):
      %x = arith.mulf %a, %b : f32
      %y = arith.addf %c, %x : f32
      linalg.yield %y : f32
    } -> tensor<2x192x48xf32>
  %u = linalg.generic {indexing_maps = [#by_col, #id, #id], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%n, %t : tensor<2x48xf32>, tensor<2x192x48xf32>) outs(%e2 : tensor<2x192x48xf32>) {
    ^bb0(%a: f32, %b: f32, %c: f32):
      %x = arith.subf %b, %a : f32
      %y = math.exp2 %x : f32
      linalg.yield %y : f32
    } -> tensor<2x192x48xf32>
  %e3 = tensor.empty() : tensor<2x192x8xf32>
  %z3 = linalg.fill ins(%zero : f32) outs(%e3 : tensor<2x192x8xf32>) -> tensor<2x192x8xf32>
  %dk = linalg.generic {indexing_maps = [#weights, #values, #out], iterator_types = ["parallel", "parallel", "parallel", "reduction"]}
      ins(%u, %q : tensor<2x192x48xf32>, tensor<2x48x8xf32>) outs(%z3 : tensor<2x192x8xf32>) {
    ^bb0(%a: f32, %b: f32, %c: f32):
      %x = arith.mulf %a, %b : f32
      %y = arith.addf %c, %x : f32
      linalg.yield %y : f32
    } -> tensor<2x192x8xf32>
  return %dq, %dk : tensor<2x48x8xf32>, tensor<2x192x8xf32>
}
