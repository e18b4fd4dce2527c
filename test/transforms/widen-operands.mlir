// RUN: attn-opt %s --widen-operands="native=1" | FileCheck %s --check-prefixes=CHECK,NATIVE
// RUN: attn-opt %s --widen-operands | FileCheck %s --check-prefixes=CHECK,WIDE

// Hopper's tensor cores take 8 bits; others get f16.

// CHECK-LABEL: gpu.func @keys
// CHECK:         %[[Q:.*]] = tile.load {{.*}} -> (tensor<64x64xf8E4M3FN>)
// CHECK:         %[[K:.*]] = tile.load {{.*}} -> (tensor<32x64xf8E5M2>)
// NATIVE-NEXT:   linalg.generic {{.*}} ins(%[[Q]], %[[K]] :
// WIDE:          %[[QW:.*]] = linalg.generic {{.*}} ins(%[[Q]] : tensor<64x64xf8E4M3FN>) {{.*}} {
// WIDE:            arith.extf %{{.*}} : f8E4M3FN to f16
// WIDE:          %[[KW:.*]] = linalg.generic {{.*}} ins(%[[K]] : tensor<32x64xf8E5M2>) {{.*}} {
// WIDE:          linalg.generic {{.*}} ins(%[[QW]], %[[KW]] : tensor<64x64xf16>, tensor<32x64xf16>)
// WIDE-NEXT:     ^bb0(%{{.*}}: f16, %{{.*}}: f16, %{{.*}}: f32):

// Keys whose head dimension is not side by side; another type on the other side, f32 too.

// CHECK-LABEL: gpu.func @keys_transposed
// CHECK-COUNT-2: linalg.generic {{.*}} outs(%{{.*}} : tensor<64x64xf16>)
// CHECK-LABEL: gpu.func @mixed
// CHECK:         linalg.generic {{.*}} ins(%{{.*}} : tensor<32x64xf8E4M3FN>) {{.*}}xf32>)
// CHECK:         linalg.generic {{.*}} ins(%{{.*}}, %{{.*}} : tensor<64x64xf32>, tensor<32x64xf32>)
// CHECK-NEXT:    ^bb0(%[[X:.*]]: f32, %[[Y:.*]]: f32, %{{.*}}: f32):
// CHECK-NEXT:      arith.mulf %[[X]], %[[Y]] : f32

// Of two types that have more bits, the one that holds both.

// CHECK-LABEL: gpu.func @narrow_keys
// CHECK:         linalg.generic {{.*}} ins(%{{.*}} : tensor<32x64xbf16>) {{.*}}xf32>)
// CHECK:         linalg.generic {{.*}} ins(%{{.*}}, %{{.*}} : tensor<64x64xf32>, tensor<32x64xf32>)
// CHECK-NEXT:    ^bb0(%[[X:.*]]: f32, %[[Y:.*]]: f32, %{{.*}}: f32):
// CHECK-NEXT:      arith.mulf %[[X]], %[[Y]] : f32
// CHECK-LABEL: gpu.func @two_halves
// CHECK-COUNT-2: linalg.generic {{.*}} outs(%{{.*}} : tensor<{{.*}}xf32>)
// CHECK:         linalg.generic {{.*}} ins(%{{.*}}, %{{.*}} : tensor<64x64xf32>, tensor<32x64xf32>)

// What is computed of scores in f32 stays beside bf16.

// CHECK-LABEL: gpu.func @derivative_of_scores
// CHECK:         %[[KT:.*]] = tile.load {{.*}} -> (tensor<32x64xbf16>)
// CHECK:         %[[D:.*]] = linalg.generic {{.*}} ins(%{{.*}} : tensor<64x32xf32>) outs(%{{.*}} : tensor<64x32xf32>)
// CHECK:         linalg.generic {{.*}} ins(%[[D]], %[[KT]] : tensor<64x32xf32>, tensor<32x64xbf16>)

