// RUN: attn-opt %s --tiles-to-nvvm | FileCheck %s --check-prefixes=CHECK,HOPPER
// RUN: attn-opt %s --tiles-to-nvvm="arch=sm_80" | FileCheck %s --check-prefixes=CHECK,AMPERE

// One tile of scores, its row maxima, stored: a matmul, an element-wise op on positions, a reduction over a quad.

// CHECK:       llvm.mlir.global external @shared_memory() {addr_space = 3 : i32, alignment = 1024 : i64}
// CHECK-LABEL: llvm.func @tile
// CHECK-SAME:  nvvm.kernel
// CHECK-SAME:  nvvm.maxntid = array<i32: 128>
// CHECK:       cp.async.cg.shared.global [$0], [$1], 16, $2;
// CHECK:       cp.async.wait_group 0;
// HOPPER:      fence.proxy.async.shared::cta;
// AMPERE-NOT:  fence.proxy.async
// CHECK:       bar.sync 0;
// CHECK-COUNT-4: ldmatrix.sync.aligned.m8n8.x4.shared.b16
// HOPPER:      wgmma.fence.sync.aligned;
// HOPPER-SAME: wgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16
// HOPPER-SAME: wgmma.wait_group.sync.aligned 0;
// AMPERE-COUNT-8: mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32
// CHECK:       arith.select
// CHECK:       arith.maxnumf
// CHECK:       nvvm.shfl.sync bfly
// CHECK:       ex2.approx.ftz.f32
// CHECK:       st.global.f32 [$0], $2;
// CHECK:       llvm.return
module attributes {gpu.container_module} {
  gpu.module @kernels {
    gpu.func @tile(%q: memref<64x64xbf16, strided<[?, 1]>>, %k: memref<16x64xbf16, strided<[?, 1]>>, %o: memref<64xf32, strided<[1]>>) kernel {
      %c0 = arith.constant 0 : index
      %c16 = arith.constant 16 : index
      %c64 = arith.constant 64 : index
      %minus_inf = arith.constant 0xFF800000 : f32
      %qs = memref.alloc() : memref<1x64x64xbf16, #gpu.address_space<workgroup>>
      %ks = memref.alloc() : memref<1x16x64xbf16, #gpu.address_space<workgroup>>
      %zero = arith.constant dense<0.0> : tensor<64x16xf32, "fragment">
      %low = arith.constant dense<0xFF800000> : tensor<64xf32, "row">
      tile.copy_async (%q, %qs, %c0, %c0, %c0, %c64, %c64) {dims = [0, 1]} : (memref<64x64xbf16, strided<[?, 1]>>, memref<1x64x64xbf16, #gpu.address_space<workgroup>>, index, index, index, index, index) -> ()
      tile.copy_async (%k, %ks, %c0, %c0, %c0, %c16, %c64) {dims = [0, 1]} : (memref<16x64xbf16, strided<[?, 1]>>, memref<1x16x64xbf16, #gpu.address_space<workgroup>>, index, index, index, index, index) -> ()
      tile.commit_copies
      tile.wait_copies {pending = 0 : i64}
      gpu.barrier
      %qt = tile.view %qs [%c0] : (memref<1x64x64xbf16, #gpu.address_space<workgroup>>, index) -> (tensor<64x64xbf16, "shared">)
      %kt = tile.view %ks [%c0] : (memref<1x16x64xbf16, #gpu.address_space<workgroup>>, index) -> (tensor<16x64xbf16, "shared">)
      %a = tile.convert_layout %qt : (tensor<64x64xbf16, "shared">) -> (tensor<64x64xbf16, "operand_a">)
      %s = linalg.generic {indexing_maps = [affine_map<(i, j, d) -> (i, d)>, affine_map<(i, j, d) -> (j, d)>, affine_map<(i, j, d) -> (i, j)>], iterator_types = ["parallel", "parallel", "reduction"]}
          ins(%a, %kt : tensor<64x64xbf16, "operand_a">, tensor<16x64xbf16, "shared">) outs(%zero : tensor<64x16xf32, "fragment">) {
      ^bb0(%x: bf16, %y: bf16, %z: f32):
        %xw = arith.extf %x : bf16 to f32
        %yw = arith.extf %y : bf16 to f32
        %p = arith.mulf %xw, %yw : f32
        %t = arith.addf %z, %p : f32
        linalg.yield %t : f32
      } -> tensor<64x16xf32, "fragment">
      %m = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>], iterator_types = ["parallel", "reduction"]}
          ins(%s : tensor<64x16xf32, "fragment">) outs(%low : tensor<64xf32, "row">) {
      ^bb0(%x: f32, %y: f32):
        %i = linalg.index 0 : index
        %j = linalg.index 1 : index
        %seen = arith.cmpi sle, %j, %i : index
        %v = arith.select %seen, %x, %minus_inf : f32
        %t = arith.maxnumf %v, %y : f32
        linalg.yield %t : f32
      } -> tensor<64xf32, "row">
      %e = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>], iterator_types = ["parallel"]} outs(%m : tensor<64xf32, "row">) {
      ^bb0(%x: f32):
        %t = math.exp %x : f32
        linalg.yield %t : f32
      } -> tensor<64xf32, "row">
      tile.store (%e, %o, %c0, %c64) {dims = [0]} : (tensor<64xf32, "row">, memref<64xf32, strided<[1]>>, index, index) -> ()
      gpu.return
    }
  }
}
