// RUN: attn-opt %s --tiles-to-nvvm | FileCheck %s

// Tiles in shared memory as fragments: matrices of 16-bit elements, pairs of others; and sums of rows in parts.

// CHECK-LABEL: llvm.func @halves
// CHECK-COUNT-2: ldmatrix.sync.aligned.m8n8.x4.shared.b16
// CHECK-NOT:     ldmatrix
// CHECK:         @p ld.volatile.shared.b32 t, [t]
// CHECK:         mbarrier.arrive

// How far a stage is, is part of the loads: the same places serve all stages. Barriers are behind one address.
// CHECK-LABEL: llvm.func @stages
// CHECK:         mbarrier.init.shared::cta.b64 [$0+16], 1; }", "r,r,~{memory}" %[[ORIGIN:.*]], %
// CHECK:         mbarrier.init.shared::cta.b64 [$0+24], 1; }", "r,r,~{memory}" %[[ORIGIN]],
// CHECK-COUNT-2: neg.s32 a, $5; and.b32 a, a, 8192; add.u32 a, a, $4; ldmatrix.sync.aligned.m8n8.x4.shared.b16
// CHECK:         arith.bitcast %{{.*}} : f32 to i32
// CHECK:         @p ld.volatile.shared.b32 t, [t]
// CHECK:         mbarrier.arrive.shared::cta.b64 _, [$0+16]

// CHECK-LABEL: llvm.func @words
// CHECK-COUNT-8: ld.shared.v2.b32
// CHECK-NOT:     ld.shared

// CHECK-LABEL: llvm.func @bytes
// CHECK-COUNT-8: ld.shared.u16
// CHECK-NOT:     ld.shared

// CHECK-LABEL: llvm.func @parts
// CHECK:         %[[FIRST:.*]] = arith.cmpi eq
// CHECK-COUNT-2: arith.select %[[FIRST]]
// CHECK-COUNT-4: nvvm.shfl.sync bfly
// CHECK-NOT:     nvvm.shfl

