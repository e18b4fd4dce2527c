// RUN: attn-opt %s --balance-functions | FileCheck %s
// RUN: attn-opt %s --balance-functions="eighths=1" | FileCheck %s --check-prefix=ONE

// Two functions for each score of 64 columns on either side take twice as long as the matmuls do.

// CHECK-LABEL: gpu.func @cap
// CHECK:           math.tanh %{{.*}} : f32
// CHECK:           math.exp2 %{{.*}} {tile.polynomial = array<i64: {{[1-8]}}, 4>} : f32

// ONE-LABEL: gpu.func @cap
// ONE:         math.exp2 %{{.*}} {tile.polynomial = array<i64: 1, 4>} : f32

// One function with 128 columns on either side takes half as long: it stays.

// CHECK-LABEL: gpu.func @plain
// CHECK:           math.exp2
// CHECK-NOT:       tile.polynomial
// CHECK:           gpu.return

#lhs = affine_map<(i, j, d) -> (i, d)>
#rhs = affine_map<(i, j, d) -> (j, d)>
#out = affine_map<(i, j, d) -> (i, j)>
#id = affine_map<(i, j) -> (i, j)>
gpu.module @kernels {
  gpu.func @cap(%k: memref<?x64xf16, strided<[?, 1]>>, %n: index) kernel {
    %c0 = arith.constant 0 : index
    %c64 = arith.constant 64 : index
    %q = arith.constant dense<1.0> : tensor<64x64xf16, "operand_a">
    %zero = arith.constant dense<0.0> : tensor<64x64xf32, "fragment">
    scf.for %j = %c0 to %n step %c64 {
      %kt = tile.load (%k, %j, %c0, %c64, %c64) {dims = [0, 1]} : (memref<?x64xf16, strided<[?, 1]>>, index, index, index, index) -> (tensor<64x64xf16, "shared">)
      %s = linalg.generic {indexing_maps = [#lhs, #rhs, #out], iterator_types = ["parallel", "parallel", "reduction"]}
          ins(%q, %kt : tensor<64x64xf16, "operand_a">, tensor<64x64xf16, "shared">) outs(%zero : tensor<64x64xf32, "fragment">) {
      ^bb0(%x: f16, %y: f16, %z: f32):
        %xw = arith.extf %x : f16 to f32
        %yw = arith.extf %y : f16 to f32
        %xy = arith.mulf %xw, %yw : f32
        %t = arith.addf %z, %xy : f32
        linalg.yield %t : f32
      } -> tensor<64x64xf32, "fragment">
      %e = tensor.empty() : tensor<64x64xf32, "fragment">
      %p = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
          ins(%s : tensor<64x64xf32, "fragment">) outs(%e : tensor<64x64xf32, "fragment">) {
      ^bb0(%x: f32, %y: f32):
        %t = math.tanh %x : f32
        %u = math.exp2 %t : f32
        linalg.yield %u : f32
      } -> tensor<64x64xf32, "fragment">
    }
    gpu.return
  }

  gpu.func @plain(%k: memref<?x256xf16, strided<[?, 1]>>, %n: index) kernel {
    %c0 = arith.constant 0 : index
    %c64 = arith.constant 64 : index
    %c256 = arith.constant 256 : index
    %q = arith.constant dense<1.0> : tensor<64x256xf16, "operand_a">
    %zero = arith.constant dense<0.0> : tensor<64x64xf32, "fragment">
    scf.for %j = %c0 to %n step %c64 {
      %kt = tile.load (%k, %j, %c0, %c64, %c256) {dims = [0, 1]} : (memref<?x256xf16, strided<[?, 1]>>, index, index, index, index) -> (tensor<64x256xf16, "shared">)
      %s = linalg.generic {indexing_maps = [#lhs, #rhs, #out], iterator_types = ["parallel", "parallel", "reduction"]}
          ins(%q, %kt : tensor<64x256xf16, "operand_a">, tensor<64x256xf16, "shared">) outs(%zero : tensor<64x64xf32, "fragment">) {
      ^bb0(%x: f16, %y: f16, %z: f32):
        %xw = arith.extf %x : f16 to f32
        %yw = arith.extf %y : f16 to f32
        %xy = arith.mulf %xw, %yw : f32
        %t = arith.addf %z, %xy : f32
        linalg.yield %t : f32
      } -> tensor<64x64xf32, "fragment">
      %e = tensor.empty() : tensor<64x64xf32, "fragment">
      %p = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
          ins(%s : tensor<64x64xf32, "fragment">) outs(%e : tensor<64x64xf32, "fragment">) {
      ^bb0(%x: f32, %y: f32):
        %u = math.exp2 %x : f32
        linalg.yield %u : f32
      } -> tensor<64x64xf32, "fragment">
    }
    gpu.return
  }
}
