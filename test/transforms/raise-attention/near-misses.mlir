// RUN: attn-opt %s --raise-attention --split-input-file --verify-diagnostics --remarks

// Normalised along the queries.
func.func @wrong_axis(%q: tensor<6x8xf32>, %k: tensor<8x10xf32>, %v: tensor<10x4xf32>) -> tensor<6x4xf32> {
  %zero = arith.constant 0.0 : f32
  %e_s = tensor.empty() : tensor<6x10xf32>
  %z_s = linalg.fill ins(%zero : f32) outs(%e_s : tensor<6x10xf32>) -> tensor<6x10xf32>
  %s = linalg.matmul ins(%q, %k : tensor<6x8xf32>, tensor<8x10xf32>) outs(%z_s : tensor<6x10xf32>) -> tensor<6x10xf32>
  %p = linalg.softmax dimension(0) ins(%s : tensor<6x10xf32>) outs(%e_s : tensor<6x10xf32>) -> tensor<6x10xf32>
  %e_o = tensor.empty() : tensor<6x4xf32>
  %z_o = linalg.fill ins(%zero : f32) outs(%e_o : tensor<6x4xf32>) -> tensor<6x4xf32>
  // expected-remark @+1 {{not raised to attention: softmax was expected, but it is normalised along another dimension than the one that the second matmul sums over}}
  %o = linalg.matmul ins(%p, %v : tensor<6x10xf32>, tensor<10x4xf32>) outs(%z_o : tensor<6x4xf32>) -> tensor<6x4xf32>
  return %o : tensor<6x4xf32>
}

// -----

// No probability is less than something else.
func.func @at_least(%q: tensor<6x8xf32>, %k: tensor<8x10xf32>, %v: tensor<10x4xf32>, %w: tensor<6x10xf32>) -> tensor<6x4xf32> {
  %zero = arith.constant 0.0 : f32
  %e_s = tensor.empty() : tensor<6x10xf32>
  %z_s = linalg.fill ins(%zero : f32) outs(%e_s : tensor<6x10xf32>) -> tensor<6x10xf32>
  %s = linalg.matmul ins(%q, %k : tensor<6x8xf32>, tensor<8x10xf32>) outs(%z_s : tensor<6x10xf32>) -> tensor<6x10xf32>
  %p = linalg.softmax dimension(1) ins(%s : tensor<6x10xf32>) outs(%e_s : tensor<6x10xf32>) -> tensor<6x10xf32>
  %d = linalg.max ins(%p, %w : tensor<6x10xf32>, tensor<6x10xf32>) outs(%e_s : tensor<6x10xf32>) -> tensor<6x10xf32>
  %e_o = tensor.empty() : tensor<6x4xf32>
  %z_o = linalg.fill ins(%zero : f32) outs(%e_o : tensor<6x4xf32>) -> tensor<6x4xf32>
  // expected-remark @+1 {{but its result goes through 'arith.maximumf', and only factors may come in between}}
  %o = linalg.matmul ins(%d, %v : tensor<6x10xf32>, tensor<10x4xf32>) outs(%z_o : tensor<6x4xf32>) -> tensor<6x4xf32>
  return %o : tensor<6x4xf32>
}

// -----

// Something is added to a softmax of scores that no matmul gives.
func.func @added(%s: tensor<6x10xf32>, %v: tensor<10x4xf32>, %w: tensor<6x10xf32>) -> tensor<6x4xf32> {
  %zero = arith.constant 0.0 : f32
  %e_s = tensor.empty() : tensor<6x10xf32>
  %p = linalg.softmax dimension(1) ins(%s : tensor<6x10xf32>) outs(%e_s : tensor<6x10xf32>) -> tensor<6x10xf32>
  %d = linalg.add ins(%p, %w : tensor<6x10xf32>, tensor<6x10xf32>) outs(%e_s : tensor<6x10xf32>) -> tensor<6x10xf32>
  %e_o = tensor.empty() : tensor<6x4xf32>
  %z_o = linalg.fill ins(%zero : f32) outs(%e_o : tensor<6x4xf32>) -> tensor<6x4xf32>
  // expected-remark @+1 {{but its result goes through 'arith.addf', and no term of it is an attention}}
  %o = linalg.matmul ins(%d, %v : tensor<6x10xf32>, tensor<10x4xf32>) outs(%z_o : tensor<6x4xf32>) -> tensor<6x4xf32>
  return %o : tensor<6x4xf32>
}

