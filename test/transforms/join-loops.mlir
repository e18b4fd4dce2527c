// RUN: attn-opt %s --join-loops | FileCheck %s

// Three loops, as under a window, whose first and last one mask: one loop, with a branch around each mask. The first one
// ends where the next begins, which is no less than each of two bounds that it begins at itself.

// CHECK-LABEL: gpu.func @window
// CHECK-SAME:    %{{[^ :]+}}: index, %[[LOWER:[^ :]+]]: index, %[[OTHER:[^ :]+]]: index, %[[LIVE:[^ :]+]]: index, %[[END:[^ :]+]]: index
// CHECK:         %[[START:.*]] = affine.max #{{.*}}()[%[[LOWER]], %[[OTHER]]]
// CHECK-NEXT:    %[[LAST:.*]] = affine.max #{{.*}}()[%[[LOWER]], %[[OTHER]], %[[END]]]
// CHECK:         %[[MIDDLE:.*]] = affine.min
// CHECK-NEXT:    %[[LATE:.*]] = affine.max #{{.*}}()[%[[MIDDLE]],
// CHECK-NEXT:    %[[UPPER:.*]] = affine.max #{{.*}}()[%[[LOWER]], %[[OTHER]], %[[MIDDLE]]]
// CHECK:         scf.for %[[J:.*]] = %[[START]] to %[[LAST]] step
// CHECK:           %[[EARLY:.*]] = arith.cmpi slt, %[[J]], %[[UPPER]]
// CHECK-NEXT:      scf.if %[[EARLY]]
// CHECK:             arith.cmpi slt
// CHECK:           %[[LATER:.*]] = arith.cmpi sge, %[[J]], %[[LATE]]
// CHECK-NEXT:      scf.if %[[LATER]]
// CHECK:             arith.cmpi sgt
// CHECK-NOT:     scf.for

// Where the second one may begin before the first one does, that stays alone.

// CHECK-LABEL: gpu.func @unknown
// CHECK:         scf.for
// CHECK-NOT:     scf.if
// CHECK:         scf.for
// CHECK:           scf.if
// CHECK-NOT:     scf.for

// Without a softmax weights are masked by 0.

// CHECK-LABEL: gpu.func @weights
// CHECK:         scf.for %[[J:.*]] = %{{.*}} to %{{.*}} step
// CHECK:           %[[W:.*]] = linalg.generic {{.*}} ins(%{{[^ ,]*}} : tensor<64x64xf32, "fragment">)
// CHECK:             math.exp
// CHECK:           %[[LATER:.*]] = arith.cmpi sge, %[[J]]
// CHECK-NEXT:      scf.if %[[LATER]]
// CHECK:             linalg.generic {{.*}} ins(%[[W]]
// CHECK:               arith.select
// CHECK-NEXT:          linalg.yield
// CHECK:           } else {
// CHECK-NEXT:        scf.yield %[[W]]
// CHECK-NOT:     scf.for

// What is loaded for the mask alone is loaded in its branch: that of the first and the last loop is one and the same.

// CHECK-LABEL: gpu.func @documents
// CHECK:         %[[OWN:.*]] = tile.load {{.*}} -> (tensor<64xi32, "row">)
// CHECK:         scf.for %[[J:.*]] = %[[LOWER:.*]] to %[[END:.*]] step
// CHECK:           %[[S:.*]] = linalg.generic {{.*}} ins(%{{.*}}, %{{.*}} : tensor<64x64xf16, "operand_a">,
// CHECK:           %[[EARLY:.*]] = arith.cmpi slt, %[[J]], %[[LIVE:.*]] : index
// CHECK:           %[[LATE:.*]] = arith.cmpi sge, %[[J]], %[[OTHERS:.*]] : index
// CHECK:           %[[EITHER:.*]] = arith.ori %[[EARLY]], %[[LATE]]
// CHECK:           %[[X:.*]] = scf.if %[[EITHER]]
// CHECK:             %[[OTHER:.*]] = tile.load (%{{.*}}, %[[J]], %{{.*}}) {{.*}} -> (tensor<64xi32, "column">)
// CHECK:             linalg.generic {{.*}} ins(%[[S]], %[[OWN]], %[[OTHER]] :
// CHECK:               %[[FOREIGN:.*]] = arith.cmpi ne
// CHECK-NEXT:          arith.select %[[FOREIGN]]
// CHECK-NEXT:          linalg.yield
// CHECK:           } else {
// CHECK-NEXT:        scf.yield %[[S]]
// CHECK:           linalg.generic {{.*}} ins(%[[X]]
// CHECK-NOT:     scf.for

