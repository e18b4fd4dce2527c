// RUN: attn-opt %s --start-scores --split-input-file | FileCheck %s

// The matmul of scores starts with the bias; its left operand is multiplied by the power of two that the scale is.

// CHECK-LABEL: gpu.func @bias
// CHECK:         %[[Q:.*]] = tile.load {{.*}} -> (tensor<256x32xf16, "shared">)
// CHECK-NEXT:    %[[SCALED:.*]] = tile.scale %[[Q]] {exponent = -3 : i64}
// CHECK:         %[[K:.*]] = tile.load
// CHECK:         %[[J:.*]] = arith.muli
// CHECK-NEXT:    %[[H:.*]] = tile.load ({{.*}}, %[[J]], {{.*}} -> (tensor<256x64xbf16, "shared">)
// CHECK-NEXT:    %[[B:.*]] = tile.convert_layout %[[H]]
// CHECK:         %[[START:.*]] = linalg.generic {{.*}} ins(%[[B]] :
// CHECK-NEXT:    ^bb0(%[[X:.*]]: bf16, %{{.*}}: f32):
// CHECK-NEXT:      %[[WIDE:.*]] = arith.extf %[[X]]
// CHECK-NEXT:      linalg.yield %[[WIDE]]
// CHECK:         %[[S:.*]] = linalg.generic {{.*}} ins(%[[SCALED]], %[[K]] : {{.*}}) outs(%[[START]] :
// CHECK-NOT:     linalg.generic
// CHECK:         tile.store (%[[S]],