// -----

// A sum of probabilities, all of which are returned too: it stays one matmul.
func.func @sum_returned(%q: tensor<6x8xf32>, %k: tensor<8x10xf32>, %v: tensor<10x4xf32>, %w: tensor<6x10xf32>) -> (tensor<6x4xf32>, tensor<6x10xf32>) {
  %zero = arith.constant 0.0 : f32
  %e_s = tensor.empty() : tensor<6x10xf32>
  %z_s = linalg.fill ins(%zero : f32) outs(%e_s : tensor<6x10xf32>) -> tensor<6x10xf32>
  %s = linalg.matmul ins(%q, %k : tensor<6x8xf32>, tensor<8x10xf32>) outs(%z_s : tensor<6x10xf32>) -> tensor<6x10xf32>
  %p = linalg.softmax dimension(1) ins(%s : tensor<6x10xf32>) outs(%e_s : tensor<6x10xf32>) -> tensor<6x10xf32>
  %d = linalg.add ins(%p, %w : tensor<6x10xf32>, tensor<6x10xf32>) outs(%e_s : tensor<6x10xf32>) -> tensor<6x10xf32>
  %e_o = tensor.empty() : tensor<6x4xf32>
  %z_o = linalg.fill ins(%zero : f32) outs(%e_o : tensor<6x4xf32>) -> tensor<6x4xf32>
  // expected-remark @+1 {{attention is left as it is: 'func.return' needs its scores or probabilities as a whole too}}
  %o = linalg.matmul ins(%d, %v : tensor<6x10xf32>, tensor<10x4xf32>) outs(%z_o : tensor<6x4xf32>) -> tensor<6x4xf32>
  return %o, %p : tensor<6x4xf32>, tensor<6x10xf32>
}

// -----

// The probabilities are multiplied by each other.
func.func @squared(%q: tensor<6x8xf32>, %k: tensor<8x10xf32>, %v: tensor<10x4xf32>) -> tensor<6x4xf32> {
  %zero = arith.constant 0.0 : f32
  %e_s = tensor.empty() : tensor<6x10xf32>
  %z_s = linalg.fill ins(%zero : f32) outs(%e_s : tensor<6x10xf32>) -> tensor<6x10xf32>
  %s = linalg.matmul ins(%q, %k : tensor<6x8xf32>, tensor<8x10xf32>) outs(%z_s : tensor<6x10xf32>) -> tensor<6x10xf32>
  %p = linalg.softmax dimension(1) ins(%s : tensor<6x10xf32>) outs(%e_s : tensor<6x10xf32>) -> tensor<6x10xf32>
  %d = linalg.mul ins(%p, %p : tensor<6x10xf32>, tensor<6x10xf32>) outs(%e_s : tensor<6x10xf32>) -> tensor<6x10xf32>
  %e_o = tensor.empty() : tensor<6x4xf32>
  %z_o = linalg.fill ins(%zero : f32) outs(%e_o : tensor<6x4xf32>) -> tensor<6x4xf32>
  // expected-remark @+1 {{but its result is multiplied by something that varies along the keys and is computed from the scores}}
  %o = linalg.matmul ins(%d, %v : tensor<6x10xf32>, tensor<10x4xf32>) outs(%z_o : tensor<6x4xf32>) -> tensor<6x4xf32>
  return %o : tensor<6x4xf32>
}

// -----

// Two heads mix their probabilities.
func.func @talking_heads(%s: tensor<2x6x10xf32>, %mix: tensor<2x2xf32>, %v: tensor<2x10x4xf32>) -> tensor<2x6x4xf32> {
  %zero = arith.constant 0.0 : f32
  %e_s = tensor.empty() : tensor<2x6x10xf32>
  %z_s = linalg.fill ins(%zero : f32) outs(%e_s : tensor<2x6x10xf32>) -> tensor<2x6x10xf32>
  %p = linalg.softmax dimension(2) ins(%s : tensor<2x6x10xf32>) outs(%e_s : tensor<2x6x10xf32>) -> tensor<2x6x10xf32>
  %mixed = linalg.generic {indexing_maps = [affine_map<(g, q, k, h) -> (g, h)>, affine_map<(g, q, k, h) -> (h, q, k)>,
      affine_map<(g, q, k, h) -> (g, q, k)>], iterator_types = ["parallel", "parallel", "parallel", "reduction"]}
      ins(%mix, %p : tensor<2x2xf32>, tensor<2x6x10xf32>) outs(%z_s : tensor<2x6x10xf32>) {
  ^bb0(%a: f32, %b: f32, %c: f32):
    %0 = arith.mulf %a, %b : f32
    %1 = arith.addf %c, %0 : f32
    linalg.yield %1 : f32
  } -> tensor<2x6x10xf32>
  %e_o = tensor.empty() : tensor<2x6x4xf32>
  %z_o = linalg.fill ins(%zero : f32) outs(%e_o : tensor<2x6x4xf32>) -> tensor<2x6x4xf32>
  // expected-remark @+1 {{but its result goes through another matmul in between}}
  %o = linalg.batch_matmul ins(%mixed, %v : tensor<2x6x10xf32>, tensor<2x10x4xf32>) outs(%z_o : tensor<2x6x4xf32>) -> tensor<2x6x4xf32>
  return %o : tensor<2x6x4xf32>
}

