// RUN: attn-opt %s --persistent-blocks=multiprocessors=4 | FileCheck %s

// A block goes from tile to tile. Those that it must compute again come after all others: what their loops end at is
// loaded again, too.

// CHECK-LABEL: gpu.func @kernel
// CHECK-SAME:    %[[ENDS:[^ :]+]]: memref<2xi32, strided<[?]>>, {{.*}}, %[[TILES:[^ :]+]]: index) kernel
// CHECK:         %[[B:.*]] = gpu.block_id x
// CHECK:         tile.init_flags %[[FLAGS:.*]] :
// CHECK:         %[[BLOCKS:.*]] = gpu.grid_dim x
// CHECK:         scf.for %[[TILE:.*]] = %[[B]] to %[[TILES]] step %[[BLOCKS]] {
// CHECK:           %[[SEQUENCE:.*]] = arith.divui %[[TILE]],
// CHECK:           %[[LOADED:.*]] = memref.load %[[ENDS]][%[[SEQUENCE]]]
// CHECK:           %[[END:.*]] = arith.index_cast %[[LOADED]]
// CHECK:           scf.for %{{.*}} = %{{.*}} to %[[END]] step
// CHECK:           tile.raise %{{.*}}, %[[FLAGS]]
// CHECK-NOT:       scf.if
// CHECK:         tile.meet
// CHECK:         %[[BLOCKS2:.*]] = gpu.grid_dim x
// CHECK:         scf.for %[[TILE2:.*]] = %[[B]] to %[[TILES]] step %[[BLOCKS2]] {
// CHECK:           %[[SEQUENCE2:.*]] = arith.divui %[[TILE2]],
// CHECK:           %[[LOADED2:.*]] = memref.load %[[ENDS]][%[[SEQUENCE2]]]
// CHECK:           %[[END2:.*]] = arith.index_cast %[[LOADED2]]
// CHECK-NOT:       scf.for
// CHECK:           %[[AGAIN:.*]] = tile.raised %[[FLAGS]]
// CHECK:           scf.if %[[AGAIN]] {
// CHECK:             scf.for %{{.*}} = %{{.*}} to %[[END2]] step
// CHECK:         gpu.return

// CHECK-LABEL: func.func @main
// CHECK:         %[[FEWER:.*]] = arith.minsi %[[COUNT:.*]], %c4
// CHECK:         gpu.launch_func @kernels::@kernel blocks in (%[[FEWER]], {{.*}} %[[COUNT]] : index)

#lhs = affine_map<(i, j, d) -> (i, d)>
#rhs = affine_map<(i, j, d) -> (j, d)>
#out = affine_map<(i, j, d) -> (i, j)>
#id = affine_map<(i, j) -> (i, j)>
#row = affine_map<(i, j) -> (i)>
module attributes {gpu.container_module} {
  gpu.module @kernels {
    gpu.func @kernel(%ends: memref<2xi32, strided<[?]>>, %q: memref<2x512x64xf16, strided<[?, ?, 1]>>, %k: memref<2x512x64xf16, strided<[?, ?, 1]>>, %out: memref<2x512x64xf32, strided<[?, ?, 1]>>) kernel {
      %c0 = arith.constant 0 : index
      %c8 = arith.constant 8 : index
      %c64 = arith.constant 64 : index
      %zero = arith.constant dense<0.0> : tensor<64x64xf32, "fragment">
      %fine = arith.constant dense<false> : tensor<64xi1, "row">
      %b = gpu.block_id x
      %at = arith.remui %b, %c8 : index
      %sequence = arith.divui %b, %c8 : index
      %first = arith.muli %at, %c64 : index
      %loaded = memref.load %ends[%sequence] : memref<2xi32, strided<[?]>>
      %end = arith.index_cast %loaded : i32 to index
      %qs = tile.load (%q, %sequence, %first, %c0, %c64, %c64) {dims = [1, 2]} : (memref<2x512x64xf16, strided<[?, ?, 1]>>, index, index, index, index, index) -> (tensor<64x64xf16, "shared">)
      %qt = tile.convert_layout %qs : (tensor<64x64xf16, "shared">) -> (tensor<64x64xf16, "operand_a">)
      %r = scf.for %j = %c0 to %end step %c64 iter_args(%old = %zero) -> (tensor<64x64xf32, "fragment">) {
        %kt = tile.load (%k, %sequence, %j, %c0, %c64, %c64) {dims = [1, 2]} : (memref<2x512x64xf16, strided<[?, ?, 1]>>, index, index, index, index, index) -> (tensor<64x64xf16, "shared">)
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
      tile.store (%r, %out, %sequence, %first, %c0, %c64, %c64) {dims = [1, 2]} : (tensor<64x64xf32, "fragment">, memref<2x512x64xf32, strided<[?, ?, 1]>>, index, index, index, index, index) -> ()
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
        tile.store (%again, %out, %sequence, %first, %c0, %c64, %c64) {dims = [1, 2]} : (tensor<64x64xf32, "fragment">, memref<2x512x64xf32, strided<[?, ?, 1]>>, index, index, index, index, index) -> ()
      } {tile.retry}
      gpu.return
    }
  }
  func.func @main(%ends: memref<2xi32, strided<[?]>>, %q: memref<2x512x64xf16, strided<[?, ?, 1]>>, %k: memref<2x512x64xf16, strided<[?, ?, 1]>>, %out: memref<2x512x64xf32, strided<[?, ?, 1]>>) {
    %c1 = arith.constant 1 : index
    %c16 = arith.constant 16 : index
    gpu.launch_func @kernels::@kernel blocks in (%c16, %c1, %c1) threads in (%c1, %c1, %c1) args(%ends : memref<2xi32, strided<[?]>>, %q : memref<2x512x64xf16, strided<[?, ?, 1]>>, %k : memref<2x512x64xf16, strided<[?, ?, 1]>>, %out : memref<2x512x64xf32, strided<[?, ?, 1]>>)
    return
  }
}
