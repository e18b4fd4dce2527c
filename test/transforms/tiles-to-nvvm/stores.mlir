// RUN: attn-opt %s --tiles-to-nvvm | FileCheck %s

// Rows that are aligned to 16 bytes: the threads of a quad exchange words, by two rounds of shuffles, and each stores 16
// bytes. Of 48 columns: two rows' 32, then the last 16 of both.

// CHECK-LABEL: llvm.func @aligned
// CHECK-COUNT-12: nvvm.shfl.sync bfly
// CHECK-NOT:   st.global.b32
// CHECK-LABEL: llvm.func @pairs

// Rows of 42 elements are not: pairs.

// CHECK-NOT:   nvvm.shfl.sync bfly
// CHECK-COUNT-12: @p st.global.b32
// CHECK-NOT:   st.global
// CHECK-LABEL: llvm.func @shifted

// Nor are pieces of rows that begin anywhere: pairs that a constant says are aligned to 4 bytes, else elements.

// CHECK:       st.global.b32
// CHECK-LABEL: llvm.func @anywhere
// CHECK-NOT:   st.global.b32
// CHECK:       st.global.b16
// CHECK-LABEL: llvm.func @wide

// CHECK-NOT:   nvvm.shfl.sync bfly
// CHECK:       st.global.v2.f32
// CHECK:       llvm.return
module attributes {gpu.container_module} {
  gpu.module @kernels {
    gpu.func @aligned(%o: memref<?x48xf16, strided<[?, 1]>>, %n: index) kernel {
      %c0 = arith.constant 0 : index
      %c48 = arith.constant 48 : index
      %t = tile.load (%o, %c0, %c0, %n, %c48) {dims = [0, 1]} : (memref<?x48xf16, strided<[?, 1]>>, index, index, index, index) -> (tensor<64x48xf16, "fragment">)
      tile.store (%t, %o, %c0, %c0, %n, %c48) {dims = [0, 1]} : (tensor<64x48xf16, "fragment">, memref<?x48xf16, strided<[?, 1]>>, index, index, index, index) -> ()
      gpu.return
    }
    gpu.func @pairs(%o: memref<?x42xf16, strided<[?, 1]>>, %n: index) kernel {
      %c0 = arith.constant 0 : index
      %c42 = arith.constant 42 : index
      %t = tile.load (%o, %c0, %c0, %n, %c42) {dims = [0, 1]} : (memref<?x42xf16, strided<[?, 1]>>, index, index, index, index) -> (tensor<64x48xf16, "fragment">)
      tile.store (%t, %o, %c0, %c0, %n, %c42) {dims = [0, 1]} : (tensor<64x48xf16, "fragment">, memref<?x42xf16, strided<[?, 1]>>, index, index, index, index) -> ()
      gpu.return
    }
    gpu.func @shifted(%o: memref<?x96xf16, strided<[?, 1]>>, %n: index) kernel {
      %c0 = arith.constant 0 : index
      %c4 = arith.constant 4 : index
      %c48 = arith.constant 48 : index
      %t = tile.load (%o, %c0, %c4, %n, %c48) {dims = [0, 1]} : (memref<?x96xf16, strided<[?, 1]>>, index, index, index, index) -> (tensor<64x48xf16, "fragment">)
      tile.store (%t, %o, %c0, %c4, %n, %c48) {dims = [0, 1]} : (tensor<64x48xf16, "fragment">, memref<?x96xf16, strided<[?, 1]>>, index, index, index, index) -> ()
      gpu.return
    }
    gpu.func @anywhere(%o: memref<?x96xf16, strided<[?, 1]>>, %n: index) kernel {
      %c0 = arith.constant 0 : index
      %c48 = arith.constant 48 : index
      %t = tile.load (%o, %c0, %n, %n, %c48) {dims = [0, 1]} : (memref<?x96xf16, strided<[?, 1]>>, index, index, index, index) -> (tensor<64x48xf16, "fragment">)
      tile.store (%t, %o, %c0, %n, %n, %c48) {dims = [0, 1]} : (tensor<64x48xf16, "fragment">, memref<?x96xf16, strided<[?, 1]>>, index, index, index, index) -> ()
      gpu.return
    }
    gpu.func @wide(%o: memref<?x48xf32, strided<[?, 1]>>, %n: index) kernel {
      %c0 = arith.constant 0 : index
      %c48 = arith.constant 48 : index
      %t = tile.load (%o, %c0, %c0, %n, %c48) {dims = [0, 1]} : (memref<?x48xf32, strided<[?, 1]>>, index, index, index, index) -> (tensor<64x48xf32, "fragment">)
      tile.store (%t, %o, %c0, %c0, %n, %c48) {dims = [0, 1]} : (tensor<64x48xf32, "fragment">, memref<?x48xf32, strided<[?, 1]>>, index, index, index, index) -> ()
      gpu.return
    }
  }
}
