// RUN: attn-opt %s --raise-attention --fuse-attention="tile-sizes=16,0,8" -o %t.mlir
// RUN: FileCheck %s < %t.mlir
// RUN: attn-opt %t.mlir --raise-attention --fuse-attention --remarks > %t.again 2>&1
// RUN: diff %t.mlir %t.again

// An attention in a loop of the graph, over layers, is fused like any other; what is fused already stays as it is.
// CHECK-LABEL: func.func @layers
// CHECK:         scf.for {{.*}} step %c1 iter_args
// CHECK:           scf.for {{.*}} step %c16
// CHECK-NEXT:        scf.for {{.*}} step %c8
// CHECK:               linalg_ext.softmax
func.func @layers(%x: tensor<32x16xf32>, %k: tensor<24x16xf32>, %v: tensor<24x16xf32>, %n: index) -> tensor<32x16xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %zero = arith.constant 0.0 : f32
  %es = tensor.empty() : tensor<32x24xf32>
  %eo = tensor.empty() : tensor<32x16xf32>
  %s0 = linalg.fill ins(%zero : f32) outs(%es : tensor<32x24xf32>) -> tensor<32x24xf32>
  %o0 = linalg.fill ins(%zero : f32) outs(%eo : tensor<32x16xf32>) -> tensor<32x16xf32>
  %r = scf.for %i = %c0 to %n step %c1 iter_args(%q = %x) -> tensor<32x16xf32> {
    %s = linalg.matmul
        indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n, k)>, affine_map<(m, n, k) -> (m, n)>]
        ins(%q, %k : tensor<32x16xf32>, tensor<24x16xf32>) outs(%s0 : tensor<32x24xf32>) -> tensor<32x24xf32>
    %p = linalg.softmax dimension(1) ins(%s : tensor<32x24xf32>) outs(%es : tensor<32x24xf32>) -> tensor<32x24xf32>
    %o = linalg.matmul ins(%p, %v : tensor<32x24xf32>, tensor<24x16xf32>) outs(%o0 : tensor<32x16xf32>) -> tensor<32x16xf32>
    scf.yield %o : tensor<32x16xf32>
  }
  return %r : tensor<32x16xf32>
}
