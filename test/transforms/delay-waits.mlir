// RUN: attn-opt %s --delay-waits | FileCheck %s

// a = a + e(s) · v, b = b + (e(s) · d) · k, s = q · k, d = q · w: both products that need no other one begin together, and
// each matmul is waited for where its result is used.

// CHECK-LABEL: gpu.func @loop
// CHECK:           scf.for {{.*}} iter_args(%[[A0:.*]] = %{{.*}}, %[[B0:.*]] = %{{.*}})
// CHECK:             %[[S:.*]] = linalg.generic {{.*}} attrs =  {tile.async}
// CHECK:             %[[D:.*]] = linalg.generic {{.*}} attrs =  {tile.async}
// CHECK:             %[[S1:.*]] = tile.wait_matmuls %[[S]] {pending = 1 : i64}
// CHECK:             %[[P:.*]] = linalg.generic {{.*}} ins(%[[S1]] :
// CHECK:             %[[A:.*]] = linalg.generic {{.*}} outs(%[[A0]] : {{.*}} attrs =  {tile.async}
// CHECK:             %[[D1:.*]] = tile.wait_matmuls %[[D]] {pending = 1 : i64}
// CHECK:             linalg.generic {{.*}} ins(%[[P]], %[[D1]] :
// CHECK:             %[[B:.*]] = linalg.generic {{.*}} outs(%[[B0]] : {{.*}} attrs =  {tile.async}
// CHECK:             %[[A1:.*]] = tile.wait_matmuls %[[A]] {pending = 1 : i64}
// CHECK:             %[[B1:.*]] = tile.wait_matmuls %[[B]] {pending = 0 : i64}
// CHECK:             scf.yield %[[A1]], %[[B1]]

