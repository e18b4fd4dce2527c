// Documents that stand one after the other: each token sees those of its own document up to itself.
//
// A number for each token says which document it is of. Loops over keys go from the first to the last tile that may be
// of the same documents as a tile of queries, which is found before them, and leave out those between that are not: a
// hundred documents cost what they cost alone.
// (attn-run makes up numbers of documents, which follow no order; with an array of your own:
//   attn-run examples/document_attention.mlir --inputs q.npy k.npy v.npy documents.npy)

#scores = affine_map<(i, j) -> (i, j)>
#query = affine_map<(i, j) -> (i)>
#key = affine_map<(i, j) -> (j)>

func.func @document_attention(%q: tensor<?x48xf32>, %k: tensor<?x48xf32>, %v: tensor<?x48xf32>,
                              %documents: tensor<?xi32>) -> tensor<?x48xf32> {
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

  // scale, then −∞ where j > i or the documents differ
  %masked = linalg.generic {indexing_maps = [#scores, #query, #key, #scores], iterator_types = ["parallel", "parallel"]}
      ins(%s, %documents, %documents : tensor<?x?xf32>, tensor<?xi32>, tensor<?xi32>) outs(%s_empty : tensor<?x?xf32>) {
  ^bb0(%score: f32, %of_query: i32, %of_key: i32, %unused: f32):
    %i = linalg.index 0 : index
    %j = linalg.index 1 : index
    %scaled = arith.mulf %score, %scale : f32
    %before = arith.cmpi sle, %j, %i : index
    %same = arith.cmpi eq, %of_query, %of_key : i32
    %visible = arith.andi %before, %same : i1
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