// -----

// The probabilities are returned.
func.func @used_elsewhere(%q: tensor<6x8xf32>, %k: tensor<8x10xf32>, %v: tensor<10x4xf32>) -> (tensor<6x4xf32>, tensor<6x10xf32>) {
  %zero = arith.constant 0.0 : f32
  %e_s = tensor.empty() : tensor<6x10xf32>
  %z_s = linalg.fill ins(%zero : f32) outs(%e_s : tensor<6x10xf32>) -> tensor<6x10xf32>
  %s = linalg.matmul ins(%q, %k : tensor<6x8xf32>, tensor<8x10xf32>) outs(%z_s : tensor<6x10xf32>) -> tensor<6x10xf32>
  %p = linalg.softmax dimension(1) ins(%s : tensor<6x10xf32>) outs(%e_s : tensor<6x10xf32>) -> tensor<6x10xf32>
  %e_o = tensor.empty() : tensor<6x4xf32>
  %z_o = linalg.fill ins(%zero : f32) outs(%e_o : tensor<6x4xf32>) -> tensor<6x4xf32>
  // expected-remark @+1 {{attention is left as it is: 'func.return' needs its scores or probabilities as a whole too}}
  %o = linalg.matmul ins(%p, %v : tensor<6x10xf32>, tensor<10x4xf32>) outs(%z_o : tensor<6x4xf32>) -> tensor<6x4xf32>
  return %o, %p : tensor<6x4xf32>, tensor<6x10xf32>
}

// -----

// Exponentials that nothing divides, and an activation between two matmuls, which is not even a near miss.
func.func @no_softmax(%q: tensor<6x8xf32>, %k: tensor<8x10xf32>, %v: tensor<10x4xf32>) -> (tensor<6x4xf32>, tensor<6x4xf32>) {
  %zero = arith.constant 0.0 : f32
  %e_s = tensor.empty() : tensor<6x10xf32>
  %z_s = linalg.fill ins(%zero : f32) outs(%e_s : tensor<6x10xf32>) -> tensor<6x10xf32>
  %s = linalg.matmul ins(%q, %k : tensor<6x8xf32>, tensor<8x10xf32>) outs(%z_s : tensor<6x10xf32>) -> tensor<6x10xf32>
  %e = linalg.exp ins(%s : tensor<6x10xf32>) outs(%e_s : tensor<6x10xf32>) -> tensor<6x10xf32>
  %t = linalg.tanh ins(%s : tensor<6x10xf32>) outs(%e_s : tensor<6x10xf32>) -> tensor<6x10xf32>
  %e_o = tensor.empty() : tensor<6x4xf32>
  %z_o = linalg.fill ins(%zero : f32) outs(%e_o : tensor<6x4xf32>) -> tensor<6x4xf32>
  // expected-remark @+1 {{but its exponentials are not divided by their sum}}
  %o = linalg.matmul ins(%e, %v : tensor<6x10xf32>, tensor<10x4xf32>) outs(%z_o : tensor<6x4xf32>) -> tensor<6x4xf32>
  %o2 = linalg.matmul ins(%t, %v : tensor<6x10xf32>, tensor<10x4xf32>) outs(%z_o : tensor<6x4xf32>) -> tensor<6x4xf32>
  return %o, %o2 : tensor<6x4xf32>, tensor<6x4xf32>
}

// -----

#id = affine_map<(i, j) -> (i, j)>

