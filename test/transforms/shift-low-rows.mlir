// RUN: attn-opt %s --shift-low-rows | FileCheck %s

// A bias of bf16 may be the least number of its type: rows whose maximum is as low are shifted, where a warp has one.

// CHECK-LABEL: gpu.func @biased
// CHECK:         %[[S:.*]] = linalg.generic {{.*}}xbf16, "fragment">) outs(
// CHECK:         %[[M:.*]] = linalg.generic {{.*}} ins(%[[S]] : {{.*}}) outs(%{{.*}} : tensor<64xf32, "row">)
// CHECK:         %[[LOW:.*]] = linalg.generic {{.*}} ins(%[[M]] : tensor<64xf32, "row">) outs(%{{.*}} : tensor<64xi1, "row">)
// CHECK-DAG:       arith.cmpf olt
// CHECK-DAG:       arith.cmpf ogt
// CHECK:         %[[SOME:.*]] = tile.any_of_warp %[[LOW]]
// CHECK:         %[[T:.*]] = scf.if %[[SOME]]
// CHECK:           linalg.generic {{.*}} ins(%[[M]] : tensor<64xf32, "row">) outs(%[[S]] :
// CHECK:             %[[SHIFTED:.*]] = arith.subf %{{.*}}, %{{.*}} : f32
// CHECK:             arith.select %{{.*}}, %[[SHIFTED]], %{{.*}} : f32
// CHECK:         } else {
// CHECK-NEXT:      scf.yield %[[S]]
// CHECK:         linalg.generic {{.*}} ins(%[[M]] : tensor<64xf32, "row">) outs(%[[T]] :
// CHECK:         ^bb0(%[[OF_ROW:.*]]: f32, %[[X:.*]]: f32):
// CHECK:           %[[IS_LOW:.*]] = arith.cmpf olt, %[[OF_ROW]], %{{.*}} : f32
// CHECK:           %[[KEPT:.*]] = arith.select %[[IS_LOW]], %{{.*}}, %[[OF_ROW]] : f32
// CHECK:           arith.subf %[[X]], %[[KEPT]] : f32

// One of f16 is no lower than -65504. Scores that are read otherwise, too, as weights of values here, stay as they are.

// CHECK-LABEL: gpu.func @of_f16
// CHECK-NOT:     tile.any_of_warp
// CHECK-LABEL: gpu.func @weighted
// CHECK-NOT:     tile.any_of_warp
// CHECK-LABEL: gpu.func @without_the_copy_engine
// CHECK-NOT:     tile.any_of_warp
// CHECK:         gpu.return

