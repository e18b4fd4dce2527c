// RUN: attn-opt %s --split-scales | FileCheck %s

// The scale stands alone, behind the mask of what it multiplies.

// CHECK-LABEL: gpu.func @masked
// CHECK:         %[[T:.*]] = linalg.generic {{.*}} ins(%[[S:.*]] : tensor<64x64xf32, "fragment">)
// CHECK-NEXT:    ^bb0(%[[Y:.*]]: f32, %{{.*}}: f32):
// CHECK:           %[[X:.*]] = arith.select %{{.*}}, %{{.*}}, %[[Y]]
// CHECK-NEXT:      linalg.yield %[[X]]
// CHECK:         %[[R:.*]] = linalg.generic {{.*}} ins(%[[T]] :
// CHECK-NEXT:    ^bb0(%[[IN:.*]]: f32, %{{.*}}: f32):
// CHECK:           %[[P:.*]] = arith.mulf %[[IN]], %{{.*}} : f32
// CHECK-NEXT:      linalg.yield %[[P]]
// CHECK:         tile.store (%[[R]],

// Finite numbers, of rows that may be masked as a whole, are divided by the scale; no product of one far from all scores
// with the scale is −∞.

// CHECK-LABEL: gpu.func @finite
// CHECK:         %[[T:.*]] = linalg.generic
// CHECK:           %[[LOW:.*]] = arith.constant 0xCE000000 : f32
// CHECK:           %[[A:.*]] = arith.select %{{.*}}, %[[LOW]], %{{.*}} : f32
// CHECK:           %[[CLOSER:.*]] = arith.constant -1.26765{{.*}}E+30 : f32
// CHECK:           %[[B:.*]] = arith.select %{{.*}}, %[[CLOSER]], %[[A]] : f32
// CHECK:           arith.select %{{.*}}, %{{.*}}, %[[B]] : f32
// CHECK-NEXT:      linalg.yield
// CHECK:         linalg.generic {{.*}} ins(%[[T]] :
// CHECK:           arith.mulf

// A mask that says where scores live says where they are dead.

// CHECK-LABEL: gpu.func @living
// CHECK:           %[[DEAD:.*]] = arith.cmpi sgt, %{{.*}}, %{{.*}} : index
// CHECK-NEXT:      %[[X:.*]] = arith.select %[[DEAD]], %{{.*}}, %{{.*}} : f32
// CHECK-NEXT:      linalg.yield %[[X]]
// CHECK:         linalg.generic
// CHECK:           arith.mulf

// A position that is added stands behind the mask, too, with the slope that only it needs.

// CHECK-LABEL: gpu.func @sloped
// CHECK:         %[[T:.*]] = linalg.generic {{.*}} ins(%{{.*}} : tensor<64x64xf32, "fragment">)
// CHECK-NEXT:    ^bb0(%[[Y:.*]]: f32, %{{.*}}: f32):
// CHECK:           arith.select %{{.*}}, %{{.*}}, %[[Y]]
// CHECK:         linalg.generic {{.*}} ins(%[[T]], %{{.*}} : tensor<64x64xf32, "fragment">, f32)
// CHECK-NEXT:    ^bb0(%[[IN:.*]]: f32, %[[SLOPE:.*]]: f32, %{{.*}}: f32):
// CHECK:           arith.mulf %[[IN]], %{{.*}} : f32
// CHECK:           %[[P:.*]] = arith.mulf %[[SLOPE]], %{{.*}} : f32
// CHECK:           arith.subf %{{.*}}, %[[P]] : f32
// CHECK-NOT:       arith.select
// CHECK:         tile.store

// Scores are the first input, wherever they stood among what the mask needs, which the scale does not.

// CHECK-LABEL: gpu.func @numbers
// CHECK:         %[[S:.*]] = arith.constant dense<1.000000e+00> : tensor<64x64xf32, "fragment">
// CHECK:         %[[T:.*]] = linalg.generic {indexing_maps = [#[[ID:.*]], #[[ROW:.*]], #[[COLUMN:.*]], #[[ID]]], {{.*}} ins(%[[S]], %{{.*}}, %{{.*}} : tensor<64x64xf32, "fragment">, tensor<64xi32, "row">, tensor<64xi32, "column">)
// CHECK-NEXT:    ^bb0(%[[Y:.*]]: f32, %[[M:.*]]: i32, %[[N:.*]]: i32, %{{.*}}: f32):
// CHECK:           %[[DEAD:.*]] = arith.cmpi ne, %[[M]], %[[N]] : i32
// CHECK:           arith.select %[[DEAD]], %{{.*}}, %[[Y]] : f32
// CHECK:         linalg.generic {{.*}} ins(%[[T]] : tensor<64x64xf32, "fragment">)
// CHECK:           arith.mulf
// CHECK:         tile.store