// A clamp that the largest probability, scaled, is beyond.
func.func @clamped(%q: tensor<5x8xf32>, %k: tensor<8x7xf32>, %v: tensor<7x8xf32>) -> tensor<5x8xf32> {
  %zero = arith.constant 0.0 : f32
  %se = tensor.empty() : tensor<5x7xf32>
  %s0 = linalg.fill ins(%zero : f32) outs(%se : tensor<5x7xf32>) -> tensor<5x7xf32>
  %s = linalg.matmul ins(%q, %k : tensor<5x8xf32>, tensor<8x7xf32>) outs(%s0 : tensor<5x7xf32>) -> tensor<5x7xf32>
  %p = linalg.softmax dimension(1) ins(%s : tensor<5x7xf32>) outs(%se : tensor<5x7xf32>) -> tensor<5x7xf32>
  %pw = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%p : tensor<5x7xf32>) outs(%se : tensor<5x7xf32>) {
  ^bb0(%a: f32, %b: f32):
    %scale = arith.constant 1024.0 : f32
    %high = arith.constant 448.0 : f32
    %0 = arith.mulf %a, %scale : f32
    %1 = arith.minimumf %0, %high : f32
    %2 = arith.truncf %1 : f32 to f8E4M3FN
    %3 = arith.extf %2 : f8E4M3FN to f32
    linalg.yield %3 : f32
  } -> tensor<5x7xf32>
  %oe = tensor.empty() : tensor<5x8xf32>
  %o0 = linalg.fill ins(%zero : f32) outs(%oe : tensor<5x8xf32>) -> tensor<5x8xf32>
  // expected-remark @+1 {{but its result is clamped, which may be more than rounding it to 8 bits}}
  %o = linalg.matmul ins(%pw, %v : tensor<5x7xf32>, tensor<7x8xf32>) outs(%o0 : tensor<5x8xf32>) -> tensor<5x8xf32>
  return %o : tensor<5x8xf32>
}

// -----

// Ops of arith and math on tensors are not looked into.
func.func @on_tensors(%q: tensor<6x8xf32>, %k: tensor<8x10xf32>, %v: tensor<10x4xf32>, %b: tensor<6x10xf32>) -> tensor<6x4xf32> {
  %zero = arith.constant 0.0 : f32
  %e_s = tensor.empty() : tensor<6x10xf32>
  %z_s = linalg.fill ins(%zero : f32) outs(%e_s : tensor<6x10xf32>) -> tensor<6x10xf32>
  %s = linalg.matmul ins(%q, %k : tensor<6x8xf32>, tensor<8x10xf32>) outs(%z_s : tensor<6x10xf32>) -> tensor<6x10xf32>
  %x = arith.addf %s, %b : tensor<6x10xf32>
  %p = linalg.softmax dimension(1) ins(%x : tensor<6x10xf32>) outs(%e_s : tensor<6x10xf32>) -> tensor<6x10xf32>
  %e_o = tensor.empty() : tensor<6x4xf32>
  %z_o = linalg.fill ins(%zero : f32) outs(%e_o : tensor<6x4xf32>) -> tensor<6x4xf32>
  // expected-remark @+1 {{but 'arith.addf' on tensors hides what it is of; convert-elementwise-to-linalg before shows it}}
  %o = linalg.matmul ins(%p, %v : tensor<6x10xf32>, tensor<10x4xf32>) outs(%z_o : tensor<6x4xf32>) -> tensor<6x4xf32>
  return %o : tensor<6x4xf32>
}

// -----

// A part of the scores is written with a tensor that has no elements for the others.
func.func @written(%q: tensor<6x8xf32>, %k: tensor<8x10xf32>, %v: tensor<10x4xf32>, %b: tensor<6x4xf32>) -> tensor<6x4xf32> {
  %zero = arith.constant 0.0 : f32
  %e_s = tensor.empty() : tensor<6x10xf32>
  %z_s = linalg.fill ins(%zero : f32) outs(%e_s : tensor<6x10xf32>) -> tensor<6x10xf32>
  %s = linalg.matmul ins(%q, %k : tensor<6x8xf32>, tensor<8x10xf32>) outs(%z_s : tensor<6x10xf32>) -> tensor<6x10xf32>
  %x = tensor.insert_slice %b into %s[0, 0] [6, 4] [1, 1] : tensor<6x4xf32> into tensor<6x10xf32>
  %p = linalg.softmax dimension(1) ins(%x : tensor<6x10xf32>) outs(%e_s : tensor<6x10xf32>) -> tensor<6x10xf32>
  %e_o = tensor.empty() : tensor<6x4xf32>
  %z_o = linalg.fill ins(%zero : f32) outs(%e_o : tensor<6x4xf32>) -> tensor<6x4xf32>
  // expected-remark @+1 {{but 'tensor.insert_slice' hides what it is of; a select by index or mask would not}}
  %o = linalg.matmul ins(%p, %v : tensor<6x10xf32>, tensor<10x4xf32>) outs(%z_o : tensor<6x4xf32>) -> tensor<6x4xf32>
  return %o : tensor<6x4xf32>
}

