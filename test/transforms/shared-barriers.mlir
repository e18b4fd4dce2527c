// A derivative by keys and values waits once an iteration for all that it needs, queries, gradients and two numbers of
// each row, whose stages are free together: four rings share their barriers. Its second matmul begins when the first
// one is there, while what changes along columns is read; of that nothing settles, as a matmul needs it that is waited
// for.
// RUN: attn-opt %s --delay-waits --specialize-warps | FileCheck %s

// CHECK-LABEL: gpu.func @derivative
// CHECK:         memref.alloc() : memref<2x64x64xbf16
// CHECK-NEXT:    %[[READY:.*]] = memref.alloc() : memref<2xi64
// CHECK-NEXT:    %[[FREE:.*]] = memref.alloc() : memref<2xi64
// CHECK-NEXT:    tile.init_barriers %[[READY]] {arrivals = 4
// CHECK-NEXT:    tile.init_barriers %[[FREE]] {arrivals = 4
// CHECK-NEXT:    memref.alloc() : memref<2x8x64xf32
// CHECK-NEXT:    memref.alloc() : memref<2x8x64xf32
// CHECK-NEXT:    memref.alloc() : memref<2x64x64xbf16
// CHECK-NEXT:    gpu.barrier
// CHECK:         scf.for {{.*}} iter_args(%{{.*}}, %{{.*}}, %[[N:[a-z0-9]+]] = %{{[a-z0-9_]+}})
// CHECK-NEXT:      tile.wait_barrier %[[READY]] [%[[N]]] {behind = 0
// CHECK-NOT:       tile.wait_barrier
// CHECK:           %[[S:.*]] = linalg.generic {{.*}} {tile.async}
// CHECK:           tile.convert_layout {{.*}} -> (tensor<64xf32, "column">)
// CHECK:           tile.convert_layout {{.*}} -> (tensor<64xf32, "column">)
// CHECK-NOT:       tile.settle
// CHECK-NOT:       tile.arrive
// CHECK:           tile.wait_matmuls %[[S]] {pending = 0
// CHECK:           %[[T:.*]] = linalg.generic {{.*}} {tile.async}
// CHECK:           math.exp2
// CHECK:           tile.wait_matmuls %[[T]] {pending = 1
// CHECK-NOT:       tile.wait_barrier
// CHECK:           tile.wait_matmuls %{{.*}} {pending = 0
// CHECK-NEXT:      tile.arrive %[[FREE]] [%[[N]]]
// CHECK:           scf.yield

