// RUN: attn-opt %s --persistent-blocks=multiprocessors=4 | FileCheck %s

// The tiles of a matmul go by panels of about as many columns as let four tiles at once read least: two, where they are
// square. Of 5 columns there are two panels, of three and of what is left.

// CHECK-LABEL: gpu.func @kernel
// CHECK-SAME:    %[[TILES:[^ :]+]]: index) kernel
// CHECK:         %[[B:.*]] = gpu.block_id x
// CHECK:         %[[ROWS:.*]] = arith.divui %[[TILES]], %{{.*}} : index
// CHECK:         scf.for %[[TURN:.*]] = %[[B]] to %[[TILES]] step
// CHECK:           %[[WIDTH:.*]] = arith.constant 3 : index
// CHECK:           %[[OF_PANEL:.*]] = arith.muli %[[WIDTH]], %[[ROWS]]
// CHECK:           %[[PANEL:.*]] = arith.divui %[[TURN]], %[[OF_PANEL]]
// CHECK:           %[[START:.*]] = arith.muli %[[PANEL]], %{{.*}} :
// CHECK:           %[[LEFT:.*]] = arith.subi %[[COLUMNS:.*]], %[[START]]
// CHECK:           %[[WIDE:.*]] = arith.minui %{{.*}}, %[[LEFT]]
// CHECK:           %[[BEFORE:.*]] = arith.muli %[[PANEL]], %[[OF_PANEL]]
// CHECK:           %[[INSIDE:.*]] = arith.subi %[[TURN]], %[[BEFORE]]
// CHECK:           %[[ROW:.*]] = arith.divui %[[INSIDE]], %[[WIDE]]
// CHECK:           %[[OF_ROWS:.*]] = arith.muli %[[ROW]], %[[WIDE]]
// CHECK:           %[[REST:.*]] = arith.subi %[[INSIDE]], %[[OF_ROWS]]
// CHECK:           %[[COLUMN:.*]] = arith.addi %[[START]], %[[REST]]
// CHECK:           %[[FIRST:.*]] = arith.muli %[[ROW]], %[[COLUMNS]]
// CHECK:           %[[IN_ENTRY:.*]] = arith.addi %[[FIRST]], %[[COLUMN]]
// CHECK:           %[[TILE:.*]] = arith.addi %{{.*}}, %[[IN_ENTRY]]
// CHECK:           arith.remui %[[TILE]]
// CHECK:           arith.divui %[[TILE]]
// CHECK:           scf.for

// What all columns of it read stays in the L2: in turn.
// CHECK-LABEL: gpu.func @shorter
// CHECK:         scf.for %[[TURN:.*]] =
// CHECK-NOT:       arith.minui
// CHECK:           arith.remui %[[TURN]]

