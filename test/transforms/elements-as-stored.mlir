// RUN: attn-opt %s --elements-as-stored | FileCheck %s
// RUN: attn-opt %s --elements-as-stored --tiles-to-nvvm | FileCheck %s --check-prefix=NVVM

#id = affine_map<(i, j) -> (i, j)>
#memory = strided<[?, 1]>
!tile = tensor<64x64xf32, "fragment">
!half = tensor<64x64xf16, "fragment">

// Of two results that are made of a tile from memory, the first 32 columns of both are stored (a thread has two rows),
// then the others; what both are made of is computed in between. One op after the other, all exponentials would come
// before all stores.
module attributes {gpu.container_module} {
  gpu.module @f_kernels {
    // CHECK-LABEL: gpu.func @two
    // CHECK-COUNT-3: tile.as_stored
    // CHECK-NOT:     tile.as_stored
    // CHECK-LABEL: gpu.func @alone
    // CHECK-NOT:     tile.as_stored
    // CHECK:         gpu.return
    // NVVM-LABEL:  llvm.func @two
    // NVVM-COUNT-8:  ex2.approx
    // NVVM-NOT:      ex2.approx
    // NVVM:          st.global.v4.b32
    // NVVM-NOT:      st.global
    // NVVM-COUNT-8:  ex2.approx
    // NVVM-NOT:      ex2.approx
    // NVVM-COUNT-3:  st.global.v4.b32
    // NVVM-NOT:      st.global
    // NVVM-COUNT-8:  ex2.approx
    // NVVM-NOT:      ex2.approx
    // NVVM:          st.global.v4.b32
    // NVVM-NOT:      st.global
    // NVVM-COUNT-8:  ex2.approx
    // NVVM-NOT:      ex2.approx
    // NVVM-COUNT-3:  st.global.v4.b32
    // NVVM-NOT:      st.global
    // NVVM-LABEL:  llvm.func @alone
    gpu.func @two(%x: memref<64x64xf16, #memory>, %a: memref<64x64xf16, #memory>, %b: memref<64x64xf16, #memory>) kernel {
      %c0 = arith.constant 0 : index
      %c64 = arith.constant 64 : index
      %t = tile.load (%x, %c0, %c0, %c64, %c64) {dims = [0, 1], operandSegmentSizes = array<i32: 1, 4>} : (memref<64x64xf16, #memory>, index, index, index, index) -> (!half)
      %f = tensor.empty() : !tile
      %e = tensor.empty() : !half
      %s = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%t : !half) outs(%f : !tile) {
      ^bb0(%u: f16, %o: f32):
        %w = arith.extf %u : f16 to f32
        %z = math.exp %w : f32
        linalg.yield %z : f32
      } -> !tile
      %p = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]} ins(%s, %t : !tile, !half) outs(%e : !half) {
      ^bb0(%u: f32, %v: f16, %o: f16):
        %w = arith.extf %v : f16 to f32
        %z = arith.mulf %u, %w : f32
        %n = arith.truncf %z : f32 to f16
        linalg.yield %n : f16
      } -> !half
      %q = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%s : !tile) outs(%e : !half) {
      ^bb0(%u: f32, %o: f16):
        %n = arith.truncf %u : f32 to f16
        linalg.yield %n : f16
      } -> !half
      tile.store (%p, %a, %c0, %c0, %c64, %c64) {dims = [0, 1], operandSegmentSizes = array<i32: 1, 1, 4>} : (!half, memref<64x64xf16, #memory>, index, index, index, index) -> ()
      tile.store (%q, %b, %c0, %c0, %c64, %c64) {dims = [0, 1], operandSegmentSizes = array<i32: 1, 1, 4>} : (!half, memref<64x64xf16, #memory>, index, index, index, index) -> ()
      gpu.return
    }

    // What is computed of no tile from memory is in registers anyway.
    gpu.func @alone(%a: memref<64x64xf32, #memory>) kernel {
      %c0 = arith.constant 0 : index
      %c64 = arith.constant 64 : index
      %x = arith.constant dense<1.0> : !tile
      %f = tensor.empty() : !tile
      %s = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%x : !tile) outs(%f : !tile) {
      ^bb0(%u: f32, %o: f32):
        %z = math.exp %u : f32
        linalg.yield %z : f32
      } -> !tile
      tile.store (%s, %a, %c0, %c0, %c64, %c64) {dims = [0, 1], operandSegmentSizes = array<i32: 1, 1, 4>} : (!tile, memref<64x64xf32, #memory>, index, index, index, index) -> ()
      gpu.return
    }
  }
}
