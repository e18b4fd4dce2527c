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

#lhs = affine_map<(i, j, d) -> (i, d)>
#rhs = affine_map<(i, j, d) -> (j, d)>
#out = affine_map<(i, j, d) -> (i, j)>
#id = affine_map<(i, j) -> (i, j)>
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
}
