// RUN: attn-opt %s --fuse-attention="tile-sizes=1,4,0,8" | FileCheck %s
// RUN: attn-opt %s --fuse-attention="machine=sm_90a" | FileCheck %s --check-prefix=HOPPER
// RUN: attn-opt %s --fuse-attention="machine=sm_86" | FileCheck %s --check-prefix=SMALL

// The loops compute both products that scores are made of.
// CHECK-LABEL: func.func @multiplied(
// CHECK-NOT:     linalg.batch_matmul
// CHECK:         scf.for
// CHECK:         scf.for
// CHECK:         scf.for
// CHECK-DAG:       linalg.batch_matmul ins(%{{.*}}, %{{.*}} : tensor<1x4x32xf32>, tensor<1x32x8xf32>)
// CHECK-DAG:       linalg.batch_matmul ins(%{{.*}}, %{{.*}} : tensor<1x4x16xf32>, tensor<1x16x8xf32>)
// CHECK:           linalg.mul
// CHECK:           linalg_ext.softmax
// HOPPER-LABEL: func.func @multiplied(
// HOPPER-NOT:     linalg.batch_matmul
// HOPPER:         scf.for
// HOPPER-DAG:       linalg.batch_matmul ins(%{{.*}}, %{{.*}} : tensor<1x128x32xf32>, tensor<1x32x32xf32>)
// HOPPER-DAG:       linalg.batch_matmul ins(%{{.*}}, %{{.*}} : tensor<1x128x16xf32>, tensor<1x16x32xf32>)
// HOPPER:           linalg_ext.softmax
func.func @multiplied(%q: tensor<2x256x32xf32>, %k: tensor<2x32x512xf32>, %a: tensor<2x256x16xf32>, %b: tensor<2x16x512xf32>, %v: tensor<2x512x32xf32>) -> tensor<2x256x32xf32> {
  %zero = arith.constant 0.0 : f32
  %low = arith.constant 0xFF800000 : f32
  %e = tensor.empty() : tensor<2x256x512xf32>
  %row = tensor.empty() : tensor<2x256xf32>
  %oe = tensor.empty() : tensor<2x256x32xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<2x256x512xf32>) -> tensor<2x256x512xf32>
  %m0 = linalg.fill ins(%low : f32) outs(%row : tensor<2x256xf32>) -> tensor<2x256xf32>
  %l0 = linalg.fill ins(%zero : f32) outs(%row : tensor<2x256xf32>) -> tensor<2x256xf32>
  %oz = linalg.fill ins(%zero : f32) outs(%oe : tensor<2x256x32xf32>) -> tensor<2x256x32xf32>
  %s = linalg.batch_matmul ins(%q, %k : tensor<2x256x32xf32>, tensor<2x32x512xf32>) outs(%z : tensor<2x256x512xf32>) -> tensor<2x256x512xf32>
  %r = linalg.batch_matmul ins(%a, %b : tensor<2x256x16xf32>, tensor<2x16x512xf32>) outs(%z : tensor<2x256x512xf32>) -> tensor<2x256x512xf32>
  %x = linalg.mul ins(%s, %r : tensor<2x256x512xf32>, tensor<2x256x512xf32>) outs(%e : tensor<2x256x512xf32>) -> tensor<2x256x512xf32>
  %p:4 = linalg_ext.softmax dimension(2) ins(%x : tensor<2x256x512xf32>) outs(%e, %m0, %l0, %row : tensor<2x256x512xf32>, tensor<2x256xf32>, tensor<2x256xf32>, tensor<2x256xf32>) : tensor<2x256x512xf32>, tensor<2x256xf32>, tensor<2x256xf32>, tensor<2x256xf32>
  %o = linalg.batch_matmul ins(%p#0, %v : tensor<2x256x512xf32>, tensor<2x512x32xf32>) outs(%oz : tensor<2x256x32xf32>) -> tensor<2x256x32xf32>
  return %o : tensor<2x256x32xf32>
}

// Where a block of a GPU has no room for tiles of all operands, only one of them is in the loops.
// HOPPER-LABEL: func.func @wide(
// HOPPER-NOT:     linalg.batch_matmul
// HOPPER:         scf.for
// SMALL-LABEL: func.func @wide(
// SMALL:         linalg.batch_matmul {{.*}} -> tensor<2x256x512xf32>
// SMALL:         scf.for
// SMALL:           linalg.batch_matmul
// SMALL:           linalg_ext.softmax
func.func @wide(%q: tensor<2x256x128xf32>, %k: tensor<2x128x512xf32>, %a: tensor<2x256x128xf32>, %b: tensor<2x128x512xf32>, %v: tensor<2x512x64xf32>) -> tensor<2x256x64xf32> {
  %zero = arith.constant 0.0 : f32
  %low = arith.constant 0xFF800000 : f32
  %e = tensor.empty() : tensor<2x256x512xf32>
  %row = tensor.empty() : tensor<2x256xf32>
  %oe = tensor.empty() : tensor<2x256x64xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<2x256x512xf32>) -> tensor<2x256x512xf32>
  %m0 = linalg.fill ins(%low : f32) outs(%row : tensor<2x256xf32>) -> tensor<2x256xf32>
  %l0 = linalg.fill ins(%zero : f32) outs(%row : tensor<2x256xf32>) -> tensor<2x256xf32>
  %oz = linalg.fill ins(%zero : f32) outs(%oe : tensor<2x256x64xf32>) -> tensor<2x256x64xf32>
  %s = linalg.batch_matmul ins(%q, %k : tensor<2x256x128xf32>, tensor<2x128x512xf32>) outs(%z : tensor<2x256x512xf32>) -> tensor<2x256x512xf32>
  %r = linalg.batch_matmul ins(%a, %b : tensor<2x256x128xf32>, tensor<2x128x512xf32>) outs(%z : tensor<2x256x512xf32>) -> tensor<2x256x512xf32>
  %x = linalg.mul ins(%s, %r : tensor<2x256x512xf32>, tensor<2x256x512xf32>) outs(%e : tensor<2x256x512xf32>) -> tensor<2x256x512xf32>
  %p:4 = linalg_ext.softmax dimension(2) ins(%x : tensor<2x256x512xf32>) outs(%e, %m0, %l0, %row : tensor<2x256x512xf32>, tensor<2x256xf32>, tensor<2x256xf32>, tensor<2x256xf32>) : tensor<2x256x512xf32>, tensor<2x256xf32>, tensor<2x256xf32>, tensor<2x256xf32>
  %o = linalg.batch_matmul ins(%p#0, %v : tensor<2x256x512xf32>, tensor<2x512x64xf32>) outs(%oz : tensor<2x256x64xf32>) -> tensor<2x256x64xf32>
  return %o : tensor<2x256x64xf32>
}
