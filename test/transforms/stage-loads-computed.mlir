// A tile that is computed on its way to shared memory: spread over the threads, stored between two barriers.
// RUN: attn-opt %s --allow-unregistered-dialect --stage-loads | FileCheck %s

gpu.module @kernels {
  // CHECK-LABEL: gpu.func @computed
  // CHECK: %[[BUFFER:.*]] = memref.alloc() : memref<1x64x64xf16, #gpu.address_space<workgroup>>
  gpu.func @computed(%k: memref<64x64xf32, strided<[?, 1]>>) kernel {
    %c0 = arith.constant 0 : index
    %c64 = arith.constant 64 : index
    // CHECK: %[[LOADED:.*]] = tile.load
    %t = tile.load(%k, %c0, %c0, %c64, %c64) {dims = [0, 1]} : (memref<64x64xf32, strided<[?, 1]>>, index, index, index, index) -> tensor<64x64xf32, "spread">
    %e = tensor.empty() : tensor<64x64xf16, "spread">
    // CHECK: %[[CAST:.*]] = linalg.generic
    %n = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]}
        ins(%t : tensor<64x64xf32, "spread">) outs(%e : tensor<64x64xf16, "spread">) {
    ^bb0(%x: f32, %y: f16):
      %z = arith.truncf %x : f32 to f16
      linalg.yield %z : f16
    } -> tensor<64x64xf16, "spread">
    // CHECK: gpu.barrier
    // CHECK-NEXT: tile.store_shared %[[CAST]], %[[BUFFER]] [%{{.*}}]
    // CHECK-NEXT: gpu.barrier
    // CHECK: tile.view %[[BUFFER]]
    %s = tile.convert_layout %n : (tensor<64x64xf16, "spread">) -> tensor<64x64xf16, "shared">
    "test.use"(%s) : (tensor<64x64xf16, "shared">) -> ()
    gpu.return
  }
}
