// RUN: attn-opt %s --share-attentions | FileCheck %s
// RUN: attn-opt %s --share-attentions --remarks 2>&1 >/dev/null | FileCheck %s --check-prefix=REMARK

// One attention, whose scores are computed twice, as two ops. Its outputs are queries × heads and heads × queries; the
// statistics of the second one are read, too.
// REMARK: computed once: another attention has the same queries, keys and values
// CHECK-LABEL: @two_orders
//       CHECK: %[[P:.*]]:4 = linalg_ext.softmax
//       CHECK: %[[O:.*]] = linalg.generic {{.*}} ins(%[[P]]#0, %arg2 : {{.*}}) outs(%{{.*}} : tensor<5x2x4xf32>)
//       CHECK: %[[T:.*]] = linalg.transpose ins(%[[O]] : tensor<5x2x4xf32>) {{.*}} permutation = [1, 0, 2]
//   CHECK-NOT: linalg_ext.softmax
//       CHECK: return %[[O]], %[[T]], %[[P]]#1
#q = affine_map<(h, m, k, d) -> (h, m, d)>
#k = affine_map<(h, m, k, d) -> (h, k, d)>
#s = affine_map<(h, m, k, d) -> (h, m, k)>
#p = affine_map<(h, m, n, k) -> (h, m, k)>
#v = affine_map<(h, m, n, k) -> (h, k, n)>
#o = affine_map<(h, m, n, k) -> (h, m, n)>
#t = affine_map<(h, m, n, k) -> (m, h, n)>
func.func @two_orders(%q: tensor<2x5x8xf32>, %k: tensor<2x7x8xf32>, %v: tensor<2x7x4xf32>) -> (tensor<5x2x4xf32>, tensor<2x5x4xf32>, tensor<2x5xf32>) {
  %zero = arith.constant 0.0 : f32
  %low = arith.constant 0xFF800000 : f32
  %es = tensor.empty() : tensor<2x5x7xf32>
  %er = tensor.empty() : tensor<2x5xf32>
  %eo = tensor.empty() : tensor<2x5x4xf32>
  %et = tensor.empty() : tensor<5x2x4xf32>
  %zs = linalg.fill ins(%zero : f32) outs(%es : tensor<2x5x7xf32>) -> tensor<2x5x7xf32>
  %m = linalg.fill ins(%low : f32) outs(%er : tensor<2x5xf32>) -> tensor<2x5xf32>
  %l = linalg.fill ins(%zero : f32) outs(%er : tensor<2x5xf32>) -> tensor<2x5xf32>
  %zo = linalg.fill ins(%zero : f32) outs(%eo : tensor<2x5x4xf32>) -> tensor<2x5x4xf32>
  %zt = linalg.fill ins(%zero : f32) outs(%et : tensor<5x2x4xf32>) -> tensor<5x2x4xf32>
  %s = linalg.generic {indexing_maps = [#q, #k, #s], iterator_types = ["parallel", "parallel", "parallel", "reduction"]}
      ins(%q, %k : tensor<2x5x8xf32>, tensor<2x7x8xf32>) outs(%zs : tensor<2x5x7xf32>) {
  ^bb0(%x: f32, %y: f32, %z: f32):
    %a = arith.mulf %x, %y : f32
    %b = arith.addf %z, %a : f32
    linalg.yield %b : f32
  } -> tensor<2x5x7xf32>
  %p:4 = linalg_ext.softmax dimension(2) ins(%s : tensor<2x5x7xf32>) outs(%es, %m, %l, %er : tensor<2x5x7xf32>, tensor<2x5xf32>, tensor<2x5xf32>, tensor<2x5xf32>) : tensor<2x5x7xf32>, tensor<2x5xf32>, tensor<2x5xf32>, tensor<2x5xf32>
  %o = linalg.generic {indexing_maps = [#p, #v, #t], iterator_types = ["parallel", "parallel", "parallel", "reduction"]}
      ins(%p#0, %v : tensor<2x5x7xf32>, tensor<2x7x4xf32>) outs(%zt : tensor<5x2x4xf32>) {
  ^bb0(%x: f32, %y: f32, %z: f32):
    %a = arith.mulf %x, %y : f32
    %b = arith.addf %z, %a : f32
    linalg.yield %b : f32
  } -> tensor<5x2x4xf32>
  %s2 = linalg.generic {indexing_maps = [#q, #k, #s], iterator_types = ["parallel", "parallel", "parallel", "reduction"]}
      ins(%q, %k : tensor<2x5x8xf32>, tensor<2x7x8xf32>) outs(%zs : tensor<2x5x7xf32>) {
  ^bb0(%x: f32, %y: f32, %z: f32):
    %a = arith.mulf %x, %y : f32
    %b = arith.addf %z, %a : f32
    linalg.yield %b : f32
  } -> tensor<2x5x7xf32>
  %p2:4 = linalg_ext.softmax dimension(2) ins(%s2 : tensor<2x5x7xf32>) outs(%es, %m, %l, %er : tensor<2x5x7xf32>, tensor<2x5xf32>, tensor<2x5xf32>, tensor<2x5xf32>) : tensor<2x5x7xf32>, tensor<2x5xf32>, tensor<2x5xf32>, tensor<2x5xf32>
  %o2 = linalg.generic {indexing_maps = [#p, #v, #o], iterator_types = ["parallel", "parallel", "parallel", "reduction"]}
      ins(%p2#0, %v : tensor<2x5x7xf32>, tensor<2x7x4xf32>) outs(%zo : tensor<2x5x4xf32>) {
  ^bb0(%x: f32, %y: f32, %z: f32):
    %a = arith.mulf %x, %y : f32
    %b = arith.addf %z, %a : f32
    linalg.yield %b : f32
  } -> tensor<2x5x4xf32>
  return %o, %o2, %p2#1 : tensor<5x2x4xf32>, tensor<2x5x4xf32>, tensor<2x5xf32>
}

// Of other keys.
// CHECK-LABEL: @others
// CHECK-COUNT-2: linalg_ext.softmax
//   CHECK-NOT: linalg.transpose
func.func @others(%q: tensor<2x5x8xf32>, %k: tensor<2x7x8xf32>, %v: tensor<2x7x4xf32>, %r: tensor<2x7x8xf32>) -> (tensor<2x5x4xf32>, tensor<2x5x4xf32>) {
  %zero = arith.constant 0.0 : f32
  %low = arith.constant 0xFF800000 : f32
  %es = tensor.empty() : tensor<2x5x7xf32>
  %er = tensor.empty() : tensor<2x5xf32>
  %eo = tensor.empty() : tensor<2x5x4xf32>
  %zs = linalg.fill ins(%zero : f32) outs(%es : tensor<2x5x7xf32>) -> tensor<2x5x7xf32>
  %m = linalg.fill ins(%low : f32) outs(%er : tensor<2x5xf32>) -> tensor<2x5xf32>
  %l = linalg.fill ins(%zero : f32) outs(%er : tensor<2x5xf32>) -> tensor<2x5xf32>
  %zo = linalg.fill ins(%zero : f32) outs(%eo : tensor<2x5x4xf32>) -> tensor<2x5x4xf32>
  %s = linalg.generic {indexing_maps = [#q, #k, #s], iterator_types = ["parallel", "parallel", "parallel", "reduction"]}
      ins(%q, %k : tensor<2x5x8xf32>, tensor<2x7x8xf32>) outs(%zs : tensor<2x5x7xf32>) {
  ^bb0(%x: f32, %y: f32, %z: f32):
    %a = arith.mulf %x, %y : f32
    %b = arith.addf %z, %a : f32
    linalg.yield %b : f32
  } -> tensor<2x5x7xf32>
  %p:4 = linalg_ext.softmax dimension(2) ins(%s : tensor<2x5x7xf32>) outs(%es, %m, %l, %er : tensor<2x5x7xf32>, tensor<2x5xf32>, tensor<2x5xf32>, tensor<2x5xf32>) : tensor<2x5x7xf32>, tensor<2x5xf32>, tensor<2x5xf32>, tensor<2x5xf32>
  %o = linalg.generic {indexing_maps = [#p, #v, #o], iterator_types = ["parallel", "parallel", "parallel", "reduction"]}
      ins(%p#0, %v : tensor<2x5x7xf32>, tensor<2x7x4xf32>) outs(%zo : tensor<2x5x4xf32>) {
  ^bb0(%x: f32, %y: f32, %z: f32):
    %a = arith.mulf %x, %y : f32
    %b = arith.addf %z, %a : f32
    linalg.yield %b : f32
  } -> tensor<2x5x4xf32>
  %s2 = linalg.generic {indexing_maps = [#q, #k, #s], iterator_types = ["parallel", "parallel", "parallel", "reduction"]}
      ins(%q, %r : tensor<2x5x8xf32>, tensor<2x7x8xf32>) outs(%zs : tensor<2x5x7xf32>) {
  ^bb0(%x: f32, %y: f32, %z: f32):
    %a = arith.mulf %x, %y : f32
    %b = arith.addf %z, %a : f32
    linalg.yield %b : f32
  } -> tensor<2x5x7xf32>
  %p2:4 = linalg_ext.softmax dimension(2) ins(%s2 : tensor<2x5x7xf32>) outs(%es, %m, %l, %er : tensor<2x5x7xf32>, tensor<2x5xf32>, tensor<2x5xf32>, tensor<2x5xf32>) : tensor<2x5x7xf32>, tensor<2x5xf32>, tensor<2x5xf32>, tensor<2x5xf32>
  %o2 = linalg.generic {indexing_maps = [#p, #v, #o], iterator_types = ["parallel", "parallel", "parallel", "reduction"]}
      ins(%p2#0, %v : tensor<2x5x7xf32>, tensor<2x7x4xf32>) outs(%zo : tensor<2x5x4xf32>) {
  ^bb0(%x: f32, %y: f32, %z: f32):
    %a = arith.mulf %x, %y : f32
    %b = arith.addf %z, %a : f32
    linalg.yield %b : f32
  } -> tensor<2x5x4xf32>
  return %o, %o2 : tensor<2x5x4xf32>, tensor<2x5x4xf32>
}
