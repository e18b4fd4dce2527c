// RUN: attn-opt %s --raise-attention | FileCheck %s

// A causal sigmoid: no softmax, but each score becomes a weight by itself. A score of −∞ has weight 0, which the mask
// then says, exp(−s) is a power of 2 of s times a constant, and the factor 1/6 of all weights is one of the output.
// CHECK-LABEL: @sigmoid
//       CHECK: %[[S:.*]] = linalg.generic {{.*}} ins(%arg0, %arg1 : tensor<2x6x8xf32>, tensor<2x6x8xf32>)
//       CHECK: %[[P:.*]] = linalg.generic {{.*}} ins(%[[S]] : tensor<2x6x6xf32>)
//  CHECK-NEXT: ^bb0(%[[X:.*]]: f32, %{{.*}}: f32):
//       CHECK:   %[[LIVE:.*]] = arith.cmpi sle
//       CHECK:   arith.mulf %[[X]]
//  CHECK-NEXT:   math.exp2
//       CHECK:   %[[W:.*]] = arith.divf
//       CHECK:   %[[R:.*]] = arith.select %[[LIVE]], %[[W]], %cst{{.*}}
//  CHECK-NEXT:   linalg.yield %[[R]]
//       CHECK: %[[O:.*]] = linalg.generic {{.*}} ins(%[[P]], %arg2 : tensor<2x6x6xf32>, tensor<2x6x4xf32>)
//       CHECK: linalg.generic {{.*}} ins(%[[O]]
//       CHECK:   arith.mulf
#id = affine_map<(b, i, j) -> (b, i, j)>
func.func @sigmoid(%q: tensor<2x6x8xf32>, %k: tensor<2x6x8xf32>, %v: tensor<2x6x4xf32>) -> tensor<2x6x4xf32> {
  %zero = arith.constant 0.0 : f32
  %one = arith.constant 1.0 : f32
  %lowest = arith.constant 0xFF800000 : f32
  %share = arith.constant 0.16666667 : f32
  %e_t = tensor.empty() : tensor<2x8x6xf32>
  %kt = linalg.transpose ins(%k : tensor<2x6x8xf32>) outs(%e_t : tensor<2x8x6xf32>) permutation = [0, 2, 1]
  %e_s = tensor.empty() : tensor<2x6x6xf32>
  %z_s = linalg.fill ins(%zero : f32) outs(%e_s : tensor<2x6x6xf32>) -> tensor<2x6x6xf32>
  %s = linalg.batch_matmul ins(%q, %kt : tensor<2x6x8xf32>, tensor<2x8x6xf32>) outs(%z_s : tensor<2x6x6xf32>) -> tensor<2x6x6xf32>
  %m = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel", "parallel"]} ins(%s : tensor<2x6x6xf32>) outs(%e_s : tensor<2x6x6xf32>) {
  ^bb0(%x: f32, %o: f32):
    %i = linalg.index 1 : index
    %j = linalg.index 2 : index
    %is = arith.cmpi sle, %j, %i : index
    %r = arith.select %is, %x, %lowest : f32
    linalg.yield %r : f32
  } -> tensor<2x6x6xf32>
  %p = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel", "parallel"]} ins(%m : tensor<2x6x6xf32>) outs(%e_s : tensor<2x6x6xf32>) {
  ^bb0(%x: f32, %o: f32):
    %n = arith.negf %x : f32
    %e = math.exp %n : f32
    %d = arith.addf %e, %one : f32
    %w = arith.divf %one, %d : f32
    %r = arith.mulf %w, %share : f32
    linalg.yield %r : f32
  } -> tensor<2x6x6xf32>
  %e_o = tensor.empty() : tensor<2x6x4xf32>
  %z_o = linalg.fill ins(%zero : f32) outs(%e_o : tensor<2x6x4xf32>) -> tensor<2x6x4xf32>
  %o = linalg.batch_matmul ins(%p, %v : tensor<2x6x6xf32>, tensor<2x6x4xf32>) outs(%z_o : tensor<2x6x4xf32>) -> tensor<2x6x4xf32>
  return %o : tensor<2x6x4xf32>
}

