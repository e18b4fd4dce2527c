// RUN: attn-opt %s --tiles-to-nvvm | FileCheck %s

// A piece of a row whose elements are all the same number, as folding makes of those of a tensor that is filled.
// CHECK-LABEL: llvm.func @filled
// CHECK:         %[[C:.*]] = arith.constant 2.500000e-01 : f32
// CHECK:         llvm.insertelement %[[C]], {{.*}} : vector<4xf32>
// CHECK:         llvm.store {{.*}} : vector<4xf32>
gpu.module @kernels {
  gpu.func @filled(%out: memref<8x8xf32, strided<[?, 1]>>) kernel {
    %i = arith.constant 3 : index
    %j = arith.constant 4 : index
    %piece = arith.constant dense<2.500000e-01> : vector<4xf32>
    vector.store %piece, %out[%i, %j] : memref<8x8xf32, strided<[?, 1]>>, vector<4xf32>
    gpu.return
  }
}
