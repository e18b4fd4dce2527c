// RUN: attn-opt %s --mask-padding --canonicalize | FileCheck %s

// Scores times 0.5 that are padding become −inf behind a branch, before the scale; maximum and exponential are those of
// all elements then.

// CHECK-LABEL: gpu.func @pad
// CHECK:         %[[S:.*]] = linalg.generic {{.*}}["parallel", "parallel", "reduction"]} ins(
// CHECK:         %[[SOME:.*]] = arith.cmpi slt, %[[VALID:.*]], %{{.*}} : index
// CHECK:         %[[M:.*]] = scf.if %[[SOME]] -> (tensor<64x64xf32, "fragment">) {
// CHECK:           %[[NEW:.*]] = linalg.generic {{.*}} ins(%[[S]] :
// CHECK:             %[[INSIDE:.*]] = arith.cmpi slt, %{{.*}}, %[[VALID]]
// CHECK:             arith.select %[[INSIDE]],
// CHECK:           scf.yield %[[NEW]]
// CHECK:         } else {
// CHECK:           scf.yield %[[S]]
// CHECK:         %[[X:.*]] = linalg.generic {{.*}} ins(%[[M]] :
// CHECK:         %[[MAX:.*]] = linalg.generic {{.*}} ins(%[[X]] :
// CHECK-NOT:       arith.select
// CHECK:           arith.maxnumf
// CHECK:         linalg.generic {{.*}} ins(%[[X]], %[[MAX]] :
// CHECK:           %[[FINITE:.*]] = arith.select
// CHECK:           %[[D:.*]] = arith.subf %{{.*}}, %[[FINITE]]
// CHECK:           %[[P:.*]] = math.exp2 %[[D]]
// CHECK-NOT:       arith.select
// CHECK:           linalg.yield %[[P]]

// Where the maximum may be −inf, exp(x − m) of padding is no 0, and stays chosen; the maximum itself is masked.

// CHECK-LABEL: gpu.func @unguarded
// CHECK:         scf.if
// CHECK:         %[[P:.*]] = math.exp2
// CHECK:         arith.select %{{.*}}, %[[P]],