// Roots of scores, of which those that are masked have none before they are replaced.
// CHECK-LABEL: @roots
//       CHECK: math.sqrt
//       CHECK: %[[R:.*]] = arith.select
//  CHECK-NEXT:   linalg.yield %[[R]]
func.func @roots(%q: tensor<2x6x8xf32>, %k: tensor<2x8x6xf32>, %v: tensor<2x6x4xf32>) -> tensor<2x6x4xf32> {
  %zero = arith.constant 0.0 : f32
  %lowest = arith.constant 0xFF800000 : f32
  %e_s = tensor.empty() : tensor<2x6x6xf32>
  %z_s = linalg.fill ins(%zero : f32) outs(%e_s : tensor<2x6x6xf32>) -> tensor<2x6x6xf32>
  %s = linalg.batch_matmul ins(%q, %k : tensor<2x6x8xf32>, tensor<2x8x6xf32>) outs(%z_s : tensor<2x6x6xf32>) -> tensor<2x6x6xf32>
  %p = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel", "parallel"]} ins(%s : tensor<2x6x6xf32>) outs(%e_s : tensor<2x6x6xf32>) {
  ^bb0(%x: f32, %o: f32):
    %i = linalg.index 1 : index
    %j = linalg.index 2 : index
    %is = arith.cmpi sle, %j, %i : index
    %m = arith.select %is, %x, %lowest : f32
    %w = math.sqrt %m : f32
    %r = arith.select %is, %w, %zero : f32
    linalg.yield %r : f32
  } -> tensor<2x6x6xf32>
  %e_o = tensor.empty() : tensor<2x6x4xf32>
  %z_o = linalg.fill ins(%zero : f32) outs(%e_o : tensor<2x6x4xf32>) -> tensor<2x6x4xf32>
  %o = linalg.batch_matmul ins(%p, %v : tensor<2x6x6xf32>, tensor<2x6x4xf32>) outs(%z_o : tensor<2x6x4xf32>) -> tensor<2x6x4xf32>
  return %o : tensor<2x6x4xf32>
}

// Weights that are divided by their sum: one more column of values, of ones; four, so that rows stay aligned.
// CHECK-LABEL: @divided
//   CHECK-NOT: "reduction"{{.*}} ins(%{{[^,]*}} : tensor<2x6x10xf32>)
//       CHECK: tensor.insert_slice %arg2 into %{{.*}} : tensor<2x10x4xf32> into tensor<2x10x8xf32>
//       CHECK: linalg.generic {{.*}} : tensor<2x6x10xf32>, tensor<2x10x8xf32>)
//       CHECK: arith.divf
func.func @divided(%q: tensor<2x6x8xf32>, %k: tensor<2x8x10xf32>, %v: tensor<2x10x4xf32>) -> tensor<2x6x4xf32> {
  %zero = arith.constant 0.0 : f32
  %e_s = tensor.empty() : tensor<2x6x10xf32>
  %z_s = linalg.fill ins(%zero : f32) outs(%e_s : tensor<2x6x10xf32>) -> tensor<2x6x10xf32>
  %s = linalg.batch_matmul ins(%q, %k : tensor<2x6x8xf32>, tensor<2x8x10xf32>) outs(%z_s : tensor<2x6x10xf32>) -> tensor<2x6x10xf32>
  %p = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel", "parallel"]} ins(%s : tensor<2x6x10xf32>) outs(%e_s : tensor<2x6x10xf32>) {
  ^bb0(%x: f32, %o: f32):
    %r = arith.maximumf %x, %zero : f32
    linalg.yield %r : f32
  } -> tensor<2x6x10xf32>
  %e_l = tensor.empty() : tensor<2x6xf32>
  %z_l = linalg.fill ins(%zero : f32) outs(%e_l : tensor<2x6xf32>) -> tensor<2x6xf32>
  %l = linalg.reduce { arith.addf } ins(%p : tensor<2x6x10xf32>) outs(%z_l : tensor<2x6xf32>) dimensions = [2]
  %n = linalg.generic {indexing_maps = [#id, affine_map<(b, i, j) -> (b, i)>, #id], iterator_types = ["parallel", "parallel", "parallel"]} ins(%p, %l : tensor<2x6x10xf32>, tensor<2x6xf32>) outs(%e_s : tensor<2x6x10xf32>) {
  ^bb0(%x: f32, %y: f32, %o: f32):
    %few = arith.constant 0.5 : f32
    %d = arith.addf %y, %few : f32
    %r = arith.divf %x, %d : f32
    linalg.yield %r : f32
  } -> tensor<2x6x10xf32>
  %e_o = tensor.empty() : tensor<2x6x4xf32>
  %z_o = linalg.fill ins(%zero : f32) outs(%e_o : tensor<2x6x4xf32>) -> tensor<2x6x4xf32>
  %o = linalg.batch_matmul ins(%n, %v : tensor<2x6x10xf32>, tensor<2x10x4xf32>) outs(%z_o : tensor<2x6x4xf32>) -> tensor<2x6x4xf32>
  return %o : tensor<2x6x4xf32>
}

