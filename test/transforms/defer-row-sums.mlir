// RUN: attn-opt %s --defer-row-sums | FileCheck %s

// l = l · a + rowsum(p): parts in the loop, put together behind it.

// CHECK-LABEL: gpu.func @online
// CHECK:         %[[I:.*]] = tile.convert_layout %[[INIT:.*]] : (tensor<64xf32, "row">) -> (tensor<64xf32, "row_part">)
// CHECK:         %[[L:.*]] = scf.for {{.*}} iter_args(%[[L0:.*]] = %[[I]]) -> (tensor<64xf32, "row_part">)
// CHECK:           %[[SCALED:.*]]:2 = linalg.generic {{.*}} outs(%{{.*}}, %[[L0]] : tensor<64xf32, "row">, tensor<64xf32, "row_part">)
// CHECK:           %[[SUM:.*]] = linalg.generic {{.*}} outs(%{{.*}} : tensor<64xf32, "row_part">)
// CHECK:           %[[L1:.*]] = linalg.generic {{.*}} ins(%[[SUM]] : tensor<64xf32, "row_part">) outs(%[[SCALED]]#1 : tensor<64xf32, "row_part">)
// CHECK:           scf.yield %[[L1]] : tensor<64xf32, "row_part">
// CHECK:         %[[WHOLE:.*]] = tile.convert_layout %[[L]] : (tensor<64xf32, "row_part">) -> (tensor<64xf32, "row">)
// CHECK:         tile.store (%[[WHOLE]],

// What is read in the loop must be whole.

// CHECK-LABEL: gpu.func @read
// CHECK-NOT:     row_part
// CHECK:         gpu.return

#id = affine_map<(i, j) -> (i, j)>
#row = affine_map<(i, j) -> (i)>
#one = affine_map<(i) -> (i)>
gpu.module @kernels {
  gpu.func @online(%out: memref<64xf32, strided<[1]>>, %n: index) kernel {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c64 = arith.constant 64 : index
    %a = arith.constant dense<0.5> : tensor<64xf32, "row">
    %p = arith.constant dense<1.0> : tensor<64x64xf32, "fragment">
    %init = arith.constant dense<2.0> : tensor<64xf32, "row">
    %l = scf.for %j = %c0 to %n step %c1 iter_args(%l0 = %init) -> (tensor<64xf32, "row">) {
      %e = tensor.empty() : tensor<64xf32, "row">
      %u:2 = linalg.generic {indexing_maps = [#one, #one, #one], iterator_types = ["parallel"]}
          ins(%a : tensor<64xf32, "row">) outs(%e, %l0 : tensor<64xf32, "row">, tensor<64xf32, "row">) {
      ^bb0(%f: f32, %old: f32, %x: f32):
        %alpha = math.exp2 %f : f32
        %y = arith.mulf %x, %alpha : f32
        linalg.yield %alpha, %y : f32, f32
      } -> (tensor<64xf32, "row">, tensor<64xf32, "row">)
      %zero = arith.constant dense<0.0> : tensor<64xf32, "row">
      %t = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]}
          ins(%p : tensor<64x64xf32, "fragment">) outs(%zero : tensor<64xf32, "row">) {
      ^bb0(%x: f32, %y: f32):
        %z = arith.addf %x, %y : f32
        linalg.yield %z : f32
      } -> tensor<64xf32, "row">
      %l1 = linalg.generic {indexing_maps = [#one, #one], iterator_types = ["parallel"]}
          ins(%t : tensor<64xf32, "row">) outs(%u#1 : tensor<64xf32, "row">) {
      ^bb0(%x: f32, %y: f32):
        %z = arith.addf %x, %y : f32
        linalg.yield %z : f32
      } -> tensor<64xf32, "row">
      scf.yield %l1 : tensor<64xf32, "row">
    }
    tile.store (%l, %out, %c0, %c64) {dims = [0]} : (tensor<64xf32, "row">, memref<64xf32, strided<[1]>>, index, index) -> ()
    gpu.return
  }

  gpu.func @read(%out: memref<64xf32, strided<[1]>>, %n: index) kernel {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c64 = arith.constant 64 : index
    %p = arith.constant dense<1.0> : tensor<64x64xf32, "fragment">
    %init = arith.constant dense<2.0> : tensor<64xf32, "row">
    %l = scf.for %j = %c0 to %n step %c1 iter_args(%l0 = %init) -> (tensor<64xf32, "row">) {
      %zero = arith.constant dense<0.0> : tensor<64xf32, "row">
      %t = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]}
          ins(%p : tensor<64x64xf32, "fragment">) outs(%zero : tensor<64xf32, "row">) {
      ^bb0(%x: f32, %y: f32):
        %z = arith.addf %x, %y : f32
        linalg.yield %z : f32
      } -> tensor<64xf32, "row">
      %l1 = linalg.generic {indexing_maps = [#one, #one], iterator_types = ["parallel"]}
          ins(%t : tensor<64xf32, "row">) outs(%l0 : tensor<64xf32, "row">) {
      ^bb0(%x: f32, %y: f32):
        %z = arith.addf %x, %y : f32
        linalg.yield %z : f32
      } -> tensor<64xf32, "row">
      tile.store (%l1, %out, %c0, %c64) {dims = [0]} : (tensor<64xf32, "row">, memref<64xf32, strided<[1]>>, index, index) -> ()
      scf.yield %l1 : tensor<64xf32, "row">
    }
    gpu.return
  }
}
