// RUN: attn-opt %s --fuse-attention="tile-sizes=0,0,3" | FileCheck %s

#id = affine_map<(i, j) -> (i, j)>

// Who asks for a size that a type says is no user of the tensor: its loops may put it together.
// CHECK-LABEL: func.func @sized
// CHECK-NOT:     tensor.dim
// CHECK:         scf.for
// CHECK:         return
func.func @sized(%q: tensor<4x8xf32>, %k: tensor<6x8xf32>, %v: tensor<6x1xf32>) -> (tensor<4x?xf32>, tensor<6x1xf32>) {
  %zero = arith.constant 0.0 : f32
  %lowest = arith.constant 0xFF800000 : f32
  %e_v = tensor.empty() : tensor<6x1xf32>
  %values = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%v : tensor<6x1xf32>) outs(%e_v : tensor<6x1xf32>) {
  ^bb0(%x: f32, %_: f32):
    %y = arith.addf %x, %x : f32
    linalg.yield %y : f32
  } -> tensor<6x1xf32>
  %e_s = tensor.empty() : tensor<4x6xf32>
  %z_s = linalg.fill ins(%zero : f32) outs(%e_s : tensor<4x6xf32>) -> tensor<4x6xf32>
  %s = linalg_ext.batch_matmul ins(%q, %k : tensor<4x8xf32>, tensor<6x8xf32>) outs(%z_s : tensor<4x6xf32>) layout = "nt"
  %e_r = tensor.empty() : tensor<4xf32>
  %m = linalg.fill ins(%lowest : f32) outs(%e_r : tensor<4xf32>) -> tensor<4xf32>
  %a = linalg.fill ins(%zero : f32) outs(%e_r : tensor<4xf32>) -> tensor<4xf32>
  %p:4 = linalg_ext.softmax dimension(1) ins(%s : tensor<4x6xf32>) outs(%e_s, %m, %a, %e_r : tensor<4x6xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>)
  %c1 = arith.constant 1 : index
  %n = tensor.dim %values, %c1 : tensor<6x1xf32>
  %e_o = tensor.empty(%n) : tensor<4x?xf32>
  %z_o = linalg.fill ins(%zero : f32) outs(%e_o : tensor<4x?xf32>) -> tensor<4x?xf32>
  %o = linalg.matmul ins(%p#0, %values : tensor<4x6xf32>, tensor<6x1xf32>) outs(%z_o : tensor<4x?xf32>) -> tensor<4x?xf32>
  return %o, %values : tensor<4x?xf32>, tensor<6x1xf32>
}
