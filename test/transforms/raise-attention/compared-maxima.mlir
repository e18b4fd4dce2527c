// RUN: attn-opt %s --raise-attention | FileCheck %s

// Softmax by hand whose maximum is read elsewhere, too. The online softmax has it in the end; but where scores are
// compared with it, both are computed in one way: scores computed anew may be rounded otherwise, and none be the largest.

#pair = affine_map<(i, j) -> (i, j)>
#row = affine_map<(i, j) -> (i)>

// CHECK-LABEL: @returned
//       CHECK: %[[SOFTMAX:.*]]:4 = linalg_ext.softmax
//       CHECK: %[[MAX:.*]] = linalg.generic {{.*}} ins(%[[SOFTMAX]]#1 : tensor<6xf32>)
//       CHECK: return %{{.*}}, %[[MAX]]

// CHECK-LABEL: @compared
//       CHECK: %[[S:.*]] = linalg.generic {{.*}} attrs = {{[{]}}__pairwise__}
//       CHECK: %[[MAX:.*]] = linalg.reduce { arith.maximumf } ins(%[[S]]
//       CHECK: linalg_ext.softmax
//       CHECK: %[[LARGEST:.*]] = linalg.generic {{.*}} ins(%[[S]], %[[MAX]]
//       CHECK:   arith.cmpf oeq
//       CHECK: return %{{.*}}, %[[LARGEST]]

// What only the row's numbers are compared for keeps nothing.
// CHECK-LABEL: @guarded
//       CHECK: %[[SOFTMAX:.*]]:4 = linalg_ext.softmax
//       CHECK: %[[MAX:.*]] = linalg.generic {{.*}} ins(%[[SOFTMAX]]#1 : tensor<6xf32>)
//       CHECK: linalg.generic {{.*}} ins(%{{.*}}, %[[MAX]]
//       CHECK:   arith.cmpf