#id = affine_map<(i, j) -> (i, j)>
#row = affine_map<(i, j) -> (i)>
!map = !nvgpu.tensormap.descriptor<tensor = memref<64x64xf16, 3>, swizzle = swizzle_128b, l2promo = l2promo_128b, oob = zero, interleave = none>
!buffer = memref<1x64x64xf16, #gpu.address_space<workgroup>>
!barriers = memref<1xi64, #gpu.address_space<workgroup>>
gpu.module @kernels {
  gpu.func @biased(%bias: memref<64x16xbf16>, %out: memref<64x16xf32>, %map: !map) kernel {
    %c0 = arith.constant 0 : index
    %c16 = arith.constant 16 : index
    %c64 = arith.constant 64 : index
    %buffer = memref.alloc() : !buffer
    %ready = memref.alloc() : !barriers
    tile.copy_bulk (%map, %buffer, %ready, %c0, %c0, %c0) {dims = [0, 1]} : (!map, !buffer, !barriers, index, index, index) -> ()
    %least = arith.constant 0xFF800000 : f32
    %zero = arith.constant 0.0 : f32
    %log2e = arith.constant 1.44269502 : f32
    %lowest = arith.constant dense<0xFF800000> : tensor<64xf32, "row">
    %b = tile.load (%bias, %c0, %c0, %c64, %c16) {dims = [0, 1]} : (memref<64x16xbf16>, index, index, index, index) -> (tensor<64x16xbf16, "fragment">)
    %e = tensor.empty() : tensor<64x16xf32, "fragment">
    %s = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
        ins(%b : tensor<64x16xbf16, "fragment">) outs(%e : tensor<64x16xf32, "fragment">) {
    ^bb0(%x: bf16, %o: f32):
      %w = arith.extf %x : bf16 to f32
      linalg.yield %w : f32
    } -> tensor<64x16xf32, "fragment">
    %m = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]}
        ins(%s : tensor<64x16xf32, "fragment">) outs(%lowest : tensor<64xf32, "row">) {
    ^bb0(%x: f32, %o: f32):
      %w = arith.maxnumf %x, %o : f32
      linalg.yield %w : f32
    } -> tensor<64xf32, "row">
    %p = linalg.generic {indexing_maps = [#row, #id], iterator_types = ["parallel", "parallel"]}
        ins(%m : tensor<64xf32, "row">) outs(%s : tensor<64x16xf32, "fragment">) {
    ^bb0(%of_row: f32, %x: f32):
      %none = arith.cmpf oeq, %of_row, %least : f32
      %kept = arith.select %none, %zero, %of_row : f32
      %d = arith.subf %x, %kept : f32
      %f = arith.mulf %d, %log2e : f32
      %w = math.exp2 %f : f32
      linalg.yield %w : f32
    } -> tensor<64x16xf32, "fragment">
    tile.store (%p, %out, %c0, %c0, %c64, %c16) {dims = [0, 1]} : (tensor<64x16xf32, "fragment">, memref<64x16xf32>, index, index, index, index) -> ()
    gpu.return
  }
  gpu.func @of_f16(%bias: memref<64x16xf16>, %out: memref<64x16xf32>, %map: !map) kernel {
    %c0 = arith.constant 0 : index
    %c16 = arith.constant 16 : index
    %c64 = arith.constant 64 : index
    %buffer = memref.alloc() : !buffer
    %ready = memref.alloc() : !barriers
    tile.copy_bulk (%map, %buffer, %ready, %c0, %c0, %c0) {dims = [0, 1]} : (!map, !buffer, !barriers, index, index, index) -> ()
    %least = arith.constant 0xFF800000 : f32
    %zero = arith.constant 0.0 : f32
    %log2e = arith.constant 1.44269502 : f32
    %lowest = arith.constant dense<0xFF800000> : tensor<64xf32, "row">
    %b = tile.load (%bias, %c0, %c0, %c64, %c16) {dims = [0, 1]} : (memref<64x16xf16>, index, index, index, index) -> (tensor<64x16xf16, "fragment">)
    %e = tensor.empty() : tensor<64x16xf32, "fragment">
    %s = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
        ins(%b : tensor<64x16xf16, "fragment">) outs(%e : tensor<64x16xf32, "fragment">) {
    ^bb0(%x: f16, %o: f32):
      %w = arith.extf %x : f16 to f32
      linalg.yield %w : f32
    } -> tensor<64x16xf32, "fragment">
    %m = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]}
        ins(%s : tensor<64x16xf32, "fragment">) outs(%lowest : tensor<64xf32, "row">) {
    ^bb0(%x: f32, %o: f32):
      %w = arith.maxnumf %x, %o : f32
      linalg.yield %w : f32
    } -> tensor<64xf32, "row">
    %p = linalg.generic {indexing_maps = [#row, #id], iterator_types = ["parallel", "parallel"]}
        ins(%m : tensor<64xf32, "row">) outs(%s : tensor<64x16xf32, "fragment">) {
    ^bb0(%of_row: f32, %x: f32):
      %none = arith.cmpf oeq, %of_row, %least : f32
      %kept = arith.select %none, %zero, %of_row : f32
      %d = arith.subf %x, %kept : f32
      %f = arith.mulf %d, %log2e : f32
      %w = math.exp2 %f : f32
      linalg.yield %w : f32
    } -> tensor<64x16xf32, "fragment">
    tile.store (%p, %out, %c0, %c0, %c64, %c16) {dims = [0, 1]} : (tensor<64x16xf32, "fragment">, memref<64x16xf32>, index, index, index, index) -> ()
    gpu.return
  }
  gpu.func @weighted(%bias: memref<64x16xbf16>, %out: memref<64x16xf32>, %map: !map) kernel {
    %c0 = arith.constant 0 : index
    %c16 = arith.constant 16 : index
    %c64 = arith.constant 64 : index
    %buffer = memref.alloc() : !buffer
    %ready = memref.alloc() : !barriers
    tile.copy_bulk (%map, %buffer, %ready, %c0, %c0, %c0) {dims = [0, 1]} : (!map, !buffer, !barriers, index, index, index) -> ()
    %least = arith.constant 0xFF800000 : f32
    %zero = arith.constant 0.0 : f32
    %log2e = arith.constant 1.44269502 : f32
    %lowest = arith.constant dense<0xFF800000> : tensor<64xf32, "row">
    %b = tile.load (%bias, %c0, %c0, %c64, %c16) {dims = [0, 1]} : (memref<64x16xbf16>, index, index, index, index) -> (tensor<64x16xbf16, "fragment">)
    %e = tensor.empty() : tensor<64x16xf32, "fragment">
    %s = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
        ins(%b : tensor<64x16xbf16, "fragment">) outs(%e : tensor<64x16xf32, "fragment">) {
    ^bb0(%x: bf16, %o: f32):
      %w = arith.extf %x : bf16 to f32
      linalg.yield %w : f32
    } -> tensor<64x16xf32, "fragment">
    %m = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]}
        ins(%s : tensor<64x16xf32, "fragment">) outs(%lowest : tensor<64xf32, "row">) {
    ^bb0(%x: f32, %o: f32):
      %w = arith.maxnumf %x, %o : f32
      linalg.yield %w : f32
    } -> tensor<64xf32, "row">
    %p = linalg.generic {indexing_maps = [#row, #id], iterator_types = ["parallel", "parallel"]}
        ins(%m : tensor<64xf32, "row">) outs(%s : tensor<64x16xf32, "fragment">) {
    ^bb0(%of_row: f32, %x: f32):
      %none = arith.cmpf oeq, %of_row, %least : f32
      %kept = arith.select %none, %zero, %of_row : f32
      %d = arith.subf %x, %kept : f32
      %f = arith.mulf %d, %log2e : f32
      %w = math.exp2 %f : f32
      %v = arith.mulf %w, %x : f32
      linalg.yield %v : f32
    } -> tensor<64x16xf32, "fragment">
    tile.store (%p, %out, %c0, %c0, %c64, %c16) {dims = [0, 1]} : (tensor<64x16xf32, "fragment">, memref<64x16xf32>, index, index, index, index) -> ()
    gpu.return
  }
  gpu.func @without_the_copy_engine(%bias: memref<64x16xbf16>, %out: memref<64x16xf32>) kernel {
    %c0 = arith.constant 0 : index
    %c16 = arith.constant 16 : index
    %c64 = arith.constant 64 : index
    %least = arith.constant 0xFF800000 : f32
    %zero = arith.constant 0.0 : f32
    %log2e = arith.constant 1.44269502 : f32
    %lowest = arith.constant dense<0xFF800000> : tensor<64xf32, "row">
    %b = tile.load (%bias, %c0, %c0, %c64, %c16) {dims = [0, 1]} : (memref<64x16xbf16>, index, index, index, index) -> (tensor<64x16xbf16, "fragment">)
    %e = tensor.empty() : tensor<64x16xf32, "fragment">
    %s = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
        ins(%b : tensor<64x16xbf16, "fragment">) outs(%e : tensor<64x16xf32, "fragment">) {
    ^bb0(%x: bf16, %o: f32):
      %w = arith.extf %x : bf16 to f32
      linalg.yield %w : f32
    } -> tensor<64x16xf32, "fragment">
    %m = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]}
        ins(%s : tensor<64x16xf32, "fragment">) outs(%lowest : tensor<64xf32, "row">) {
    ^bb0(%x: f32, %o: f32):
      %w = arith.maxnumf %x, %o : f32
      linalg.yield %w : f32
    } -> tensor<64xf32, "row">
    %p = linalg.generic {indexing_maps = [#row, #id], iterator_types = ["parallel", "parallel"]}
        ins(%m : tensor<64xf32, "row">) outs(%s : tensor<64x16xf32, "fragment">) {
    ^bb0(%of_row: f32, %x: f32):
      %none = arith.cmpf oeq, %of_row, %least : f32
      %kept = arith.select %none, %zero, %of_row : f32
      %d = arith.subf %x, %kept : f32
      %f = arith.mulf %d, %log2e : f32
      %w = math.exp2 %f : f32
      linalg.yield %w : f32
    } -> tensor<64x16xf32, "fragment">
    tile.store (%p, %out, %c0, %c0, %c64, %c16) {dims = [0, 1]} : (tensor<64x16xf32, "fragment">, memref<64x16xf32>, index, index, index, index) -> ()
    gpu.return
  }
}
