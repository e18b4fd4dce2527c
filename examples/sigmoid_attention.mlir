// Attention without a softmax: a causal sigmoid, σ(s − ln n), makes each score a weight by itself.
//
// It is fused as softmax is, into loops that carry the output alone: there is no maximum, no sum and no division. The
// mask makes weights 0, so tiles of keys above the diagonal are skipped, and those below computed without it.
//   attn-run examples/sigmoid_attention.mlir --print-ir fused --print-ir online

#scores = affine_map<(h, i, j) -> (h, i, j)>

func.func @sigmoid_attention(%q: tensor<4x300x64xf32>, %k: tensor<4x300x64xf32>, %v: tensor<4x300x64xf32>) -> tensor<4x300x64xf32> {
  %zero = arith.constant 0.0 : f32
  %one = arith.constant 1.0 : f32
  %scale = arith.constant 0.125 : f32        // 1 / sqrt(64)
  %offset = arith.constant 5.70378247 : f32  // ln 300

  // S = Q·Kᵀ, the transposition in the indexing maps
  %s_empty = tensor.empty() : tensor<4x300x300xf32>
  %s_zero = linalg.fill ins(%zero : f32) outs(%s_empty : tensor<4x300x300xf32>) -> tensor<4x300x300xf32>
  %s = linalg.batch_matmul
      indexing_maps = [affine_map<(h, m, n, k) -> (h, m, k)>, affine_map<(h, m, n, k) -> (h, n, k)>, affine_map<(h, m, n, k) -> (h, m, n)>]
      ins(%q, %k : tensor<4x300x64xf32>, tensor<4x300x64xf32>) outs(%s_zero : tensor<4x300x300xf32>) -> tensor<4x300x300xf32>

  // P = σ(scale·S − ln n) where j ≤ i, else 0
  %p = linalg.generic {indexing_maps = [#scores, #scores], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%s : tensor<4x300x300xf32>) outs(%s_empty : tensor<4x300x300xf32>) {
  ^bb0(%score: f32, %unused: f32):
    %i = linalg.index 1 : index
    %j = linalg.index 2 : index
    %live = arith.cmpi sle, %j, %i : index
    %scaled = arith.mulf %score, %scale : f32
    %x = arith.subf %scaled, %offset : f32
    %minus_x = arith.negf %x : f32
    %e = math.exp %minus_x : f32
    %d = arith.addf %one, %e : f32
    %sigmoid = arith.divf %one, %d : f32
    %weight = arith.select %live, %sigmoid, %zero : f32
    linalg.yield %weight : f32
  } -> tensor<4x300x300xf32>

  // O = P·V
  %o_empty = tensor.empty() : tensor<4x300x64xf32>
  %o_zero = linalg.fill ins(%zero : f32) outs(%o_empty : tensor<4x300x64xf32>) -> tensor<4x300x64xf32>
  %o = linalg.batch_matmul ins(%p, %v : tensor<4x300x300xf32>, tensor<4x300x64xf32>) outs(%o_zero : tensor<4x300x64xf32>) -> tensor<4x300x64xf32>
  return %o : tensor<4x300x64xf32>
}
