// Multi-head attention with a transform script, which says how to tile instead of leaving it to the compiler.
//
// The root, marked {__root__}, has the loops (batch, head, query, head dimension, key). The script tiles batch by 1,
// heads by 2, queries by 32 and keys by 16, keys inside of queries. `attn-opt --transform-interpreter` shows the loops;
// attn-run runs the script by itself:
//   attn-run examples/multihead_attention.mlir --print-ir fused

func.func @multihead_attention(%q: tensor<2x6x129x40xf32>, %k: tensor<2x6x40x75xf32>, %v: tensor<2x6x75x40xf32>)
    -> tensor<2x6x129x40xf32> {
  %zero = arith.constant 0.0 : f32
  %minus_inf = arith.constant 0xFF800000 : f32

  %s_empty = tensor.empty() : tensor<2x6x129x75xf32>
  %s_zero = linalg.fill ins(%zero : f32) outs(%s_empty : tensor<2x6x129x75xf32>) -> tensor<2x6x129x75xf32>
  %s = linalg_ext.batch_matmul ins(%q, %k : tensor<2x6x129x40xf32>, tensor<2x6x40x75xf32>)
      outs(%s_zero : tensor<2x6x129x75xf32>) layout = "nn"

  %row = tensor.empty() : tensor<2x6x129xf32>
  %max0 = linalg.fill ins(%minus_inf : f32) outs(%row : tensor<2x6x129xf32>) -> tensor<2x6x129xf32>
  %sum0 = linalg.fill ins(%zero : f32) outs(%row : tensor<2x6x129xf32>) -> tensor<2x6x129xf32>
  %p:4 = linalg_ext.softmax dimension(3) ins(%s : tensor<2x6x129x75xf32>)
      outs(%s_empty, %max0, %sum0, %row
           : tensor<2x6x129x75xf32>, tensor<2x6x129xf32>, tensor<2x6x129xf32>, tensor<2x6x129xf32>)
      : tensor<2x6x129x75xf32>, tensor<2x6x129xf32>, tensor<2x6x129xf32>, tensor<2x6x129xf32>

  %o_empty = tensor.empty() : tensor<2x6x129x40xf32>
  %o_zero = linalg.fill ins(%zero : f32) outs(%o_empty : tensor<2x6x129x40xf32>) -> tensor<2x6x129x40xf32>
  %o = linalg_ext.batch_matmul ins(%p#0, %v : tensor<2x6x129x75xf32>, tensor<2x6x75x40xf32>)
      outs(%o_zero : tensor<2x6x129x40xf32>) layout = "nn" {__root__}
  return %o : tensor<2x6x129x40xf32>
}

transform.sequence failures(propagate) {
^bb0(%module: !pdl.operation):
  %root = transform.structured.match attributes {__root__} in %module : (!pdl.operation) -> !pdl.operation
  %fused, %loops:4 = transform.structured.fuse_ext %root {tile_sizes = [1, 2, 32, 0, 16], tile_interchange = [0, 1, 2, 4, 3]}
  cleanup
}