#lhs = affine_map<(i, j, d) -> (i, d)>
#rhs = affine_map<(i, j, d) -> (j, d)>
#out = affine_map<(i, j, d) -> (i, j)>
#id = affine_map<(i, j) -> (i, j)>
gpu.module @kernels {
  gpu.func @bias(%m: memref<?x32xf16, strided<[?, 1]>>, %k: memref<64x32xf16, strided<[?, 1]>>, %bias: memref<?x1024xbf16, strided<[?, 1]>>, %out: memref<?x1024xf32, strided<[?, 1]>>, %i: index, %tile: index) kernel {
    %c0 = arith.constant 0 : index
    %c32 = arith.constant 32 : index
    %c64 = arith.constant 64 : index
    %rows = arith.constant 256 : index
    %factor = arith.constant 1.250000e-01 : f32
    %dead = arith.constant 0xFF800000 : f32
    %zero = arith.constant dense<0.0> : tensor<256x64xf32, "fragment">
    %q = tile.load (%m, %i, %c0, %rows, %c32) {dims = [0, 1]} : (memref<?x32xf16, strided<[?, 1]>>, index, index, index, index) -> (tensor<256x32xf16, "shared">)
    %kt = tile.load (%k, %c0, %c0, %c64, %c32) {dims = [0, 1]} : (memref<64x32xf16, strided<[?, 1]>>, index, index, index, index) -> (tensor<64x32xf16, "shared">)
    %s = linalg.generic {indexing_maps = [#lhs, #rhs, #out], iterator_types = ["parallel", "parallel", "reduction"]}
        ins(%q, %kt : tensor<256x32xf16, "shared">, tensor<64x32xf16, "shared">) outs(%zero : tensor<256x64xf32, "fragment">) {
    ^bb0(%x: f16, %y: f16, %z: f32):
      %xw = arith.extf %x : f16 to f32
      %yw = arith.extf %y : f16 to f32
      %p = arith.mulf %xw, %yw : f32
      %t = arith.addf %z, %p : f32
      linalg.yield %t : f32
    } -> tensor<256x64xf32, "fragment">
    %j = arith.muli %tile, %c64 : index
    %h = tile.load (%bias, %i, %j, %rows, %c64) {dims = [0, 1]} : (memref<?x1024xbf16, strided<[?, 1]>>, index, index, index, index) -> (tensor<256x64xbf16, "shared">)
    %b = tile.convert_layout %h : (tensor<256x64xbf16, "shared">) -> (tensor<256x64xbf16, "fragment">)
    %e = tensor.empty() : tensor<256x64xf32, "fragment">
    %r = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
        ins(%s, %b : tensor<256x64xf32, "fragment">, tensor<256x64xbf16, "fragment">) outs(%e : tensor<256x64xf32, "fragment">) {
    ^bb0(%x: f32, %y: bf16, %z: f32):
      %w = arith.extf %y : bf16 to f32
      %c = arith.mulf %x, %factor : f32
      %t = arith.addf %c, %w : f32
      linalg.yield %t : f32
    } -> tensor<256x64xf32, "fragment">
    tile.store (%r, %out, %i, %j, %rows, %c64) {dims = [0, 1]} : (tensor<256x64xf32, "fragment">, memref<?x1024xf32, strided<[?, 1]>>, index, index, index, index) -> ()
    gpu.return
  }
}

// -----

// What is left of another scale stays behind the matmul, under the mask, and the bias is divided by it.

// CHECK-LABEL: gpu.func @masked
// CHECK:         %[[SCALED:.*]] = tile.scale %{{.*}} {exponent = -3 : i64}
// CHECK:         %[[START:.*]] = linalg.generic
// CHECK:           %[[WIDE:.*]] = arith.extf
// CHECK:           %[[LESS:.*]] = arith.mulf %[[WIDE]], %{{.*}} : f32
// CHECK-NEXT:      linalg.yield %[[LESS]]
// CHECK:         %[[S:.*]] = linalg.generic {{.*}} ins(%[[SCALED]], {{.*}} outs(%[[START]] :
// CHECK:         linalg.generic {indexing_maps = [#{{.*}}, #{{.*}}], {{.*}} ins(%[[S]] : tensor<256x64xf32, "fragment">)
// CHECK-NEXT:    ^bb0(%[[X:.*]]: f32, %{{.*}}: f32):
// CHECK:           %[[LATE:.*]] = arith.cmpi sgt
// CHECK:           %[[REST:.*]] = arith.mulf %[[X]], %{{.*}} : f32
// CHECK:           %[[L:.*]] = arith.select %[[LATE]], %{{.*}}, %[[REST]]
// CHECK-NEXT:      linalg.yield %[[L]]

#lhs = affine_map<(i, j, d) -> (i, d)>
#rhs = affine_map<(i, j, d) -> (j, d)>
#out = affine_map<(i, j, d) -> (i, j)>
#id = affine_map<(i, j) -> (i, j)>
gpu.module @kernels {
  gpu.func @masked(%m: memref<?x32xf16, strided<[?, 1]>>, %k: memref<64x32xf16, strided<[?, 1]>>, %bias: memref<?x1024xbf16, strided<[?, 1]>>, %out: memref<?x1024xf32, strided<[?, 1]>>, %i: index, %tile: index) kernel {
    %c0 = arith.constant 0 : index
    %c32 = arith.constant 32 : index
    %c64 = arith.constant 64 : index
    %rows = arith.constant 256 : index
    %factor = arith.constant 1.750000e-01 : f32
    %dead = arith.constant 0xFF800000 : f32
    %zero = arith.constant dense<0.0> : tensor<256x64xf32, "fragment">
    %q = tile.load (%m, %i, %c0, %rows, %c32) {dims = [0, 1]} : (memref<?x32xf16, strided<[?, 1]>>, index, index, index, index) -> (tensor<256x32xf16, "shared">)
    %kt = tile.load (%k, %c0, %c0, %c64, %c32) {dims = [0, 1]} : (memref<64x32xf16, strided<[?, 1]>>, index, index, index, index) -> (tensor<64x32xf16, "shared">)
    %s = linalg.generic {indexing_maps = [#lhs, #rhs, #out], iterator_types = ["parallel", "parallel", "reduction"]}
        ins(%q, %kt : tensor<256x32xf16, "shared">, tensor<64x32xf16, "shared">) outs(%zero : tensor<256x64xf32, "fragment">) {
    ^bb0(%x: f16, %y: f16, %z: f32):
      %xw = arith.extf %x : f16 to f32
      %yw = arith.extf %y : f16 to f32
      %p = arith.mulf %xw, %yw : f32
      %t = arith.addf %z, %p : f32
      linalg.yield %t : f32
    } -> tensor<256x64xf32, "fragment">
    %j = arith.muli %tile, %c64 : index
    %h = tile.load (%bias, %i, %j, %rows, %c64) {dims = [0, 1]} : (memref<?x1024xbf16, strided<[?, 1]>>, index, index, index, index) -> (tensor<256x64xbf16, "shared">)
    %b = tile.convert_layout %h : (tensor<256x64xbf16, "shared">) -> (tensor<256x64xbf16, "fragment">)
    %e = tensor.empty() : tensor<256x64xf32, "fragment">
    %r = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
        ins(%s, %b : tensor<256x64xf32, "fragment">, tensor<256x64xbf16, "fragment">) outs(%e : tensor<256x64xf32, "fragment">) {
    ^bb0(%x: f32, %y: bf16, %z: f32):
      %row = linalg.index 0 : index
      %column = linalg.index 1 : index
      %late = arith.cmpi sgt, %column, %row : index
      %w = arith.extf %y : bf16 to f32
      %c = arith.mulf %x, %factor : f32
      %t = arith.addf %c, %w : f32
      %l = arith.select %late, %dead, %t : f32
      linalg.yield %l : f32
    } -> tensor<256x64xf32, "fragment">
    tile.store (%r, %out, %i, %j, %rows, %c64) {dims = [0, 1]} : (tensor<256x64xf32, "fragment">, memref<?x1024xf32, strided<[?, 1]>>, index, index, index, index) -> ()
    gpu.return
  }
}

// -----

// What goes through a function first stays, and so does the bias of two warpgroups.

// CHECK-LABEL: gpu.func @capped
// CHECK-NOT:     tile.scale
// CHECK:         math.tanh
// CHECK-NEXT:    arith.addf

#lhs = affine_map<(i, j, d) -> (i, d)>
#rhs = affine_map<(i, j, d) -> (j, d)>
#out = affine_map<(i, j, d) -> (i, j)>
#id = affine_map<(i, j) -> (i, j)>
gpu.module @kernels {
  gpu.func @capped(%m: memref<?x32xf16, strided<[?, 1]>>, %k: memref<64x32xf16, strided<[?, 1]>>, %bias: memref<?x1024xbf16, strided<[?, 1]>>, %out: memref<?x1024xf32, strided<[?, 1]>>, %i: index, %tile: index) kernel {
    %c0 = arith.constant 0 : index
    %c32 = arith.constant 32 : index
    %c64 = arith.constant 64 : index
    %rows = arith.constant 256 : index
    %factor = arith.constant 1.250000e-01 : f32
    %dead = arith.constant 0xFF800000 : f32
    %zero = arith.constant dense<0.0> : tensor<256x64xf32, "fragment">
    %q = tile.load (%m, %i, %c0, %rows, %c32) {dims = [0, 1]} : (memref<?x32xf16, strided<[?, 1]>>, index, index, index, index) -> (tensor<256x32xf16, "shared">)
    %kt = tile.load (%k, %c0, %c0, %c64, %c32) {dims = [0, 1]} : (memref<64x32xf16, strided<[?, 1]>>, index, index, index, index) -> (tensor<64x32xf16, "shared">)
    %s = linalg.generic {indexing_maps = [#lhs, #rhs, #out], iterator_types = ["parallel", "parallel", "reduction"]}
        ins(%q, %kt : tensor<256x32xf16, "shared">, tensor<64x32xf16, "shared">) outs(%zero : tensor<256x64xf32, "fragment">) {
    ^bb0(%x: f16, %y: f16, %z: f32):
      %xw = arith.extf %x : f16 to f32
      %yw = arith.extf %y : f16 to f32
      %p = arith.mulf %xw, %yw : f32
      %t = arith.addf %z, %p : f32
      linalg.yield %t : f32
    } -> tensor<256x64xf32, "fragment">
    %j = arith.muli %tile, %c64 : index
    %h = tile.load (%bias, %i, %j, %rows, %c64) {dims = [0, 1]} : (memref<?x1024xbf16, strided<[?, 1]>>, index, index, index, index) -> (tensor<256x64xbf16, "shared">)
    %b = tile.convert_layout %h : (tensor<256x64xbf16, "shared">) -> (tensor<256x64xbf16, "fragment">)
    %e = tensor.empty() : tensor<256x64xf32, "fragment">
    %r = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
        ins(%s, %b : tensor<256x64xf32, "fragment">, tensor<256x64xbf16, "fragment">) outs(%e : tensor<256x64xf32, "fragment">) {
    ^bb0(%x: f32, %y: bf16, %z: f32):
      %w = arith.extf %y : bf16 to f32
      %c = arith.mulf %x, %factor : f32
      %h1 = math.tanh %c : f32
      %t = arith.addf %h1, %w : f32
      linalg.yield %t : f32
    } -> tensor<256x64xf32, "fragment">
    tile.store (%r, %out, %i, %j, %rows, %c64) {dims = [0, 1]} : (tensor<256x64xf32, "fragment">, memref<?x1024xf32, strided<[?, 1]>>, index, index, index, index) -> ()
    gpu.return
  }
}

// -----

// CHECK-LABEL: gpu.func @two_warpgroups
// CHECK-NOT:     tile.scale
// CHECK:         tile.store

#lhs = affine_map<(i, j, d) -> (i, d)>
#rhs = affine_map<(i, j, d) -> (j, d)>
#out = affine_map<(i, j, d) -> (i, j)>
#id = affine_map<(i, j) -> (i, j)>
gpu.module @kernels {
  gpu.func @two_warpgroups(%m: memref<?x32xf16, strided<[?, 1]>>, %k: memref<64x32xf16, strided<[?, 1]>>, %bias: memref<?x1024xbf16, strided<[?, 1]>>, %out: memref<?x1024xf32, strided<[?, 1]>>, %i: index, %tile: index) kernel {
    %c0 = arith.constant 0 : index
    %c32 = arith.constant 32 : index
    %c64 = arith.constant 64 : index
    %rows = arith.constant 128 : index
    %factor = arith.constant 1.250000e-01 : f32
    %dead = arith.constant 0xFF800000 : f32
    %zero = arith.constant dense<0.0> : tensor<128x64xf32, "fragment">
    %q = tile.load (%m, %i, %c0, %rows, %c32) {dims = [0, 1]} : (memref<?x32xf16, strided<[?, 1]>>, index, index, index, index) -> (tensor<128x32xf16, "shared">)
    %kt = tile.load (%k, %c0, %c0, %c64, %c32) {dims = [0, 1]} : (memref<64x32xf16, strided<[?, 1]>>, index, index, index, index) -> (tensor<64x32xf16, "shared">)
    %s = linalg.generic {indexing_maps = [#lhs, #rhs, #out], iterator_types = ["parallel", "parallel", "reduction"]}
        ins(%q, %kt : tensor<128x32xf16, "shared">, tensor<64x32xf16, "shared">) outs(%zero : tensor<128x64xf32, "fragment">) {
    ^bb0(%x: f16, %y: f16, %z: f32):
      %xw = arith.extf %x : f16 to f32
      %yw = arith.extf %y : f16 to f32
      %p = arith.mulf %xw, %yw : f32
      %t = arith.addf %z, %p : f32
      linalg.yield %t : f32
    } -> tensor<128x64xf32, "fragment">
    %j = arith.muli %tile, %c64 : index
    %h = tile.load (%bias, %i, %j, %rows, %c64) {dims = [0, 1]} : (memref<?x1024xbf16, strided<[?, 1]>>, index, index, index, index) -> (tensor<128x64xbf16, "shared">)
    %b = tile.convert_layout %h : (tensor<128x64xbf16, "shared">) -> (tensor<128x64xbf16, "fragment">)
    %e = tensor.empty() : tensor<128x64xf32, "fragment">
    %r = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
        ins(%s, %b : tensor<128x64xf32, "fragment">, tensor<128x64xbf16, "fragment">) outs(%e : tensor<128x64xf32, "fragment">) {
    ^bb0(%x: f32, %y: bf16, %z: f32):
      %w = arith.extf %y : bf16 to f32
      %c = arith.mulf %x, %factor : f32
      %t = arith.addf %c, %w : f32
      linalg.yield %t : f32
    } -> tensor<128x64xf32, "fragment">
    tile.store (%r, %out, %i, %j, %rows, %c64) {dims = [0, 1]} : (tensor<128x64xf32, "fragment">, memref<?x1024xf32, strided<[?, 1]>>, index, index, index, index) -> ()
    gpu.return
  }
}

// -----

// Scores that are read as they are want the left operand as it is, here of a second matmul.

// CHECK-LABEL: gpu.func @read_twice
// CHECK-NOT:     tile.scale
// CHECK:         tile.store

#lhs = affine_map<(i, j, d) -> (i, d)>
#rhs = affine_map<(i, j, d) -> (j, d)>
#out = affine_map<(i, j, d) -> (i, j)>
#id = affine_map<(i, j) -> (i, j)>
gpu.module @kernels {
  gpu.func @read_twice(%m: memref<?x32xf16, strided<[?, 1]>>, %k: memref<64x32xf16, strided<[?, 1]>>, %bias: memref<?x1024xbf16, strided<[?, 1]>>, %out: memref<?x1024xf32, strided<[?, 1]>>, %i: index, %tile: index) kernel {
    %c0 = arith.constant 0 : index
    %c32 = arith.constant 32 : index
    %c64 = arith.constant 64 : index
    %rows = arith.constant 256 : index
    %factor = arith.constant 1.250000e-01 : f32
    %dead = arith.constant 0xFF800000 : f32
    %zero = arith.constant dense<0.0> : tensor<256x64xf32, "fragment">
    %q = tile.load (%m, %i, %c0, %rows, %c32) {dims = [0, 1]} : (memref<?x32xf16, strided<[?, 1]>>, index, index, index, index) -> (tensor<256x32xf16, "shared">)
    %kt = tile.load (%k, %c0, %c0, %c64, %c32) {dims = [0, 1]} : (memref<64x32xf16, strided<[?, 1]>>, index, index, index, index) -> (tensor<64x32xf16, "shared">)
    %s = linalg.generic {indexing_maps = [#lhs, #rhs, #out], iterator_types = ["parallel", "parallel", "reduction"]}
        ins(%q, %kt : tensor<256x32xf16, "shared">, tensor<64x32xf16, "shared">) outs(%zero : tensor<256x64xf32, "fragment">) {
    ^bb0(%x: f16, %y: f16, %z: f32):
      %xw = arith.extf %x : f16 to f32
      %yw = arith.extf %y : f16 to f32
      %p = arith.mulf %xw, %yw : f32
      %t = arith.addf %z, %p : f32
      linalg.yield %t : f32
    } -> tensor<256x64xf32, "fragment">
    %j = arith.muli %tile, %c64 : index
    %h = tile.load (%bias, %i, %j, %rows, %c64) {dims = [0, 1]} : (memref<?x1024xbf16, strided<[?, 1]>>, index, index, index, index) -> (tensor<256x64xbf16, "shared">)
    %b = tile.convert_layout %h : (tensor<256x64xbf16, "shared">) -> (tensor<256x64xbf16, "fragment">)
    %e = tensor.empty() : tensor<256x64xf32, "fragment">
    %r = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
        ins(%s, %b : tensor<256x64xf32, "fragment">, tensor<256x64xbf16, "fragment">) outs(%e : tensor<256x64xf32, "fragment">) {
    ^bb0(%x: f32, %y: bf16, %z: f32):
      %w = arith.extf %y : bf16 to f32
      %c = arith.mulf %x, %factor : f32
      %t = arith.addf %c, %w : f32
      linalg.yield %t : f32
    } -> tensor<256x64xf32, "fragment">
    %s2 = linalg.generic {indexing_maps = [#lhs, #rhs, #out], iterator_types = ["parallel", "parallel", "reduction"]}
        ins(%q, %kt : tensor<256x32xf16, "shared">, tensor<64x32xf16, "shared">) outs(%zero : tensor<256x64xf32, "fragment">) {
    ^bb0(%x: f16, %y: f16, %z: f32):
      %xw = arith.extf %x : f16 to f32
      %yw = arith.extf %y : f16 to f32
      %p = arith.mulf %xw, %yw : f32
      %t = arith.addf %z, %p : f32
      linalg.yield %t : f32
    } -> tensor<256x64xf32, "fragment">
    tile.store (%s2, %out, %c0, %j, %rows, %c64) {dims = [0, 1]} : (tensor<256x64xf32, "fragment">, memref<?x1024xf32, strided<[?, 1]>>, index, index, index, index) -> ()
    tile.store (%r, %out, %i, %j, %rows, %c64) {dims = [0, 1]} : (tensor<256x64xf32, "fragment">, memref<?x1024xf32, strided<[?, 1]>>, index, index, index, index) -> ()
    gpu.return
  }
}

// -----

// What is done with scores does not read them.
// CHECK-LABEL: gpu.func @unused
// CHECK-NOT:     tile.scale
// CHECK:         tile.store

#lhs = affine_map<(i, j, d) -> (i, d)>
#rhs = affine_map<(i, j, d) -> (j, d)>
#out = affine_map<(i, j, d) -> (i, j)>
#id = affine_map<(i, j) -> (i, j)>
gpu.module @kernels {
  gpu.func @unused(%m: memref<?x32xf16, strided<[?, 1]>>, %k: memref<64x32xf16, strided<[?, 1]>>, %bias: memref<?x1024xbf16, strided<[?, 1]>>, %out: memref<?x1024xf32, strided<[?, 1]>>, %i: index, %tile: index) kernel {
    %c0 = arith.constant 0 : index
    %c32 = arith.constant 32 : index
    %c64 = arith.constant 64 : index
    %rows = arith.constant 256 : index
    %factor = arith.constant 1.250000e-01 : f32
    %dead = arith.constant 0xFF800000 : f32
    %zero = arith.constant dense<0.0> : tensor<256x64xf32, "fragment">
    %q = tile.load (%m, %i, %c0, %rows, %c32) {dims = [0, 1]} : (memref<?x32xf16, strided<[?, 1]>>, index, index, index, index) -> (tensor<256x32xf16, "shared">)
    %kt = tile.load (%k, %c0, %c0, %c64, %c32) {dims = [0, 1]} : (memref<64x32xf16, strided<[?, 1]>>, index, index, index, index) -> (tensor<64x32xf16, "shared">)
    %s = linalg.generic {indexing_maps = [#lhs, #rhs, #out], iterator_types = ["parallel", "parallel", "reduction"]}
        ins(%q, %kt : tensor<256x32xf16, "shared">, tensor<64x32xf16, "shared">) outs(%zero : tensor<256x64xf32, "fragment">) {
    ^bb0(%x: f16, %y: f16, %z: f32):
      %xw = arith.extf %x : f16 to f32
      %yw = arith.extf %y : f16 to f32
      %p = arith.mulf %xw, %yw : f32
      %t = arith.addf %z, %p : f32
      linalg.yield %t : f32
    } -> tensor<256x64xf32, "fragment">
    %j = arith.muli %tile, %c64 : index
    %h = tile.load (%bias, %i, %j, %rows, %c64) {dims = [0, 1]} : (memref<?x1024xbf16, strided<[?, 1]>>, index, index, index, index) -> (tensor<256x64xbf16, "shared">)
    %b = tile.convert_layout %h : (tensor<256x64xbf16, "shared">) -> (tensor<256x64xbf16, "fragment">)
    %e = tensor.empty() : tensor<256x64xf32, "fragment">
    %r = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
        ins(%s, %b : tensor<256x64xf32, "fragment">, tensor<256x64xbf16, "fragment">) outs(%e : tensor<256x64xf32, "fragment">) {
    ^bb0(%x: f32, %y: bf16, %z: f32):
      %w = arith.extf %y : bf16 to f32
      %t = arith.mulf %w, %factor : f32
      linalg.yield %t : f32
    } -> tensor<256x64xf32, "fragment">
    %s2 = linalg.generic {indexing_maps = [#lhs, #rhs, #out], iterator_types = ["parallel", "parallel", "reduction"]}
        ins(%q, %kt : tensor<256x32xf16, "shared">, tensor<64x32xf16, "shared">) outs(%zero : tensor<256x64xf32, "fragment">) {
    ^bb0(%x: f16, %y: f16, %z: f32):
      %xw = arith.extf %x : f16 to f32
      %yw = arith.extf %y : f16 to f32
      %p = arith.mulf %xw, %yw : f32
      %t = arith.addf %z, %p : f32
      linalg.yield %t : f32
    } -> tensor<256x64xf32, "fragment">
    tile.store (%s2, %out, %c0, %j, %rows, %c64) {dims = [0, 1]} : (tensor<256x64xf32, "fragment">, memref<?x1024xf32, strided<[?, 1]>>, index, index, index, index) -> ()
    tile.store (%r, %out, %i, %j, %rows, %c64) {dims = [0, 1]} : (tensor<256x64xf32, "fragment">, memref<?x1024xf32, strided<[?, 1]>>, index, index, index, index) -> ()
    gpu.return
  }
}
