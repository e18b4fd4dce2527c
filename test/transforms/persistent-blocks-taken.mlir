// RUN: attn-opt %s --persistent-blocks=multiprocessors=4 --canonicalize --cse | FileCheck %s

// Where the loop of a tile of rows ends is data: blocks take tiles as they are done with others. What is around a kernel
// orders the last ones of them, here of the last heads.

// CHECK-LABEL: gpu.func @kernel
// CHECK-SAME:    %[[TILES:[^ :]+]]: index, %[[TAKEN:[^ :]+]]: memref<?xi32, strided<[1]>>, %[[ORDER:[^ :]+]]: memref<?xi32, strided<[1]>>) kernel
// CHECK:         %[[B:.*]] = gpu.block_id x
// CHECK:         tile.init_flags %[[FLAGS:.*]] :

// The place of the block's first tile: that of the grid, or of what is sorted.
// CHECK:         %[[HEADS:.*]] = arith.divui %[[TILES]], %c8
// CHECK:         memref.load %[[TAKEN]][%c1]
// CHECK:         %[[SORTED:.*]] = arith.index_cast
// CHECK:         %[[UNSORTED:.*]] = arith.subi %[[HEADS]], %[[SORTED]]
// CHECK:         memref.load %[[ORDER]][

// CHECK:         scf.while (%[[T:.*]] = %{{.*}}, %[[N:.*]] = %c0) : (index, index) -> (index, index) {
// CHECK:           %[[MORE:.*]] = arith.cmpi ult, %[[T]], %[[TILES]]
// CHECK:           scf.condition(%[[MORE]]) %[[T]], %[[N]]
// CHECK:         } do {
// CHECK:         ^bb0(%[[TILE:.*]]: index, %[[COUNT:.*]]: index):
// CHECK:           %[[ROWS:.*]] = arith.remui %[[TILE]], %c8
// CHECK:           memref.load %{{.*}}[%[[ROWS]]] : memref<8xi32
// CHECK:           scf.for
// CHECK:           tile.raise %{{.*}}, %[[FLAGS]] [%[[COUNT]]]
// CHECK:           %[[PLACE:.*]] = arith.addi %[[TILE]], %c2
// CHECK:           tile.take %[[TAKEN]] [%[[COUNT]]]
// CHECK:           %[[NEXT:.*]] = tile.share %{{.*}} [%[[COUNT]]]
// CHECK:           %[[NOTED:.*]] = arith.index_cast %[[NEXT]]
// CHECK:           memref.store %[[NOTED]], %[[TAKEN]][%[[PLACE]]]
// CHECK:           %[[MORE_DONE:.*]] = arith.addi %[[COUNT]], %c1
// CHECK:           scf.yield %[[NEXT]], %[[MORE_DONE]]

// Again: the same tiles, one after the other.
// CHECK:         tile.meet
// CHECK:         scf.while
// CHECK:         ^bb0(%[[TILE2:.*]]: index, %[[COUNT2:.*]]: index):
// CHECK:           tile.raised %[[FLAGS]] [%[[COUNT2]]]
// CHECK:           %[[PLACE2:.*]] = arith.addi %[[TILE2]], %c2
// CHECK-NOT:       tile.take
// CHECK:           %[[WAS:.*]] = memref.load %[[TAKEN]][%[[PLACE2]]]
// CHECK:           %[[NEXT2:.*]] = arith.index_cast %[[WAS]]
// CHECK:           scf.yield %[[NEXT2]]

// The kernel before takes what it reads alone: how long loops are, for the tiles of rows of a head.
// CHECK-LABEL: gpu.func @kernel_order
// CHECK-SAME:    (%[[ENDS:[^ :]+]]: memref<8xi32, strided<[?]>>, %[[TILES3:[^ :]+]]: index, %[[TAKEN3:[^ :]+]]: memref<?xi32, strided<[1]>>, %[[ORDER3:[^ :]+]]: memref<?xi32, strided<[1]>>) kernel
// CHECK:         %[[THREAD:.*]] = arith.addi
// CHECK:         %[[WARP:.*]] = arith.divui %[[THREAD]], %c32
// CHECK:         scf.for %[[ENTRY:.*]] = %[[WARP]] to %[[COUNT3:.*]] step %c256
// CHECK-COUNT-5:   memref.load %[[ENDS]]
// CHECK:           scf.for %{{.*}} = %c128 to %[[COUNT3]] step %c128
// CHECK-COUNT-4:     memref.load %[[ENDS]]
// CHECK:           gpu.subgroup_reduce add
// CHECK:           gpu.subgroup_reduce add
// CHECK:           gpu.subgroup_reduce maxsi
// CHECK:           memref.store %{{.*}}, %[[ORDER3]][
// CHECK:           scf.if
// CHECK-DAG:         memref.store %{{.*}}, %[[TAKEN3]][%c1]
// CHECK-DAG:         memref.store %c0_i32, %[[TAKEN3]][%c0]

