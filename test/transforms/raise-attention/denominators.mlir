// RUN: attn-opt %s --raise-attention --canonicalize --cse | FileCheck %s

#id = affine_map<(i, j) -> (i, j)>
#row = affine_map<(i, j) -> (i)>
#key = affine_map<(i, j) -> (j)>

// A number beside the sum of exponentials that are relative to their maximum: l / (l + 0.001), a factor per row.
// CHECK-LABEL: @added
//   CHECK-DAG: %[[EPS:.*]] = arith.constant 1.000000e-03 : f32
//       CHECK: %[[P:.*]]:4 = linalg_ext.softmax dimension(1) ins(%{{.*}} : tensor<6x10xf32>)
//       CHECK: linalg.generic {{.*}} ins(%[[P]]#2 : tensor<6xf32>)
//  CHECK-NEXT: ^bb0(%[[L:.*]]: f32,
//  CHECK-NEXT:   %[[D:.*]] = arith.addf %[[L]], %[[EPS]]
//  CHECK-NEXT:   arith.divf %[[L]], %[[D]]
//   CHECK-NOT: math.exp
//       CHECK: return
func.func @added(%q: tensor<6x8xf32>, %k: tensor<8x10xf32>, %v: tensor<10x4xf32>) -> tensor<6x4xf32> {
  %zero = arith.constant 0.0 : f32
  %lowest = arith.constant 0xFF800000 : f32
  %e_s = tensor.empty() : tensor<6x10xf32>
  %e_r = tensor.empty() : tensor<6xf32>
  %z_s = linalg.fill ins(%zero : f32) outs(%e_s : tensor<6x10xf32>) -> tensor<6x10xf32>
  %z_r = linalg.fill ins(%zero : f32) outs(%e_r : tensor<6xf32>) -> tensor<6xf32>
  %l_r = linalg.fill ins(%lowest : f32) outs(%e_r : tensor<6xf32>) -> tensor<6xf32>
  %s = linalg.matmul ins(%q, %k : tensor<6x8xf32>, tensor<8x10xf32>) outs(%z_s : tensor<6x10xf32>) -> tensor<6x10xf32>
  %m = linalg.reduce { arith.maximumf } ins(%s : tensor<6x10xf32>) outs(%l_r : tensor<6xf32>) dimensions = [1]
  %e = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]}
      ins(%s, %m : tensor<6x10xf32>, tensor<6xf32>) outs(%e_s : tensor<6x10xf32>) {
  ^bb0(%a: f32, %b: f32, %c: f32):
    %0 = arith.subf %a, %b : f32
    %1 = math.exp %0 : f32
    linalg.yield %1 : f32
  } -> tensor<6x10xf32>
  %l = linalg.reduce { arith.addf } ins(%e : tensor<6x10xf32>) outs(%z_r : tensor<6xf32>) dimensions = [1]
  %p = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]}
      ins(%e, %l : tensor<6x10xf32>, tensor<6xf32>) outs(%e_s : tensor<6x10xf32>) {
  ^bb0(%a: f32, %b: f32, %c: f32):
    %eps = arith.constant 1.0e-3 : f32
    %0 = arith.addf %b, %eps : f32
    %1 = arith.divf %a, %0 : f32
    linalg.yield %1 : f32
  } -> tensor<6x10xf32>
  %e_o = tensor.empty() : tensor<6x4xf32>
  %z_o = linalg.fill ins(%zero : f32) outs(%e_o : tensor<6x4xf32>) -> tensor<6x4xf32>
  %o = linalg.matmul ins(%p, %v : tensor<6x10xf32>, tensor<10x4xf32>) outs(%z_o : tensor<6x4xf32>) -> tensor<6x4xf32>
  return %o : tensor<6x4xf32>
}