#lhs = affine_map<(i, j, d) -> (i, d)>
#rhs = affine_map<(i, j, d) -> (j, d)>
#turned = affine_map<(i, j, d) -> (d, j)>
#out = affine_map<(i, j, d) -> (i, j)>
#same = affine_map<(i, j) -> (i, j)>
gpu.module @kernels {
  gpu.func @keys(%q: memref<64x64xf8E4M3FN, strided<[?, 1]>>, %k: memref<32x64xf8E5M2, strided<[?, 1]>>) kernel {
    %c0 = arith.constant 0 : index
    %c32 = arith.constant 32 : index
    %c64 = arith.constant 64 : index
    %zero = arith.constant dense<0.0> : tensor<64x32xf32>
    %qt = tile.load (%q, %c0, %c0, %c64, %c64) {dims = [0, 1]} : (memref<64x64xf8E4M3FN, strided<[?, 1]>>, index, index, index, index) -> (tensor<64x64xf8E4M3FN>)
    %kt = tile.load (%k, %c0, %c0, %c32, %c64) {dims = [0, 1]} : (memref<32x64xf8E5M2, strided<[?, 1]>>, index, index, index, index) -> (tensor<32x64xf8E5M2>)
    %s = linalg.generic {indexing_maps = [#lhs, #rhs, #out], iterator_types = ["parallel", "parallel", "reduction"]}
        ins(%qt, %kt : tensor<64x64xf8E4M3FN>, tensor<32x64xf8E5M2>) outs(%zero : tensor<64x32xf32>) {
    ^bb0(%x: f8E4M3FN, %y: f8E5M2, %z: f32):
      %xw = arith.extf %x : f8E4M3FN to f32
      %yw = arith.extf %y : f8E5M2 to f32
      %m = arith.mulf %xw, %yw : f32
      %t = arith.addf %z, %m : f32
      linalg.yield %t : f32
    } -> tensor<64x32xf32>
    gpu.return
  }

  gpu.func @keys_transposed(%q: memref<64x64xf8E4M3FN, strided<[?, 1]>>, %k: memref<64x64xf8E4M3FN, strided<[?, 1]>>) kernel {
    %c0 = arith.constant 0 : index
    %c64 = arith.constant 64 : index
    %zero = arith.constant dense<0.0> : tensor<64x64xf32>
    %qt = tile.load (%q, %c0, %c0, %c64, %c64) {dims = [0, 1]} : (memref<64x64xf8E4M3FN, strided<[?, 1]>>, index, index, index, index) -> (tensor<64x64xf8E4M3FN>)
    %kt = tile.load (%k, %c0, %c0, %c64, %c64) {dims = [0, 1]} : (memref<64x64xf8E4M3FN, strided<[?, 1]>>, index, index, index, index) -> (tensor<64x64xf8E4M3FN>)
    %s = linalg.generic {indexing_maps = [#lhs, #turned, #out], iterator_types = ["parallel", "parallel", "reduction"]}
        ins(%qt, %kt : tensor<64x64xf8E4M3FN>, tensor<64x64xf8E4M3FN>) outs(%zero : tensor<64x64xf32>) {
    ^bb0(%x: f8E4M3FN, %y: f8E4M3FN, %z: f32):
      %xw = arith.extf %x : f8E4M3FN to f32
      %yw = arith.extf %y : f8E4M3FN to f32
      %m = arith.mulf %xw, %yw : f32
      %t = arith.addf %z, %m : f32
      linalg.yield %t : f32
    } -> tensor<64x64xf32>
    gpu.return
  }

  gpu.func @mixed(%q: memref<64x64xf32, strided<[?, 1]>>, %k: memref<32x64xf8E4M3FN, strided<[?, 1]>>) kernel {
    %c0 = arith.constant 0 : index
    %c32 = arith.constant 32 : index
    %c64 = arith.constant 64 : index
    %zero = arith.constant dense<0.0> : tensor<64x32xf32>
    %qt = tile.load (%q, %c0, %c0, %c64, %c64) {dims = [0, 1]} : (memref<64x64xf32, strided<[?, 1]>>, index, index, index, index) -> (tensor<64x64xf32>)
    %kt = tile.load (%k, %c0, %c0, %c32, %c64) {dims = [0, 1]} : (memref<32x64xf8E4M3FN, strided<[?, 1]>>, index, index, index, index) -> (tensor<32x64xf8E4M3FN>)
    %s = linalg.generic {indexing_maps = [#lhs, #rhs, #out], iterator_types = ["parallel", "parallel", "reduction"]}
        ins(%qt, %kt : tensor<64x64xf32>, tensor<32x64xf8E4M3FN>) outs(%zero : tensor<64x32xf32>) {
    ^bb0(%x: f32, %y: f8E4M3FN, %z: f32):
      %yw = arith.extf %y : f8E4M3FN to f32
      %m = arith.mulf %x, %yw : f32
      %t = arith.addf %z, %m : f32
      linalg.yield %t : f32
    } -> tensor<64x32xf32>
    gpu.return
  }

  gpu.func @narrow_keys(%q: memref<64x64xf32, strided<[?, 1]>>, %k: memref<32x64xbf16, strided<[?, 1]>>) kernel {
    %c0 = arith.constant 0 : index
    %c32 = arith.constant 32 : index
    %c64 = arith.constant 64 : index
    %zero = arith.constant dense<0.0> : tensor<64x32xf32>
    %qt = tile.load (%q, %c0, %c0, %c64, %c64) {dims = [0, 1]} : (memref<64x64xf32, strided<[?, 1]>>, index, index, index, index) -> (tensor<64x64xf32>)
    %kt = tile.load (%k, %c0, %c0, %c32, %c64) {dims = [0, 1]} : (memref<32x64xbf16, strided<[?, 1]>>, index, index, index, index) -> (tensor<32x64xbf16>)
    %s = linalg.generic {indexing_maps = [#lhs, #rhs, #out], iterator_types = ["parallel", "parallel", "reduction"]}
        ins(%qt, %kt : tensor<64x64xf32>, tensor<32x64xbf16>) outs(%zero : tensor<64x32xf32>) {
    ^bb0(%x: f32, %y: bf16, %z: f32):
      %yw = arith.extf %y : bf16 to f32
      %m = arith.mulf %x, %yw : f32
      %t = arith.addf %z, %m : f32
      linalg.yield %t : f32
    } -> tensor<64x32xf32>
    gpu.return
  }

  gpu.func @two_halves(%q: memref<64x64xf16, strided<[?, 1]>>, %k: memref<32x64xbf16, strided<[?, 1]>>) kernel {
    %c0 = arith.constant 0 : index
    %c32 = arith.constant 32 : index
    %c64 = arith.constant 64 : index
    %zero = arith.constant dense<0.0> : tensor<64x32xf32>
    %qt = tile.load (%q, %c0, %c0, %c64, %c64) {dims = [0, 1]} : (memref<64x64xf16, strided<[?, 1]>>, index, index, index, index) -> (tensor<64x64xf16>)
    %kt = tile.load (%k, %c0, %c0, %c32, %c64) {dims = [0, 1]} : (memref<32x64xbf16, strided<[?, 1]>>, index, index, index, index) -> (tensor<32x64xbf16>)
    %s = linalg.generic {indexing_maps = [#lhs, #rhs, #out], iterator_types = ["parallel", "parallel", "reduction"]}
        ins(%qt, %kt : tensor<64x64xf16>, tensor<32x64xbf16>) outs(%zero : tensor<64x32xf32>) {
    ^bb0(%x: f16, %y: bf16, %z: f32):
      %xw = arith.extf %x : f16 to f32
      %yw = arith.extf %y : bf16 to f32
      %m = arith.mulf %xw, %yw : f32
      %t = arith.addf %z, %m : f32
      linalg.yield %t : f32
    } -> tensor<64x32xf32>
    gpu.return
  }

  gpu.func @derivative_of_scores(%q: memref<64x64xbf16, strided<[?, 1]>>, %k: memref<32x64xbf16, strided<[?, 1]>>) kernel {
    %c0 = arith.constant 0 : index
    %c32 = arith.constant 32 : index
    %c64 = arith.constant 64 : index
    %zero = arith.constant dense<0.0> : tensor<64x32xf32>
    %sums = arith.constant dense<0.0> : tensor<64x64xf32>
    %qt = tile.load (%q, %c0, %c0, %c64, %c64) {dims = [0, 1]} : (memref<64x64xbf16, strided<[?, 1]>>, index, index, index, index) -> (tensor<64x64xbf16>)
    %kt = tile.load (%k, %c0, %c0, %c32, %c64) {dims = [0, 1]} : (memref<32x64xbf16, strided<[?, 1]>>, index, index, index, index) -> (tensor<32x64xbf16>)
    %s = linalg.generic {indexing_maps = [#lhs, #rhs, #out], iterator_types = ["parallel", "parallel", "reduction"]}
        ins(%qt, %kt : tensor<64x64xbf16>, tensor<32x64xbf16>) outs(%zero : tensor<64x32xf32>) {
    ^bb0(%x: bf16, %y: bf16, %z: f32):
      %xw = arith.extf %x : bf16 to f32
      %yw = arith.extf %y : bf16 to f32
      %m = arith.mulf %xw, %yw : f32
      %t = arith.addf %z, %m : f32
      linalg.yield %t : f32
    } -> tensor<64x32xf32>
    %d = linalg.generic {indexing_maps = [#same, #same], iterator_types = ["parallel", "parallel"]}
        ins(%s : tensor<64x32xf32>) outs(%zero : tensor<64x32xf32>) {
    ^bb0(%x: f32, %z: f32):
      %t = math.tanh %x : f32
      linalg.yield %t : f32
    } -> tensor<64x32xf32>
    %o = linalg.generic {indexing_maps = [#lhs, #turned, #out], iterator_types = ["parallel", "parallel", "reduction"]}
        ins(%d, %kt : tensor<64x32xf32>, tensor<32x64xbf16>) outs(%sums : tensor<64x64xf32>) {
    ^bb0(%x: f32, %y: bf16, %z: f32):
      %yw = arith.extf %y : bf16 to f32
      %m = arith.mulf %x, %yw : f32
      %t = arith.addf %z, %m : f32
      linalg.yield %t : f32
    } -> tensor<64x64xf32>
    gpu.return
  }
}