// What goes through a function first, a scale by a negative number, and one without a mask stay as they are.

// CHECK-LABEL: gpu.func @others
// CHECK-COUNT-3: linalg.generic
// CHECK-NOT:     linalg.generic

// Weights are 0 where a mask says so: that of a window, whose negation is two comparisons. Nothing of it is split.

// CHECK-LABEL: gpu.func @weights
// CHECK:           arith.mulf
// CHECK-DAG:       %[[LATE:.*]] = arith.cmpi sgt, %{{.*}}, %{{.*}} : index
// CHECK-DAG:       %[[EARLY:.*]] = arith.cmpi sle, %{{.*}}, %{{.*}} : index
// CHECK:           %[[DEAD:.*]] = arith.ori %[[LATE]], %[[EARLY]]
// CHECK-NEXT:      %[[X:.*]] = arith.select %[[DEAD]], %{{.*}}, %{{.*}} : f32
// CHECK-NEXT:      linalg.yield %[[X]]
// CHECK-NOT:     linalg.generic

// What a function of scores chooses is no mask.

// CHECK-LABEL: gpu.func @relu
// CHECK:           arith.cmpf ogt
// CHECK-NEXT:      arith.select
// CHECK-NEXT:      linalg.yield

// Nor is a mask by a finite number where nothing scales the scores.

// CHECK-LABEL: gpu.func @unscaled
// CHECK:         %[[LOW:.*]] = arith.constant -1.000000e+09 : f32
// CHECK:         linalg.generic
// CHECK:           arith.select %{{.*}}, %[[LOW]], %{{.*}} : f32
// CHECK-NEXT:      linalg.yield
// CHECK-NOT:     linalg.generic