// CHECK-LABEL: func.func @main
// CHECK:         %[[MEMORY:.*]] = memref.alloc() : memref<34xi32>
// CHECK:         %[[TABLE:.*]] = memref.alloc() : memref<32xi32>
// CHECK:         gpu.launch_func @kernels::@kernel_order blocks in (%c32, %c1, %c1)
// CHECK:         gpu.launch_func @kernels::@kernel blocks in (%c4, %c1, %c1)

#lhs = affine_map<(i, j, d) -> (i, d)>
#rhs = affine_map<(i, j, d) -> (j, d)>
#out = affine_map<(i, j, d) -> (i, j)>
#id = affine_map<(i, j) -> (i, j)>
#row = affine_map<(i, j) -> (i)>
module attributes {gpu.container_module} {
  gpu.module @kernels {
    gpu.func @kernel(%ends: memref<8xi32, strided<[?]>>, %q: memref<4x512x64xf16, strided<[?, ?, 1]>>, %k: memref<4x512x64xf16, strided<[?, ?, 1]>>, %out: memref<4x512x64xf32, strided<[?, ?, 1]>>) kernel {
      %c0 = arith.constant 0 : index
      %c8 = arith.constant 8 : index
      %c64 = arith.constant 64 : index
      %zero = arith.constant dense<0.0> : tensor<64x64xf32, "fragment">
      %fine = arith.constant dense<false> : tensor<64xi1, "row">
      %b = gpu.block_id x
      %at = arith.remui %b, %c8 : index
      %head = arith.divui %b, %c8 : index
      %first = arith.muli %at, %c64 : index
      %loaded = memref.load %ends[%at] : memref<8xi32, strided<[?]>>
      %end = arith.index_cast %loaded : i32 to index
      %qs = tile.load (%q, %head, %first, %c0, %c64, %c64) {dims = [1, 2]} : (memref<4x512x64xf16, strided<[?, ?, 1]>>, index, index, index, index, index) -> (tensor<64x64xf16, "shared">)
      %qt = tile.convert_layout %qs : (tensor<64x64xf16, "shared">) -> (tensor<64x64xf16, "operand_a">)
      %r = scf.for %j = %c0 to %end step %c64 iter_args(%old = %zero) -> (tensor<64x64xf32, "fragment">) {
        %kt = tile.load (%k, %head, %j, %c0, %c64, %c64) {dims = [1, 2]} : (memref<4x512x64xf16, strided<[?, ?, 1]>>, index, index, index, index, index) -> (tensor<64x64xf16, "shared">)
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
      tile.store (%r, %out, %head, %first, %c0, %c64, %c64) {dims = [1, 2]} : (tensor<64x64xf32, "fragment">, memref<4x512x64xf32, strided<[?, ?, 1]>>, index, index, index, index, index) -> ()
      %is_bad = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]}
          ins(%r : tensor<64x64xf32, "fragment">) outs(%fine : tensor<64xi1, "row">) {
      ^bb0(%x: f32, %old: i1):
        %nan = arith.cmpf uno, %x, %x : f32
        %any = arith.ori %old, %nan : i1
        linalg.yield %any : i1
      } -> tensor<64xi1, "row">
      %bad = tile.any %is_bad : (tensor<64xi1, "row">) -> (i1)
      scf.if %bad {
        %again = scf.for %j = %c0 to %end step %c64 iter_args(%old = %zero) -> (tensor<64x64xf32, "fragment">) {
          scf.yield %old : tensor<64x64xf32, "fragment">
        }
        tile.store (%again, %out, %head, %first, %c0, %c64, %c64) {dims = [1, 2]} : (tensor<64x64xf32, "fragment">, memref<4x512x64xf32, strided<[?, ?, 1]>>, index, index, index, index, index) -> ()
      } {tile.retry}
      gpu.return
    }
  }
  func.func @main(%ends: memref<8xi32, strided<[?]>>, %q: memref<4x512x64xf16, strided<[?, ?, 1]>>, %k: memref<4x512x64xf16, strided<[?, ?, 1]>>, %out: memref<4x512x64xf32, strided<[?, ?, 1]>>) {
    %c1 = arith.constant 1 : index
    %c32 = arith.constant 32 : index
    gpu.launch_func @kernels::@kernel blocks in (%c32, %c1, %c1) threads in (%c1, %c1, %c1) args(%ends : memref<8xi32, strided<[?]>>, %q : memref<4x512x64xf16, strided<[?, ?, 1]>>, %k : memref<4x512x64xf16, strided<[?, ?, 1]>>, %out : memref<4x512x64xf32, strided<[?, ?, 1]>>)
    return
  }
}