// Two layers of a perceptron have no heads: they stay as they are, and so does a product of matrices.
// CHECK-LABEL: @perceptron
//       CHECK: linalg.matmul
//       CHECK: linalg.generic
//       CHECK: linalg.matmul
func.func @perceptron(%x: tensor<6x8xf32>, %w1: tensor<8x32xf32>, %w2: tensor<32x8xf32>) -> tensor<6x8xf32> {
  %zero = arith.constant 0.0 : f32
  %e_h = tensor.empty() : tensor<6x32xf32>
  %z_h = linalg.fill ins(%zero : f32) outs(%e_h : tensor<6x32xf32>) -> tensor<6x32xf32>
  %h = linalg.matmul ins(%x, %w1 : tensor<6x8xf32>, tensor<8x32xf32>) outs(%z_h : tensor<6x32xf32>) -> tensor<6x32xf32>
  %a = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]} ins(%h : tensor<6x32xf32>) outs(%e_h : tensor<6x32xf32>) {
  ^bb0(%y: f32, %o: f32):
    %r = arith.maximumf %y, %zero : f32
    linalg.yield %r : f32
  } -> tensor<6x32xf32>
  %e_o = tensor.empty() : tensor<6x8xf32>
  %z_o = linalg.fill ins(%zero : f32) outs(%e_o : tensor<6x8xf32>) -> tensor<6x8xf32>
  %o = linalg.matmul ins(%a, %w2 : tensor<6x32xf32>, tensor<32x8xf32>) outs(%z_o : tensor<6x8xf32>) -> tensor<6x8xf32>
  return %o : tensor<6x8xf32>
}

// CHECK-LABEL: @product
//       CHECK: linalg.batch_matmul
//       CHECK: linalg.batch_matmul
func.func @product(%a: tensor<2x6x8xf32>, %b: tensor<2x8x10xf32>, %c: tensor<2x10x4xf32>) -> tensor<2x6x4xf32> {
  %zero = arith.constant 0.0 : f32
  %e_s = tensor.empty() : tensor<2x6x10xf32>
  %z_s = linalg.fill ins(%zero : f32) outs(%e_s : tensor<2x6x10xf32>) -> tensor<2x6x10xf32>
  %s = linalg.batch_matmul ins(%a, %b : tensor<2x6x8xf32>, tensor<2x8x10xf32>) outs(%z_s : tensor<2x6x10xf32>) -> tensor<2x6x10xf32>
  %e_o = tensor.empty() : tensor<2x6x4xf32>
  %z_o = linalg.fill ins(%zero : f32) outs(%e_o : tensor<2x6x4xf32>) -> tensor<2x6x4xf32>
  %o = linalg.batch_matmul ins(%s, %c : tensor<2x6x10xf32>, tensor<2x10x4xf32>) outs(%z_o : tensor<2x6x4xf32>) -> tensor<2x6x4xf32>
  return %o : tensor<2x6x4xf32>
}

// The same without a query: a slice of nothing has no place to start.
// CHECK-LABEL: @none
//       CHECK: tensor.empty() : tensor<2x0x4xf32>
func.func @none(%q: tensor<2x0x8xf32>, %k: tensor<2x8x10xf32>, %v: tensor<2x10x4xf32>) -> tensor<2x0x4xf32> {
  %zero = arith.constant 0.0 : f32
  %e_s = tensor.empty() : tensor<2x0x10xf32>
  %z_s = linalg.fill ins(%zero : f32) outs(%e_s : tensor<2x0x10xf32>) -> tensor<2x0x10xf32>
  %s = linalg.batch_matmul ins(%q, %k : tensor<2x0x8xf32>, tensor<2x8x10xf32>) outs(%z_s : tensor<2x0x10xf32>) -> tensor<2x0x10xf32>
  %p = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel", "parallel"]} ins(%s : tensor<2x0x10xf32>) outs(%e_s : tensor<2x0x10xf32>) {
  ^bb0(%x: f32, %o: f32):
    %r = arith.maximumf %x, %zero : f32
    linalg.yield %r : f32
  } -> tensor<2x0x10xf32>
  %e_l = tensor.empty() : tensor<2x0xf32>
  %z_l = linalg.fill ins(%zero : f32) outs(%e_l : tensor<2x0xf32>) -> tensor<2x0xf32>
  %l = linalg.reduce { arith.addf } ins(%p : tensor<2x0x10xf32>) outs(%z_l : tensor<2x0xf32>) dimensions = [2]
  %n = linalg.generic {indexing_maps = [#id, affine_map<(b, i, j) -> (b, i)>, #id], iterator_types = ["parallel", "parallel", "parallel"]} ins(%p, %l : tensor<2x0x10xf32>, tensor<2x0xf32>) outs(%e_s : tensor<2x0x10xf32>) {
  ^bb0(%x: f32, %y: f32, %o: f32):
    %few = arith.constant 0.5 : f32
    %d = arith.addf %y, %few : f32
    %r = arith.divf %x, %d : f32
    linalg.yield %r : f32
  } -> tensor<2x0x10xf32>
  %e_o = tensor.empty() : tensor<2x0x4xf32>
  %z_o = linalg.fill ins(%zero : f32) outs(%e_o : tensor<2x0x4xf32>) -> tensor<2x0x4xf32>
  %o = linalg.batch_matmul ins(%n, %v : tensor<2x0x10xf32>, tensor<2x10x4xf32>) outs(%z_o : tensor<2x0x4xf32>) -> tensor<2x0x4xf32>
  return %o : tensor<2x0x4xf32>
}
