// RUN: attn-opt %s --raise-attention | FileCheck %s
// RUN: attn-opt %s --raise-attention | attn-opt - --raise-attention --remarks 2>&1 | FileCheck %s --check-prefix=AGAIN

// What is raised is not looked at again.
// AGAIN-NOT: remark
//     AGAIN: func.func
// AGAIN-NOT: remark

// The derivative of attention: the sum over each row of probabilities times another product becomes one over the output
// of an attention, which gives the statistics of rows as well. Of these, probabilities are computed again in three
// attentions without a softmax, two of which sum over queries. Each has products of its own.
// CHECK-LABEL: @derivative
//       CHECK: %[[SV:.*]] = linalg.generic {{.*}} ins(%arg1, %arg0 : tensor<2x10x8xf32>, tensor<2x6x8xf32>)
//       CHECK: linalg.generic {{.*}} ins(%arg0, %arg1 : tensor<2x6x8xf32>, tensor<2x10x8xf32>)
//       CHECK: %[[P:.*]]:4 = linalg_ext.softmax dimension(2)
//       CHECK: %[[O:.*]] = linalg.generic {{.*}} ins(%[[P]]#0, %arg2 : tensor<2x6x10xf32>, tensor<2x10x4xf32>)
//       CHECK: %[[M:.*]] = linalg.generic {{.*}} ins(%[[P]]#1 : tensor<2x6xf32>)
//       CHECK: %[[L:.*]] = linalg.generic {{.*}} ins(%[[P]]#2 : tensor<2x6xf32>)
//       CHECK: %[[SHIFT:.*]] = linalg.generic {{.*}} ins(%[[M]], %[[L]] : tensor<2x6xf32>, tensor<2x6xf32>)
//       CHECK: math.log2
//       CHECK: %[[PV:.*]] = linalg.generic {{.*}} ins(%[[SHIFT]], %[[SV]] : tensor<2x6xf32>, tensor<2x10x6xf32>)
//       CHECK: math.exp2
//       CHECK: linalg.generic {{.*}} ins(%[[PV]], %arg3 : tensor<2x10x6xf32>, tensor<2x6x4xf32>) {{.*}} {__attention__}
//       CHECK: %[[SUMS:.*]] = linalg.generic {{.*}} ins(%[[O]], %arg3 : tensor<2x6x4xf32>, tensor<2x6x4xf32>)
//       CHECK: %[[SQ:.*]] = linalg.generic {{.*}} ins(%arg0, %arg1 : tensor<2x6x8xf32>, tensor<2x10x8xf32>)
//       CHECK: %[[DPQ:.*]] = linalg.generic {{.*}} ins(%arg3, %arg2 : tensor<2x6x4xf32>, tensor<2x10x4xf32>)
//       CHECK: %[[DSQ:.*]] = linalg.generic {{.*}} ins(%[[SUMS]], %[[SHIFT]], %[[SQ]], %[[DPQ]] :
//       CHECK: linalg.generic {{.*}} ins(%[[DSQ]], %arg1 : tensor<2x6x10xf32>, tensor<2x10x8xf32>)
//       CHECK: %[[SK:.*]] = linalg.generic {{.*}} ins(%arg1, %arg0 : tensor<2x10x8xf32>, tensor<2x6x8xf32>)
//       CHECK: %[[DPK:.*]] = linalg.generic {{.*}} ins(%arg2, %arg3 : tensor<2x10x4xf32>, tensor<2x6x4xf32>)
//       CHECK: %[[DSK:.*]] = linalg.generic {{.*}} ins(%[[SUMS]], %[[SHIFT]], %[[SK]], %[[DPK]] :
//       CHECK: linalg.generic {{.*}} ins(%[[DSK]], %arg0 : tensor<2x10x6xf32>, tensor<2x6x8xf32>)
func.func @derivative(%q: tensor<2x6x8xf32>, %k: tensor<2x10x8xf32>, %v: tensor<2x10x4xf32>, %g: tensor<2x6x4xf32>) -> (tensor<2x6x8xf32>, tensor<2x10x8xf32>, tensor<2x10x4xf32>) {
  %zero = arith.constant 0.0 : f32
  %lowest = arith.constant 0xFF800000 : f32
  %s_dot_init_empty = tensor.empty() : tensor<2x6x10xf32>
  %s_dot_init = linalg.fill ins(%zero : f32) outs(%s_dot_init_empty : tensor<2x6x10xf32>) -> tensor<2x6x10xf32>
  %s_dot = linalg.generic {indexing_maps = [affine_map<(h, m, k, d) -> (h, m, d)>, affine_map<(h, m, k, d) -> (h, k, d)>, affine_map<(h, m, k, d) -> (h, m, k)>], iterator_types = ["parallel", "parallel", "parallel", "reduction"]} ins(%q, %k : tensor<2x6x8xf32>, tensor<2x10x8xf32>) outs(%s_dot_init : tensor<2x6x10xf32>) {
    ^bb0(%in0: f32, %in1: f32, %out: f32):
      %product = arith.mulf %in0, %in1 : f32
      %r = arith.addf %out, %product : f32
      linalg.yield %r : f32
    } -> tensor<2x6x10xf32>
  %s_empty = tensor.empty() : tensor<2x6x10xf32>
  %s = linalg.generic {indexing_maps = [affine_map<(h, m, k) -> (h, m, k)>, affine_map<(h, m, k) -> (h, m, k)>], iterator_types = ["parallel", "parallel", "parallel"]} ins(%s_dot : tensor<2x6x10xf32>) outs(%s_empty : tensor<2x6x10xf32>) {
    ^bb0(%in0: f32, %out: f32):
      %c = arith.constant 0.25 : f32
      %r = arith.mulf %in0, %c : f32
      linalg.yield %r : f32
    } -> tensor<2x6x10xf32>
  %e_max_init_empty = tensor.empty() : tensor<2x6xf32>
  %e_max_init = linalg.fill ins(%lowest : f32) outs(%e_max_init_empty : tensor<2x6xf32>) -> tensor<2x6xf32>
  %e_max = linalg.generic {indexing_maps = [affine_map<(h, m, k) -> (h, m, k)>, affine_map<(h, m, k) -> (h, m)>], iterator_types = ["parallel", "parallel", "reduction"]} ins(%s : tensor<2x6x10xf32>) outs(%e_max_init : tensor<2x6xf32>) {
    ^bb0(%in0: f32, %out: f32):
      %r = arith.maximumf %in0, %out : f32
      linalg.yield %r : f32
    } -> tensor<2x6xf32>
  %e_empty = tensor.empty() : tensor<2x6x10xf32>
  %e = linalg.generic {indexing_maps = [affine_map<(h, m, k) -> (h, m, k)>, affine_map<(h, m, k) -> (h, m)>, affine_map<(h, m, k) -> (h, m, k)>], iterator_types = ["parallel", "parallel", "parallel"]} ins(%s, %e_max : tensor<2x6x10xf32>, tensor<2x6xf32>) outs(%e_empty : tensor<2x6x10xf32>) {
    ^bb0(%in0: f32, %in1: f32, %out: f32):
      %y = arith.subf %in0, %in1 : f32
      %r = math.exp %y : f32
      linalg.yield %r : f32
    } -> tensor<2x6x10xf32>
  %total_init_empty = tensor.empty() : tensor<2x6xf32>
  %total_init = linalg.fill ins(%zero : f32) outs(%total_init_empty : tensor<2x6xf32>) -> tensor<2x6xf32>
  %total = linalg.generic {indexing_maps = [affine_map<(h, m, k) -> (h, m, k)>, affine_map<(h, m, k) -> (h, m)>], iterator_types = ["parallel", "parallel", "reduction"]} ins(%e : tensor<2x6x10xf32>) outs(%total_init : tensor<2x6xf32>) {
    ^bb0(%in0: f32, %out: f32):
      %r = arith.addf %in0, %out : f32
      linalg.yield %r : f32
    } -> tensor<2x6xf32>
  %p_empty = tensor.empty() : tensor<2x6x10xf32>
  %p = linalg.generic {indexing_maps = [affine_map<(h, m, k) -> (h, m, k)>, affine_map<(h, m, k) -> (h, m)>, affine_map<(h, m, k) -> (h, m, k)>], iterator_types = ["parallel", "parallel", "parallel"]} ins(%e, %total : tensor<2x6x10xf32>, tensor<2x6xf32>) outs(%p_empty : tensor<2x6x10xf32>) {
    ^bb0(%in0: f32, %in1: f32, %out: f32):
      %r = arith.divf %in0, %in1 : f32
      linalg.yield %r : f32
    } -> tensor<2x6x10xf32>
  %dv_init_empty = tensor.empty() : tensor<2x10x4xf32>
  %dv_init = linalg.fill ins(%zero : f32) outs(%dv_init_empty : tensor<2x10x4xf32>) -> tensor<2x10x4xf32>
  %dv = linalg.generic {indexing_maps = [affine_map<(h, k, n, m) -> (h, m, k)>, affine_map<(h, k, n, m) -> (h, m, n)>, affine_map<(h, k, n, m) -> (h, k, n)>], iterator_types = ["parallel", "parallel", "parallel", "reduction"]} ins(%p, %g : tensor<2x6x10xf32>, tensor<2x6x4xf32>) outs(%dv_init : tensor<2x10x4xf32>) {
    ^bb0(%in0: f32, %in1: f32, %out: f32):
      %product = arith.mulf %in0, %in1 : f32
      %r = arith.addf %out, %product : f32
      linalg.yield %r : f32
    } -> tensor<2x10x4xf32>
  %dp_init_empty = tensor.empty() : tensor<2x6x10xf32>
  %dp_init = linalg.fill ins(%zero : f32) outs(%dp_init_empty : tensor<2x6x10xf32>) -> tensor<2x6x10xf32>
  %dp = linalg.generic {indexing_maps = [affine_map<(h, m, k, n) -> (h, m, n)>, affine_map<(h, m, k, n) -> (h, k, n)>, affine_map<(h, m, k, n) -> (h, m, k)>], iterator_types = ["parallel", "parallel", "parallel", "reduction"]} ins(%g, %v : tensor<2x6x4xf32>, tensor<2x10x4xf32>) outs(%dp_init : tensor<2x6x10xf32>) {
    ^bb0(%in0: f32, %in1: f32, %out: f32):
      %product = arith.mulf %in0, %in1 : f32
      %r = arith.addf %out, %product : f32
      linalg.yield %r : f32
    } -> tensor<2x6x10xf32>
  %weighted_empty = tensor.empty() : tensor<2x6x10xf32>
  %weighted = linalg.generic {indexing_maps = [affine_map<(h, m, k) -> (h, m, k)>, affine_map<(h, m, k) -> (h, m, k)>, affine_map<(h, m, k) -> (h, m, k)>], iterator_types = ["parallel", "parallel", "parallel"]} ins(%dp, %p : tensor<2x6x10xf32>, tensor<2x6x10xf32>) outs(%weighted_empty : tensor<2x6x10xf32>) {
    ^bb0(%in0: f32, %in1: f32, %out: f32):
      %r = arith.mulf %in0, %in1 : f32
      linalg.yield %r : f32
    } -> tensor<2x6x10xf32>
  %sums_init_empty = tensor.empty() : tensor<2x6xf32>
  %sums_init = linalg.fill ins(%zero : f32) outs(%sums_init_empty : tensor<2x6xf32>) -> tensor<2x6xf32>
  %sums = linalg.generic {indexing_maps = [affine_map<(h, m, k) -> (h, m, k)>, affine_map<(h, m, k) -> (h, m)>], iterator_types = ["parallel", "parallel", "reduction"]} ins(%weighted : tensor<2x6x10xf32>) outs(%sums_init : tensor<2x6xf32>) {
    ^bb0(%in0: f32, %out: f32):
      %r = arith.addf %in0, %out : f32
      linalg.yield %r : f32
    } -> tensor<2x6xf32>
  %ds_empty = tensor.empty() : tensor<2x6x10xf32>
  %ds = linalg.generic {indexing_maps = [affine_map<(h, m, k) -> (h, m, k)>, affine_map<(h, m, k) -> (h, m, k)>, affine_map<(h, m, k) -> (h, m)>, affine_map<(h, m, k) -> (h, m, k)>], iterator_types = ["parallel", "parallel", "parallel"]} ins(%weighted, %p, %sums : tensor<2x6x10xf32>, tensor<2x6x10xf32>, tensor<2x6xf32>) outs(%ds_empty : tensor<2x6x10xf32>) {
    ^bb0(%in0: f32, %in1: f32, %in2: f32, %out: f32):
      %x = arith.mulf %in1, %in2 : f32
      %r = arith.subf %in0, %x : f32
      linalg.yield %r : f32
    } -> tensor<2x6x10xf32>
  %ds_scaled_empty = tensor.empty() : tensor<2x6x10xf32>
  %ds_scaled = linalg.generic {indexing_maps = [affine_map<(h, m, k) -> (h, m, k)>, affine_map<(h, m, k) -> (h, m, k)>], iterator_types = ["parallel", "parallel", "parallel"]} ins(%ds : tensor<2x6x10xf32>) outs(%ds_scaled_empty : tensor<2x6x10xf32>) {
    ^bb0(%in0: f32, %out: f32):
      %c = arith.constant 0.25 : f32
      %r = arith.mulf %in0, %c : f32
      linalg.yield %r : f32
    } -> tensor<2x6x10xf32>
  %dq_init_empty = tensor.empty() : tensor<2x6x8xf32>
  %dq_init = linalg.fill ins(%zero : f32) outs(%dq_init_empty : tensor<2x6x8xf32>) -> tensor<2x6x8xf32>
  %dq = linalg.generic {indexing_maps = [affine_map<(h, m, d, k) -> (h, m, k)>, affine_map<(h, m, d, k) -> (h, k, d)>, affine_map<(h, m, d, k) -> (h, m, d)>], iterator_types = ["parallel", "parallel", "parallel", "reduction"]} ins(%ds_scaled, %k : tensor<2x6x10xf32>, tensor<2x10x8xf32>) outs(%dq_init : tensor<2x6x8xf32>) {
    ^bb0(%in0: f32, %in1: f32, %out: f32):
      %product = arith.mulf %in0, %in1 : f32
      %r = arith.addf %out, %product : f32
      linalg.yield %r : f32
    } -> tensor<2x6x8xf32>
  %dk_init_empty = tensor.empty() : tensor<2x10x8xf32>
  %dk_init = linalg.fill ins(%zero : f32) outs(%dk_init_empty : tensor<2x10x8xf32>) -> tensor<2x10x8xf32>
  %dk = linalg.generic {indexing_maps = [affine_map<(h, k, d, m) -> (h, m, k)>, affine_map<(h, k, d, m) -> (h, m, d)>, affine_map<(h, k, d, m) -> (h, k, d)>], iterator_types = ["parallel", "parallel", "parallel", "reduction"]} ins(%ds_scaled, %q : tensor<2x6x10xf32>, tensor<2x6x8xf32>) outs(%dk_init : tensor<2x10x8xf32>) {
    ^bb0(%in0: f32, %in1: f32, %out: f32):
      %product = arith.mulf %in0, %in1 : f32
      %r = arith.addf %out, %product : f32
      linalg.yield %r : f32
    } -> tensor<2x10x8xf32>
  return %dq, %dk, %dv : tensor<2x6x8xf32>, tensor<2x10x8xf32>, tensor<2x10x4xf32>
}
