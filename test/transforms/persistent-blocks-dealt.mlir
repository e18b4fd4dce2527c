// RUN: attn-opt %s --split-input-file --persistent-blocks=multiprocessors=3 --canonicalize --cse | FileCheck %s

// Tiles of two heads, whose loops have 4, 3, 2 and 1 iterations: two more are what is around them. Dealt by size, the
// three blocks have 13, 13 and 10; of four pairs of 10 one block would have two.

// CHECK:         memref.global constant @kernel_tiles : memref<12xi32>
// CHECK-SAME:    = dense<[0, 4, 1, 2, 6, 5, 3, 7, 8, 8, 8, 8]>
// CHECK-LABEL:   gpu.func @kernel
// CHECK-SAME:    %[[TILES:[^ :,]+]]: index) kernel
// CHECK-DAG:     %[[B:.*]] = gpu.block_id x
// CHECK-DAG:     %[[TABLE:.*]] = memref.get_global @kernel_tiles
// CHECK:         %[[WORD:.*]] = memref.load %[[TABLE]][%[[B]]]
// CHECK:         %[[FIRST:.*]] = arith.index_cast %[[WORD]]
// CHECK:         scf.while (%[[TILE:.*]] = %[[FIRST]], %[[N:.*]] = %c0)
// CHECK:           %[[MORE:.*]] = arith.cmpi ult, %[[TILE]], %[[TILES]]
// CHECK:           scf.condition(%[[MORE]]) %[[TILE]], %[[N]]
// CHECK:         } do {
// CHECK:         ^bb0(%[[TILE2:.*]]: index, %[[N2:.*]]: index):
// CHECK:           %[[NEXT:.*]] = arith.addi %[[N2]], %c1
// CHECK:           %[[ROW:.*]] = arith.muli %[[NEXT]], %c3
// CHECK:           %[[PLACE:.*]] = arith.addi %[[ROW]], %[[B]]
// CHECK:           %[[WORD2:.*]] = memref.load %[[TABLE]][%[[PLACE]]]
// CHECK:           %[[NEXT_TILE:.*]] = arith.index_cast %[[WORD2]]
// CHECK:           arith.remui %[[TILE2]], %c4
// CHECK:           scf.for
// CHECK:           tile.store
// CHECK:           scf.yield %[[NEXT_TILE]], %[[NEXT]]

// CHECK-LABEL: func.func @main
// CHECK:         gpu.launch_func @kernels::@kernel blocks in (%c3, {{.*}} %c8 : index)