// A mask may say which elements live.

// CHECK-LABEL: gpu.func @padding
// CHECK:         scf.for %[[J:.*]] = %{{.*}} to %{{.*}} step
// CHECK:           %[[LATE:.*]] = arith.cmpi sge, %[[J]]
// CHECK:           scf.if %[[LATE]]
// CHECK:             tile.load {{.*}} -> (tensor<64xi1, "column">)
// CHECK:             arith.select
// CHECK-NEXT:        linalg.yield
// CHECK:           } else {
// CHECK-NOT:     scf.for

#lhs = affine_map<(i, j, d) -> (i, d)>
#rhs = affine_map<(i, j, d) -> (j, d)>
#out = affine_map<(i, j, d) -> (i, j)>
#id = affine_map<(i, j) -> (i, j)>
#row = affine_map<(i, j) -> (i)>
#column = affine_map<(i, j) -> (j)>
#max = affine_map<()[a, b] -> (a, b)>
#max3 = affine_map<()[a, b, c] -> (a, b, c)>
gpu.module @kernels {
  gpu.func @window(%k: memref<?x64xf16, strided<[?, 1]>>, %q: tensor<64x64xf16, "operand_a">, %i: index, %lower: index, %other: index, %live: index, %end: index, %out: memref<64x64xf32, strided<[?, 1]>>) kernel {
    %c0 = arith.constant 0 : index
    %c64 = arith.constant 64 : index
    %dead = arith.constant 0xFF800000 : f32
    %zero = arith.constant dense<0.0> : tensor<64x64xf32, "fragment">
    %e = tensor.empty() : tensor<64x64xf32, "fragment">
    %start = affine.max #max()[%lower, %other]
    %last = affine.max #max3()[%lower, %other, %end]
    %after = affine.max #max3()[%live, %lower, %other]
    %middle = affine.min #max()[%after, %last]
    %late = affine.max #max()[%middle, %i]
    %upper = affine.max #max3()[%lower, %other, %middle]
    %a = scf.for %j = %start to %upper step %c64 iter_args(%old = %zero) -> (tensor<64x64xf32, "fragment">) {
      %kt = tile.load (%k, %j, %c0, %c64, %c64) {dims = [0, 1]} : (memref<?x64xf16, strided<[?, 1]>>, index, index, index, index) -> (tensor<64x64xf16, "shared">)
      %s = linalg.generic {indexing_maps = [#lhs, #rhs, #out], iterator_types = ["parallel", "parallel", "reduction"]}
          ins(%q, %kt : tensor<64x64xf16, "operand_a">, tensor<64x64xf16, "shared">) outs(%zero : tensor<64x64xf32, "fragment">) {
      ^bb0(%x: f16, %y: f16, %z: f32):
        %xw = arith.extf %x : f16 to f32
        %yw = arith.extf %y : f16 to f32
        %t = arith.mulf %xw, %yw : f32
        %u = arith.addf %z, %t : f32
        linalg.yield %u : f32
      } -> tensor<64x64xf32, "fragment">
      %x = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
          ins(%s : tensor<64x64xf32, "fragment">) outs(%e : tensor<64x64xf32, "fragment">) {
      ^bb0(%y: f32, %z: f32):
        %column = linalg.index 1 : index
        %w = arith.addi %column, %j : index
        %is = arith.cmpi slt, %w, %i : index
        %r = arith.select %is, %dead, %y : f32
        linalg.yield %r : f32
      } -> tensor<64x64xf32, "fragment">
      %new = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
          ins(%x, %old : tensor<64x64xf32, "fragment">, tensor<64x64xf32, "fragment">) outs(%e : tensor<64x64xf32, "fragment">) {
      ^bb0(%y: f32, %sum: f32, %z: f32):
        %p = math.exp2 %y : f32
        %t = arith.addf %sum, %p : f32
        linalg.yield %t : f32
      } -> tensor<64x64xf32, "fragment">
      scf.yield %new : tensor<64x64xf32, "fragment">
    }
    %b = scf.for %j = %middle to %late step %c64 iter_args(%old = %a) -> (tensor<64x64xf32, "fragment">) {
      %kt = tile.load (%k, %j, %c0, %c64, %c64) {dims = [0, 1]} : (memref<?x64xf16, strided<[?, 1]>>, index, index, index, index) -> (tensor<64x64xf16, "shared">)
      %s = linalg.generic {indexing_maps = [#lhs, #rhs, #out], iterator_types = ["parallel", "parallel", "reduction"]}
          ins(%q, %kt : tensor<64x64xf16, "operand_a">, tensor<64x64xf16, "shared">) outs(%zero : tensor<64x64xf32, "fragment">) {
      ^bb0(%x: f16, %y: f16, %z: f32):
        %xw = arith.extf %x : f16 to f32
        %yw = arith.extf %y : f16 to f32
        %t = arith.mulf %xw, %yw : f32
        %u = arith.addf %z, %t : f32
        linalg.yield %u : f32
      } -> tensor<64x64xf32, "fragment">
      %new = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
          ins(%s, %old : tensor<64x64xf32, "fragment">, tensor<64x64xf32, "fragment">) outs(%e : tensor<64x64xf32, "fragment">) {
      ^bb0(%y: f32, %sum: f32, %z: f32):
        %p = math.exp2 %y : f32
        %t = arith.addf %sum, %p : f32
        linalg.yield %t : f32
      } -> tensor<64x64xf32, "fragment">
      scf.yield %new : tensor<64x64xf32, "fragment">
    }
    %c = scf.for %j = %late to %last step %c64 iter_args(%old = %b) -> (tensor<64x64xf32, "fragment">) {
      %kt = tile.load (%k, %j, %c0, %c64, %c64) {dims = [0, 1]} : (memref<?x64xf16, strided<[?, 1]>>, index, index, index, index) -> (tensor<64x64xf16, "shared">)
      %s = linalg.generic {indexing_maps = [#lhs, #rhs, #out], iterator_types = ["parallel", "parallel", "reduction"]}
          ins(%q, %kt : tensor<64x64xf16, "operand_a">, tensor<64x64xf16, "shared">) outs(%zero : tensor<64x64xf32, "fragment">) {
      ^bb0(%x: f16, %y: f16, %z: f32):
        %xw = arith.extf %x : f16 to f32
        %yw = arith.extf %y : f16 to f32
        %t = arith.mulf %xw, %yw : f32
        %u = arith.addf %z, %t : f32
        linalg.yield %u : f32
      } -> tensor<64x64xf32, "fragment">
      %x = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
          ins(%s : tensor<64x64xf32, "fragment">) outs(%e : tensor<64x64xf32, "fragment">) {
      ^bb0(%y: f32, %z: f32):
        %column = linalg.index 1 : index
        %w = arith.addi %column, %j : index
        %is = arith.cmpi sgt, %w, %i : index
        %r = arith.select %is, %dead, %y : f32
        linalg.yield %r : f32
      } -> tensor<64x64xf32, "fragment">
      %new = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
          ins(%x, %old : tensor<64x64xf32, "fragment">, tensor<64x64xf32, "fragment">) outs(%e : tensor<64x64xf32, "fragment">) {
      ^bb0(%y: f32, %sum: f32, %z: f32):
        %p = math.exp2 %y : f32
        %t = arith.addf %sum, %p : f32
        linalg.yield %t : f32
      } -> tensor<64x64xf32, "fragment">
      scf.yield %new : tensor<64x64xf32, "fragment">
    }
    tile.store (%c, %out, %c0, %c0, %c64, %c64) {dims = [0, 1]} : (tensor<64x64xf32, "fragment">, memref<64x64xf32, strided<[?, 1]>>, index, index, index, index) -> ()
    gpu.return
  }
  gpu.func @unknown(%k: memref<?x64xf16, strided<[?, 1]>>, %q: tensor<64x64xf16, "operand_a">, %i: index, %lower: index, %live: index, %end: index, %out: memref<64x64xf32, strided<[?, 1]>>) kernel {
    %c0 = arith.constant 0 : index
    %c64 = arith.constant 64 : index
    %dead = arith.constant 0xFF800000 : f32
    %zero = arith.constant dense<0.0> : tensor<64x64xf32, "fragment">
    %e = tensor.empty() : tensor<64x64xf32, "fragment">
    %last = affine.max #max()[%lower, %end]
    %middle = affine.min #max()[%live, %last]
    %late = affine.max #max()[%middle, %i]
    %upper = affine.max #max()[%lower, %middle]
    %a = scf.for %j = %lower to %upper step %c64 iter_args(%old = %zero) -> (tensor<64x64xf32, "fragment">) {
      %kt = tile.load (%k, %j, %c0, %c64, %c64) {dims = [0, 1]} : (memref<?x64xf16, strided<[?, 1]>>, index, index, index, index) -> (tensor<64x64xf16, "shared">)
      %s = linalg.generic {indexing_maps = [#lhs, #rhs, #out], iterator_types = ["parallel", "parallel", "reduction"]}
          ins(%q, %kt : tensor<64x64xf16, "operand_a">, tensor<64x64xf16, "shared">) outs(%zero : tensor<64x64xf32, "fragment">) {
      ^bb0(%x: f16, %y: f16, %z: f32):
        %xw = arith.extf %x : f16 to f32
        %yw = arith.extf %y : f16 to f32
        %t = arith.mulf %xw, %yw : f32
        %u = arith.addf %z, %t : f32
        linalg.yield %u : f32
      } -> tensor<64x64xf32, "fragment">
      %x = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
          ins(%s : tensor<64x64xf32, "fragment">) outs(%e : tensor<64x64xf32, "fragment">) {
      ^bb0(%y: f32, %z: f32):
        %column = linalg.index 1 : index
        %w = arith.addi %column, %j : index
        %is = arith.cmpi slt, %w, %i : index
        %r = arith.select %is, %dead, %y : f32
        linalg.yield %r : f32
      } -> tensor<64x64xf32, "fragment">
      %new = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
          ins(%x, %old : tensor<64x64xf32, "fragment">, tensor<64x64xf32, "fragment">) outs(%e : tensor<64x64xf32, "fragment">) {
      ^bb0(%y: f32, %sum: f32, %z: f32):
        %p = math.exp2 %y : f32
        %t = arith.addf %sum, %p : f32
        linalg.yield %t : f32
      } -> tensor<64x64xf32, "fragment">
      scf.yield %new : tensor<64x64xf32, "fragment">
    }
    %b = scf.for %j = %middle to %late step %c64 iter_args(%old = %a) -> (tensor<64x64xf32, "fragment">) {
      %kt = tile.load (%k, %j, %c0, %c64, %c64) {dims = [0, 1]} : (memref<?x64xf16, strided<[?, 1]>>, index, index, index, index) -> (tensor<64x64xf16, "shared">)
      %s = linalg.generic {indexing_maps = [#lhs, #rhs, #out], iterator_types = ["parallel", "parallel", "reduction"]}
          ins(%q, %kt : tensor<64x64xf16, "operand_a">, tensor<64x64xf16, "shared">) outs(%zero : tensor<64x64xf32, "fragment">) {
      ^bb0(%x: f16, %y: f16, %z: f32):
        %xw = arith.extf %x : f16 to f32
        %yw = arith.extf %y : f16 to f32
        %t = arith.mulf %xw, %yw : f32
        %u = arith.addf %z, %t : f32
        linalg.yield %u : f32
      } -> tensor<64x64xf32, "fragment">
      %new = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
          ins(%s, %old : tensor<64x64xf32, "fragment">, tensor<64x64xf32, "fragment">) outs(%e : tensor<64x64xf32, "fragment">) {
      ^bb0(%y: f32, %sum: f32, %z: f32):
        %p = math.exp2 %y : f32
        %t = arith.addf %sum, %p : f32
        linalg.yield %t : f32
      } -> tensor<64x64xf32, "fragment">
      scf.yield %new : tensor<64x64xf32, "fragment">
    }
    %c = scf.for %j = %late to %last step %c64 iter_args(%old = %b) -> (tensor<64x64xf32, "fragment">) {
      %kt = tile.load (%k, %j, %c0, %c64, %c64) {dims = [0, 1]} : (memref<?x64xf16, strided<[?, 1]>>, index, index, index, index) -> (tensor<64x64xf16, "shared">)
      %s = linalg.generic {indexing_maps = [#lhs, #rhs, #out], iterator_types = ["parallel", "parallel", "reduction"]}
          ins(%q, %kt : tensor<64x64xf16, "operand_a">, tensor<64x64xf16, "shared">) outs(%zero : tensor<64x64xf32, "fragment">) {
      ^bb0(%x: f16, %y: f16, %z: f32):
        %xw = arith.extf %x : f16 to f32
        %yw = arith.extf %y : f16 to f32
        %t = arith.mulf %xw, %yw : f32
        %u = arith.addf %z, %t : f32
        linalg.yield %u : f32
      } -> tensor<64x64xf32, "fragment">
      %x = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
          ins(%s : tensor<64x64xf32, "fragment">) outs(%e : tensor<64x64xf32, "fragment">) {
      ^bb0(%y: f32, %z: f32):
        %column = linalg.index 1 : index
        %w = arith.addi %column, %j : index
        %is = arith.cmpi sgt, %w, %i : index
        %r = arith.select %is, %dead, %y : f32
        linalg.yield %r : f32
      } -> tensor<64x64xf32, "fragment">
      %new = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
          ins(%x, %old : tensor<64x64xf32, "fragment">, tensor<64x64xf32, "fragment">) outs(%e : tensor<64x64xf32, "fragment">) {
      ^bb0(%y: f32, %sum: f32, %z: f32):
        %p = math.exp2 %y : f32
        %t = arith.addf %sum, %p : f32
        linalg.yield %t : f32
      } -> tensor<64x64xf32, "fragment">
      scf.yield %new : tensor<64x64xf32, "fragment">
    }
    tile.store (%c, %out, %c0, %c0, %c64, %c64) {dims = [0, 1]} : (tensor<64x64xf32, "fragment">, memref<64x64xf32, strided<[?, 1]>>, index, index, index, index) -> ()
    gpu.return
  }
  gpu.func @weights(%k: memref<?x64xf16, strided<[?, 1]>>, %q: tensor<64x64xf16, "operand_a">, %i: index, %lower: index, %middle: index, %end: index, %out: memref<64x64xf32, strided<[?, 1]>>) kernel {
    %c0 = arith.constant 0 : index
    %c64 = arith.constant 64 : index
    %none = arith.constant 0.0 : f32
    %zero = arith.constant dense<0.0> : tensor<64x64xf32, "fragment">
    %e = tensor.empty() : tensor<64x64xf32, "fragment">
    %a = scf.for %j = %lower to %middle step %c64 iter_args(%old = %zero) -> (tensor<64x64xf32, "fragment">) {
      %kt = tile.load (%k, %j, %c0, %c64, %c64) {dims = [0, 1]} : (memref<?x64xf16, strided<[?, 1]>>, index, index, index, index) -> (tensor<64x64xf16, "shared">)
      %s = linalg.generic {indexing_maps = [#lhs, #rhs, #out], iterator_types = ["parallel", "parallel", "reduction"]}
          ins(%q, %kt : tensor<64x64xf16, "operand_a">, tensor<64x64xf16, "shared">) outs(%zero : tensor<64x64xf32, "fragment">) {
      ^bb0(%x: f16, %y: f16, %z: f32):
        %xw = arith.extf %x : f16 to f32
        %yw = arith.extf %y : f16 to f32
        %t = arith.mulf %xw, %yw : f32
        %u = arith.addf %z, %t : f32
        linalg.yield %u : f32
      } -> tensor<64x64xf32, "fragment">
      %x = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
          ins(%s : tensor<64x64xf32, "fragment">) outs(%e : tensor<64x64xf32, "fragment">) {
      ^bb0(%y: f32, %z: f32):
        %p = math.exp %y : f32
        linalg.yield %p : f32
      } -> tensor<64x64xf32, "fragment">
      %new = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
          ins(%x, %old : tensor<64x64xf32, "fragment">, tensor<64x64xf32, "fragment">) outs(%e : tensor<64x64xf32, "fragment">) {
      ^bb0(%y: f32, %sum: f32, %z: f32):
        %t = arith.addf %sum, %y : f32
        linalg.yield %t : f32
      } -> tensor<64x64xf32, "fragment">
      scf.yield %new : tensor<64x64xf32, "fragment">
    }
    %b = scf.for %j = %middle to %end step %c64 iter_args(%old = %a) -> (tensor<64x64xf32, "fragment">) {
      %kt = tile.load (%k, %j, %c0, %c64, %c64) {dims = [0, 1]} : (memref<?x64xf16, strided<[?, 1]>>, index, index, index, index) -> (tensor<64x64xf16, "shared">)
      %s = linalg.generic {indexing_maps = [#lhs, #rhs, #out], iterator_types = ["parallel", "parallel", "reduction"]}
          ins(%q, %kt : tensor<64x64xf16, "operand_a">, tensor<64x64xf16, "shared">) outs(%zero : tensor<64x64xf32, "fragment">) {
      ^bb0(%x: f16, %y: f16, %z: f32):
        %xw = arith.extf %x : f16 to f32
        %yw = arith.extf %y : f16 to f32
        %t = arith.mulf %xw, %yw : f32
        %u = arith.addf %z, %t : f32
        linalg.yield %u : f32
      } -> tensor<64x64xf32, "fragment">
      %x = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
          ins(%s : tensor<64x64xf32, "fragment">) outs(%e : tensor<64x64xf32, "fragment">) {
      ^bb0(%y: f32, %z: f32):
        %p = math.exp %y : f32
        %column = linalg.index 1 : index
        %w = arith.addi %column, %j : index
        %is = arith.cmpi sgt, %w, %i : index
        %r = arith.select %is, %none, %p : f32
        linalg.yield %r : f32
      } -> tensor<64x64xf32, "fragment">
      %new = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
          ins(%x, %old : tensor<64x64xf32, "fragment">, tensor<64x64xf32, "fragment">) outs(%e : tensor<64x64xf32, "fragment">) {
      ^bb0(%y: f32, %sum: f32, %z: f32):
        %t = arith.addf %sum, %y : f32
        linalg.yield %t : f32
      } -> tensor<64x64xf32, "fragment">
      scf.yield %new : tensor<64x64xf32, "fragment">
    }
    tile.store (%b, %out, %c0, %c0, %c64, %c64) {dims = [0, 1]} : (tensor<64x64xf32, "fragment">, memref<64x64xf32, strided<[?, 1]>>, index, index, index, index) -> ()
    gpu.return
  }
  gpu.func @documents(%k: memref<?x64xf16, strided<[?, 1]>>, %n: memref<?xi32, strided<[1]>>, %q: tensor<64x64xf16, "operand_a">, %i: index, %lower: index, %live: index, %others: index, %end: index, %out: memref<64x64xf32, strided<[?, 1]>>) kernel {
    %c0 = arith.constant 0 : index
    %c64 = arith.constant 64 : index
    %dead = arith.constant 0xFF800000 : f32
    %zero = arith.constant dense<0.0> : tensor<64x64xf32, "fragment">
    %e = tensor.empty() : tensor<64x64xf32, "fragment">
    %own = tile.load (%n, %i, %c64) {dims = [0]} : (memref<?xi32, strided<[1]>>, index, index) -> (tensor<64xi32, "row">)
    %a = scf.for %j = %lower to %live step %c64 iter_args(%old = %zero) -> (tensor<64x64xf32, "fragment">) {
      %kt = tile.load (%k, %j, %c0, %c64, %c64) {dims = [0, 1]} : (memref<?x64xf16, strided<[?, 1]>>, index, index, index, index) -> (tensor<64x64xf16, "shared">)
      %s = linalg.generic {indexing_maps = [#lhs, #rhs, #out], iterator_types = ["parallel", "parallel", "reduction"]}
          ins(%q, %kt : tensor<64x64xf16, "operand_a">, tensor<64x64xf16, "shared">) outs(%zero : tensor<64x64xf32, "fragment">) {
      ^bb0(%x: f16, %y: f16, %z: f32):
        %xw = arith.extf %x : f16 to f32
        %yw = arith.extf %y : f16 to f32
        %t = arith.mulf %xw, %yw : f32
        %u = arith.addf %z, %t : f32
        linalg.yield %u : f32
      } -> tensor<64x64xf32, "fragment">
      %other = tile.load (%n, %j, %c64) {dims = [0]} : (memref<?xi32, strided<[1]>>, index, index) -> (tensor<64xi32, "column">)
      %x = linalg.generic {indexing_maps = [#id, #row, #column, #id], iterator_types = ["parallel", "parallel"]}
          ins(%s, %own, %other : tensor<64x64xf32, "fragment">, tensor<64xi32, "row">, tensor<64xi32, "column">) outs(%e : tensor<64x64xf32, "fragment">) {
      ^bb0(%y: f32, %m: i32, %n0: i32, %z: f32):
        %is = arith.cmpi ne, %m, %n0 : i32
        %r = arith.select %is, %dead, %y : f32
        linalg.yield %r : f32
      } -> tensor<64x64xf32, "fragment">
      %new = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
          ins(%x, %old : tensor<64x64xf32, "fragment">, tensor<64x64xf32, "fragment">) outs(%e : tensor<64x64xf32, "fragment">) {
      ^bb0(%y: f32, %sum: f32, %z: f32):
        %p = math.exp2 %y : f32
        %t = arith.addf %sum, %p : f32
        linalg.yield %t : f32
      } -> tensor<64x64xf32, "fragment">
      scf.yield %new : tensor<64x64xf32, "fragment">
    }
    %b = scf.for %j = %live to %others step %c64 iter_args(%old = %a) -> (tensor<64x64xf32, "fragment">) {
      %kt = tile.load (%k, %j, %c0, %c64, %c64) {dims = [0, 1]} : (memref<?x64xf16, strided<[?, 1]>>, index, index, index, index) -> (tensor<64x64xf16, "shared">)
      %s = linalg.generic {indexing_maps = [#lhs, #rhs, #out], iterator_types = ["parallel", "parallel", "reduction"]}
          ins(%q, %kt : tensor<64x64xf16, "operand_a">, tensor<64x64xf16, "shared">) outs(%zero : tensor<64x64xf32, "fragment">) {
      ^bb0(%x: f16, %y: f16, %z: f32):
        %xw = arith.extf %x : f16 to f32
        %yw = arith.extf %y : f16 to f32
        %t = arith.mulf %xw, %yw : f32
        %u = arith.addf %z, %t : f32
        linalg.yield %u : f32
      } -> tensor<64x64xf32, "fragment">
      %new = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
          ins(%s, %old : tensor<64x64xf32, "fragment">, tensor<64x64xf32, "fragment">) outs(%e : tensor<64x64xf32, "fragment">) {
      ^bb0(%y: f32, %sum: f32, %z: f32):
        %p = math.exp2 %y : f32
        %t = arith.addf %sum, %p : f32
        linalg.yield %t : f32
      } -> tensor<64x64xf32, "fragment">
      scf.yield %new : tensor<64x64xf32, "fragment">
    }
    %c = scf.for %j = %others to %end step %c64 iter_args(%old = %b) -> (tensor<64x64xf32, "fragment">) {
      %kt = tile.load (%k, %j, %c0, %c64, %c64) {dims = [0, 1]} : (memref<?x64xf16, strided<[?, 1]>>, index, index, index, index) -> (tensor<64x64xf16, "shared">)
      %s = linalg.generic {indexing_maps = [#lhs, #rhs, #out], iterator_types = ["parallel", "parallel", "reduction"]}
          ins(%q, %kt : tensor<64x64xf16, "operand_a">, tensor<64x64xf16, "shared">) outs(%zero : tensor<64x64xf32, "fragment">) {
      ^bb0(%x: f16, %y: f16, %z: f32):
        %xw = arith.extf %x : f16 to f32
        %yw = arith.extf %y : f16 to f32
        %t = arith.mulf %xw, %yw : f32
        %u = arith.addf %z, %t : f32
        linalg.yield %u : f32
      } -> tensor<64x64xf32, "fragment">
      %other = tile.load (%n, %j, %c64) {dims = [0]} : (memref<?xi32, strided<[1]>>, index, index) -> (tensor<64xi32, "column">)
      %x = linalg.generic {indexing_maps = [#id, #row, #column, #id], iterator_types = ["parallel", "parallel"]}
          ins(%s, %own, %other : tensor<64x64xf32, "fragment">, tensor<64xi32, "row">, tensor<64xi32, "column">) outs(%e : tensor<64x64xf32, "fragment">) {
      ^bb0(%y: f32, %m: i32, %n0: i32, %z: f32):
        %is = arith.cmpi ne, %m, %n0 : i32
        %r = arith.select %is, %dead, %y : f32
        linalg.yield %r : f32
      } -> tensor<64x64xf32, "fragment">
      %new = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
          ins(%x, %old : tensor<64x64xf32, "fragment">, tensor<64x64xf32, "fragment">) outs(%e : tensor<64x64xf32, "fragment">) {
      ^bb0(%y: f32, %sum: f32, %z: f32):
        %p = math.exp2 %y : f32
        %t = arith.addf %sum, %p : f32
        linalg.yield %t : f32
      } -> tensor<64x64xf32, "fragment">
      scf.yield %new : tensor<64x64xf32, "fragment">
    }
    tile.store (%c, %out, %c0, %c0, %c64, %c64) {dims = [0, 1]} : (tensor<64x64xf32, "fragment">, memref<64x64xf32, strided<[?, 1]>>, index, index, index, index) -> ()
    gpu.return
  }
  gpu.func @padding(%k: memref<?x64xf16, strided<[?, 1]>>, %n: memref<?xi1, strided<[1]>>, %q: tensor<64x64xf16, "operand_a">, %i: index, %lower: index, %live: index, %others: index, %end: index, %out: memref<64x64xf32, strided<[?, 1]>>) kernel {
    %c0 = arith.constant 0 : index
    %c64 = arith.constant 64 : index
    %dead = arith.constant 0xFF800000 : f32
    %zero = arith.constant dense<0.0> : tensor<64x64xf32, "fragment">
    %e = tensor.empty() : tensor<64x64xf32, "fragment">
    %a = scf.for %j = %lower to %live step %c64 iter_args(%old = %zero) -> (tensor<64x64xf32, "fragment">) {
      %kt = tile.load (%k, %j, %c0, %c64, %c64) {dims = [0, 1]} : (memref<?x64xf16, strided<[?, 1]>>, index, index, index, index) -> (tensor<64x64xf16, "shared">)
      %s = linalg.generic {indexing_maps = [#lhs, #rhs, #out], iterator_types = ["parallel", "parallel", "reduction"]}
          ins(%q, %kt : tensor<64x64xf16, "operand_a">, tensor<64x64xf16, "shared">) outs(%zero : tensor<64x64xf32, "fragment">) {
      ^bb0(%x: f16, %y: f16, %z: f32):
        %xw = arith.extf %x : f16 to f32
        %yw = arith.extf %y : f16 to f32
        %t = arith.mulf %xw, %yw : f32
        %u = arith.addf %z, %t : f32
        linalg.yield %u : f32
      } -> tensor<64x64xf32, "fragment">
      %new = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
          ins(%s, %old : tensor<64x64xf32, "fragment">, tensor<64x64xf32, "fragment">) outs(%e : tensor<64x64xf32, "fragment">) {
      ^bb0(%y: f32, %sum: f32, %z: f32):
        %p = math.exp2 %y : f32
        %t = arith.addf %sum, %p : f32
        linalg.yield %t : f32
      } -> tensor<64x64xf32, "fragment">
      scf.yield %new : tensor<64x64xf32, "fragment">
    }
    %b = scf.for %j = %live to %end step %c64 iter_args(%old = %a) -> (tensor<64x64xf32, "fragment">) {
      %kt = tile.load (%k, %j, %c0, %c64, %c64) {dims = [0, 1]} : (memref<?x64xf16, strided<[?, 1]>>, index, index, index, index) -> (tensor<64x64xf16, "shared">)
      %s = linalg.generic {indexing_maps = [#lhs, #rhs, #out], iterator_types = ["parallel", "parallel", "reduction"]}
          ins(%q, %kt : tensor<64x64xf16, "operand_a">, tensor<64x64xf16, "shared">) outs(%zero : tensor<64x64xf32, "fragment">) {
      ^bb0(%x: f16, %y: f16, %z: f32):
        %xw = arith.extf %x : f16 to f32
        %yw = arith.extf %y : f16 to f32
        %t = arith.mulf %xw, %yw : f32
        %u = arith.addf %z, %t : f32
        linalg.yield %u : f32
      } -> tensor<64x64xf32, "fragment">
      %bits = tile.load (%n, %j, %c64) {dims = [0]} : (memref<?xi1, strided<[1]>>, index, index) -> (tensor<64xi1, "column">)
      %x = linalg.generic {indexing_maps = [#id, #column, #id], iterator_types = ["parallel", "parallel"]}
          ins(%s, %bits : tensor<64x64xf32, "fragment">, tensor<64xi1, "column">) outs(%e : tensor<64x64xf32, "fragment">) {
      ^bb0(%y: f32, %is: i1, %z: f32):
        %r = arith.select %is, %y, %dead : f32
        linalg.yield %r : f32
      } -> tensor<64x64xf32, "fragment">
      %new = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
          ins(%x, %old : tensor<64x64xf32, "fragment">, tensor<64x64xf32, "fragment">) outs(%e : tensor<64x64xf32, "fragment">) {
      ^bb0(%y: f32, %sum: f32, %z: f32):
        %p = math.exp2 %y : f32
        %t = arith.addf %sum, %p : f32
        linalg.yield %t : f32
      } -> tensor<64x64xf32, "fragment">
      scf.yield %new : tensor<64x64xf32, "fragment">
    }
    tile.store (%b, %out, %c0, %c0, %c64, %c64) {dims = [0, 1]} : (tensor<64x64xf32, "fragment">, memref<64x64xf32, strided<[?, 1]>>, index, index, index, index) -> ()
    gpu.return
  }
}
