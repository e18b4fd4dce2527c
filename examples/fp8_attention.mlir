// Attention in 8 bits: Q, K, V and probabilities are f8E4M3FN, sums f32, the output f16. Probabilities are multiplied
// by 256 before they are rounded, so that small ones are not subnormal; the output is divided by it.
//
// What to look at:
//   attn-run examples/fp8_attention.mlir --print-ir raised       the scale stays where it is, before the rounding
//   attn-run examples/fp8_attention.mlir --print-ir target       8 bits become bf16 before the tasks, and in registers

#id = affine_map<(i, j) -> (i, j)>

func.func @attention(%q: tensor<451x64xf8E4M3FN>, %k: tensor<387x64xf8E4M3FN>, %v: tensor<387x80xf8E4M3FN>)
    -> tensor<451x80xf16> {
  %zero = arith.constant 0.0 : f32
  %factor = arith.constant 0.125 : f32
  %scale = arith.constant 256.0 : f32
  %inverse = arith.constant 0.00390625 : f32

  // S = Q·Kᵀ/8
  %kt_empty = tensor.empty() : tensor<64x387xf8E4M3FN>
  %kt = linalg.transpose ins(%k : tensor<387x64xf8E4M3FN>) outs(%kt_empty : tensor<64x387xf8E4M3FN>)
      permutation = [1, 0]
  %s_empty = tensor.empty() : tensor<451x387xf32>
  %s_zero = linalg.fill ins(%zero : f32) outs(%s_empty : tensor<451x387xf32>) -> tensor<451x387xf32>
  %products = linalg.matmul ins(%q, %kt : tensor<451x64xf8E4M3FN>, tensor<64x387xf8E4M3FN>)
                            outs(%s_zero : tensor<451x387xf32>) -> tensor<451x387xf32>
  %s = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%products : tensor<451x387xf32>) outs(%s_empty : tensor<451x387xf32>) {
    ^bb0(%x: f32, %_: f32):
      %y = arith.mulf %x, %factor : f32
      linalg.yield %y : f32
  } -> tensor<451x387xf32>

  // P = softmax(S), 256·P in 8 bits
  %p = linalg.softmax dimension(1) ins(%s : tensor<451x387xf32>) outs(%s_empty : tensor<451x387xf32>)
      -> tensor<451x387xf32>
  %p8_empty = tensor.empty() : tensor<451x387xf8E4M3FN>
  %p8 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%p : tensor<451x387xf32>) outs(%p8_empty : tensor<451x387xf8E4M3FN>) {
    ^bb0(%x: f32, %_: f8E4M3FN):
      %y = arith.mulf %x, %scale : f32
      %rounded = arith.truncf %y : f32 to f8E4M3FN
      linalg.yield %rounded : f8E4M3FN
  } -> tensor<451x387xf8E4M3FN>

  // O = 256·P·V/256
  %o_empty = tensor.empty() : tensor<451x80xf32>
  %o_zero = linalg.fill ins(%zero : f32) outs(%o_empty : tensor<451x80xf32>) -> tensor<451x80xf32>
  %o = linalg.matmul ins(%p8, %v : tensor<451x387xf8E4M3FN>, tensor<387x80xf8E4M3FN>)
                     outs(%o_zero : tensor<451x80xf32>) -> tensor<451x80xf32>
  %half_empty = tensor.empty() : tensor<451x80xf16>
  %half = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%o : tensor<451x80xf32>) outs(%half_empty : tensor<451x80xf16>) {
    ^bb0(%x: f32, %_: f16):
      %y = arith.mulf %x, %inverse : f32
      %rounded = arith.truncf %y : f32 to f16
      linalg.yield %rounded : f16
  } -> tensor<451x80xf16>
  return %half : tensor<451x80xf16>
}
