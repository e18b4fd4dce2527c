// RUN: attn-opt %s --reverse-keys | FileCheck %s

// Tiles of keys are taken from the last to the first where scores depend on the query's place; other loops stay.

// CHECK-LABEL: gpu.func @loop
// CHECK:         %[[SPAN:.*]] = arith.subi %[[UPPER:.*]], %[[LOWER:.*]] : index
// CHECK:         %[[LESS:.*]] = arith.subi %[[SPAN]], %{{.*}} : index
// CHECK:         %[[STEPS:.*]] = arith.divui %[[LESS]], %[[STEP:.*]] : index
// CHECK:         %[[TWICE:.*]] = arith.addi %[[LOWER]], %[[LOWER]]
// CHECK:         %[[FAR:.*]] = arith.muli %[[STEPS]], %[[STEP]]
// CHECK:         %[[ENDS:.*]] = arith.addi %[[TWICE]], %[[FAR]]
// CHECK:         scf.for %[[I:.*]] = %[[LOWER]] to %[[UPPER]] step %[[STEP]]
// CHECK:           %[[J:.*]] = arith.subi %[[ENDS]], %[[I]]
// CHECK:           tile.load (%{{.*}}, %[[J]],
// CHECK:           tile.load (%{{.*}}, %[[J]],
// CHECK:         scf.for %[[K:[a-z0-9]+]] =
// CHECK-NEXT:      memref.load %{{.*}}[%[[K]]]

#lhs = affine_map<(i, j, d) -> (i, d)>
#rhs = affine_map<(i, j, d) -> (j, d)>
#out = affine_map<(i, j, d) -> (i, j)>
#id = affine_map<(i, j) -> (i, j)>
#vmap = affine_map<(i, j, d) -> (d, j)>
gpu.module @kernels {
  gpu.func @loop(%k: memref<?x32xf16, strided<[?, 1]>>, %v: memref<?x32xf16, strided<[?, 1]>>, %m: memref<?xf32>, %lower: index, %upper: index) kernel {
    %c0 = arith.constant 0 : index
    %c16 = arith.constant 16 : index
    %c32 = arith.constant 32 : index
    %q = arith.constant dense<1.0> : tensor<64x32xf16, "operand_a">
    %zero = arith.constant dense<0.0> : tensor<64x16xf32, "fragment">
    %init = arith.constant dense<0.0> : tensor<64x32xf32, "fragment">
    %p = arith.constant dense<1.0> : tensor<64x16xf16, "operand_a">
    %r = scf.for %j = %lower to %upper step %c16 iter_args(%acc = %init) -> (tensor<64x32xf32, "fragment">) {
      %kt = tile.load (%k, %j, %c0, %c16, %c32) {dims = [0, 1]} : (memref<?x32xf16, strided<[?, 1]>>, index, index, index, index) -> (tensor<16x32xf16, "shared">)
      %s = linalg.generic {indexing_maps = [#lhs, #rhs, #out], iterator_types = ["parallel", "parallel", "reduction"]}
          ins(%q, %kt : tensor<64x32xf16, "operand_a">, tensor<16x32xf16, "shared">) outs(%zero : tensor<64x16xf32, "fragment">) {
      ^bb0(%x: f16, %y: f16, %z: f32):
        %xw = arith.extf %x : f16 to f32
        %yw = arith.extf %y : f16 to f32
        %xy = arith.mulf %xw, %yw : f32
        %t = arith.addf %z, %xy : f32
        linalg.yield %t : f32
      } -> tensor<64x16xf32, "fragment">
      %e = tensor.empty() : tensor<64x16xf32, "fragment">
      %biased = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
          ins(%s : tensor<64x16xf32, "fragment">) outs(%e : tensor<64x16xf32, "fragment">) {
      ^bb0(%x: f32, %z: f32):
        %row = linalg.index 0 : index
        %int = arith.index_cast %row : index to i32
        %float = arith.sitofp %int : i32 to f32
        %t = arith.subf %x, %float : f32
        linalg.yield %t : f32
      } -> tensor<64x16xf32, "fragment">
      %vt = tile.load (%v, %j, %c0, %c16, %c32) {dims = [0, 1]} : (memref<?x32xf16, strided<[?, 1]>>, index, index, index, index) -> (tensor<16x32xf16, "shared">)
      %o = linalg.generic {indexing_maps = [#lhs, #vmap, #out], iterator_types = ["parallel", "parallel", "reduction"]}
          ins(%p, %vt : tensor<64x16xf16, "operand_a">, tensor<16x32xf16, "shared">) outs(%acc : tensor<64x32xf32, "fragment">) {
      ^bb0(%x: f16, %y: f16, %z: f32):
        %xw = arith.extf %x : f16 to f32
        %yw = arith.extf %y : f16 to f32
        %xy = arith.mulf %xw, %yw : f32
        %t = arith.addf %z, %xy : f32
        linalg.yield %t : f32
      } -> tensor<64x32xf32, "fragment">
      scf.yield %o : tensor<64x32xf32, "fragment">
    }
    %f = arith.constant 0.0 : f32
    %g = scf.for %j = %lower to %upper step %c16 iter_args(%acc = %f) -> (f32) {
      %x = memref.load %m[%j] : memref<?xf32>
      %y = arith.addf %acc, %x : f32
      scf.yield %y : f32
    }
    gpu.return
  }
}