#id = affine_map<(i, j) -> (i, j)>
#one = affine_map<(i, j) -> ()>
gpu.module @kernels {
  gpu.func @masked(%k: memref<64x32xf16, strided<[?, 1]>>, %o: memref<64x64xf32, strided<[?, 1]>>) kernel {
    %c0 = arith.constant 0 : index
    %c32 = arith.constant 32 : index
    %c64 = arith.constant 64 : index
    %minus_inf = arith.constant 0xFF800000 : f32
    %cap = arith.constant 14.4 : f32
    %kt = tile.load (%k, %c0, %c0, %c64, %c32) {dims = [0, 1]} : (memref<64x32xf16, strided<[?, 1]>>, index, index, index, index) -> (tensor<64x32xf16, "shared">)
    %s = arith.constant dense<1.0> : tensor<64x64xf32, "fragment">
    %e = tensor.empty() : tensor<64x64xf32, "fragment">
    %r = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
        ins(%s : tensor<64x64xf32, "fragment">) outs(%e : tensor<64x64xf32, "fragment">) {
    ^bb0(%x: f32, %z: f32):
      %i = linalg.index 0 : index
      %j = linalg.index 1 : index
      %dead = arith.cmpi sgt, %j, %i : index
      %c = arith.mulf %x, %cap : f32
      %m = arith.select %dead, %minus_inf, %c : f32
      linalg.yield %m : f32
    } -> tensor<64x64xf32, "fragment">
    tile.store (%r, %o, %c0, %c0, %c64, %c64) {dims = [0, 1]} : (tensor<64x64xf32, "fragment">, memref<64x64xf32, strided<[?, 1]>>, index, index, index, index) -> ()
    gpu.return
  }

  gpu.func @finite(%k: memref<64x32xf16, strided<[?, 1]>>, %o: memref<64x64xf32, strided<[?, 1]>>, %live: tensor<64xi1, "row">) kernel {
    %c0 = arith.constant 0 : index
    %c32 = arith.constant 32 : index
    %c64 = arith.constant 64 : index
    %minus_inf = arith.constant 0xFF800000 : f32
    %low = arith.constant -1.0e9 : f32
    %least = arith.constant -3.0e38 : f32
    %cap = arith.constant 2.0 : f32
    %kt = tile.load (%k, %c0, %c0, %c64, %c32) {dims = [0, 1]} : (memref<64x32xf16, strided<[?, 1]>>, index, index, index, index) -> (tensor<64x32xf16, "shared">)
    %s = arith.constant dense<1.0> : tensor<64x64xf32, "fragment">
    %e = tensor.empty() : tensor<64x64xf32, "fragment">
    %r = linalg.generic {indexing_maps = [#id, affine_map<(i, j) -> (i)>, #id], iterator_types = ["parallel", "parallel"]}
        ins(%s, %live : tensor<64x64xf32, "fragment">, tensor<64xi1, "row">) outs(%e : tensor<64x64xf32, "fragment">) {
    ^bb0(%x: f32, %is: i1, %z: f32):
      %i = linalg.index 0 : index
      %j = linalg.index 1 : index
      %later = arith.cmpi sgt, %j, %i : index
      %early = arith.cmpi slt, %j, %c32 : index
      %c = arith.mulf %x, %cap : f32
      %l = arith.select %later, %low, %c : f32
      %m = arith.select %early, %least, %l : f32
      %dead = arith.andi %early, %is : i1
      %n = arith.select %dead, %minus_inf, %m : f32
      linalg.yield %n : f32
    } -> tensor<64x64xf32, "fragment">
    tile.store (%r, %o, %c0, %c0, %c64, %c64) {dims = [0, 1]} : (tensor<64x64xf32, "fragment">, memref<64x64xf32, strided<[?, 1]>>, index, index, index, index) -> ()
    gpu.return
  }

  gpu.func @living(%k: memref<64x32xf16, strided<[?, 1]>>, %o: memref<64x64xf32, strided<[?, 1]>>) kernel {
    %c0 = arith.constant 0 : index
    %c32 = arith.constant 32 : index
    %c64 = arith.constant 64 : index
    %minus_inf = arith.constant 0xFF800000 : f32
    %cap = arith.constant 14.4 : f32
    %kt = tile.load (%k, %c0, %c0, %c64, %c32) {dims = [0, 1]} : (memref<64x32xf16, strided<[?, 1]>>, index, index, index, index) -> (tensor<64x32xf16, "shared">)
    %s = arith.constant dense<1.0> : tensor<64x64xf32, "fragment">
    %e = tensor.empty() : tensor<64x64xf32, "fragment">
    %r = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
        ins(%s : tensor<64x64xf32, "fragment">) outs(%e : tensor<64x64xf32, "fragment">) {
    ^bb0(%x: f32, %z: f32):
      %i = linalg.index 0 : index
      %j = linalg.index 1 : index
      %alive = arith.cmpi sle, %j, %i : index
      %c = arith.mulf %x, %cap : f32
      %m = arith.select %alive, %c, %minus_inf : f32
      linalg.yield %m : f32
    } -> tensor<64x64xf32, "fragment">
    tile.store (%r, %o, %c0, %c0, %c64, %c64) {dims = [0, 1]} : (tensor<64x64xf32, "fragment">, memref<64x64xf32, strided<[?, 1]>>, index, index, index, index) -> ()
    gpu.return
  }

  gpu.func @sloped(%k: memref<64x32xf16, strided<[?, 1]>>, %o: memref<64x64xf32, strided<[?, 1]>>, %slope: f32) kernel {
    %c0 = arith.constant 0 : index
    %c32 = arith.constant 32 : index
    %c64 = arith.constant 64 : index
    %minus_inf = arith.constant 0xFF800000 : f32
    %cap = arith.constant 14.4 : f32
    %kt = tile.load (%k, %c0, %c0, %c64, %c32) {dims = [0, 1]} : (memref<64x32xf16, strided<[?, 1]>>, index, index, index, index) -> (tensor<64x32xf16, "shared">)
    %s = arith.constant dense<1.0> : tensor<64x64xf32, "fragment">
    %e = tensor.empty() : tensor<64x64xf32, "fragment">
    %r = linalg.generic {indexing_maps = [#id, #one, #id], iterator_types = ["parallel", "parallel"]}
        ins(%s, %slope : tensor<64x64xf32, "fragment">, f32) outs(%e : tensor<64x64xf32, "fragment">) {
    ^bb0(%x: f32, %u: f32, %z: f32):
      %i = linalg.index 0 : index
      %j = linalg.index 1 : index
      %dead = arith.cmpi sgt, %j, %i : index
      %c = arith.mulf %x, %cap : f32
      %d = arith.subi %i, %j : index
      %n = arith.index_cast %d : index to i32
      %f = arith.sitofp %n : i32 to f32
      %p = arith.mulf %u, %f : f32
      %y = arith.subf %c, %p : f32
      %m = arith.select %dead, %minus_inf, %y : f32
      linalg.yield %m : f32
    } -> tensor<64x64xf32, "fragment">
    tile.store (%r, %o, %c0, %c0, %c64, %c64) {dims = [0, 1]} : (tensor<64x64xf32, "fragment">, memref<64x64xf32, strided<[?, 1]>>, index, index, index, index) -> ()
    gpu.return
  }

  gpu.func @numbers(%k: memref<64x32xf16, strided<[?, 1]>>, %n: memref<64xi32, strided<[1]>>, %o: memref<64x64xf32, strided<[?, 1]>>) kernel {
    %c0 = arith.constant 0 : index
    %c32 = arith.constant 32 : index
    %c64 = arith.constant 64 : index
    %inf = arith.constant 0xFF800000 : f32
    %two = arith.constant 2.0 : f32
    %kt = tile.load (%k, %c0, %c0, %c64, %c32) {dims = [0, 1]} : (memref<64x32xf16, strided<[?, 1]>>, index, index, index, index) -> (tensor<64x32xf16, "shared">)
    %own = tile.load (%n, %c0, %c64) {dims = [0]} : (memref<64xi32, strided<[1]>>, index, index) -> (tensor<64xi32, "row">)
    %other = tile.load (%n, %c0, %c64) {dims = [0]} : (memref<64xi32, strided<[1]>>, index, index) -> (tensor<64xi32, "column">)
    %s = arith.constant dense<1.0> : tensor<64x64xf32, "fragment">
    %e = tensor.empty() : tensor<64x64xf32, "fragment">
    %r = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i)>, affine_map<(i, j) -> (j)>, #id, #id], iterator_types = ["parallel", "parallel"]}
        ins(%own, %other, %s : tensor<64xi32, "row">, tensor<64xi32, "column">, tensor<64x64xf32, "fragment">) outs(%e : tensor<64x64xf32, "fragment">) {
    ^bb0(%m: i32, %l: i32, %x: f32, %z: f32):
      %w = arith.mulf %x, %two : f32
      %live = arith.cmpi eq, %m, %l : i32
      %y = arith.select %live, %w, %inf : f32
      linalg.yield %y : f32
    } -> tensor<64x64xf32, "fragment">
    tile.store (%r, %o, %c0, %c0, %c64, %c64) {dims = [0, 1]} : (tensor<64x64xf32, "fragment">, memref<64x64xf32, strided<[?, 1]>>, index, index, index, index) -> ()
    gpu.return
  }
  gpu.func @others(%k: memref<64x32xf16, strided<[?, 1]>>) kernel {
    %c0 = arith.constant 0 : index
    %c32 = arith.constant 32 : index
    %c64 = arith.constant 64 : index
    %minus = arith.constant -2.0 : f32
    %minus_inf = arith.constant 0xFF800000 : f32
    %half = arith.constant 0.5 : f32
    %kt = tile.load (%k, %c0, %c0, %c64, %c32) {dims = [0, 1]} : (memref<64x32xf16, strided<[?, 1]>>, index, index, index, index) -> (tensor<64x32xf16, "shared">)
    %s = arith.constant dense<1.0> : tensor<64x64xf32, "fragment">
    %e = tensor.empty() : tensor<64x64xf32, "fragment">
    %r = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
        ins(%s : tensor<64x64xf32, "fragment">) outs(%e : tensor<64x64xf32, "fragment">) {
    ^bb0(%x: f32, %z: f32):
      %j = linalg.index 1 : index
      %dead = arith.cmpi sgt, %j, %c32 : index
      %c = arith.mulf %x, %minus : f32
      %m = arith.select %dead, %minus_inf, %c : f32
      linalg.yield %m : f32
    } -> tensor<64x64xf32, "fragment">
    %v = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
        ins(%r : tensor<64x64xf32, "fragment">) outs(%e : tensor<64x64xf32, "fragment">) {
    ^bb0(%x: f32, %z: f32):
      %j = linalg.index 1 : index
      %dead = arith.cmpi sgt, %j, %c32 : index
      %t = math.tanh %x : f32
      %c = arith.mulf %t, %half : f32
      %m = arith.select %dead, %minus_inf, %c : f32
      linalg.yield %m : f32
    } -> tensor<64x64xf32, "fragment">
    %u = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
        ins(%r : tensor<64x64xf32, "fragment">) outs(%e : tensor<64x64xf32, "fragment">) {
    ^bb0(%x: f32, %z: f32):
      %c = arith.mulf %x, %half : f32
      linalg.yield %c : f32
    } -> tensor<64x64xf32, "fragment">
    gpu.return
  }
  gpu.func @weights(%k: memref<64x32xf16, strided<[?, 1]>>, %o: memref<64x64xf32, strided<[?, 1]>>) kernel {
    %c0 = arith.constant 0 : index
    %c32 = arith.constant 32 : index
    %c64 = arith.constant 64 : index
    %zero = arith.constant 0.0 : f32
    %two = arith.constant 2.0 : f32
    %kt = tile.load (%k, %c0, %c0, %c64, %c32) {dims = [0, 1]} : (memref<64x32xf16, strided<[?, 1]>>, index, index, index, index) -> (tensor<64x32xf16, "shared">)
    %s = arith.constant dense<1.0> : tensor<64x64xf32, "fragment">
    %e = tensor.empty() : tensor<64x64xf32, "fragment">
    %r = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
        ins(%s : tensor<64x64xf32, "fragment">) outs(%e : tensor<64x64xf32, "fragment">) {
    ^bb0(%x: f32, %z: f32):
      %i = linalg.index 0 : index
      %j = linalg.index 1 : index
      %first = arith.subi %i, %c32 : index
      %causal = arith.cmpi sle, %j, %i : index
      %near = arith.cmpi sgt, %j, %first : index
      %live = arith.andi %causal, %near : i1
      %w = arith.mulf %x, %two : f32
      %y = arith.select %live, %w, %zero : f32
      linalg.yield %y : f32
    } -> tensor<64x64xf32, "fragment">
    tile.store (%r, %o, %c0, %c0, %c64, %c64) {dims = [0, 1]} : (tensor<64x64xf32, "fragment">, memref<64x64xf32, strided<[?, 1]>>, index, index, index, index) -> ()
    gpu.return
  }
  gpu.func @relu(%k: memref<64x32xf16, strided<[?, 1]>>, %o: memref<64x64xf32, strided<[?, 1]>>) kernel {
    %c0 = arith.constant 0 : index
    %c32 = arith.constant 32 : index
    %c64 = arith.constant 64 : index
    %zero = arith.constant 0.0 : f32
    %two = arith.constant 2.0 : f32
    %kt = tile.load (%k, %c0, %c0, %c64, %c32) {dims = [0, 1]} : (memref<64x32xf16, strided<[?, 1]>>, index, index, index, index) -> (tensor<64x32xf16, "shared">)
    %s = arith.constant dense<1.0> : tensor<64x64xf32, "fragment">
    %e = tensor.empty() : tensor<64x64xf32, "fragment">
    %r = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
        ins(%s : tensor<64x64xf32, "fragment">) outs(%e : tensor<64x64xf32, "fragment">) {
    ^bb0(%x: f32, %z: f32):
      %is = arith.cmpf ogt, %x, %zero : f32
      %y = arith.select %is, %x, %zero : f32
      linalg.yield %y : f32
    } -> tensor<64x64xf32, "fragment">
    tile.store (%r, %o, %c0, %c0, %c64, %c64) {dims = [0, 1]} : (tensor<64x64xf32, "fragment">, memref<64x64xf32, strided<[?, 1]>>, index, index, index, index) -> ()
    gpu.return
  }

  gpu.func @unscaled(%k: memref<64x32xf16, strided<[?, 1]>>, %o: memref<64x64xf32, strided<[?, 1]>>) kernel {
    %c0 = arith.constant 0 : index
    %c32 = arith.constant 32 : index
    %c64 = arith.constant 64 : index
    %low = arith.constant -1.0e9 : f32
    %kt = tile.load (%k, %c0, %c0, %c64, %c32) {dims = [0, 1]} : (memref<64x32xf16, strided<[?, 1]>>, index, index, index, index) -> (tensor<64x32xf16, "shared">)
    %s = arith.constant dense<1.0> : tensor<64x64xf32, "fragment">
    %e = tensor.empty() : tensor<64x64xf32, "fragment">
    %r = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
        ins(%s : tensor<64x64xf32, "fragment">) outs(%e : tensor<64x64xf32, "fragment">) {
    ^bb0(%x: f32, %z: f32):
      %i = linalg.index 0 : index
      %j = linalg.index 1 : index
      %dead = arith.cmpi sgt, %j, %i : index
      %m = arith.select %dead, %low, %x : f32
      linalg.yield %m : f32
    } -> tensor<64x64xf32, "fragment">
    tile.store (%r, %o, %c0, %c0, %c64, %c64) {dims = [0, 1]} : (tensor<64x64xf32, "fragment">, memref<64x64xf32, strided<[?, 1]>>, index, index, index, index) -> ()
    gpu.return
  }
}
