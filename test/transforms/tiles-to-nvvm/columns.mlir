// Copies to shared memory are as wide as rows, and the column that a tile begins at, are aligned.
// RUN: attn-opt %s --tiles-to-nvvm | FileCheck %s

module attributes {gpu.container_module} {
  gpu.module @kernels {
    // CHECK-LABEL: llvm.func @heads
    // CHECK: "cp.async.ca.shared.global [$0], [$1], 8, $2;"
    // CHECK-NOT: "cp.async.cg.shared.global [$0], [$1], 16
    // CHECK-LABEL: llvm.func @tiles
    // CHECK: "cp.async.cg.shared.global [$0], [$1], 16, $2;"
    // CHECK-NOT: "cp.async.ca.shared.global

    // Of heads of 36 elements, one after the other in rows of 72.
    gpu.func @heads(%m: memref<?x72xf16, strided<[?, 1]>>, %h: index, %n: index) kernel {
      %c0 = arith.constant 0 : index
      %c36 = arith.constant 36 : index
      %column = arith.muli %h, %c36 : index
      %b = memref.alloc() : memref<1x64x48xf16, #gpu.address_space<workgroup>>
      tile.copy_async (%m, %b, %c0, %c0, %column, %n, %c36) {dims = [0, 1]} : (memref<?x72xf16, strided<[?, 1]>>, memref<1x64x48xf16, #gpu.address_space<workgroup>>, index, index, index, index, index) -> ()
      %t = tile.view %b [%c0] : (memref<1x64x48xf16, #gpu.address_space<workgroup>>, index) -> (tensor<64x48xf16, "shared">)
      %f = tile.convert_layout %t : (tensor<64x48xf16, "shared">) -> (tensor<64x48xf16, "fragment">)
      gpu.return
    }
    // The counter of a loop whose first part ends where a tile does, or all do.
    gpu.func @tiles(%m: memref<?x72xf16, strided<[?, 1]>>, %i: index, %n: index) kernel {
      %c0 = arith.constant 0 : index
      %c16 = arith.constant 16 : index
      %c72 = arith.constant 72 : index
      %whole = arith.divui %i, %c16 : index
      %tiles = arith.muli %whole, %c16 : index
      %first = arith.minsi %tiles, %n : index
      %b = memref.alloc() : memref<1x64x16xf16, #gpu.address_space<workgroup>>
      scf.for %j = %first to %c72 step %c16 {
        tile.copy_async (%m, %b, %c0, %c0, %j, %n, %c16) {dims = [0, 1]} : (memref<?x72xf16, strided<[?, 1]>>, memref<1x64x16xf16, #gpu.address_space<workgroup>>, index, index, index, index, index) -> ()
      }
      %t = tile.view %b [%c0] : (memref<1x64x16xf16, #gpu.address_space<workgroup>>, index) -> (tensor<64x16xf16, "shared">)
      %f = tile.convert_layout %t : (tensor<64x16xf16, "shared">) -> (tensor<64x16xf16, "fragment">)
      gpu.return
    }
  }
}
