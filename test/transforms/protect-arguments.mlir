// RUN: attn-opt %s --protect-arguments | FileCheck %s

// CHECK: func.func @public(%arg0: tensor<4xf32> {bufferization.writable = false}, %arg1: f32)
func.func @public(%x: tensor<4xf32>, %s: f32) { return }
// CHECK: func.func @donated(%arg0: tensor<4xf32> {bufferization.writable = true, linalg_ext.donated})
func.func @donated(%x: tensor<4xf32> {bufferization.writable = true}) { return }
// CHECK: func.func private @private(%arg0: tensor<4xf32>)
func.func private @private(%x: tensor<4xf32>) { return }
