// RUN: attn-opt %s --fuse-attention="tile-sizes=1,2,16,0,32 tile-interchange=0,1,2,4,3" | FileCheck %s --check-prefix=SIZES
// RUN: attn-opt %s --fuse-attention | FileCheck %s --check-prefix=CHOSEN

// Batch, heads and queries run in parallel; a tile of 70 queries does not divide: affine.min.
// SIZES: affine_map<(d0) -> (16, -d0 + 70)>
// SIZES-LABEL: func.func @heads
// SIZES:         scf.for %{{.*}} to %c3 step %c1
// SIZES:           scf.for %{{.*}} to %c4 step %c2
// SIZES:             scf.for %[[I:.*]] = %{{.*}} to %c70 step %c16
// SIZES:               scf.for %{{.*}} to %c64 step %c32
// SIZES:                 %[[N:.*]] = affine.min #{{.*}}(%[[I]])
// SIZES:                 linalg_ext.batch_matmul ins({{.*}} : tensor<1x2x?x24xf32>, tensor<1x2x32x24xf32>) {{.*}} layout = "nt"
// SIZES:                 linalg_ext.softmax dimension(3) ins(%{{.*}} : tensor<1x2x?x32xf32>)
// SIZES:                 linalg_ext.diag ins(%{{.*}} : tensor<1x2x?xf32>)
// SIZES:               } {__byteir_parallel__}
// SIZES-NEXT:          scf.yield
// SIZES-NEXT:        } {__byteir_parallel__}
// SIZES:           } {__byteir_parallel__}

// Without sizes: batch dimensions by 1, 64 queries; the keys fit in one tile.
// CHOSEN-LABEL: func.func @heads
// CHOSEN:         scf.for %{{.*}} to %c3 step %c1
// CHOSEN:           scf.for %{{.*}} to %c4 step %c1
// CHOSEN:             scf.for %{{.*}} to %c70 step %c64
// CHOSEN:               scf.for %{{.*}} to %c64 step %c64
// CHOSEN:                 linalg_ext.softmax
func.func @heads(%q: tensor<3x4x70x24xf32>, %k: tensor<3x4x64x24xf32>, %v: tensor<3x4x64x24xf32>) -> tensor<3x4x70x24xf32> {
  %zero = arith.constant 0.0 : f32
  %minus_inf = arith.constant 0xFF800000 : f32
  %e0 = tensor.empty() : tensor<3x4x70x64xf32>
  %e1 = tensor.empty() : tensor<3x4x70x24xf32>
  %e2 = tensor.empty() : tensor<3x4x70xf32>
  %max = linalg.fill ins(%minus_inf : f32) outs(%e2 : tensor<3x4x70xf32>) -> tensor<3x4x70xf32>
  %sum = linalg.fill ins(%zero : f32) outs(%e2 : tensor<3x4x70xf32>) -> tensor<3x4x70xf32>
  %s0 = linalg.fill ins(%zero : f32) outs(%e0 : tensor<3x4x70x64xf32>) -> tensor<3x4x70x64xf32>
  %o0 = linalg.fill ins(%zero : f32) outs(%e1 : tensor<3x4x70x24xf32>) -> tensor<3x4x70x24xf32>
  %s = linalg_ext.batch_matmul ins(%q, %k : tensor<3x4x70x24xf32>, tensor<3x4x64x24xf32>) outs(%s0 : tensor<3x4x70x64xf32>) layout = "nt"
  %p:4 = linalg_ext.softmax dimension(3) ins(%s : tensor<3x4x70x64xf32>) outs(%e0, %max, %sum, %e2 : tensor<3x4x70x64xf32>, tensor<3x4x70xf32>, tensor<3x4x70xf32>, tensor<3x4x70xf32>) : tensor<3x4x70x64xf32>, tensor<3x4x70xf32>, tensor<3x4x70xf32>, tensor<3x4x70xf32>
  %o = linalg_ext.batch_matmul ins(%p#0, %v : tensor<3x4x70x64xf32>, tensor<3x4x64x24xf32>) outs(%o0 : tensor<3x4x70x24xf32>) layout = "nn"
  return %o : tensor<3x4x70x24xf32>
}