// The sum of exponentials that are not shifted is at least 1: the bound is one of Σ exp(s) = l·exp(m).
// CHECK-LABEL: @at_least
//       CHECK: %[[P:.*]]:4 = linalg_ext.softmax
//       CHECK: linalg.generic {{.*}} ins(%[[P]]#1, %[[P]]#2 :
//       CHECK:   arith.subf %{{.*}}, %[[M:.*]] : f32
//  CHECK-NEXT:   %[[B:.*]] = math.exp
//  CHECK-NEXT:   %[[D:.*]] = arith.maximumf %{{.*}}, %[[B]]
//  CHECK-NEXT:   arith.divf %{{.*}}, %[[D]]
func.func @at_least(%q: tensor<6x8xf32>, %k: tensor<8x10xf32>, %v: tensor<10x4xf32>) -> tensor<6x4xf32> {
  %zero = arith.constant 0.0 : f32
  %e_s = tensor.empty() : tensor<6x10xf32>
  %e_r = tensor.empty() : tensor<6xf32>
  %z_s = linalg.fill ins(%zero : f32) outs(%e_s : tensor<6x10xf32>) -> tensor<6x10xf32>
  %z_r = linalg.fill ins(%zero : f32) outs(%e_r : tensor<6xf32>) -> tensor<6xf32>
  %s = linalg.matmul ins(%q, %k : tensor<6x8xf32>, tensor<8x10xf32>) outs(%z_s : tensor<6x10xf32>) -> tensor<6x10xf32>
  %e = linalg.exp ins(%s : tensor<6x10xf32>) outs(%e_s : tensor<6x10xf32>) -> tensor<6x10xf32>
  %l = linalg.reduce { arith.addf } ins(%e : tensor<6x10xf32>) outs(%z_r : tensor<6xf32>) dimensions = [1]
  %p = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]}
      ins(%e, %l : tensor<6x10xf32>, tensor<6xf32>) outs(%e_s : tensor<6x10xf32>) {
  ^bb0(%a: f32, %b: f32, %c: f32):
    %one = arith.constant 1.0 : f32
    %0 = arith.cmpf ogt, %b, %one : f32
    %1 = arith.select %0, %b, %one : f32
    %2 = arith.divf %a, %1 : f32
    linalg.yield %2 : f32
  } -> tensor<6x10xf32>
  %e_o = tensor.empty() : tensor<6x4xf32>
  %z_o = linalg.fill ins(%zero : f32) outs(%e_o : tensor<6x4xf32>) -> tensor<6x4xf32>
  %o = linalg.matmul ins(%p, %v : tensor<6x10xf32>, tensor<10x4xf32>) outs(%z_o : tensor<6x4xf32>) -> tensor<6x4xf32>
  return %o : tensor<6x4xf32>
}

