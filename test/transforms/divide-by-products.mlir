// RUN: attn-opt %s --divide-by-products | FileCheck %s

// An exponential and a quotient for each score take twice as long as the matmuls at head dimension 64: six of eight
// quotients are computed by products.

// CHECK-LABEL: gpu.func @d64
// CHECK:         math.exp2
// CHECK:         %[[D:.*]] = arith.addf
// CHECK-NEXT:    %[[R:.*]] = tile.divide (%{{.*}}, %[[D]]) {share = 6 : i64}
// CHECK-NEXT:    linalg.yield %[[R]]
// CHECK-NOT:     arith.divf

// At 128 they take as long, and what may be a subnormal number is divided by as it is.

// CHECK-LABEL: gpu.func @d128
// CHECK:         arith.divf
// CHECK-LABEL: gpu.func @unknown
// CHECK:         arith.divf
// CHECK-NOT:     tile.divide

// Nor are halves divided so, as by the gate of a result.

// CHECK-LABEL: gpu.func @halves
// CHECK:         tile.divide
// CHECK-NOT:     tile.divide
// CHECK:         arith.divf %{{.*}} : f16

#lhs = affine_map<(i, j, d) -> (i, d)>
#rhs = affine_map<(i, j, d) -> (j, d)>
#values = affine_map<(i, j, d) -> (d, j)>
#out = affine_map<(i, j, d) -> (i, j)>
#id = affine_map<(i, j) -> (i, j)>
gpu.module @kernels {
  gpu.func @d64(%k: memref<1024x64xf16, strided<[?, 1]>>, %q: tensor<64x64xf16, "operand_a">) kernel {
    %c0 = arith.constant 0 : index
    %c64 = arith.constant 64 : index
    %c1024 = arith.constant 1024 : index
    %cd = arith.constant 64 : index
    %one = arith.constant 1.0 : f32
    %zero = arith.constant dense<0.0> : tensor<64x64xf32, "fragment">
    %o0 = arith.constant dense<0.0> : tensor<64x64xf32, "fragment">
    %o = scf.for %j = %c0 to %c1024 step %c64 iter_args(%old = %o0) -> (tensor<64x64xf32, "fragment">) {
      %kt = tile.load (%k, %j, %c0, %c64, %cd) {dims = [0, 1]} : (memref<1024x64xf16, strided<[?, 1]>>, index, index, index, index) -> (tensor<64x64xf16, "shared">)
      %s = linalg.generic {indexing_maps = [#lhs, #rhs, #out], iterator_types = ["parallel", "parallel", "reduction"]}
          ins(%q, %kt : tensor<64x64xf16, "operand_a">, tensor<64x64xf16, "shared">) outs(%zero : tensor<64x64xf32, "fragment">) {
      ^bb0(%x: f16, %y: f16, %z: f32):
        %xw = arith.extf %x : f16 to f32
        %yw = arith.extf %y : f16 to f32
        %t = arith.mulf %xw, %yw : f32
        %u = arith.addf %z, %t : f32
        linalg.yield %u : f32
      } -> tensor<64x64xf32, "fragment">
      %e = tensor.empty() : tensor<64x64xf32, "fragment">
      %p = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
          ins(%s : tensor<64x64xf32, "fragment">) outs(%e : tensor<64x64xf32, "fragment">) {
      ^bb0(%x: f32, %z: f32):
        %e0 = math.exp2 %x : f32
        %d = arith.addf %one, %e0 : f32
        %r = arith.divf %one, %d : f32
        linalg.yield %r : f32
      } -> tensor<64x64xf32, "fragment">
      %half = arith.truncf %p : tensor<64x64xf32, "fragment"> to tensor<64x64xf16, "fragment">
      %a = tile.convert_layout %half : (tensor<64x64xf16, "fragment">) -> (tensor<64x64xf16, "operand_a">)
      %new = linalg.generic {indexing_maps = [#lhs, #values, #out], iterator_types = ["parallel", "parallel", "reduction"]}
          ins(%a, %kt : tensor<64x64xf16, "operand_a">, tensor<64x64xf16, "shared">) outs(%old : tensor<64x64xf32, "fragment">) {
      ^bb0(%x: f16, %y: f16, %z: f32):
        %xw = arith.extf %x : f16 to f32
        %yw = arith.extf %y : f16 to f32
        %t = arith.mulf %xw, %yw : f32
        %u = arith.addf %z, %t : f32
        linalg.yield %u : f32
      } -> tensor<64x64xf32, "fragment">
      scf.yield %new : tensor<64x64xf32, "fragment">
    }
    gpu.return
  }
  gpu.func @d128(%k: memref<1024x128xf16, strided<[?, 1]>>, %q: tensor<64x128xf16, "operand_a">) kernel {
    %c0 = arith.constant 0 : index
    %c64 = arith.constant 64 : index
    %c1024 = arith.constant 1024 : index
    %cd = arith.constant 128 : index
    %one = arith.constant 1.0 : f32
    %zero = arith.constant dense<0.0> : tensor<64x64xf32, "fragment">
    %o0 = arith.constant dense<0.0> : tensor<64x128xf32, "fragment">
    %o = scf.for %j = %c0 to %c1024 step %c64 iter_args(%old = %o0) -> (tensor<64x128xf32, "fragment">) {
      %kt = tile.load (%k, %j, %c0, %c64, %cd) {dims = [0, 1]} : (memref<1024x128xf16, strided<[?, 1]>>, index, index, index, index) -> (tensor<64x128xf16, "shared">)
      %s = linalg.generic {indexing_maps = [#lhs, #rhs, #out], iterator_types = ["parallel", "parallel", "reduction"]}
          ins(%q, %kt : tensor<64x128xf16, "operand_a">, tensor<64x128xf16, "shared">) outs(%zero : tensor<64x64xf32, "fragment">) {
      ^bb0(%x: f16, %y: f16, %z: f32):
        %xw = arith.extf %x : f16 to f32
        %yw = arith.extf %y : f16 to f32
        %t = arith.mulf %xw, %yw : f32
        %u = arith.addf %z, %t : f32
        linalg.yield %u : f32
      } -> tensor<64x64xf32, "fragment">
      %e = tensor.empty() : tensor<64x64xf32, "fragment">
      %p = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
          ins(%s : tensor<64x64xf32, "fragment">) outs(%e : tensor<64x64xf32, "fragment">) {
      ^bb0(%x: f32, %z: f32):
        %e0 = math.exp2 %x : f32
        %d = arith.addf %one, %e0 : f32
        %r = arith.divf %one, %d : f32
        linalg.yield %r : f32
      } -> tensor<64x64xf32, "fragment">
      %half = arith.truncf %p : tensor<64x64xf32, "fragment"> to tensor<64x64xf16, "fragment">
      %a = tile.convert_layout %half : (tensor<64x64xf16, "fragment">) -> (tensor<64x64xf16, "operand_a">)
      %new = linalg.generic {indexing_maps = [#lhs, #values, #out], iterator_types = ["parallel", "parallel", "reduction"]}
          ins(%a, %kt : tensor<64x64xf16, "operand_a">, tensor<64x128xf16, "shared">) outs(%old : tensor<64x128xf32, "fragment">) {
      ^bb0(%x: f16, %y: f16, %z: f32):
        %xw = arith.extf %x : f16 to f32
        %yw = arith.extf %y : f16 to f32
        %t = arith.mulf %xw, %yw : f32
        %u = arith.addf %z, %t : f32
        linalg.yield %u : f32
      } -> tensor<64x128xf32, "fragment">
      scf.yield %new : tensor<64x128xf32, "fragment">
    }
    gpu.return
  }
  gpu.func @unknown(%k: memref<1024x64xf16, strided<[?, 1]>>, %q: tensor<64x64xf16, "operand_a">) kernel {
    %c0 = arith.constant 0 : index
    %c64 = arith.constant 64 : index
    %c1024 = arith.constant 1024 : index
    %cd = arith.constant 64 : index
    %one = arith.constant 1.0 : f32
    %zero = arith.constant dense<0.0> : tensor<64x64xf32, "fragment">
    %o0 = arith.constant dense<0.0> : tensor<64x64xf32, "fragment">
    %o = scf.for %j = %c0 to %c1024 step %c64 iter_args(%old = %o0) -> (tensor<64x64xf32, "fragment">) {
      %kt = tile.load (%k, %j, %c0, %c64, %cd) {dims = [0, 1]} : (memref<1024x64xf16, strided<[?, 1]>>, index, index, index, index) -> (tensor<64x64xf16, "shared">)
      %s = linalg.generic {indexing_maps = [#lhs, #rhs, #out], iterator_types = ["parallel", "parallel", "reduction"]}
          ins(%q, %kt : tensor<64x64xf16, "operand_a">, tensor<64x64xf16, "shared">) outs(%zero : tensor<64x64xf32, "fragment">) {
      ^bb0(%x: f16, %y: f16, %z: f32):
        %xw = arith.extf %x : f16 to f32
        %yw = arith.extf %y : f16 to f32
        %t = arith.mulf %xw, %yw : f32
        %u = arith.addf %z, %t : f32
        linalg.yield %u : f32
      } -> tensor<64x64xf32, "fragment">
      %e = tensor.empty() : tensor<64x64xf32, "fragment">
      %p = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
          ins(%s : tensor<64x64xf32, "fragment">) outs(%e : tensor<64x64xf32, "fragment">) {
      ^bb0(%x: f32, %z: f32):
        %e0 = math.exp2 %x : f32
        %d = arith.subf %one, %e0 : f32
        %r = arith.divf %one, %d : f32
        linalg.yield %r : f32
      } -> tensor<64x64xf32, "fragment">
      %half = arith.truncf %p : tensor<64x64xf32, "fragment"> to tensor<64x64xf16, "fragment">
      %a = tile.convert_layout %half : (tensor<64x64xf16, "fragment">) -> (tensor<64x64xf16, "operand_a">)
      %new = linalg.generic {indexing_maps = [#lhs, #values, #out], iterator_types = ["parallel", "parallel", "reduction"]}
          ins(%a, %kt : tensor<64x64xf16, "operand_a">, tensor<64x64xf16, "shared">) outs(%old : tensor<64x64xf32, "fragment">) {
      ^bb0(%x: f16, %y: f16, %z: f32):
        %xw = arith.extf %x : f16 to f32
        %yw = arith.extf %y : f16 to f32
        %t = arith.mulf %xw, %yw : f32
        %u = arith.addf %z, %t : f32
        linalg.yield %u : f32
      } -> tensor<64x64xf32, "fragment">
      scf.yield %new : tensor<64x64xf32, "fragment">
    }
    gpu.return
  }
  gpu.func @halves(%k: memref<1024x64xf16, strided<[?, 1]>>, %q: tensor<64x64xf16, "operand_a">) kernel {
    %c0 = arith.constant 0 : index
    %c64 = arith.constant 64 : index
    %c1024 = arith.constant 1024 : index
    %cd = arith.constant 64 : index
    %one = arith.constant 1.0 : f32
    %one_half = arith.constant 1.0 : f16
    %zero = arith.constant dense<0.0> : tensor<64x64xf32, "fragment">
    %o0 = arith.constant dense<0.0> : tensor<64x64xf32, "fragment">
    %o = scf.for %j = %c0 to %c1024 step %c64 iter_args(%old = %o0) -> (tensor<64x64xf32, "fragment">) {
      %kt = tile.load (%k, %j, %c0, %c64, %cd) {dims = [0, 1]} : (memref<1024x64xf16, strided<[?, 1]>>, index, index, index, index) -> (tensor<64x64xf16, "shared">)
      %s = linalg.generic {indexing_maps = [#lhs, #rhs, #out], iterator_types = ["parallel", "parallel", "reduction"]}
          ins(%q, %kt : tensor<64x64xf16, "operand_a">, tensor<64x64xf16, "shared">) outs(%zero : tensor<64x64xf32, "fragment">) {
      ^bb0(%x: f16, %y: f16, %z: f32):
        %xw = arith.extf %x : f16 to f32
        %yw = arith.extf %y : f16 to f32
        %t = arith.mulf %xw, %yw : f32
        %u = arith.addf %z, %t : f32
        linalg.yield %u : f32
      } -> tensor<64x64xf32, "fragment">
      %e = tensor.empty() : tensor<64x64xf32, "fragment">
      %p = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
          ins(%s : tensor<64x64xf32, "fragment">) outs(%e : tensor<64x64xf32, "fragment">) {
      ^bb0(%x: f32, %z: f32):
        %e0 = math.exp2 %x : f32
        %d = arith.addf %one, %e0 : f32
        %r = arith.divf %one, %d : f32
        linalg.yield %r : f32
      } -> tensor<64x64xf32, "fragment">
      %half = arith.truncf %p : tensor<64x64xf32, "fragment"> to tensor<64x64xf16, "fragment">
      %a = tile.convert_layout %half : (tensor<64x64xf16, "fragment">) -> (tensor<64x64xf16, "operand_a">)
      %new = linalg.generic {indexing_maps = [#lhs, #values, #out], iterator_types = ["parallel", "parallel", "reduction"]}
          ins(%a, %kt : tensor<64x64xf16, "operand_a">, tensor<64x64xf16, "shared">) outs(%old : tensor<64x64xf32, "fragment">) {
      ^bb0(%x: f16, %y: f16, %z: f32):
        %xw = arith.extf %x : f16 to f32
        %yw = arith.extf %y : f16 to f32
        %t = arith.mulf %xw, %yw : f32
        %u = arith.addf %z, %t : f32
        linalg.yield %u : f32
      } -> tensor<64x64xf32, "fragment">
      scf.yield %new : tensor<64x64xf32, "fragment">
    }
    %h = arith.truncf %o : tensor<64x64xf32, "fragment"> to tensor<64x64xf16, "fragment">
    %eh = tensor.empty() : tensor<64x64xf16, "fragment">
    %gated = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
        ins(%h : tensor<64x64xf16, "fragment">) outs(%eh : tensor<64x64xf16, "fragment">) {
    ^bb0(%x: f16, %z: f16):
      %e0 = math.exp %x : f16
      %d = arith.addf %one_half, %e0 : f16
      %r = arith.divf %x, %d : f16
      linalg.yield %r : f16
    } -> tensor<64x64xf16, "fragment">
    gpu.return
  }
}
