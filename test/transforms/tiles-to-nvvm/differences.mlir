// RUN: attn-opt %s --tiles-to-nvvm | FileCheck %s

// (s − m)·k is one instruction, s·k − m·k, where what is in memory has 16 bits; of f32 s − m is exact first.

// CHECK-LABEL: llvm.func @of_halves
//       CHECK:   %[[ROW:.*]] = arith.mulf %{{.*}}, %{{.*}}
//       CHECK:   %[[X:.*]] = math.fma %{{.*}}, %{{.*}}, %[[ROW]]
//   CHECK-NOT:   arith.subf
//       CHECK:   ex2.approx.ftz.f32 {{.*}} %[[X]]
// CHECK-LABEL: llvm.func @of_f32
//       CHECK:   %[[D:.*]] = arith.subf
//       CHECK:   %[[X:.*]] = arith.mulf %[[D]], %
//       CHECK:   ex2.approx.ftz.f32 {{.*}} %[[X]]

#tile = affine_map<(i, j) -> (i, j)>
#row = affine_map<(i, j) -> (i)>
gpu.module @kernels {
  gpu.func @of_halves(%x: memref<64x32xbf16, strided<[?, 1]>>, %r: memref<64xbf16, strided<[1]>>, %o: memref<64x32xbf16, strided<[?, 1]>>) kernel {
    %c0 = arith.constant 0 : index
    %c32 = arith.constant 32 : index
    %c64 = arith.constant 64 : index
    %k = arith.constant 5.000000e-01 : f32
    %s = tile.load (%x, %c0, %c0, %c64, %c32) {dims = [0, 1]} : (memref<64x32xbf16, strided<[?, 1]>>, index, index, index, index) -> (tensor<64x32xbf16, "fragment">)
    %m = tile.load (%r, %c0, %c64) {dims = [0]} : (memref<64xbf16, strided<[1]>>, index, index) -> (tensor<64xbf16, "row">)
    %e = tensor.empty() : tensor<64x32xbf16, "fragment">
    %p = linalg.generic {indexing_maps = [#tile, #row, #tile], iterator_types = ["parallel", "parallel"]} ins(%s, %m : tensor<64x32xbf16, "fragment">, tensor<64xbf16, "row">) outs(%e : tensor<64x32xbf16, "fragment">) {
    ^bb0(%a: bf16, %b: bf16, %out: bf16):
      %aw = arith.extf %a : bf16 to f32
      %bw = arith.extf %b : bf16 to f32
      %d = arith.subf %aw, %bw : f32
      %t = arith.mulf %d, %k : f32
      %w = math.exp2 %t : f32
      %n = arith.truncf %w : f32 to bf16
      linalg.yield %n : bf16
    } -> tensor<64x32xbf16, "fragment">
    tile.store (%p, %o, %c0, %c0, %c64, %c32) {dims = [0, 1]} : (tensor<64x32xbf16, "fragment">, memref<64x32xbf16, strided<[?, 1]>>, index, index, index, index) -> ()
    gpu.return
  }

  gpu.func @of_f32(%x: memref<64x32xf32, strided<[?, 1]>>, %r: memref<64xf32, strided<[1]>>, %o: memref<64x32xf32, strided<[?, 1]>>) kernel {
    %c0 = arith.constant 0 : index
    %c32 = arith.constant 32 : index
    %c64 = arith.constant 64 : index
    %k = arith.constant 5.000000e-01 : f32
    %s = tile.load (%x, %c0, %c0, %c64, %c32) {dims = [0, 1]} : (memref<64x32xf32, strided<[?, 1]>>, index, index, index, index) -> (tensor<64x32xf32, "fragment">)
    %m = tile.load (%r, %c0, %c64) {dims = [0]} : (memref<64xf32, strided<[1]>>, index, index) -> (tensor<64xf32, "row">)
    %e = tensor.empty() : tensor<64x32xf32, "fragment">
    %p = linalg.generic {indexing_maps = [#tile, #row, #tile], iterator_types = ["parallel", "parallel"]} ins(%s, %m : tensor<64x32xf32, "fragment">, tensor<64xf32, "row">) outs(%e : tensor<64x32xf32, "fragment">) {
    ^bb0(%a: f32, %b: f32, %out: f32):
      %d = arith.subf %a, %b : f32
      %t = arith.mulf %d, %k : f32
      %w = math.exp2 %t : f32
      linalg.yield %w : f32
    } -> tensor<64x32xf32, "fragment">
    tile.store (%p, %o, %c0, %c0, %c64, %c32) {dims = [0, 1]} : (tensor<64x32xf32, "fragment">, memref<64x32xf32, strided<[?, 1]>>, index, index, index, index) -> ()
    gpu.return
  }
}