#lhs = affine_map<(i, j, d) -> (i, d)>
#rhs = affine_map<(i, j, d) -> (j, d)>
#out = affine_map<(i, j, d) -> (i, j)>
module attributes {gpu.container_module} {
  gpu.module @kernels {
    gpu.func @kernel(%a: memref<256x65536xf16, strided<[?, 1]>>, %w: memref<320x65536xf16, strided<[?, 1]>>, %out: memref<256x320xf32, strided<[?, 1]>>) kernel {
      %c0 = arith.constant 0 : index
      %c5 = arith.constant 5 : index
      %c64 = arith.constant 64 : index
      %length = arith.constant 65536 : index
      %zero = arith.constant dense<0.0> : tensor<64x64xf32, "fragment">
      %b = gpu.block_id x
      %column = arith.remui %b, %c5 : index
      %row = arith.divui %b, %c5 : index
      %i = arith.muli %row, %c64 : index
      %j = arith.muli %column, %c64 : index
      %r = scf.for %d = %c0 to %length step %c64 iter_args(%old = %zero) -> (tensor<64x64xf32, "fragment">) {
        %x = tile.load (%a, %i, %d, %c64, %c64) {dims = [0, 1]} : (memref<256x65536xf16, strided<[?, 1]>>, index, index, index, index) -> (tensor<64x64xf16, "shared">)
        %y = tile.load (%w, %j, %d, %c64, %c64) {dims = [0, 1]} : (memref<320x65536xf16, strided<[?, 1]>>, index, index, index, index) -> (tensor<64x64xf16, "shared">)
        %s = linalg.generic {indexing_maps = [#lhs, #rhs, #out], iterator_types = ["parallel", "parallel", "reduction"]}
            ins(%x, %y : tensor<64x64xf16, "shared">, tensor<64x64xf16, "shared">) outs(%old : tensor<64x64xf32, "fragment">) {
        ^bb0(%u: f16, %v: f16, %z: f32):
          %uw = arith.extf %u : f16 to f32
          %vw = arith.extf %v : f16 to f32
          %t = arith.mulf %uw, %vw : f32
          %o = arith.addf %z, %t : f32
          linalg.yield %o : f32
        } -> tensor<64x64xf32, "fragment">
        scf.yield %s : tensor<64x64xf32, "fragment">
      }
      tile.store (%r, %out, %i, %j, %c64, %c64) {dims = [0, 1]} : (tensor<64x64xf32, "fragment">, memref<256x320xf32, strided<[?, 1]>>, index, index, index, index) -> ()
      gpu.return
    }
    gpu.func @shorter(%a: memref<256x512xf16, strided<[?, 1]>>, %w: memref<320x512xf16, strided<[?, 1]>>, %out: memref<256x320xf32, strided<[?, 1]>>) kernel {
      %c0 = arith.constant 0 : index
      %c5 = arith.constant 5 : index
      %c64 = arith.constant 64 : index
      %length = arith.constant 512 : index
      %zero = arith.constant dense<0.0> : tensor<64x64xf32, "fragment">
      %b = gpu.block_id x
      %column = arith.remui %b, %c5 : index
      %row = arith.divui %b, %c5 : index
      %i = arith.muli %row, %c64 : index
      %j = arith.muli %column, %c64 : index
      %r = scf.for %d = %c0 to %length step %c64 iter_args(%old = %zero) -> (tensor<64x64xf32, "fragment">) {
        %x = tile.load (%a, %i, %d, %c64, %c64) {dims = [0, 1]} : (memref<256x512xf16, strided<[?, 1]>>, index, index, index, index) -> (tensor<64x64xf16, "shared">)
        %y = tile.load (%w, %j, %d, %c64, %c64) {dims = [0, 1]} : (memref<320x512xf16, strided<[?, 1]>>, index, index, index, index) -> (tensor<64x64xf16, "shared">)
        %s = linalg.generic {indexing_maps = [#lhs, #rhs, #out], iterator_types = ["parallel", "parallel", "reduction"]}
            ins(%x, %y : tensor<64x64xf16, "shared">, tensor<64x64xf16, "shared">) outs(%old : tensor<64x64xf32, "fragment">) {
        ^bb0(%u: f16, %v: f16, %z: f32):
          %uw = arith.extf %u : f16 to f32
          %vw = arith.extf %v : f16 to f32
          %t = arith.mulf %uw, %vw : f32
          %o = arith.addf %z, %t : f32
          linalg.yield %o : f32
        } -> tensor<64x64xf32, "fragment">
        scf.yield %s : tensor<64x64xf32, "fragment">
      }
      tile.store (%r, %out, %i, %j, %c64, %c64) {dims = [0, 1]} : (tensor<64x64xf32, "fragment">, memref<256x320xf32, strided<[?, 1]>>, index, index, index, index) -> ()
      gpu.return
    }
  }
  func.func @main(%a: memref<256x65536xf16, strided<[?, 1]>>, %w: memref<320x65536xf16, strided<[?, 1]>>, %out: memref<256x320xf32, strided<[?, 1]>>,
      %a2: memref<256x512xf16, strided<[?, 1]>>, %w2: memref<320x512xf16, strided<[?, 1]>>) {
    %c1 = arith.constant 1 : index
    %c20 = arith.constant 20 : index
    gpu.launch_func @kernels::@kernel blocks in (%c20, %c1, %c1) threads in (%c1, %c1, %c1) args(%a : memref<256x65536xf16, strided<[?, 1]>>, %w : memref<320x65536xf16, strided<[?, 1]>>, %out : memref<256x320xf32, strided<[?, 1]>>)
    gpu.launch_func @kernels::@shorter blocks in (%c20, %c1, %c1) threads in (%c1, %c1, %c1) args(%a2 : memref<256x512xf16, strided<[?, 1]>>, %w2 : memref<320x512xf16, strided<[?, 1]>>, %out : memref<256x320xf32, strided<[?, 1]>>)
    return
  }
}