// -----

// Every second element of a row is one of another tensor, which has no elements in between.
func.func @written_in_steps(%q: tensor<6x8xf32>, %k: tensor<8x10xf32>, %v: tensor<10x4xf32>, %b: tensor<6x5xf32>) -> tensor<6x4xf32> {
  %zero = arith.constant 0.0 : f32
  %e_s = tensor.empty() : tensor<6x10xf32>
  %z_s = linalg.fill ins(%zero : f32) outs(%e_s : tensor<6x10xf32>) -> tensor<6x10xf32>
  %s = linalg.matmul ins(%q, %k : tensor<6x8xf32>, tensor<8x10xf32>) outs(%z_s : tensor<6x10xf32>) -> tensor<6x10xf32>
  %x = tensor.insert_slice %b into %s[0, 0] [6, 5] [1, 2] : tensor<6x5xf32> into tensor<6x10xf32>
  %p = linalg.softmax dimension(1) ins(%x : tensor<6x10xf32>) outs(%e_s : tensor<6x10xf32>) -> tensor<6x10xf32>
  %e_o = tensor.empty() : tensor<6x4xf32>
  %z_o = linalg.fill ins(%zero : f32) outs(%e_o : tensor<6x4xf32>) -> tensor<6x4xf32>
  // expected-remark @+1 {{but 'tensor.insert_slice' hides what it is of; a select by index or mask would not}}
  %o = linalg.matmul ins(%p, %v : tensor<6x10xf32>, tensor<10x4xf32>) outs(%z_o : tensor<6x4xf32>) -> tensor<6x4xf32>
  return %o : tensor<6x4xf32>
}

// -----

// A function that is called is not looked into.
func.func private @halved(tensor<6x10xf32>) -> tensor<6x10xf32>

func.func @called(%q: tensor<6x8xf32>, %k: tensor<8x10xf32>, %v: tensor<10x4xf32>) -> tensor<6x4xf32> {
  %zero = arith.constant 0.0 : f32
  %e_s = tensor.empty() : tensor<6x10xf32>
  %z_s = linalg.fill ins(%zero : f32) outs(%e_s : tensor<6x10xf32>) -> tensor<6x10xf32>
  %s = linalg.matmul ins(%q, %k : tensor<6x8xf32>, tensor<8x10xf32>) outs(%z_s : tensor<6x10xf32>) -> tensor<6x10xf32>
  %x = func.call @halved(%s) : (tensor<6x10xf32>) -> tensor<6x10xf32>
  %p = linalg.softmax dimension(1) ins(%x : tensor<6x10xf32>) outs(%e_s : tensor<6x10xf32>) -> tensor<6x10xf32>
  %e_o = tensor.empty() : tensor<6x4xf32>
  %z_o = linalg.fill ins(%zero : f32) outs(%e_o : tensor<6x4xf32>) -> tensor<6x4xf32>
  // expected-remark @+1 {{but 'func.call' hides what it is of; --inline-calls=every=1 before shows it}}
  %o = linalg.matmul ins(%p, %v : tensor<6x10xf32>, tensor<10x4xf32>) outs(%z_o : tensor<6x4xf32>) -> tensor<6x4xf32>
  return %o : tensor<6x4xf32>
}

// -----

#id = affine_map<(i, j) -> (i, j)>