// What softmax gives, times magnitudes of gates, divided by its sum again: the gates' logarithms, made once a key, are
// added to the scores.
// CHECK-LABEL: @renormalised
//       CHECK: %[[G:.*]] = linalg.generic {{.*}} ins(%arg3 : tensor<10xf32>)
//       CHECK:   math.log
//       CHECK: %[[X:.*]] = linalg.generic {{.*}} ins({{.*}}%[[G]]{{.*}}) outs(%{{.*}} : tensor<6x10xf32>)
//       CHECK:   arith.addf
//       CHECK: %[[P:.*]]:4 = linalg_ext.softmax dimension(1) ins(%[[X]] : tensor<6x10xf32>)
//       CHECK: %[[O:.*]] = linalg.generic {{.*}} ins(%[[P]]#0, %arg2 : tensor<6x10xf32>, tensor<10x4xf32>)
//       CHECK: return %[[O]]
func.func @renormalised(%q: tensor<6x8xf32>, %k: tensor<8x10xf32>, %v: tensor<10x4xf32>, %w: tensor<10xf32>) -> tensor<6x4xf32> {
  %zero = arith.constant 0.0 : f32
  %e_s = tensor.empty() : tensor<6x10xf32>
  %e_r = tensor.empty() : tensor<6xf32>
  %z_s = linalg.fill ins(%zero : f32) outs(%e_s : tensor<6x10xf32>) -> tensor<6x10xf32>
  %z_r = linalg.fill ins(%zero : f32) outs(%e_r : tensor<6xf32>) -> tensor<6xf32>
  %s = linalg.matmul ins(%q, %k : tensor<6x8xf32>, tensor<8x10xf32>) outs(%z_s : tensor<6x10xf32>) -> tensor<6x10xf32>
  %p = linalg.softmax dimension(1) ins(%s : tensor<6x10xf32>) outs(%e_s : tensor<6x10xf32>) -> tensor<6x10xf32>
  %g = linalg.generic {indexing_maps = [#id, #key, #id], iterator_types = ["parallel", "parallel"]}
      ins(%p, %w : tensor<6x10xf32>, tensor<10xf32>) outs(%e_s : tensor<6x10xf32>) {
  ^bb0(%a: f32, %b: f32, %c: f32):
    %0 = math.absf %b : f32
    %1 = arith.mulf %a, %0 : f32
    linalg.yield %1 : f32
  } -> tensor<6x10xf32>
  %l = linalg.reduce { arith.addf } ins(%g : tensor<6x10xf32>) outs(%z_r : tensor<6xf32>) dimensions = [1]
  %n = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]}
      ins(%g, %l : tensor<6x10xf32>, tensor<6xf32>) outs(%e_s : tensor<6x10xf32>) {
  ^bb0(%a: f32, %b: f32, %c: f32):
    %0 = arith.divf %a, %b : f32
    linalg.yield %0 : f32
  } -> tensor<6x10xf32>
  %e_o = tensor.empty() : tensor<6x4xf32>
  %z_o = linalg.fill ins(%zero : f32) outs(%e_o : tensor<6x4xf32>) -> tensor<6x4xf32>
  %o = linalg.matmul ins(%n, %v : tensor<6x10xf32>, tensor<10x4xf32>) outs(%z_o : tensor<6x4xf32>) -> tensor<6x4xf32>
  return %o : tensor<6x4xf32>
}

// Relative to max(m, 0.5): beside l, which is relative to m, the bound is one of exp(max(m, 0.5) − m).
// CHECK-LABEL: @floored
//   CHECK-DAG: %[[FLOOR:.*]] = arith.constant 5.000000e-01 : f32
//       CHECK: %[[P:.*]]:4 = linalg_ext.softmax
//       CHECK: linalg.generic {{.*}} ins(%[[P]]#1, %[[P]]#2 :
//  CHECK-NEXT: ^bb0(%[[M:.*]]: f32, %[[L:.*]]: f32,
//       CHECK:   %[[F:.*]] = arith.maximumf %{{.*}}, %{{.*}}
//  CHECK-NEXT:   %[[X:.*]] = arith.subf %[[F]], %[[M]]
//  CHECK-NEXT:   %[[B:.*]] = math.exp %[[X]]
//  CHECK-NEXT:   %[[D:.*]] = arith.maximumf %[[L]], %[[B]]
//  CHECK-NEXT:   arith.divf %[[L]], %[[D]]
func.func @floored(%q: tensor<6x8xf32>, %k: tensor<8x10xf32>, %v: tensor<10x4xf32>) -> tensor<6x4xf32> {
  %zero = arith.constant 0.0 : f32
  %lowest = arith.constant 0xFF800000 : f32
  %e_s = tensor.empty() : tensor<6x10xf32>
  %e_r = tensor.empty() : tensor<6xf32>
  %z_s = linalg.fill ins(%zero : f32) outs(%e_s : tensor<6x10xf32>) -> tensor<6x10xf32>
  %z_r = linalg.fill ins(%zero : f32) outs(%e_r : tensor<6xf32>) -> tensor<6xf32>
  %l_r = linalg.fill ins(%lowest : f32) outs(%e_r : tensor<6xf32>) -> tensor<6xf32>
  %s = linalg.matmul ins(%q, %k : tensor<6x8xf32>, tensor<8x10xf32>) outs(%z_s : tensor<6x10xf32>) -> tensor<6x10xf32>
  %m = linalg.reduce { arith.maximumf } ins(%s : tensor<6x10xf32>) outs(%l_r : tensor<6xf32>) dimensions = [1]
  %e = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]}
      ins(%s, %m : tensor<6x10xf32>, tensor<6xf32>) outs(%e_s : tensor<6x10xf32>) {
  ^bb0(%a: f32, %b: f32, %c: f32):
    %floor = arith.constant 0.5 : f32
    %0 = arith.maximumf %b, %floor : f32
    %1 = arith.subf %a, %0 : f32
    %2 = math.exp %1 : f32
    linalg.yield %2 : f32
  } -> tensor<6x10xf32>
  %l = linalg.reduce { arith.addf } ins(%e : tensor<6x10xf32>) outs(%z_r : tensor<6xf32>) dimensions = [1]
  %p = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]}
      ins(%e, %l : tensor<6x10xf32>, tensor<6xf32>) outs(%e_s : tensor<6x10xf32>) {
  ^bb0(%a: f32, %b: f32, %c: f32):
    %one = arith.constant 1.0 : f32
    %0 = arith.maximumf %b, %one : f32
    %1 = arith.divf %a, %0 : f32
    linalg.yield %1 : f32
  } -> tensor<6x10xf32>
  %e_o = tensor.empty() : tensor<6x4xf32>
  %z_o = linalg.fill ins(%zero : f32) outs(%e_o : tensor<6x4xf32>) -> tensor<6x4xf32>
  %o = linalg.matmul ins(%p, %v : tensor<6x10xf32>, tensor<10x4xf32>) outs(%z_o : tensor<6x4xf32>) -> tensor<6x4xf32>
  return %o : tensor<6x4xf32>
}