// The warp that copies waits once, too.
// CHECK:         } else {
// CHECK:           scf.for
// CHECK-NEXT:        tile.wait_barrier %[[FREE]] {{.*}} {behind = 1
// CHECK-COUNT-4:     tile.copy_bulk ({{.*}}, %[[READY]],
// CHECK-NOT:         tile.
// CHECK:             scf.yield
#map = affine_map<(d0, d1, d2) -> (d0, d2)>
#map1 = affine_map<(d0, d1, d2) -> (d1, d2)>
#map2 = affine_map<(d0, d1, d2) -> (d0, d1)>
#map3 = affine_map<(d0, d1) -> (d0, d1)>
#map4 = affine_map<(d0, d1) -> (d1)>
#map5 = affine_map<(d0, d1, d2) -> (d2, d1)>
module attributes {gpu.container_module} {
  gpu.module @kernels {
    gpu.func @derivative(%arg0: memref<2x256xf32, strided<[?, 1]>>, %arg1: memref<2x256x64xbf16, strided<[?, ?, 1]>>, %arg2: memref<2x256x64xbf16, strided<[?, ?, 1]>>, %arg3: memref<2x256x64xbf16, strided<[?, ?, 1]>>, %arg4: memref<2x256xf32, strided<[?, 1]>>, %arg5: memref<2x256x64xbf16, strided<[?, ?, 1]>>, %arg6: memref<2x256x64xf32, strided<[?, ?, 1]>>, %arg7: memref<2x256x64xf32, strided<[?, ?, 1]>>) kernel {
      %c1 = arith.constant 1 : index
      %c3 = arith.constant 3 : index
      %c4 = arith.constant 4 : index
      %cst = arith.constant 2.500000e-01 : f32
      %cst_0 = arith.constant 0.360673755 : f32
      %cst_1 = arith.constant dense<0.000000e+00> : tensor<64x64xf32, "fragment">
      %c64 = arith.constant 64 : index
      %c256 = arith.constant 256 : index
      %c0 = arith.constant 0 : index
      %block_id_x = gpu.block_id x
      %0 = arith.remui %block_id_x, %c4 : index
      %1 = arith.divui %block_id_x, %c4 : index
      %2 = arith.subi %c3, %0 : index
      %3 = arith.muli %2, %c64 : index
      %4 = tile.load (%arg1, %1, %3, %c0, %c64, %c64) {dims = [1, 2]} : (memref<2x256x64xbf16, strided<[?, ?, 1]>>, index, index, index, index, index) -> (tensor<64x64xbf16, "shared">)
      %5 = tile.convert_layout %4 : (tensor<64x64xbf16, "shared">) -> (tensor<64x64xbf16, "operand_a">)
      %6 = tensor.empty() : tensor<64x64xf32, "fragment">
      %7 = tensor.empty() : tensor<64x64xbf16, "fragment">
      %8 = tile.load (%arg5, %1, %3, %c0, %c64, %c64) {dims = [1, 2]} : (memref<2x256x64xbf16, strided<[?, ?, 1]>>, index, index, index, index, index) -> (tensor<64x64xbf16, "shared">)
      %9 = tile.convert_layout %8 : (tensor<64x64xbf16, "shared">) -> (tensor<64x64xbf16, "operand_a">)
      %10:2 = scf.for %arg8 = %c0 to %c256 step %c64 iter_args(%arg9 = %cst_1, %arg10 = %cst_1) -> (tensor<64x64xf32, "fragment">, tensor<64x64xf32, "fragment">) {
        %12 = tile.load (%arg2, %1, %arg8, %c0, %c64, %c64) {dims = [1, 2]} : (memref<2x256x64xbf16, strided<[?, ?, 1]>>, index, index, index, index, index) -> (tensor<64x64xbf16, "shared">)
        %13 = linalg.generic {indexing_maps = [#map, #map1, #map2], iterator_types = ["parallel", "parallel", "reduction"]} ins(%5, %12 : tensor<64x64xbf16, "operand_a">, tensor<64x64xbf16, "shared">) outs(%cst_1 : tensor<64x64xf32, "fragment">) {
        ^bb0(%in: bf16, %in_2: bf16, %out: f32):
          %28 = arith.extf %in : bf16 to f32
          %29 = arith.extf %in_2 : bf16 to f32
          %30 = arith.mulf %28, %29 : f32
          %31 = arith.addf %out, %30 : f32
          linalg.yield %31 : f32
        } -> tensor<64x64xf32, "fragment">
        %14 = tile.load (%arg0, %1, %arg8, %c1, %c64) {dims = [0, 1]} : (memref<2x256xf32, strided<[?, 1]>>, index, index, index, index) -> (tensor<8x64xf32, "shared">)
        %15 = tile.convert_layout %14 : (tensor<8x64xf32, "shared">) -> (tensor<64xf32, "column">)
        %16 = linalg.generic {indexing_maps = [#map3, #map4, #map3], iterator_types = ["parallel", "parallel"]} ins(%13, %15 : tensor<64x64xf32, "fragment">, tensor<64xf32, "column">) outs(%6 : tensor<64x64xf32, "fragment">) {
        ^bb0(%in: f32, %in_2: f32, %out: f32):
          %28 = arith.mulf %in, %cst_0 : f32
          %29 = arith.subf %28, %in_2 : f32
          %30 = math.exp2 %29 : f32
          linalg.yield %30 : f32
        } -> tensor<64x64xf32, "fragment">
        %17 = linalg.generic {indexing_maps = [#map3, #map3], iterator_types = ["parallel", "parallel"]} ins(%16 : tensor<64x64xf32, "fragment">) outs(%7 : tensor<64x64xbf16, "fragment">) {
        ^bb0(%in: f32, %out: bf16):
          %28 = arith.truncf %in : f32 to bf16
          linalg.yield %28 : bf16
        } -> tensor<64x64xbf16, "fragment">
        %18 = tile.load (%arg3, %1, %arg8, %c0, %c64, %c64) {dims = [1, 2]} : (memref<2x256x64xbf16, strided<[?, ?, 1]>>, index, index, index, index, index) -> (tensor<64x64xbf16, "shared">)
        %19 = tile.convert_layout %17 : (tensor<64x64xbf16, "fragment">) -> (tensor<64x64xbf16, "operand_a">)
        %20 = linalg.generic {indexing_maps = [#map, #map5, #map2], iterator_types = ["parallel", "parallel", "reduction"]} ins(%19, %18 : tensor<64x64xbf16, "operand_a">, tensor<64x64xbf16, "shared">) outs(%arg9 : tensor<64x64xf32, "fragment">) {
        ^bb0(%in: bf16, %in_2: bf16, %out: f32):
          %28 = arith.extf %in : bf16 to f32
          %29 = arith.extf %in_2 : bf16 to f32
          %30 = arith.mulf %28, %29 : f32
          %31 = arith.addf %out, %30 : f32
          linalg.yield %31 : f32
        } -> tensor<64x64xf32, "fragment">
        %21 = linalg.generic {indexing_maps = [#map, #map1, #map2], iterator_types = ["parallel", "parallel", "reduction"]} ins(%9, %18 : tensor<64x64xbf16, "operand_a">, tensor<64x64xbf16, "shared">) outs(%cst_1 : tensor<64x64xf32, "fragment">) {
        ^bb0(%in: bf16, %in_2: bf16, %out: f32):
          %28 = arith.extf %in : bf16 to f32
          %29 = arith.extf %in_2 : bf16 to f32
          %30 = arith.mulf %28, %29 : f32
          %31 = arith.addf %out, %30 : f32
          linalg.yield %31 : f32
        } -> tensor<64x64xf32, "fragment">
        %22 = tile.load (%arg4, %1, %arg8, %c1, %c64) {dims = [0, 1]} : (memref<2x256xf32, strided<[?, 1]>>, index, index, index, index) -> (tensor<8x64xf32, "shared">)
        %23 = tile.convert_layout %22 : (tensor<8x64xf32, "shared">) -> (tensor<64xf32, "column">)
        %24 = linalg.generic {indexing_maps = [#map3, #map4, #map3, #map3], iterator_types = ["parallel", "parallel"]} ins(%21, %23, %16 : tensor<64x64xf32, "fragment">, tensor<64xf32, "column">, tensor<64x64xf32, "fragment">) outs(%6 : tensor<64x64xf32, "fragment">) {
        ^bb0(%in: f32, %in_2: f32, %in_3: f32, %out: f32):
          %28 = arith.mulf %in, %in_3 : f32
          %29 = arith.mulf %in_2, %in_3 : f32
          %30 = arith.subf %28, %29 : f32
          linalg.yield %30 : f32
        } -> tensor<64x64xf32, "fragment">
        %25 = linalg.generic {indexing_maps = [#map3, #map3], iterator_types = ["parallel", "parallel"]} ins(%24 : tensor<64x64xf32, "fragment">) outs(%7 : tensor<64x64xbf16, "fragment">) {
        ^bb0(%in: f32, %out: bf16):
          %28 = arith.truncf %in : f32 to bf16
          linalg.yield %28 : bf16
        } -> tensor<64x64xbf16, "fragment">
        %26 = tile.convert_layout %25 : (tensor<64x64xbf16, "fragment">) -> (tensor<64x64xbf16, "operand_a">)
        %27 = linalg.generic {indexing_maps = [#map, #map5, #map2], iterator_types = ["parallel", "parallel", "reduction"]} ins(%26, %12 : tensor<64x64xbf16, "operand_a">, tensor<64x64xbf16, "shared">) outs(%arg10 : tensor<64x64xf32, "fragment">) {
        ^bb0(%in: bf16, %in_2: bf16, %out: f32):
          %28 = arith.extf %in : bf16 to f32
          %29 = arith.extf %in_2 : bf16 to f32
          %30 = arith.mulf %28, %29 : f32
          %31 = arith.addf %out, %30 : f32
          linalg.yield %31 : f32
        } -> tensor<64x64xf32, "fragment">
        scf.yield %20, %27 : tensor<64x64xf32, "fragment">, tensor<64x64xf32, "fragment">
      }
      %11 = linalg.generic {indexing_maps = [#map3, #map3], iterator_types = ["parallel", "parallel"]} ins(%10#1 : tensor<64x64xf32, "fragment">) outs(%6 : tensor<64x64xf32, "fragment">) {
      ^bb0(%in: f32, %out: f32):
        %12 = arith.mulf %in, %cst : f32
        linalg.yield %12 : f32
      } -> tensor<64x64xf32, "fragment">
      tile.store (%10#0, %arg6, %1, %3, %c0, %c64, %c64) {dims = [1, 2], operandSegmentSizes = array<i32: 1, 1, 5>} : (tensor<64x64xf32, "fragment">, memref<2x256x64xf32, strided<[?, ?, 1]>>, index, index, index, index, index) -> ()
      tile.store (%11, %arg7, %1, %3, %c0, %c64, %c64) {dims = [1, 2], operandSegmentSizes = array<i32: 1, 1, 5>} : (tensor<64x64xf32, "fragment">, memref<2x256x64xf32, strided<[?, ?, 1]>>, index, index, index, index, index) -> ()
      gpu.return
    }
  }
}
