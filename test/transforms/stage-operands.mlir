// RUN: attn-opt %s --stage-operands --split-input-file | FileCheck %s

// A bias of queries × keys comes through shared memory, as the keys do.

// CHECK-LABEL: gpu.func @bias
// CHECK:         tile.load (%{{.*}} -> (tensor<64x32xf16, "shared">)
// CHECK:         %[[S:.*]] = linalg.generic
// CHECK:         %[[STAGED:.*]] = tile.load (%[[BIAS:.*]], %[[I:.*]], %[[J:.*]], %{{.*}}, %{{.*}}) {dims = [0, 1]{{.*}} -> (tensor<64x64xbf16, "shared">)
// CHECK-NEXT:    %[[B:.*]] = tile.convert_layout %[[STAGED]] : {{.*}} -> (tensor<64x64xbf16, "fragment">)
// CHECK:         linalg.generic {{.*}} ins(%[[S]], %[[B]] :

#lhs = affine_map<(i, j, d) -> (i, d)>
#rhs = affine_map<(i, j, d) -> (j, d)>
#out = affine_map<(i, j, d) -> (i, j)>
#id = affine_map<(i, j) -> (i, j)>
gpu.module @kernels {
  gpu.func @bias(%k: memref<64x32xf16, strided<[?, 1]>>, %bias: memref<?x1024xbf16, strided<[?, 1]>>, %i: index, %tile: index) kernel {
    %c0 = arith.constant 0 : index
    %c32 = arith.constant 32 : index
    %c64 = arith.constant 64 : index
    %zero = arith.constant dense<0.0> : tensor<64x64xf32, "fragment">
    %q32 = arith.constant dense<1.0> : tensor<64x32xf16, "fragment">
    %q = tile.convert_layout %q32 : (tensor<64x32xf16, "fragment">) -> (tensor<64x32xf16, "operand_a">)
    %kt = tile.load (%k, %c0, %c0, %c64, %c32) {dims = [0, 1]} : (memref<64x32xf16, strided<[?, 1]>>, index, index, index, index) -> (tensor<64x32xf16, "shared">)
    %s = linalg.generic {indexing_maps = [#lhs, #rhs, #out], iterator_types = ["parallel", "parallel", "reduction"]}
        ins(%q, %kt : tensor<64x32xf16, "operand_a">, tensor<64x32xf16, "shared">) outs(%zero : tensor<64x64xf32, "fragment">) {
    ^bb0(%x: f16, %y: f16, %z: f32):
      %xw = arith.extf %x : f16 to f32
      %yw = arith.extf %y : f16 to f32
      %m = arith.mulf %xw, %yw : f32
      %t = arith.addf %z, %m : f32
      linalg.yield %t : f32
    } -> tensor<64x64xf32, "fragment">
    %j = arith.muli %tile, %c64 : index
    %b = tile.load (%bias, %i, %j, %c64, %c64) {dims = [0, 1]} : (memref<?x1024xbf16, strided<[?, 1]>>, index, index, index, index) -> (tensor<64x64xbf16, "fragment">)
    %e = tensor.empty() : tensor<64x64xf32, "fragment">
    %r = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
        ins(%s, %b : tensor<64x64xf32, "fragment">, tensor<64x64xbf16, "fragment">) outs(%e : tensor<64x64xf32, "fragment">) {
    ^bb0(%x: f32, %y: bf16, %z: f32):
      %w = arith.extf %y : bf16 to f32
      %t = arith.addf %x, %w : f32
      linalg.yield %t : f32
    } -> tensor<64x64xf32, "fragment">
    gpu.return
  }
}

// -----

// Tiles of rows that are not aligned to 16 bytes, or that begin at any column, stand in shared memory as in memory; how
// far a row is shifted depends on the column where that may be anywhere.

// CHECK-LABEL: gpu.func @unaligned
// CHECK-SAME:      %[[BIAS:[^:]*]]: memref<?x1023xbf16
// CHECK-SAME:      %[[OTHER:[^:]*]]: memref<?x1024xbf16{{.*}}>, %[[I:[^:]*]]: index, %[[J:[^:]*]]: index
// CHECK:         %[[STAGED:.*]] = tile.load (%[[BIAS]], %[[I]], %c64{{.*}} -> (tensor<64x64xbf16, "skewed">)
// CHECK:         %[[SHIFTS:.*]] = tile.row_shifts (%[[BIAS]], %[[I]], %c0{{.*}}) {aligned = 2 : i64, dim = 0 : i64{{.*}} -> (tensor<64xi32, "row">)
// CHECK:         tile.convert_layout %[[STAGED]] at %[[SHIFTS]]{{.*}} -> (tensor<64x64xbf16, "fragment">)
// CHECK:         %[[STAGED:.*]] = tile.load (%[[OTHER]], %[[I]], %[[J]]{{.*}} -> (tensor<64x64xbf16, "skewed">)
// CHECK:         %[[SHIFTS:.*]] = tile.row_shifts (%[[OTHER]], %[[I]], %[[J]]) {aligned = 2 : i64, dim = 0 : i64{{.*}} -> (tensor<64xi32, "row">)
// CHECK:         tile.convert_layout %[[STAGED]] at %[[SHIFTS]]{{.*}} -> (tensor<64x64xbf16, "fragment">)

gpu.module @kernels {
  gpu.func @unaligned(%k: memref<64x32xf16, strided<[?, 1]>>, %bias: memref<?x1023xbf16, strided<[?, 1]>>,
                      %other: memref<?x1024xbf16, strided<[?, 1]>>, %i: index, %j: index) kernel {
    %c0 = arith.constant 0 : index
    %c32 = arith.constant 32 : index
    %c64 = arith.constant 64 : index
    %kt = tile.load (%k, %c0, %c0, %c64, %c32) {dims = [0, 1]} : (memref<64x32xf16, strided<[?, 1]>>, index, index, index, index) -> (tensor<64x32xf16, "shared">)
    %b = tile.load (%bias, %i, %c64, %c64, %c64) {dims = [0, 1]} : (memref<?x1023xbf16, strided<[?, 1]>>, index, index, index, index) -> (tensor<64x64xbf16, "fragment">)
    %o = tile.load (%other, %i, %j, %c64, %c64) {dims = [0, 1]} : (memref<?x1024xbf16, strided<[?, 1]>>, index, index, index, index) -> (tensor<64x64xbf16, "fragment">)
    gpu.return
  }
}

// -----

// Nor does anything change where other loads to shared memory are none of the copy engine's.

// CHECK-LABEL: gpu.func @others
// CHECK:         tile.load {{.*}} -> (tensor<64x64xbf16, "fragment">)

gpu.module @kernels {
  gpu.func @others(%k: memref<64x33xf16, strided<[?, 1]>>, %bias: memref<?x1024xbf16, strided<[?, 1]>>, %i: index) kernel {
    %c0 = arith.constant 0 : index
    %c33 = arith.constant 33 : index
    %c64 = arith.constant 64 : index
    %kt = tile.load (%k, %c0, %c0, %c64, %c33) {dims = [0, 1]} : (memref<64x33xf16, strided<[?, 1]>>, index, index, index, index) -> (tensor<64x48xf16, "shared">)
    %b = tile.load (%bias, %i, %c64, %c64, %c64) {dims = [0, 1]} : (memref<?x1024xbf16, strided<[?, 1]>>, index, index, index, index) -> (tensor<64x64xbf16, "fragment">)
    gpu.return
  }
}

// -----

// What changes along columns alone comes as the first row of a tile, floats of 16 bits and more; others are loaded by
// each thread, before the matmul.

// CHECK-LABEL: gpu.func @vectors
// CHECK-SAME:      %[[A:[^:]*]]: memref<4x1024xf32{{.*}}>, %[[B:[^:]*]]: memref<4x1024xi32{{.*}}>, %[[I:[^:]*]]: index
// CHECK:         scf.for %[[J:.*]] =
// CHECK:           tile.load (%[[B]], %[[I]], %[[J]], %{{.*}} -> (tensor<64xi32, "column">)
// CHECK:           linalg.generic
// CHECK:           %[[STAGED:.*]] = tile.load (%[[A]], %[[I]], %[[J]], %c1, %c64) {dims = [0, 1]{{.*}} -> (tensor<8x64xf32, "shared">)
// CHECK-NEXT:      %[[COLUMN:.*]] = tile.convert_layout %[[STAGED]] : {{.*}} -> (tensor<64xf32, "column">)
// CHECK:           linalg.generic {{.*}} ins(%{{.*}}, %[[COLUMN]], %{{.*}} :

#lhs = affine_map<(i, j, d) -> (i, d)>
#rhs = affine_map<(i, j, d) -> (j, d)>
#out = affine_map<(i, j, d) -> (i, j)>
#id = affine_map<(i, j) -> (i, j)>
#column = affine_map<(i, j) -> (j)>
gpu.module @kernels {
  gpu.func @vectors(%k: memref<1024x32xf16, strided<[?, 1]>>, %a: memref<4x1024xf32, strided<[?, 1]>>, %b: memref<4x1024xi32, strided<[?, 1]>>, %i: index) kernel {
    %c0 = arith.constant 0 : index
    %c32 = arith.constant 32 : index
    %c64 = arith.constant 64 : index
    %c1024 = arith.constant 1024 : index
    %zero = arith.constant dense<0.0> : tensor<64x64xf32, "fragment">
    %q32 = arith.constant dense<1.0> : tensor<64x32xf16, "fragment">
    %q = tile.convert_layout %q32 : (tensor<64x32xf16, "fragment">) -> (tensor<64x32xf16, "operand_a">)
    scf.for %j = %c0 to %c1024 step %c64 {
      %kt = tile.load (%k, %j, %c0, %c64, %c32) {dims = [0, 1]} : (memref<1024x32xf16, strided<[?, 1]>>, index, index, index, index) -> (tensor<64x32xf16, "shared">)
      %s = linalg.generic {indexing_maps = [#lhs, #rhs, #out], iterator_types = ["parallel", "parallel", "reduction"]}
          ins(%q, %kt : tensor<64x32xf16, "operand_a">, tensor<64x32xf16, "shared">) outs(%zero : tensor<64x64xf32, "fragment">) {
      ^bb0(%x: f16, %y: f16, %z: f32):
        %xw = arith.extf %x : f16 to f32
        %yw = arith.extf %y : f16 to f32
        %m = arith.mulf %xw, %yw : f32
        %t = arith.addf %z, %m : f32
        linalg.yield %t : f32
      } -> tensor<64x64xf32, "fragment">
      %f = tile.load (%a, %i, %j, %c64) {dims = [1]} : (memref<4x1024xf32, strided<[?, 1]>>, index, index, index) -> (tensor<64xf32, "column">)
      %n = tile.load (%b, %i, %j, %c64) {dims = [1]} : (memref<4x1024xi32, strided<[?, 1]>>, index, index, index) -> (tensor<64xi32, "column">)
      %e = tensor.empty() : tensor<64x64xf32, "fragment">
      %r = linalg.generic {indexing_maps = [#id, #column, #column, #id], iterator_types = ["parallel", "parallel"]}
          ins(%s, %f, %n : tensor<64x64xf32, "fragment">, tensor<64xf32, "column">, tensor<64xi32, "column">) outs(%e : tensor<64x64xf32, "fragment">) {
      ^bb0(%x: f32, %y: f32, %w: i32, %z: f32):
        %g = arith.sitofp %w : i32 to f32
        %h = arith.addf %x, %y : f32
        %t = arith.addf %h, %g : f32
        linalg.yield %t : f32
      } -> tensor<64x64xf32, "fragment">
    }
    gpu.return
  }
}

// -----

// Of tiles that shared memory does not hold together, the later one is loaded by each thread.

// CHECK-LABEL: gpu.func @large
// CHECK-SAME:      %[[FIRST:[^:]*]]: memref<256x256xf32{{.*}}>, %[[SECOND:[^:]*]]: memref<256x256xf32
// CHECK:         tile.load (%[[FIRST]], {{.*}} -> (tensor<256x128xf32, "shared">)
// CHECK:         tile.load (%[[SECOND]], {{.*}} -> (tensor<256x128xf32, "fragment">)

gpu.module @kernels {
  gpu.func @large(%k: memref<64x32xf16, strided<[?, 1]>>, %a: memref<256x256xf32, strided<[?, 1]>>, %b: memref<256x256xf32, strided<[?, 1]>>) kernel attributes {aligned = array<i64: 0, 1, 2>} {
    %c0 = arith.constant 0 : index
    %c32 = arith.constant 32 : index
    %c64 = arith.constant 64 : index
    %c128 = arith.constant 128 : index
    %c256 = arith.constant 256 : index
    %kt = tile.load (%k, %c0, %c0, %c64, %c32) {dims = [0, 1]} : (memref<64x32xf16, strided<[?, 1]>>, index, index, index, index) -> (tensor<64x32xf16, "shared">)
    %x = tile.load (%a, %c0, %c0, %c256, %c128) {dims = [0, 1]} : (memref<256x256xf32, strided<[?, 1]>>, index, index, index, index) -> (tensor<256x128xf32, "fragment">)
    %y = tile.load (%b, %c0, %c0, %c256, %c128) {dims = [0, 1]} : (memref<256x256xf32, strided<[?, 1]>>, index, index, index, index) -> (tensor<256x128xf32, "fragment">)
    gpu.return
  }
}