#lhs = affine_map<(i, j, d) -> (i, d)>
#rhs = affine_map<(i, j, d) -> (j, d)>
#out = affine_map<(i, j, d) -> (i, j)>
#id = affine_map<(i, j) -> (i, j)>
#row = affine_map<(i, j) -> (i)>
gpu.module @kernels {
  gpu.func @pad(%k: memref<?x32xf16, strided<[?, 1]>>, %out: memref<64x64xf32, strided<[?, 1]>>, %valid: index) kernel {
    %c0 = arith.constant 0 : index
    %c32 = arith.constant 32 : index
    %c64 = arith.constant 64 : index
    %half = arith.constant 0.5 : f32
    %f0 = arith.constant 0.0 : f32
    %minus_inf = arith.constant 0xFF800000 : f32
    %q = arith.constant dense<1.0> : tensor<64x32xf16, "operand_a">
    %zero = arith.constant dense<0.0> : tensor<64x64xf32, "fragment">
    %kt = tile.load (%k, %c0, %c0, %c64, %c32) {dims = [0, 1]} : (memref<?x32xf16, strided<[?, 1]>>, index, index, index, index) -> (tensor<64x32xf16, "shared">)
    %s = linalg.generic {indexing_maps = [#lhs, #rhs, #out], iterator_types = ["parallel", "parallel", "reduction"]}
        ins(%q, %kt : tensor<64x32xf16, "operand_a">, tensor<64x32xf16, "shared">) outs(%zero : tensor<64x64xf32, "fragment">) {
    ^bb0(%x: f16, %y: f16, %z: f32):
      %xw = arith.extf %x : f16 to f32
      %yw = arith.extf %y : f16 to f32
      %xy = arith.mulf %xw, %yw : f32
      %t = arith.addf %z, %xy : f32
      linalg.yield %t : f32
    } -> tensor<64x64xf32, "fragment">
    %e = tensor.empty() : tensor<64x64xf32, "fragment">
    %scaled = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
        ins(%s : tensor<64x64xf32, "fragment">) outs(%e : tensor<64x64xf32, "fragment">) {
    ^bb0(%x: f32, %y: f32):
      %t = arith.mulf %x, %half : f32
      linalg.yield %t : f32
    } -> tensor<64x64xf32, "fragment">
    %low = arith.constant dense<0xFF800000> : tensor<64xf32, "row">
    %m = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]}
        ins(%scaled : tensor<64x64xf32, "fragment">) outs(%low : tensor<64xf32, "row">) {
    ^bb0(%x: f32, %y: f32):
      %j = linalg.index 1 : index
      %inside = arith.cmpi slt, %j, %valid : index
      %t = arith.select %inside, %x, %minus_inf : f32
      %u = arith.maxnumf %t, %y : f32
      linalg.yield %u : f32
    } -> tensor<64xf32, "row">
    %p = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]}
        ins(%scaled, %m : tensor<64x64xf32, "fragment">, tensor<64xf32, "row">) outs(%e : tensor<64x64xf32, "fragment">) {
    ^bb0(%x: f32, %y: f32, %z: f32):
      %empty = arith.cmpf oeq, %y, %minus_inf : f32
      %finite = arith.select %empty, %f0, %y : f32
      %d = arith.subf %x, %finite : f32
      %t = math.exp2 %d : f32
      %j = linalg.index 1 : index
      %inside = arith.cmpi slt, %j, %valid : index
      %u = arith.select %inside, %t, %f0 : f32
      linalg.yield %u : f32
    } -> tensor<64x64xf32, "fragment">
    tile.store (%p, %out, %c0, %c0, %c64, %c64) {dims = [0, 1]} : (tensor<64x64xf32, "fragment">, memref<64x64xf32, strided<[?, 1]>>, index, index, index, index) -> ()
    gpu.return
  }

  gpu.func @unguarded(%k: memref<?x32xf16, strided<[?, 1]>>, %out: memref<64x64xf32, strided<[?, 1]>>, %valid: index) kernel {
    %c0 = arith.constant 0 : index
    %c32 = arith.constant 32 : index
    %c64 = arith.constant 64 : index
    %f0 = arith.constant 0.0 : f32
    %minus_inf = arith.constant 0xFF800000 : f32
    %q = arith.constant dense<1.0> : tensor<64x32xf16, "operand_a">
    %zero = arith.constant dense<0.0> : tensor<64x64xf32, "fragment">
    %kt = tile.load (%k, %c0, %c0, %c64, %c32) {dims = [0, 1]} : (memref<?x32xf16, strided<[?, 1]>>, index, index, index, index) -> (tensor<64x32xf16, "shared">)
    %s = linalg.generic {indexing_maps = [#lhs, #rhs, #out], iterator_types = ["parallel", "parallel", "reduction"]}
        ins(%q, %kt : tensor<64x32xf16, "operand_a">, tensor<64x32xf16, "shared">) outs(%zero : tensor<64x64xf32, "fragment">) {
    ^bb0(%x: f16, %y: f16, %z: f32):
      %xw = arith.extf %x : f16 to f32
      %yw = arith.extf %y : f16 to f32
      %xy = arith.mulf %xw, %yw : f32
      %t = arith.addf %z, %xy : f32
      linalg.yield %t : f32
    } -> tensor<64x64xf32, "fragment">
    %e = tensor.empty() : tensor<64x64xf32, "fragment">
    %low = arith.constant dense<0xFF800000> : tensor<64xf32, "row">
    %m = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]}
        ins(%s : tensor<64x64xf32, "fragment">) outs(%low : tensor<64xf32, "row">) {
    ^bb0(%x: f32, %y: f32):
      %j = linalg.index 1 : index
      %inside = arith.cmpi slt, %j, %valid : index
      %t = arith.select %inside, %x, %minus_inf : f32
      %u = arith.maxnumf %t, %y : f32
      linalg.yield %u : f32
    } -> tensor<64xf32, "row">
    %p = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]}
        ins(%s, %m : tensor<64x64xf32, "fragment">, tensor<64xf32, "row">) outs(%e : tensor<64x64xf32, "fragment">) {
    ^bb0(%x: f32, %y: f32, %z: f32):
      %d = arith.subf %x, %y : f32
      %t = math.exp2 %d : f32
      %j = linalg.index 1 : index
      %inside = arith.cmpi slt, %j, %valid : index
      %u = arith.select %inside, %t, %f0 : f32
      linalg.yield %u : f32
    } -> tensor<64x64xf32, "fragment">
    tile.store (%p, %out, %c0, %c0, %c64, %c64) {dims = [0, 1]} : (tensor<64x64xf32, "fragment">, memref<64x64xf32, strided<[?, 1]>>, index, index, index, index) -> ()
    gpu.return
  }
}