#lhs = affine_map<(i, j, d) -> (i, d)>
#rhs = affine_map<(i, j, d) -> (j, d)>
#out = affine_map<(i, j, d) -> (i, j)>
module attributes {gpu.container_module} {
  gpu.module @kernels {
    gpu.func @kernel(%q: memref<2x256x64xf16, strided<[?, ?, 1]>>, %k: memref<2x256x64xf16, strided<[?, ?, 1]>>, %out: memref<2x256x64xf32, strided<[?, ?, 1]>>) kernel {
      %c0 = arith.constant 0 : index
      %c3 = arith.constant 3 : index
      %c4 = arith.constant 4 : index
      %c64 = arith.constant 64 : index
      %zero = arith.constant dense<0.0> : tensor<64x64xf32, "fragment">
      %b = gpu.block_id x
      %at = arith.remui %b, %c4 : index
      %head = arith.divui %b, %c4 : index
      %row = arith.subi %c3, %at : index
      %first = arith.muli %row, %c64 : index
      %end = arith.addi %first, %c64 : index
      %qs = tile.load (%q, %head, %first, %c0, %c64, %c64) {dims = [1, 2]} : (memref<2x256x64xf16, strided<[?, ?, 1]>>, index, index, index, index, index) -> (tensor<64x64xf16, "shared">)
      %qt = tile.convert_layout %qs : (tensor<64x64xf16, "shared">) -> (tensor<64x64xf16, "operand_a">)
      %r = scf.for %j = %c0 to %end step %c64 iter_args(%old = %zero) -> (tensor<64x64xf32, "fragment">) {
        %kt = tile.load (%k, %head, %j, %c0, %c64, %c64) {dims = [1, 2]} : (memref<2x256x64xf16, strided<[?, ?, 1]>>, index, index, index, index, index) -> (tensor<64x64xf16, "shared">)
        %s = linalg.generic {indexing_maps = [#lhs, #rhs, #out], iterator_types = ["parallel", "parallel", "reduction"]}
            ins(%qt, %kt : tensor<64x64xf16, "operand_a">, tensor<64x64xf16, "shared">) outs(%old : tensor<64x64xf32, "fragment">) {
        ^bb0(%x: f16, %y: f16, %z: f32):
          %xw = arith.extf %x : f16 to f32
          %yw = arith.extf %y : f16 to f32
          %t = arith.mulf %xw, %yw : f32
          %u = arith.addf %z, %t : f32
          linalg.yield %u : f32
        } -> tensor<64x64xf32, "fragment">
        scf.yield %s : tensor<64x64xf32, "fragment">
      }
      tile.store (%r, %out, %head, %first, %c0, %c64, %c64) {dims = [1, 2]} : (tensor<64x64xf32, "fragment">, memref<2x256x64xf32, strided<[?, ?, 1]>>, index, index, index, index, index) -> ()
      gpu.return
    }
  }
  func.func @main(%q: memref<2x256x64xf16, strided<[?, ?, 1]>>, %k: memref<2x256x64xf16, strided<[?, ?, 1]>>, %out: memref<2x256x64xf32, strided<[?, ?, 1]>>) {
    %c1 = arith.constant 1 : index
    %c8 = arith.constant 8 : index
    gpu.launch_func @kernels::@kernel blocks in (%c8, %c1, %c1) threads in (%c1, %c1, %c1) args(%q : memref<2x256x64xf16, strided<[?, ?, 1]>>, %k : memref<2x256x64xf16, strided<[?, ?, 1]>>, %out : memref<2x256x64xf32, strided<[?, ?, 1]>>)
    return
  }
}

// -----

// How many heads there are is not known: blocks have pairs.

// CHECK-NOT:   memref.global
// CHECK-LABEL: gpu.func @kernel
// CHECK:         scf.for
// CHECK:           %[[FIRST:.*]] = arith.remui
// CHECK:           %[[SECOND:.*]] = arith.subi %c3, %[[FIRST]]
// CHECK:           scf.for

#lhs = affine_map<(i, j, d) -> (i, d)>
#rhs = affine_map<(i, j, d) -> (j, d)>
#out = affine_map<(i, j, d) -> (i, j)>
module attributes {gpu.container_module} {
  gpu.module @kernels {
    gpu.func @kernel(%q: memref<?x256x64xf16, strided<[?, ?, 1]>>, %k: memref<?x256x64xf16, strided<[?, ?, 1]>>, %out: memref<?x256x64xf32, strided<[?, ?, 1]>>) kernel {
      %c0 = arith.constant 0 : index
      %c3 = arith.constant 3 : index
      %c4 = arith.constant 4 : index
      %c64 = arith.constant 64 : index
      %zero = arith.constant dense<0.0> : tensor<64x64xf32, "fragment">
      %b = gpu.block_id x
      %at = arith.remui %b, %c4 : index
      %head = arith.divui %b, %c4 : index
      %row = arith.subi %c3, %at : index
      %first = arith.muli %row, %c64 : index
      %end = arith.addi %first, %c64 : index
      %qs = tile.load (%q, %head, %first, %c0, %c64, %c64) {dims = [1, 2]} : (memref<?x256x64xf16, strided<[?, ?, 1]>>, index, index, index, index, index) -> (tensor<64x64xf16, "shared">)
      %qt = tile.convert_layout %qs : (tensor<64x64xf16, "shared">) -> (tensor<64x64xf16, "operand_a">)
      %r = scf.for %j = %c0 to %end step %c64 iter_args(%old = %zero) -> (tensor<64x64xf32, "fragment">) {
        %kt = tile.load (%k, %head, %j, %c0, %c64, %c64) {dims = [1, 2]} : (memref<?x256x64xf16, strided<[?, ?, 1]>>, index, index, index, index, index) -> (tensor<64x64xf16, "shared">)
        %s = linalg.generic {indexing_maps = [#lhs, #rhs, #out], iterator_types = ["parallel", "parallel", "reduction"]}
            ins(%qt, %kt : tensor<64x64xf16, "operand_a">, tensor<64x64xf16, "shared">) outs(%old : tensor<64x64xf32, "fragment">) {
        ^bb0(%x: f16, %y: f16, %z: f32):
          %xw = arith.extf %x : f16 to f32
          %yw = arith.extf %y : f16 to f32
          %t = arith.mulf %xw, %yw : f32
          %u = arith.addf %z, %t : f32
          linalg.yield %u : f32
        } -> tensor<64x64xf32, "fragment">
        scf.yield %s : tensor<64x64xf32, "fragment">
      }
      tile.store (%r, %out, %head, %first, %c0, %c64, %c64) {dims = [1, 2]} : (tensor<64x64xf32, "fragment">, memref<?x256x64xf32, strided<[?, ?, 1]>>, index, index, index, index, index) -> ()
      gpu.return
    }
  }
  func.func @main(%tiles: index, %q: memref<?x256x64xf16, strided<[?, ?, 1]>>, %k: memref<?x256x64xf16, strided<[?, ?, 1]>>, %out: memref<?x256x64xf32, strided<[?, ?, 1]>>) {
    %c1 = arith.constant 1 : index
    gpu.launch_func @kernels::@kernel blocks in (%tiles, %c1, %c1) threads in (%c1, %c1, %c1) args(%q : memref<?x256x64xf16, strided<[?, ?, 1]>>, %k : memref<?x256x64xf16, strided<[?, ?, 1]>>, %out : memref<?x256x64xf32, strided<[?, ?, 1]>>)
    return
  }
}
