// RUN: attn-opt %s --tiles-to-nvvm | FileCheck %s

// Fragments of rows in memory: the two elements side by side that a thread has are one load where rows have whole pairs.
module attributes {gpu.container_module} {
gpu.module @kernels {
  // CHECK-LABEL: llvm.func @pairs
  // CHECK-COUNT-8: llvm.inline_asm has_side_effects "{ .reg .pred p; .reg .b32 v; setp.ne.b32 p, $3, 0; mov.b32 v, 0; @p ld.global.nc.b32 v, [$2+{{[0-9]+}}]; and.b32 $0, v, 65535; shr.u32 $1, v, 16; }"
  // CHECK-NOT:     ld.global.nc
  gpu.func @pairs(%b: memref<?x96xf16, strided<[?, 1]>>, %o: memref<?x96xf16, strided<[?, 1]>>, %n: index) kernel {
    %c0 = arith.constant 0 : index
    %c32 = arith.constant 32 : index
    %t = tile.load (%b, %c0, %c0, %n, %c32) {dims = [0, 1]} : (memref<?x96xf16, strided<[?, 1]>>, index, index, index, index) -> (tensor<64x32xf16, "fragment">)
    tile.store (%t, %o, %c0, %c0, %n, %c32) {dims = [0, 1]} : (tensor<64x32xf16, "fragment">, memref<?x96xf16, strided<[?, 1]>>, index, index, index, index) -> ()
    gpu.return
  }

  // A cut tile: what is beyond its columns is 0, each element by itself.
  // CHECK-LABEL: llvm.func @cut
  // CHECK:         llvm.inline_asm has_side_effects "{{.*}}ld.global.nc.v2.b32 {l, h}, [$2+0]; mov.b32 $0, l; mov.b32 $1, h; }"
  // CHECK:         arith.select
  gpu.func @cut(%b: memref<?x96xf32, strided<[?, 1]>>, %o: memref<?x96xf32, strided<[?, 1]>>, %n: index) kernel {
    %c0 = arith.constant 0 : index
    %t = tile.load (%b, %c0, %c0, %n, %n) {dims = [0, 1]} : (memref<?x96xf32, strided<[?, 1]>>, index, index, index, index) -> (tensor<64x32xf32, "fragment">)
    tile.store (%t, %o, %c0, %c0, %n, %n) {dims = [0, 1]} : (tensor<64x32xf32, "fragment">, memref<?x96xf32, strided<[?, 1]>>, index, index, index, index) -> ()
    gpu.return
  }

  // CHECK-LABEL: llvm.func @flags
  // CHECK:         "{{.*}}ld.global.nc.u16 v, [$2+0]; cvt.u32.u16 $1, v; and.b32 $0, $1, 255; shr.u32 $1, $1, 8; }"
  gpu.func @flags(%b: memref<?x96xi1, strided<[?, 1]>>, %o: memref<?x96xf16, strided<[?, 1]>>, %n: index) kernel {
    %c0 = arith.constant 0 : index
    %c32 = arith.constant 32 : index
    %e = tensor.empty() : tensor<64x32xf16, "fragment">
    %t = tile.load (%b, %c0, %c0, %n, %c32) {dims = [0, 1]} : (memref<?x96xi1, strided<[?, 1]>>, index, index, index, index) -> (tensor<64x32xi1, "fragment">)
    %x = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]} ins(%t : tensor<64x32xi1, "fragment">) outs(%e : tensor<64x32xf16, "fragment">) {
    ^bb0(%m: i1, %old: f16):
      %y = arith.uitofp %m : i1 to f16
      linalg.yield %y : f16
    } -> tensor<64x32xf16, "fragment">
    tile.store (%x, %o, %c0, %c0, %n, %c32) {dims = [0, 1]} : (tensor<64x32xf16, "fragment">, memref<?x96xf16, strided<[?, 1]>>, index, index, index, index) -> ()
    gpu.return
  }

  // Rows of an odd number of elements, and tiles that begin anywhere: one by one.
  // CHECK-LABEL: llvm.func @odd
  // CHECK-NOT:     ld.global.nc.b32 v
  // CHECK-COUNT-16: "{ .reg .pred p; .reg .b16 v; setp.ne.b32 p, $2, 0; mov.b16 v, 0; @p ld.global.nc.b16 v, [$1+{{[0-9]+}}]; cvt.u32.u16 $0, v; }"
  // CHECK-LABEL: llvm.func @anywhere
  // CHECK-NOT:     ld.global.nc.b32 v
  // CHECK:         ld.global.nc.b16 v
  gpu.func @odd(%b: memref<?x95xf16, strided<[?, 1]>>, %o: memref<?x96xf16, strided<[?, 1]>>, %n: index) kernel {
    %c0 = arith.constant 0 : index
    %c32 = arith.constant 32 : index
    %t = tile.load (%b, %c0, %c0, %n, %c32) {dims = [0, 1]} : (memref<?x95xf16, strided<[?, 1]>>, index, index, index, index) -> (tensor<64x32xf16, "fragment">)
    tile.store (%t, %o, %c0, %c0, %n, %c32) {dims = [0, 1]} : (tensor<64x32xf16, "fragment">, memref<?x96xf16, strided<[?, 1]>>, index, index, index, index) -> ()
    gpu.return
  }
  gpu.func @anywhere(%b: memref<?x96xf16, strided<[?, 1]>>, %o: memref<?x96xf16, strided<[?, 1]>>, %n: index) kernel {
    %c0 = arith.constant 0 : index
    %c32 = arith.constant 32 : index
    %t = tile.load (%b, %c0, %n, %n, %c32) {dims = [0, 1]} : (memref<?x96xf16, strided<[?, 1]>>, index, index, index, index) -> (tensor<64x32xf16, "fragment">)
    tile.store (%t, %o, %c0, %c0, %n, %c32) {dims = [0, 1]} : (tensor<64x32xf16, "fragment">, memref<?x96xf16, strided<[?, 1]>>, index, index, index, index) -> ()
    gpu.return
  }
}
}
