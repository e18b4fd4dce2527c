// Causal attention: a scale and a mask stand between the first matmul and softmax, as plain elementwise ops.
//
// The mask is written with linalg.index: a query i sees the keys j ≤ i, the others get −∞. It is fused into the loop
// nest like any other elementwise op: whatever is computed from a score and its position is the same case. Lengths are
// dynamic; queries and keys are as many, which the op's indexing maps say.
//   attn-run examples/causal_attention.mlir --dim 0.0=300 --dim 1.0=300

#scores = affine_map<(i, j) -> (i, j)>

func.func @causal_attention(%q: tensor<?x48xf32>, %k: tensor<?x48xf32>, %v: tensor<?x48xf32>) -> tensor<?x48xf32> {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : f32
  %minus_inf = arith.constant 0xFF800000 : f32
  %scale = arith.constant 0.144337567 : f32  // 1 / sqrt(48)
  %m = tensor.dim %q, %c0 : tensor<?x48xf32>
  %n = tensor.dim %k, %c0 : tensor<?x48xf32>

  // S = Q·Kᵀ, the transposition in the indexing maps
  %s_empty = tensor.empty(%m, %n) : tensor<?x?xf32>
  %s_zero = linalg.fill ins(%zero : f32) outs(%s_empty : tensor<?x?xf32>) -> tensor<?x?xf32>
  %s = linalg.matmul
      indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n, k)>, affine_map<(m, n, k) -> (m, n)>]
      ins(%q, %k : tensor<?x48xf32>, tensor<?x48xf32>) outs(%s_zero : tensor<?x?xf32>) -> tensor<?x?xf32>

  // scale, then −∞ where j > i
  %masked = linalg.generic {indexing_maps = [#scores, #scores], iterator_types = ["parallel", "parallel"]}
      ins(%s : tensor<?x?xf32>) outs(%s_empty : tensor<?x?xf32>) {
  ^bb0(%score: f32, %unused: f32):
    %i = linalg.index 0 : index
    %j = linalg.index 1 : index
    %scaled = arith.mulf %score, %scale : f32
    %visible = arith.cmpi sle, %j, %i : index
    %result = arith.select %visible, %scaled, %minus_inf : f32
    linalg.yield %result : f32
  } -> tensor<?x?xf32>

  %row = tensor.empty(%m) : tensor<?xf32>
  %max0 = linalg.fill ins(%minus_inf : f32) outs(%row : tensor<?xf32>) -> tensor<?xf32>
  %sum0 = linalg.fill ins(%zero : f32) outs(%row : tensor<?xf32>) -> tensor<?xf32>
  %p:4 = linalg_ext.softmax dimension(1) ins(%masked : tensor<?x?xf32>)
      outs(%s_empty, %max0, %sum0, %row : tensor<?x?xf32>, tensor<?xf32>, tensor<?xf32>, tensor<?xf32>)
      : tensor<?x?xf32>, tensor<?xf32>, tensor<?xf32>, tensor<?xf32>

  %o_empty = tensor.empty(%m) : tensor<?x48xf32>
  %o_zero = linalg.fill ins(%zero : f32) outs(%o_empty : tensor<?x48xf32>) -> tensor<?x48xf32>
  %o = linalg.matmul ins(%p#0, %v : tensor<?x?xf32>, tensor<?x48xf32>)
                     outs(%o_zero : tensor<?x48xf32>) -> tensor<?x48xf32>
  return %o : tensor<?x48xf32>
}