#id = affine_map<(i, j) -> (i, j)>
gpu.module @kernels {
  gpu.func @halves(%o: memref<64x32xf32, strided<[?, 1]>>) kernel {
    %c0 = arith.constant 0 : index
    %c32 = arith.constant 32 : index
    %c64 = arith.constant 64 : index
    %b = memref.alloc() : memref<1x64x32xbf16, #gpu.address_space<workgroup>>
    %free = memref.alloc() : memref<1xi64, #gpu.address_space<workgroup>>
    %v = tile.view %b[%c0] : (memref<1x64x32xbf16, #gpu.address_space<workgroup>>, index) -> (tensor<64x32xbf16, "shared">)
    %t = tile.convert_layout %v : (tensor<64x32xbf16, "shared">) -> (tensor<64x32xbf16, "fragment">)
    tile.settle %t : (tensor<64x32xbf16, "fragment">) -> ()
    tile.arrive %free[%c0] : (memref<1xi64, #gpu.address_space<workgroup>>, index) -> ()
    %e = tensor.empty() : tensor<64x32xf32, "fragment">
    %w = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%t : tensor<64x32xbf16, "fragment">) outs(%e : tensor<64x32xf32, "fragment">) {
    ^bb0(%x: bf16, %y: f32):
      %z = arith.extf %x : bf16 to f32
      linalg.yield %z : f32
    } -> tensor<64x32xf32, "fragment">
    tile.store (%w, %o, %c0, %c0, %c64, %c32) {dims = [0, 1]} : (tensor<64x32xf32, "fragment">, memref<64x32xf32, strided<[?, 1]>>, index, index, index, index) -> ()
    gpu.return
  }

  gpu.func @stages(%o: memref<64x32xf32, strided<[?, 1]>>, %n: index) kernel {
    %c0 = arith.constant 0 : index
    %c2 = arith.constant 2 : index
    %c32 = arith.constant 32 : index
    %c64 = arith.constant 64 : index
    %zero = arith.constant dense<0.0> : tensor<64xf32, "row">
    %b = memref.alloc() : memref<2x64x32xbf16, #gpu.address_space<workgroup>>
    %ready = memref.alloc() : memref<2xi64, #gpu.address_space<workgroup>>
    %free = memref.alloc() : memref<2xi64, #gpu.address_space<workgroup>>
    tile.init_barriers %free {arrivals = 1} : (memref<2xi64, #gpu.address_space<workgroup>>) -> ()
    %stage = arith.remui %n, %c2 : index
    %v = tile.view %b[%stage] : (memref<2x64x32xbf16, #gpu.address_space<workgroup>>, index) -> (tensor<64x32xbf16, "shared">)
    %t = tile.convert_layout %v : (tensor<64x32xbf16, "shared">) -> (tensor<64x32xbf16, "fragment">)
    %l = linalg.generic {indexing_maps = [#id, affine_map<(i, j) -> (i)>], iterator_types = ["parallel", "reduction"]} ins(%t : tensor<64x32xbf16, "fragment">) outs(%zero : tensor<64xf32, "row">) {
    ^bb0(%x: bf16, %y: f32):
      %z = arith.extf %x : bf16 to f32
      %s = arith.addf %z, %y : f32
      linalg.yield %s : f32
    } -> tensor<64xf32, "row">
    tile.settle %l : (tensor<64xf32, "row">) -> ()
    tile.arrive %free[%n] : (memref<2xi64, #gpu.address_space<workgroup>>, index) -> ()
    gpu.return
  }

  gpu.func @words(%o: memref<64x32xf32, strided<[?, 1]>>) kernel {
    %c0 = arith.constant 0 : index
    %c32 = arith.constant 32 : index
    %c64 = arith.constant 64 : index
    %b = memref.alloc() : memref<1x64x32xf32, #gpu.address_space<workgroup>>
    %v = tile.view %b[%c0] : (memref<1x64x32xf32, #gpu.address_space<workgroup>>, index) -> (tensor<64x32xf32, "shared">)
    %t = tile.convert_layout %v : (tensor<64x32xf32, "shared">) -> (tensor<64x32xf32, "fragment">)
    tile.store (%t, %o, %c0, %c0, %c64, %c32) {dims = [0, 1]} : (tensor<64x32xf32, "fragment">, memref<64x32xf32, strided<[?, 1]>>, index, index, index, index) -> ()
    gpu.return
  }

  gpu.func @bytes(%o: memref<64x32xf32, strided<[?, 1]>>) kernel {
    %c0 = arith.constant 0 : index
    %c32 = arith.constant 32 : index
    %c64 = arith.constant 64 : index
    %one = arith.constant 1.0 : f32
    %none = arith.constant 0.0 : f32
    %b = memref.alloc() : memref<1x64x32xi1, #gpu.address_space<workgroup>>
    %v = tile.view %b[%c0] : (memref<1x64x32xi1, #gpu.address_space<workgroup>>, index) -> (tensor<64x32xi1, "shared">)
    %t = tile.convert_layout %v : (tensor<64x32xi1, "shared">) -> (tensor<64x32xi1, "fragment">)
    %e = tensor.empty() : tensor<64x32xf32, "fragment">
    %w = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%t : tensor<64x32xi1, "fragment">) outs(%e : tensor<64x32xf32, "fragment">) {
    ^bb0(%x: i1, %y: f32):
      %z = arith.select %x, %one, %none : f32
      linalg.yield %z : f32
    } -> tensor<64x32xf32, "fragment">
    tile.store (%w, %o, %c0, %c0, %c64, %c32) {dims = [0, 1]} : (tensor<64x32xf32, "fragment">, memref<64x32xf32, strided<[?, 1]>>, index, index, index, index) -> ()
    gpu.return
  }

  gpu.func @parts(%o: memref<64xf32, strided<[1]>>, %x: f32) kernel {
    %c0 = arith.constant 0 : index
    %c64 = arith.constant 64 : index
    %r = arith.constant dense<2.0> : tensor<64xf32, "row">
    %p = tile.convert_layout %r : (tensor<64xf32, "row">) -> (tensor<64xf32, "row_part">)
    %w = tile.convert_layout %p : (tensor<64xf32, "row_part">) -> (tensor<64xf32, "row">)
    tile.store (%w, %o, %c0, %c64) {dims = [0]} : (tensor<64xf32, "row">, memref<64xf32, strided<[1]>>, index, index) -> ()
    gpu.return
  }
}