// p·w over 1 + Σ p·w, w of any sign: the sum is a column of the output, of values that are 1.
// CHECK-LABEL: @own_sum
//       CHECK: %[[P:.*]]:4 = linalg_ext.softmax dimension(1)
//       CHECK: %[[W:.*]] = linalg.generic {{.*}} ins(%arg3, %[[P]]#0 :
//       CHECK: %[[ONES:.*]] = linalg.fill ins(%{{.*}} : f32) outs(%{{.*}} : tensor<10x8xf32>)
//       CHECK: %[[V:.*]] = tensor.insert_slice %arg2 into %[[ONES]][0, 0] [10, 4] [1, 1]
//       CHECK: %[[O:.*]] = linalg.generic {{.*}} ins(%[[W]], %[[V]] : tensor<6x10xf32>, tensor<10x8xf32>)
//   CHECK-DAG: tensor.extract_slice %[[O]][0, 0] [6, 4] [1, 1]
//   CHECK-DAG: tensor.extract_slice %[[O]][0, 7] [6, 1] [1, 1]
//       CHECK: arith.addf
//       CHECK: arith.divf
//   CHECK-NOT: tensor<6x10xf32>
//       CHECK: return
func.func @own_sum(%q: tensor<6x8xf32>, %k: tensor<8x10xf32>, %v: tensor<10x4xf32>, %w: tensor<10xf32>) -> tensor<6x4xf32> {
  %zero = arith.constant 0.0 : f32
  %e_s = tensor.empty() : tensor<6x10xf32>
  %e_r = tensor.empty() : tensor<6xf32>
  %z_s = linalg.fill ins(%zero : f32) outs(%e_s : tensor<6x10xf32>) -> tensor<6x10xf32>
  %z_r = linalg.fill ins(%zero : f32) outs(%e_r : tensor<6xf32>) -> tensor<6xf32>
  %s = linalg.matmul ins(%q, %k : tensor<6x8xf32>, tensor<8x10xf32>) outs(%z_s : tensor<6x10xf32>) -> tensor<6x10xf32>
  %p = linalg.softmax dimension(1) ins(%s : tensor<6x10xf32>) outs(%e_s : tensor<6x10xf32>) -> tensor<6x10xf32>
  %x = linalg.generic {indexing_maps = [#id, affine_map<(i, j) -> (j)>, #id], iterator_types = ["parallel", "parallel"]}
      ins(%p, %w : tensor<6x10xf32>, tensor<10xf32>) outs(%e_s : tensor<6x10xf32>) {
  ^bb0(%a: f32, %b: f32, %c: f32):
    %0 = arith.mulf %a, %b : f32
    linalg.yield %0 : f32
  } -> tensor<6x10xf32>
  %l = linalg.reduce { arith.addf } ins(%x : tensor<6x10xf32>) outs(%z_r : tensor<6xf32>) dimensions = [1]
  %y = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x, %l : tensor<6x10xf32>, tensor<6xf32>) outs(%e_s : tensor<6x10xf32>) {
  ^bb0(%a: f32, %b: f32, %c: f32):
    %one = arith.constant 1.0 : f32
    %0 = arith.addf %b, %one : f32
    %1 = arith.divf %a, %0 : f32
    linalg.yield %1 : f32
  } -> tensor<6x10xf32>
  %e_o = tensor.empty() : tensor<6x4xf32>
  %z_o = linalg.fill ins(%zero : f32) outs(%e_o : tensor<6x4xf32>) -> tensor<6x4xf32>
  %o = linalg.matmul ins(%y, %v : tensor<6x10xf32>, tensor<10x4xf32>) outs(%z_o : tensor<6x4xf32>) -> tensor<6x4xf32>
  return %o : tensor<6x4xf32>
}

// exp(s) over where(Σ exp(s) = 0, 1, Σ exp(s)): rows whose sum is 0 in f32 are 0, as log l + m < −150·log 2 tells.
// CHECK-LABEL: @guarded
//       CHECK: %[[P:.*]]:4 = linalg_ext.softmax dimension(1)
//       CHECK: %[[SHARE:.*]] = linalg.generic {{.*}} ins(%[[P]]#1, %[[P]]#2 :
//       CHECK: %[[AWAY:.*]] = arith.subf
//       CHECK: %[[LOG:.*]] = math.log
//       CHECK: %[[MORE:.*]] = arith.subf %[[AWAY]], %[[LOG]]
//       CHECK: %[[THERE:.*]] = arith.cmpf olt, %[[MORE]], %{{.*}} : f32
//       CHECK: arith.uitofp %[[THERE]]
//       CHECK: %[[O:.*]] = linalg.generic
//       CHECK: linalg.generic {{.*}} ins(%[[SHARE]], %[[O]] :
func.func @guarded(%q: tensor<6x8xf32>, %k: tensor<8x10xf32>, %v: tensor<10x4xf32>) -> tensor<6x4xf32> {
  %zero = arith.constant 0.0 : f32
  %e_s = tensor.empty() : tensor<6x10xf32>
  %e_r = tensor.empty() : tensor<6xf32>
  %z_s = linalg.fill ins(%zero : f32) outs(%e_s : tensor<6x10xf32>) -> tensor<6x10xf32>
  %z_r = linalg.fill ins(%zero : f32) outs(%e_r : tensor<6xf32>) -> tensor<6xf32>
  %s = linalg.matmul ins(%q, %k : tensor<6x8xf32>, tensor<8x10xf32>) outs(%z_s : tensor<6x10xf32>) -> tensor<6x10xf32>
  %x = linalg.exp ins(%s : tensor<6x10xf32>) outs(%e_s : tensor<6x10xf32>) -> tensor<6x10xf32>
  %l = linalg.reduce { arith.addf } ins(%x : tensor<6x10xf32>) outs(%z_r : tensor<6xf32>) dimensions = [1]
  %y = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x, %l : tensor<6x10xf32>, tensor<6xf32>) outs(%e_s : tensor<6x10xf32>) {
  ^bb0(%a: f32, %b: f32, %c: f32):
    %one = arith.constant 1.0 : f32
    %none = arith.cmpf oeq, %b, %zero : f32
    %0 = arith.select %none, %one, %b : f32
    %1 = arith.divf %a, %0 : f32
    linalg.yield %1 : f32
  } -> tensor<6x10xf32>
  %e_o = tensor.empty() : tensor<6x4xf32>
  %z_o = linalg.fill ins(%zero : f32) outs(%e_o : tensor<6x4xf32>) -> tensor<6x4xf32>
  %o = linalg.matmul ins(%y, %v : tensor<6x10xf32>, tensor<10x4xf32>) outs(%z_o : tensor<6x4xf32>) -> tensor<6x4xf32>
  return %o : tensor<6x4xf32>
}
