// Attention of blocks: a table of bits says which blocks of 64 keys each block of 64 queries sees.
//
// Tiles of keys that the table leaves out are not computed, wherever they are, and the mask is computed in none.
// (attn-run makes up a table; with one of your own:
//   attn-run examples/block_attention.mlir --inputs q.npy k.npy v.npy blocks.npy)

#scores = affine_map<(i, j) -> (i, j)>

func.func @block_attention(%q: tensor<2048x48xf32>, %k: tensor<2048x48xf32>, %v: tensor<2048x48xf32>,
                           %blocks: tensor<32x32xi1>) -> tensor<2048x48xf32> {
  %size = arith.constant 64 : index
  %zero = arith.constant 0.0 : f32
  %minus_inf = arith.constant 0xFF800000 : f32
  %scale = arith.constant 0.144337567 : f32  // 1 / sqrt(48)

  // S = Q·Kᵀ, the transposition in the indexing maps
  %s_empty = tensor.empty() : tensor<2048x2048xf32>
  %s_zero = linalg.fill ins(%zero : f32) outs(%s_empty : tensor<2048x2048xf32>) -> tensor<2048x2048xf32>
  %s = linalg.matmul
      indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n, k)>, affine_map<(m, n, k) -> (m, n)>]
      ins(%q, %k : tensor<2048x48xf32>, tensor<2048x48xf32>) outs(%s_zero : tensor<2048x2048xf32>) -> tensor<2048x2048xf32>

  // scale, then −∞ where the table does not have the block
  %masked = linalg.generic {indexing_maps = [#scores, #scores], iterator_types = ["parallel", "parallel"]}
      ins(%s : tensor<2048x2048xf32>) outs(%s_empty : tensor<2048x2048xf32>) {
  ^bb0(%score: f32, %unused: f32):
    %i = linalg.index 0 : index
    %j = linalg.index 1 : index
    %row_of_blocks = arith.divui %i, %size : index
    %column_of_blocks = arith.divui %j, %size : index
    %visible = tensor.extract %blocks[%row_of_blocks, %column_of_blocks] : tensor<32x32xi1>
    %scaled = arith.mulf %score, %scale : f32
    %result = arith.select %visible, %scaled, %minus_inf : f32
    linalg.yield %result : f32
  } -> tensor<2048x2048xf32>

  %row = tensor.empty() : tensor<2048xf32>
  %max0 = linalg.fill ins(%minus_inf : f32) outs(%row : tensor<2048xf32>) -> tensor<2048xf32>
  %sum0 = linalg.fill ins(%zero : f32) outs(%row : tensor<2048xf32>) -> tensor<2048xf32>
  %p:4 = linalg_ext.softmax dimension(1) ins(%masked : tensor<2048x2048xf32>)
      outs(%s_empty, %max0, %sum0, %row : tensor<2048x2048xf32>, tensor<2048xf32>, tensor<2048xf32>, tensor<2048xf32>)
      : tensor<2048x2048xf32>, tensor<2048xf32>, tensor<2048xf32>, tensor<2048xf32>

  %o_empty = tensor.empty() : tensor<2048x48xf32>
  %o_zero = linalg.fill ins(%zero : f32) outs(%o_empty : tensor<2048x48xf32>) -> tensor<2048x48xf32>
  %o = linalg.matmul ins(%p#0, %v : tensor<2048x2048xf32>, tensor<2048x48xf32>)
                     outs(%o_zero : tensor<2048x48xf32>) -> tensor<2048x48xf32>
  return %o : tensor<2048x48xf32>
}