// Scores of integers.
func.func @integers(%q: tensor<6x8xi8>, %k: tensor<8x10xi8>, %v: tensor<10x4xf32>) -> tensor<6x4xf32> {
  %zero = arith.constant 0.0 : f32
  %none = arith.constant 0 : i32
  %e_s = tensor.empty() : tensor<6x10xi32>
  %z_s = linalg.fill ins(%none : i32) outs(%e_s : tensor<6x10xi32>) -> tensor<6x10xi32>
  %s = linalg.matmul ins(%q, %k : tensor<6x8xi8>, tensor<8x10xi8>) outs(%z_s : tensor<6x10xi32>) -> tensor<6x10xi32>
  %e_x = tensor.empty() : tensor<6x10xf32>
  %x = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%s : tensor<6x10xi32>) outs(%e_x : tensor<6x10xf32>) {
  ^bb0(%a: i32, %b: f32):
    %0 = arith.sitofp %a : i32 to f32
    linalg.yield %0 : f32
  } -> tensor<6x10xf32>
  %p = linalg.softmax dimension(1) ins(%x : tensor<6x10xf32>) outs(%e_x : tensor<6x10xf32>) -> tensor<6x10xf32>
  %e_o = tensor.empty() : tensor<6x4xf32>
  %z_o = linalg.fill ins(%zero : f32) outs(%e_o : tensor<6x4xf32>) -> tensor<6x4xf32>
  // expected-remark @+1 {{but its scores are summed as integers; convert queries and keys to floats before}}
  %o = linalg.matmul ins(%p, %v : tensor<6x10xf32>, tensor<10x4xf32>) outs(%z_o : tensor<6x4xf32>) -> tensor<6x4xf32>
  return %o : tensor<6x4xf32>
}

// -----

#id = affine_map<(i, j) -> (i, j)>
#row = affine_map<(i, j) -> (i)>