func.func @returned(%q: tensor<6x8xf32>, %kt: tensor<8x7xf32>, %v: tensor<7x8xf32>) -> (tensor<6x8xf32>, tensor<6xf32>) {
  %zero = arith.constant 0.0 : f32
  %least = arith.constant 0xFF800000 : f32
  %es = tensor.empty() : tensor<6x7xf32>
  %er = tensor.empty() : tensor<6xf32>
  %eo = tensor.empty() : tensor<6x8xf32>
  %zs = linalg.fill ins(%zero : f32) outs(%es : tensor<6x7xf32>) -> tensor<6x7xf32>
  %zr = linalg.fill ins(%zero : f32) outs(%er : tensor<6xf32>) -> tensor<6xf32>
  %zo = linalg.fill ins(%zero : f32) outs(%eo : tensor<6x8xf32>) -> tensor<6x8xf32>
  %lr = linalg.fill ins(%least : f32) outs(%er : tensor<6xf32>) -> tensor<6xf32>
  %s = linalg.matmul ins(%q, %kt : tensor<6x8xf32>, tensor<8x7xf32>) outs(%zs : tensor<6x7xf32>) -> tensor<6x7xf32>
  %m = linalg.reduce { arith.maximumf } ins(%s : tensor<6x7xf32>) outs(%lr : tensor<6xf32>) dimensions = [1]
  %e = linalg.generic {indexing_maps = [#pair, #row, #pair], iterator_types = ["parallel", "parallel"]}
      ins(%s, %m : tensor<6x7xf32>, tensor<6xf32>) outs(%es : tensor<6x7xf32>) {
    ^bb0(%x: f32, %r: f32, %out: f32):
      %y = arith.subf %x, %r : f32
      %z = math.exp %y : f32
      linalg.yield %z : f32
  } -> tensor<6x7xf32>
  %l = linalg.reduce { arith.addf } ins(%e : tensor<6x7xf32>) outs(%zr : tensor<6xf32>) dimensions = [1]
  %p = linalg.generic {indexing_maps = [#pair, #row, #pair], iterator_types = ["parallel", "parallel"]}
      ins(%e, %l : tensor<6x7xf32>, tensor<6xf32>) outs(%es : tensor<6x7xf32>) {
    ^bb0(%x: f32, %t: f32, %out: f32):
      %y = arith.divf %x, %t : f32
      linalg.yield %y : f32
  } -> tensor<6x7xf32>
  %o = linalg.matmul ins(%p, %v : tensor<6x7xf32>, tensor<7x8xf32>) outs(%zo : tensor<6x8xf32>) -> tensor<6x8xf32>
  return %o, %m : tensor<6x8xf32>, tensor<6xf32>
}

func.func @compared(%q: tensor<6x8xf32>, %kt: tensor<8x7xf32>, %v: tensor<7x8xf32>) -> (tensor<6x8xf32>, tensor<6x7xi1>) {
  %zero = arith.constant 0.0 : f32
  %least = arith.constant 0xFF800000 : f32
  %es = tensor.empty() : tensor<6x7xf32>
  %er = tensor.empty() : tensor<6xf32>
  %eo = tensor.empty() : tensor<6x8xf32>
  %zs = linalg.fill ins(%zero : f32) outs(%es : tensor<6x7xf32>) -> tensor<6x7xf32>
  %zr = linalg.fill ins(%zero : f32) outs(%er : tensor<6xf32>) -> tensor<6xf32>
  %zo = linalg.fill ins(%zero : f32) outs(%eo : tensor<6x8xf32>) -> tensor<6x8xf32>
  %lr = linalg.fill ins(%least : f32) outs(%er : tensor<6xf32>) -> tensor<6xf32>
  %s = linalg.matmul ins(%q, %kt : tensor<6x8xf32>, tensor<8x7xf32>) outs(%zs : tensor<6x7xf32>) -> tensor<6x7xf32>
  %m = linalg.reduce { arith.maximumf } ins(%s : tensor<6x7xf32>) outs(%lr : tensor<6xf32>) dimensions = [1]
  %e = linalg.generic {indexing_maps = [#pair, #row, #pair], iterator_types = ["parallel", "parallel"]}
      ins(%s, %m : tensor<6x7xf32>, tensor<6xf32>) outs(%es : tensor<6x7xf32>) {
    ^bb0(%x: f32, %r: f32, %out: f32):
      %y = arith.subf %x, %r : f32
      %z = math.exp %y : f32
      linalg.yield %z : f32
  } -> tensor<6x7xf32>
  %l = linalg.reduce { arith.addf } ins(%e : tensor<6x7xf32>) outs(%zr : tensor<6xf32>) dimensions = [1]
  %p = linalg.generic {indexing_maps = [#pair, #row, #pair], iterator_types = ["parallel", "parallel"]}
      ins(%e, %l : tensor<6x7xf32>, tensor<6xf32>) outs(%es : tensor<6x7xf32>) {
    ^bb0(%x: f32, %t: f32, %out: f32):
      %y = arith.divf %x, %t : f32
      linalg.yield %y : f32
  } -> tensor<6x7xf32>
  %o = linalg.matmul ins(%p, %v : tensor<6x7xf32>, tensor<7x8xf32>) outs(%zo : tensor<6x8xf32>) -> tensor<6x8xf32>
  %eb = tensor.empty() : tensor<6x7xi1>
  %largest = linalg.generic {indexing_maps = [#pair, #row, #pair], iterator_types = ["parallel", "parallel"]}
      ins(%s, %m : tensor<6x7xf32>, tensor<6xf32>) outs(%eb : tensor<6x7xi1>) {
    ^bb0(%x: f32, %r: f32, %out: i1):
      %c = arith.cmpf oeq, %x, %r : f32
      linalg.yield %c : i1
  } -> tensor<6x7xi1>
  return %o, %largest : tensor<6x8xf32>, tensor<6x7xi1>
}

func.func @guarded(%q: tensor<6x8xf32>, %kt: tensor<8x7xf32>, %v: tensor<7x8xf32>) -> (tensor<6x8xf32>, tensor<6x7xf32>) {
  %zero = arith.constant 0.0 : f32
  %least = arith.constant 0xFF800000 : f32
  %es = tensor.empty() : tensor<6x7xf32>
  %er = tensor.empty() : tensor<6xf32>
  %eo = tensor.empty() : tensor<6x8xf32>
  %zs = linalg.fill ins(%zero : f32) outs(%es : tensor<6x7xf32>) -> tensor<6x7xf32>
  %zr = linalg.fill ins(%zero : f32) outs(%er : tensor<6xf32>) -> tensor<6xf32>
  %zo = linalg.fill ins(%zero : f32) outs(%eo : tensor<6x8xf32>) -> tensor<6x8xf32>
  %lr = linalg.fill ins(%least : f32) outs(%er : tensor<6xf32>) -> tensor<6xf32>
  %s = linalg.matmul ins(%q, %kt : tensor<6x8xf32>, tensor<8x7xf32>) outs(%zs : tensor<6x7xf32>) -> tensor<6x7xf32>
  %m = linalg.reduce { arith.maximumf } ins(%s : tensor<6x7xf32>) outs(%lr : tensor<6xf32>) dimensions = [1]
  %e = linalg.generic {indexing_maps = [#pair, #row, #pair], iterator_types = ["parallel", "parallel"]}
      ins(%s, %m : tensor<6x7xf32>, tensor<6xf32>) outs(%es : tensor<6x7xf32>) {
    ^bb0(%x: f32, %r: f32, %out: f32):
      %y = arith.subf %x, %r : f32
      %z = math.exp %y : f32
      linalg.yield %z : f32
  } -> tensor<6x7xf32>
  %l = linalg.reduce { arith.addf } ins(%e : tensor<6x7xf32>) outs(%zr : tensor<6xf32>) dimensions = [1]
  %p = linalg.generic {indexing_maps = [#pair, #row, #pair], iterator_types = ["parallel", "parallel"]}
      ins(%e, %l : tensor<6x7xf32>, tensor<6xf32>) outs(%es : tensor<6x7xf32>) {
    ^bb0(%x: f32, %t: f32, %out: f32):
      %y = arith.divf %x, %t : f32
      linalg.yield %y : f32
  } -> tensor<6x7xf32>
  %o = linalg.matmul ins(%p, %v : tensor<6x7xf32>, tensor<7x8xf32>) outs(%zo : tensor<6x8xf32>) -> tensor<6x8xf32>
  %d = linalg.generic {indexing_maps = [#pair, #row, #pair], iterator_types = ["parallel", "parallel"]}
      ins(%s, %m : tensor<6x7xf32>, tensor<6xf32>) outs(%es : tensor<6x7xf32>) {
    ^bb0(%x: f32, %r: f32, %out: f32):
      %c = arith.cmpf oeq, %r, %least : f32
      %y = arith.subf %x, %r : f32
      %z = arith.select %c, %zero, %y : f32
      linalg.yield %z : f32
  } -> tensor<6x7xf32>
  return %o, %d : tensor<6x8xf32>, tensor<6x7xf32>
}