// One sum: the pass overlap-matmuls does more.
// CHECK-LABEL: gpu.func @one_sum
// CHECK-NOT:       tile.wait_matmuls
#lhs = affine_map<(i, j, d) -> (i, d)>
#rhs = affine_map<(i, j, d) -> (j, d)>
#out = affine_map<(i, j, d) -> (i, j)>
#vmap = affine_map<(i, j, d) -> (d, j)>
#id = affine_map<(i, j) -> (i, j)>
module {
  gpu.module @kernels {
    gpu.func @loop(%k: memref<?x32xf16, strided<[?, 1]>>, %w: memref<?x32xf16, strided<[?, 1]>>, %v: memref<?x96xf16, strided<[?, 1]>>, %o: memref<64x96xf32, strided<[?, 1]>>, %lower: index, %upper: index) kernel {
      %c0 = arith.constant 0 : index
      %c16 = arith.constant 16 : index
      %c32 = arith.constant 32 : index
      %c64 = arith.constant 64 : index
      %c96 = arith.constant 96 : index
      %q32 = arith.constant dense<1.0> : tensor<64x32xf16, "fragment">
      %q = tile.convert_layout %q32 : (tensor<64x32xf16, "fragment">) -> (tensor<64x32xf16, "operand_a">)
      %zero = arith.constant dense<0.0> : tensor<64x16xf32, "fragment">
      %init = arith.constant dense<0.0> : tensor<64x96xf32, "fragment">
      %init_k = arith.constant dense<0.0> : tensor<64x32xf32, "fragment">
      %e = tensor.empty() : tensor<64x16xf16, "fragment">
      %r:2 = scf.for %j = %lower to %upper step %c16 iter_args(%acc = %init, %acc_k = %init_k) -> (tensor<64x96xf32, "fragment">, tensor<64x32xf32, "fragment">) {
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
        ^bb0(%x: f32, %old: f16):
          %e2 = math.exp2 %x : f32
          %n = arith.truncf %e2 : f32 to f16
          linalg.yield %n : f16
        } -> tensor<64x16xf16, "fragment">
        %vt = tile.load (%v, %j, %c0, %c16, %c96) {dims = [0, 1]} : (memref<?x96xf16, strided<[?, 1]>>, index, index, index, index) -> (tensor<16x96xf16, "shared">)
        %a = tile.convert_layout %p : (tensor<64x16xf16, "fragment">) -> (tensor<64x16xf16, "operand_a">)
        %new = linalg.generic {indexing_maps = [#lhs, #vmap, #out], iterator_types = ["parallel", "parallel", "reduction"]}
            ins(%a, %vt : tensor<64x16xf16, "operand_a">, tensor<16x96xf16, "shared">) outs(%acc : tensor<64x96xf32, "fragment">) {
        ^bb0(%x: f16, %y: f16, %z: f32):
          %xw = arith.extf %x : f16 to f32
          %yw = arith.extf %y : f16 to f32
          %m = arith.mulf %xw, %yw : f32
          %t = arith.addf %z, %m : f32
          linalg.yield %t : f32
        } -> tensor<64x96xf32, "fragment">
        %wt = tile.load (%w, %j, %c0, %c16, %c32) {dims = [0, 1]} : (memref<?x32xf16, strided<[?, 1]>>, index, index, index, index) -> (tensor<16x32xf16, "shared">)
        %d = linalg.generic {indexing_maps = [#lhs, #rhs, #out], iterator_types = ["parallel", "parallel", "reduction"]}
            ins(%q, %wt : tensor<64x32xf16, "operand_a">, tensor<16x32xf16, "shared">) outs(%zero : tensor<64x16xf32, "fragment">) {
        ^bb0(%x: f16, %y: f16, %z: f32):
          %xw = arith.extf %x : f16 to f32
          %yw = arith.extf %y : f16 to f32
          %m = arith.mulf %xw, %yw : f32
          %t = arith.addf %z, %m : f32
          linalg.yield %t : f32
        } -> tensor<64x16xf32, "fragment">
        %ds = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
            ins(%p, %d : tensor<64x16xf16, "fragment">, tensor<64x16xf32, "fragment">) outs(%e : tensor<64x16xf16, "fragment">) {
        ^bb0(%x: f16, %y: f32, %old: f16):
          %xw = arith.extf %x : f16 to f32
          %t = arith.mulf %xw, %y : f32
          %n = arith.truncf %t : f32 to f16
          linalg.yield %n : f16
        } -> tensor<64x16xf16, "fragment">
        %da = tile.convert_layout %ds : (tensor<64x16xf16, "fragment">) -> (tensor<64x16xf16, "operand_a">)
        %new_k = linalg.generic {indexing_maps = [#lhs, #vmap, #out], iterator_types = ["parallel", "parallel", "reduction"]}
            ins(%da, %kt : tensor<64x16xf16, "operand_a">, tensor<16x32xf16, "shared">) outs(%acc_k : tensor<64x32xf32, "fragment">) {
        ^bb0(%x: f16, %y: f16, %z: f32):
          %xw = arith.extf %x : f16 to f32
          %yw = arith.extf %y : f16 to f32
          %m = arith.mulf %xw, %yw : f32
          %t = arith.addf %z, %m : f32
          linalg.yield %t : f32
        } -> tensor<64x32xf32, "fragment">
        scf.yield %new, %new_k : tensor<64x96xf32, "fragment">, tensor<64x32xf32, "fragment">
      }
      tile.store (%r#0, %o, %c0, %c0, %c64, %c96) {dims = [0, 1]} : (tensor<64x96xf32, "fragment">, memref<64x96xf32, strided<[?, 1]>>, index, index, index, index) -> ()
      gpu.return
    }
    gpu.func @one_sum(%k: memref<?x32xf16, strided<[?, 1]>>, %o: memref<64x16xf32, strided<[?, 1]>>, %lower: index, %upper: index) kernel {
      %c0 = arith.constant 0 : index
      %c16 = arith.constant 16 : index
      %c32 = arith.constant 32 : index
      %c64 = arith.constant 64 : index
      %q32 = arith.constant dense<1.0> : tensor<64x32xf16, "fragment">
      %q = tile.convert_layout %q32 : (tensor<64x32xf16, "fragment">) -> (tensor<64x32xf16, "operand_a">)
      %init = arith.constant dense<0.0> : tensor<64x16xf32, "fragment">
      %r = scf.for %j = %lower to %upper step %c16 iter_args(%acc = %init) -> (tensor<64x16xf32, "fragment">) {
        %kt = tile.load (%k, %j, %c0, %c16, %c32) {dims = [0, 1]} : (memref<?x32xf16, strided<[?, 1]>>, index, index, index, index) -> (tensor<16x32xf16, "shared">)
        %s = linalg.generic {indexing_maps = [#lhs, #rhs, #out], iterator_types = ["parallel", "parallel", "reduction"]}
            ins(%q, %kt : tensor<64x32xf16, "operand_a">, tensor<16x32xf16, "shared">) outs(%acc : tensor<64x16xf32, "fragment">) {
        ^bb0(%x: f16, %y: f16, %z: f32):
          %xw = arith.extf %x : f16 to f32
          %yw = arith.extf %y : f16 to f32
          %m = arith.mulf %xw, %yw : f32
          %t = arith.addf %z, %m : f32
          linalg.yield %t : f32
        } -> tensor<64x16xf32, "fragment">
        scf.yield %s : tensor<64x16xf32, "fragment">
      }
      tile.store (%r, %o, %c0, %c0, %c64, %c16) {dims = [0, 1]} : (tensor<64x16xf32, "fragment">, memref<64x16xf32, strided<[?, 1]>>, index, index, index, index) -> ()
      gpu.return
    }
  }
}