// A number beside a sum of exponentials that are relative to something else than a maximum.
func.func @number_beside(%q: tensor<6x8xf32>, %k: tensor<8x10xf32>, %v: tensor<10x4xf32>, %live: tensor<6x10xi1>) -> tensor<6x4xf32> {
  %zero = arith.constant 0.0 : f32
  %e_s = tensor.empty() : tensor<6x10xf32>
  %e_r = tensor.empty() : tensor<6xf32>
  %z_s = linalg.fill ins(%zero : f32) outs(%e_s : tensor<6x10xf32>) -> tensor<6x10xf32>
  %z_r = linalg.fill ins(%zero : f32) outs(%e_r : tensor<6xf32>) -> tensor<6xf32>
  %s = linalg.matmul ins(%q, %k : tensor<6x8xf32>, tensor<8x10xf32>) outs(%z_s : tensor<6x10xf32>) -> tensor<6x10xf32>
  %m = linalg.reduce { arith.addf } ins(%s : tensor<6x10xf32>) outs(%z_r : tensor<6xf32>) dimensions = [1]
  %e = linalg.generic {indexing_maps = [#id, #row, #id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%s, %m, %live : tensor<6x10xf32>, tensor<6xf32>, tensor<6x10xi1>) outs(%e_s : tensor<6x10xf32>) {
  ^bb0(%a: f32, %b: f32, %c: i1, %o: f32):
    %0 = arith.subf %a, %b : f32
    %1 = math.exp %0 : f32
    %2 = arith.select %c, %1, %zero : f32
    linalg.yield %2 : f32
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
  // expected-remark @+1 {{but a number is added to the sum of its exponentials, which are not shifted by their maximum}}
  %o = linalg.matmul ins(%p, %v : tensor<6x10xf32>, tensor<10x4xf32>) outs(%z_o : tensor<6x4xf32>) -> tensor<6x4xf32>
  return %o : tensor<6x4xf32>
}

// -----

// Only the largest scores are kept: computed once more in the loop, none might be equal to the largest of these.
func.func @largest(%q: tensor<2x5x8xf32>, %kt: tensor<2x8x5xf32>, %v: tensor<2x5x8xf32>) -> tensor<2x5x8xf32> {
  %zero = arith.constant 0.0 : f32
  %least = arith.constant 0xFF800000 : f32
  %e = tensor.empty() : tensor<2x5x5xf32>
  %e2 = tensor.empty() : tensor<2x5xf32>
  %zeros = linalg.fill ins(%zero : f32) outs(%e : tensor<2x5x5xf32>) -> tensor<2x5x5xf32>
  %lowest = linalg.fill ins(%least : f32) outs(%e2 : tensor<2x5xf32>) -> tensor<2x5xf32>
  %s = linalg.batch_matmul ins(%q, %kt : tensor<2x5x8xf32>, tensor<2x8x5xf32>) outs(%zeros : tensor<2x5x5xf32>) -> tensor<2x5x5xf32>
  %top = linalg.reduce { arith.maximumf } ins(%s : tensor<2x5x5xf32>) outs(%lowest : tensor<2x5xf32>) dimensions = [2]
  %kept = linalg.generic {indexing_maps = [affine_map<(b, i, j) -> (b, i, j)>, affine_map<(b, i, j) -> (b, i)>, affine_map<(b, i, j) -> (b, i, j)>],
                          iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%s, %top : tensor<2x5x5xf32>, tensor<2x5xf32>) outs(%e : tensor<2x5x5xf32>) {
  ^bb0(%x: f32, %m: f32, %out: f32):
    %is_top = arith.cmpf oeq, %x, %m : f32
    %y = arith.select %is_top, %x, %least : f32
    linalg.yield %y : f32
  } -> tensor<2x5x5xf32>
  %p = linalg.softmax dimension(2) ins(%kept : tensor<2x5x5xf32>) outs(%e : tensor<2x5x5xf32>) -> tensor<2x5x5xf32>
  %e3 = tensor.empty() : tensor<2x5x8xf32>
  %zeros3 = linalg.fill ins(%zero : f32) outs(%e3 : tensor<2x5x8xf32>) -> tensor<2x5x8xf32>
  // expected-remark @+1 {{but its scores are compared with what is computed from all of them, such as the k-th largest}}
  %o = linalg.batch_matmul ins(%p, %v : tensor<2x5x5xf32>, tensor<2x5x8xf32>) outs(%zeros3 : tensor<2x5x8xf32>) -> tensor<2x5x8xf32>
  return %o : tensor<2x5x8xf32>
}

// -----

// Softmax over 11 keys, of which 10 meet values.
func.func @other_keys(%q: tensor<6x8xf32>, %k: tensor<8x11xf32>, %v: tensor<10x4xf32>) -> tensor<6x4xf32> {
  %zero = arith.constant 0.0 : f32
  %e_s = tensor.empty() : tensor<6x11xf32>
  %z_s = linalg.fill ins(%zero : f32) outs(%e_s : tensor<6x11xf32>) -> tensor<6x11xf32>
  %s = linalg.matmul ins(%q, %k : tensor<6x8xf32>, tensor<8x11xf32>) outs(%z_s : tensor<6x11xf32>) -> tensor<6x11xf32>
  %p = linalg.softmax dimension(1) ins(%s : tensor<6x11xf32>) outs(%e_s : tensor<6x11xf32>) -> tensor<6x11xf32>
  %part = tensor.extract_slice %p[0, 0] [6, 10] [1, 1] : tensor<6x11xf32> to tensor<6x10xf32>
  %e_o = tensor.empty() : tensor<6x4xf32>
  %z_o = linalg.fill ins(%zero : f32) outs(%e_o : tensor<6x4xf32>) -> tensor<6x4xf32>
  // expected-remark @+1 {{but it is normalised over other keys than those that the second matmul sums over}}
  %o = linalg.matmul ins(%part, %v : tensor<6x10xf32>, tensor<10x4xf32>) outs(%z_o : tensor<6x4xf32>) -> tensor<6x4xf32>
  return %o : tensor<6x4xf32>
}

// -----

// Softmax of a softmax of halves: of scores that are not rounded, exponentials are no parts of that sum.
func.func @softmax_of_rounded(%q: tensor<6x8xbf16>, %k: tensor<8x10xbf16>, %v: tensor<10x4xf32>) -> tensor<6x4xf32> {
  %zero = arith.constant 0.0 : f32
  %least = arith.constant 0xFF800000 : f32
  %e_s = tensor.empty() : tensor<6x10xf32>
  %e_h = tensor.empty() : tensor<6x10xbf16>
  %e_r = tensor.empty() : tensor<6xf32>
  %z_s = linalg.fill ins(%zero : f32) outs(%e_s : tensor<6x10xf32>) -> tensor<6x10xf32>
  %z_r = linalg.fill ins(%zero : f32) outs(%e_r : tensor<6xf32>) -> tensor<6xf32>
  %lowest = linalg.fill ins(%least : f32) outs(%e_r : tensor<6xf32>) -> tensor<6xf32>
  %wide = linalg.matmul ins(%q, %k : tensor<6x8xbf16>, tensor<8x10xbf16>) outs(%z_s : tensor<6x10xf32>) -> tensor<6x10xf32>
  %half = linalg.map { arith.truncf } ins(%wide : tensor<6x10xf32>) outs(%e_h : tensor<6x10xbf16>)
  %s = linalg.map { arith.extf } ins(%half : tensor<6x10xbf16>) outs(%e_s : tensor<6x10xf32>)
  %m = linalg.reduce { arith.maximumf } ins(%s : tensor<6x10xf32>) outs(%lowest : tensor<6xf32>) dimensions = [1]
  %ms = linalg.broadcast ins(%m : tensor<6xf32>) outs(%e_s : tensor<6x10xf32>) dimensions = [1]
  %d = linalg.sub ins(%s, %ms : tensor<6x10xf32>, tensor<6x10xf32>) outs(%e_s : tensor<6x10xf32>) -> tensor<6x10xf32>
  %e = linalg.exp ins(%d : tensor<6x10xf32>) outs(%e_s : tensor<6x10xf32>) -> tensor<6x10xf32>
  %l = linalg.reduce { arith.addf } ins(%e : tensor<6x10xf32>) outs(%z_r : tensor<6xf32>) dimensions = [1]
  %ls = linalg.broadcast ins(%l : tensor<6xf32>) outs(%e_s : tensor<6x10xf32>) dimensions = [1]
  %p = linalg.div ins(%e, %ls : tensor<6x10xf32>, tensor<6x10xf32>) outs(%e_s : tensor<6x10xf32>) -> tensor<6x10xf32>
  %p2 = linalg.softmax dimension(1) ins(%p : tensor<6x10xf32>) outs(%e_s : tensor<6x10xf32>) -> tensor<6x10xf32>
  %e_o = tensor.empty() : tensor<6x4xf32>
  %z_o = linalg.fill ins(%zero : f32) outs(%e_o : tensor<6x4xf32>) -> tensor<6x4xf32>
  // expected-remark @+1 {{but its scores are probabilities whose own scores were rounded before their maximum was taken}}
  %o = linalg.matmul ins(%p2, %v : tensor<6x10xf32>, tensor<10x4xf32>) outs(%z_o : tensor<6x4xf32>) -> tensor<6x4xf32>
  return %o : tensor<6x4xf32>
}

// -----

// A function of differences to the largest score: that of the largest to itself is to be 0.
func.func @of_differences(%q: tensor<6x8xf32>, %k: tensor<8x10xf32>, %v: tensor<10x4xf32>) -> tensor<6x4xf32> {
  %zero = arith.constant 0.0 : f32
  %least = arith.constant 0xFF800000 : f32
  %e_s = tensor.empty() : tensor<6x10xf32>
  %e_r = tensor.empty() : tensor<6xf32>
  %z_s = linalg.fill ins(%zero : f32) outs(%e_s : tensor<6x10xf32>) -> tensor<6x10xf32>
  %lowest = linalg.fill ins(%least : f32) outs(%e_r : tensor<6xf32>) -> tensor<6xf32>
  %s = linalg.matmul ins(%q, %k : tensor<6x8xf32>, tensor<8x10xf32>) outs(%z_s : tensor<6x10xf32>) -> tensor<6x10xf32>
  %m = linalg.reduce { arith.maximumf } ins(%s : tensor<6x10xf32>) outs(%lowest : tensor<6xf32>) dimensions = [1]
  %ms = linalg.broadcast ins(%m : tensor<6xf32>) outs(%e_s : tensor<6x10xf32>) dimensions = [1]
  %d = linalg.sub ins(%s, %ms : tensor<6x10xf32>, tensor<6x10xf32>) outs(%e_s : tensor<6x10xf32>) -> tensor<6x10xf32>
  %t = linalg.tanh ins(%d : tensor<6x10xf32>) outs(%e_s : tensor<6x10xf32>) -> tensor<6x10xf32>
  %p = linalg.softmax dimension(1) ins(%t : tensor<6x10xf32>) outs(%e_s : tensor<6x10xf32>) -> tensor<6x10xf32>
  %e_o = tensor.empty() : tensor<6x4xf32>
  %z_o = linalg.fill ins(%zero : f32) outs(%e_o : tensor<6x4xf32>) -> tensor<6x4xf32>
  // expected-remark @+1 {{but its scores are a function of their differences to one of them, such as the largest}}
  %o = linalg.matmul ins(%p, %v : tensor<6x10xf32>, tensor<10x4xf32>) outs(%z_o : tensor<6x4xf32>) -> tensor<6x4xf32>
  return %o : tensor<6x4xf32>
}
