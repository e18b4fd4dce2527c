// Attention as a graph: S = Q·Kᵀ, P = softmax(S), O = P·V, every step on whole matrices.
//
// The sizes are odd on purpose: tiles do not divide them. What to look at:
//   attn-run examples/attention.mlir --print-ir graph --print-ir fused
// shows the same attention as one loop nest over tiles with online softmax: no 451×387 matrix is left in it.

func.func @attention(%q: tensor<451x64xf32>, %k: tensor<387x64xf32>, %v: tensor<387x80xf32>) -> tensor<451x80xf32> {
  %zero = arith.constant 0.0 : f32
  %minus_inf = arith.constant 0xFF800000 : f32

  // Kᵀ
  %kt_empty = tensor.empty() : tensor<64x387xf32>
  %kt = linalg.transpose ins(%k : tensor<387x64xf32>) outs(%kt_empty : tensor<64x387xf32>) permutation = [1, 0]

  // S = Q·Kᵀ
  %s_empty = tensor.empty() : tensor<451x387xf32>
  %s_zero = linalg.fill ins(%zero : f32) outs(%s_empty : tensor<451x387xf32>) -> tensor<451x387xf32>
  %s = linalg.matmul ins(%q, %kt : tensor<451x64xf32>, tensor<64x387xf32>)
                     outs(%s_zero : tensor<451x387xf32>) -> tensor<451x387xf32>

  // P = softmax(S) along dimension 1, from the initial statistics max = −∞ and sum = 0
  %row = tensor.empty() : tensor<451xf32>
  %max0 = linalg.fill ins(%minus_inf : f32) outs(%row : tensor<451xf32>) -> tensor<451xf32>
  %sum0 = linalg.fill ins(%zero : f32) outs(%row : tensor<451xf32>) -> tensor<451xf32>
  %p:4 = linalg_ext.softmax dimension(1) ins(%s : tensor<451x387xf32>)
      outs(%s_empty, %max0, %sum0, %row : tensor<451x387xf32>, tensor<451xf32>, tensor<451xf32>, tensor<451xf32>)
      : tensor<451x387xf32>, tensor<451xf32>, tensor<451xf32>, tensor<451xf32>

  // O = P·V
  %o_empty = tensor.empty() : tensor<451x80xf32>
  %o_zero = linalg.fill ins(%zero : f32) outs(%o_empty : tensor<451x80xf32>) -> tensor<451x80xf32>
  %o = linalg.matmul ins(%p#0, %v : tensor<451x387xf32>, tensor<387x80xf32>)
                     outs(%o_zero : tensor<451x80xf32>) -> tensor<451x80xf32>
  return %o : tensor<451x80xf32>
}
