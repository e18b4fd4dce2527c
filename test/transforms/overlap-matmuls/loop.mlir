// RUN: attn-opt %s --overlap-matmuls | FileCheck %s
// RUN: attn-opt %s --overlap-matmuls="min-columns=96" | FileCheck %s --check-prefix=NARROW

// o = o · f(s) + p · v, p = g(s), s = q · k: an iteration's second matmul runs under the next one's g.

// NARROW-LABEL: gpu.func @loop
// NARROW-NOT:   tile.wait_matmuls

// CHECK-LABEL: gpu.func @loop
// CHECK:         %[[SOME:.*]] = arith.cmpi slt, %[[LOWER:.*]], %[[UPPER:.*]] : index
// CHECK:         %[[R:.*]] = scf.if %[[SOME]] -> (tensor<64x96xf32, "fragment">)
// CHECK:           %[[S0:.*]] = linalg.generic {{.*}} ins(%[[Q:.*]], %{{.*}} : tensor<64x32xf16, "operand_a">, tensor<16x32xf16, "shared">)
// CHECK:           linalg.generic {{.*}} ins(%[[S0]] :
// CHECK:           %[[P0:.*]] = tile.convert_layout
// CHECK:           %[[O0:.*]] = linalg.generic {{.*}} outs(%{{.*}} : tensor<64x96xf32, "fragment">)
// CHECK:           %[[START:.*]] = arith.addi %[[LOWER]], %[[STEP:.*]] : index
// CHECK:           %[[L:.*]]:2 = scf.for %[[J:.*]] = %[[START]] to %[[UPPER]] step %[[STEP]] iter_args(%[[O1:.*]] = %[[O0]], %[[P1:.*]] = %[[P0]])
// CHECK:             %[[BEFORE:.*]] = arith.subi %[[J]], %[[STEP]]
// CHECK:             %[[S:.*]] = linalg.generic {{.*}} ins(%[[Q]], {{.*}} attrs =  {tile.async}
// CHECK:             %[[V:.*]] = tile.load (%{{.*}}, %[[BEFORE]],
// CHECK:             %[[O2:.*]] = linalg.generic {{.*}} ins(%[[P1]], %[[V]] : {{.*}}) outs(%[[O1]] : {{.*}} attrs =  {tile.async}
// CHECK:             %[[S1:.*]] = tile.wait_matmuls %[[S]] {pending = 1 : i64}
// CHECK:             %[[P2:.*]] = linalg.generic {{.*}} ins(%[[S1]] :
// CHECK:             %[[O3:.*]] = tile.wait_matmuls %[[O2]] {pending = 0 : i64}
// CHECK:             %[[P3:.*]] = tile.convert_layout %[[P2]]
// CHECK:             %[[O4:.*]] = linalg.generic {{.*}} outs(%[[O3]] :
// CHECK:             scf.yield %[[O4]], %[[P3]]
// CHECK:           %[[LAST:.*]] = linalg.generic {{.*}} ins(%[[L]]#1, %{{.*}} outs(%[[L]]#0 :
// CHECK:           scf.yield %[[LAST]]
// CHECK:         else
// CHECK:         tile.store (%[[R]],
#lhs = affine_map<(i, j, d) -> (i, d)>
#rhs = affine_map<(i, j, d) -> (j, d)>
#out = affine_map<(i, j, d) -> (i, j)>
#vmap = affine_map<(i, j, d) -> (d, j)>
#id = affine_map<(i, j) -> (i, j)>
module {
  gpu.module @kernels {
    gpu.func @loop(%k: memref<?x32xf16, strided<[?, 1]>>, %v: memref<?x100xf16, strided<[?, 1]>>, %o: memref<64x96xf32, strided<[?, 1]>>, %lower: index, %upper: index) kernel {
      %c0 = arith.constant 0 : index
      %c16 = arith.constant 16 : index
      %c32 = arith.constant 32 : index
      %c64 = arith.constant 64 : index
      %c96 = arith.constant 96 : index
      %half = arith.constant 0.5 : f32
      %q32 = arith.constant dense<1.0> : tensor<64x32xf16, "fragment">
      %q = tile.convert_layout %q32 : (tensor<64x32xf16, "fragment">) -> (tensor<64x32xf16, "operand_a">)
      %zero = arith.constant dense<0.0> : tensor<64x16xf32, "fragment">
      %init = arith.constant dense<0.0> : tensor<64x96xf32, "fragment">
      %e = tensor.empty() : tensor<64x16xf16, "fragment">
      %r = scf.for %j = %lower to %upper step %c16 iter_args(%acc = %init) -> (tensor<64x96xf32, "fragment">) {
        %kt = tile.load (%k, %j, %c0, %c16, %c32) {dims = [0, 1]} : (memref<?x32xf16, strided<[?, 1]>>, index, index, index, index) -> (tensor<16x32xf16, "shared">)
        %s = linalg.generic {indexing_maps = [#lhs, #rhs, #out], iterator_types = ["parallel", "parallel", "reduction"]}
            ins(%q, %kt : tensor<64x32xf16, "operand_a">, tensor<16x32xf16, "shared">) outs(%zero : tensor<64x16xf32, "fragment">) {
        ^bb0(%x: f16, %y: f16, %z: f32):
          %xw = arith.extf %x : f16 to f32
          %yw = arith.extf %y : f16 to f32
          %m = arith.mulf %xw, %yw : f32
          %t = arith.addf %z, %m : f32
          linalg.yield %t : f32
        } -> tensor<64x16xf32, "fragment">
        %p = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
            ins(%s : tensor<64x16xf32, "fragment">) outs(%e : tensor<64x16xf16, "fragment">) {
        ^bb0(%x: f32, %y: f16):
          %t = math.exp2 %x : f32
          %n = arith.truncf %t : f32 to f16
          linalg.yield %n : f16
        } -> tensor<64x16xf16, "fragment">
        %scaled = linalg.generic {indexing_maps = [#id], iterator_types = ["parallel", "parallel"]} outs(%acc : tensor<64x96xf32, "fragment">) {
        ^bb0(%x: f32):
          %t = arith.mulf %x, %half : f32
          linalg.yield %t : f32
        } -> tensor<64x96xf32, "fragment">
        %vt = tile.load (%v, %j, %c0, %c16, %c96) {dims = [0, 1]} : (memref<?x100xf16, strided<[?, 1]>>, index, index, index, index) -> (tensor<16x96xf16, "shared">)
        %a = tile.convert_layout %p : (tensor<64x16xf16, "fragment">) -> (tensor<64x16xf16, "operand_a">)
        %new = linalg.generic {indexing_maps = [#lhs, #vmap, #out], iterator_types = ["parallel", "parallel", "reduction"]}
            ins(%a, %vt : tensor<64x16xf16, "operand_a">, tensor<16x96xf16, "shared">) outs(%scaled : tensor<64x96xf32, "fragment">) {
        ^bb0(%x: f16, %y: f16, %z: f32):
          %xw = arith.extf %x : f16 to f32
          %yw = arith.extf %y : f16 to f32
          %m = arith.mulf %xw, %yw : f32
          %t = arith.addf %z, %m : f32
          linalg.yield %t : f32
        } -> tensor<64x96xf32, "fragment">
        scf.yield %new : tensor<64x96xf32, "fragment">
      }
      tile.store (%r, %o, %c0, %c0, %c64, %c96) {dims = [0, 1]} : (tensor<64x96xf32, "fragment">, memref<64x96xf32, strided<[?, 1]>>, index, index, index, index) -> ()
      gpu.return
    }
  }
}
