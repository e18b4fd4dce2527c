// What a thread does to copy 16 bytes to an aligned place.
// RUN: attn-opt %s --tiles-to-nvvm | FileCheck %s

module attributes {gpu.container_module} {
  gpu.module @kernels {
    // Rows of 66 bytes: both aligned pieces that hold the bytes, shifted; elements where those would leave the array.
    // CHECK-LABEL: llvm.func @shifted
    // CHECK: %[[LOWER:.*]] = arith.andi %{{.*}}, %c-16_i64
    // CHECK: arith.cmpi slt, %[[LOWER]], %{{.*}} : i64
    // CHECK: scf.if %{{.*}} {
    // CHECK: llvm.inline_asm has_side_effects "{{.*}}ld.global.nc.b16 v0, [$0+0];{{.*}}setp.gt.s32 p, $2, 7; @p ld.global.nc.b16 v7, [$0+14];{{.*}}st.global.v4.b32
    // CHECK: } else {
    // CHECK: llvm.inline_asm has_side_effects "{{.*}}ld.global.nc.v4.b32 {x0, x1, x2, x3}, [$0];{{.*}}@p ld.global.nc.v4.b32 {x4, x5, x6, x7}, [$0+16];{{.*}}shf.r.wrap.b32{{.*}}st.global.v4.b32
    gpu.func @shifted(%a: memref<?x33xf16, strided<[?, 1]>>, %o: memref<?x40xf16, strided<[?, 1]>>, %i: index, %j: index, %n: index) kernel {
      tile.copy_piece (%a, %o, %i, %j, %i, %j, %n) {aligned = 2 : i64} : (memref<?x33xf16, strided<[?, 1]>>, memref<?x40xf16, strided<[?, 1]>>, index, index, index, index, index) -> ()
      gpu.return
    }
    // Of 72 bytes: two loads, the second of which may be behind the row.
    // CHECK-LABEL: llvm.func @halves
    // CHECK-NOT: scf.if
    // CHECK: llvm.inline_asm has_side_effects "{{.*}}ld.global.nc.v2.b32 {w0, w1}, [$0+0]; mov.b32 w2, 0; mov.b32 w3, 0; setp.gt.s32 p, $2, 4; @p ld.global.nc.v2.b32 {w2, w3}, [$0+8]; st.global.v4.b32
    gpu.func @halves(%a: memref<?x36xf16, strided<[?, 1]>>, %o: memref<?x40xf16, strided<[?, 1]>>, %i: index, %j: index, %n: index) kernel {
      tile.copy_piece (%a, %o, %i, %j, %i, %j, %n) {aligned = 8 : i64} : (memref<?x36xf16, strided<[?, 1]>>, memref<?x40xf16, strided<[?, 1]>>, index, index, index, index, index) -> ()
      gpu.return
    }
  }
}
