// RUN: attn-opt %s | FileCheck %s
// RUN: attn-opt %s | attn-opt | FileCheck %s
// RUN: attn-opt %s --mlir-print-op-generic | attn-opt | FileCheck %s

// CHECK-LABEL: func.func @movement
func.func @movement(%m: memref<4x1000x64xf16, strided<[?, ?, 1]>>, %n: memref<1000x64xf32>, %i: index, %b: memref<2x128x64xf16, #gpu.address_space<workgroup>>) {
  // CHECK: %[[T:.*]] = tile.load (%{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}) {dims = [1, 2]{{.*}}} : {{.*}} -> (tensor<128x64xf16, "fragment">)
  %t = tile.load (%m, %i, %i, %i, %i, %i) {dims = [1, 2]} : (memref<4x1000x64xf16, strided<[?, ?, 1]>>, index, index, index, index, index) -> (tensor<128x64xf16, "fragment">)
  // CHECK: tile.convert_layout %[[T]] : {{.*}} -> (tensor<128x64xf16, "operand_a">)
  %a = tile.convert_layout %t : (tensor<128x64xf16, "fragment">) -> (tensor<128x64xf16, "operand_a">)
  // CHECK: tile.convert_layout %{{.*}} : (tensor<8x64xf32, "shared">) -> (tensor<64xf32, "column">)
  %sh = tile.load (%n, %i, %i, %i, %i) {dims = [0, 1]} : (memref<1000x64xf32>, index, index, index, index) -> (tensor<8x64xf32, "shared">)
  %column = tile.convert_layout %sh : (tensor<8x64xf32, "shared">) -> (tensor<64xf32, "column">)
  // CHECK: tile.scale %{{.*}} {exponent = -3 : i64} : (tensor<128x64xf16, "operand_a">) -> (tensor<128x64xf16, "operand_a">)
  %sa = tile.scale %a {exponent = -3 : i64} : (tensor<128x64xf16, "operand_a">) -> (tensor<128x64xf16, "operand_a">)
  // CHECK: tile.copy_async
  tile.copy_async (%m, %b, %i, %i, %i, %i, %i, %i) {dims = [1, 2]} : (memref<4x1000x64xf16, strided<[?, ?, 1]>>, memref<2x128x64xf16, #gpu.address_space<workgroup>>, index, index, index, index, index, index) -> ()
  // CHECK: tile.commit_copies
  tile.commit_copies
  // CHECK: tile.wait_copies {pending = 0 : i64}
  tile.wait_copies {pending = 0 : i64}
  // CHECK: tile.view %{{.*}} [%{{.*}}] : {{.*}} -> (tensor<128x64xf16, "shared">)
  %v = tile.view %b [%i] : (memref<2x128x64xf16, #gpu.address_space<workgroup>>, index) -> (tensor<128x64xf16, "shared">)
  // CHECK: tile.store_shared %{{.*}}, %{{.*}} [%{{.*}}] : (tensor<128x64xf16, "spread">
  %s = tile.load (%m, %i, %i, %i, %i, %i) {dims = [1, 2]} : (memref<4x1000x64xf16, strided<[?, ?, 1]>>, index, index, index, index, index) -> (tensor<128x64xf16, "spread">)
  tile.store_shared %s, %b [%i] : (tensor<128x64xf16, "spread">, memref<2x128x64xf16, #gpu.address_space<workgroup>>, index) -> ()
  // CHECK: tile.store (%[[T]], {{.*}} {dims = [1, 2]
  tile.store (%t, %m, %i, %i, %i, %i, %i) {dims = [1, 2]} : (tensor<128x64xf16, "fragment">, memref<4x1000x64xf16, strided<[?, ?, 1]>>, index, index, index, index, index) -> ()
  return
}

// CHECK-LABEL: func.func @joined
func.func @joined(%m: memref<2x8x16x64xf16, strided<[?, ?, ?, 1]>>, %o: memref<2x8x64xf16>, %r: !nvgpu.tensormap.descriptor<tensor = memref<64x64xf16, 3>, swizzle = swizzle_128b, l2promo = l2promo_128b, oob = zero, interleave = none>, %b: memref<1x64x64xf16, #gpu.address_space<workgroup>>, %ready: memref<1xi64, #gpu.address_space<workgroup>>, %i: index) {
  // CHECK: %[[T:.*]] = tile.load {{.*}} {dims = {{\[\[\[}}1, 4], [2, 16]], 3]{{.*}}} : {{.*}} -> (tensor<64x64xf16, "fragment">)
  %t = tile.load (%m, %i, %i, %i, %i, %i, %i) {dims = [[[1, 4], [2, 16]], 3]} : (memref<2x8x16x64xf16, strided<[?, ?, ?, 1]>>, index, index, index, index, index, index) -> (tensor<64x64xf16, "fragment">)
  // CHECK: tile.copy_bulk {{.*}} {dims = {{\[\[\[}}1, 4], [2, 16]], 3]
  tile.copy_bulk (%r, %b, %ready, %i, %i, %i, %i, %i) {dims = [[[1, 4], [2, 16]], 3]} : (!nvgpu.tensormap.descriptor<tensor = memref<64x64xf16, 3>, swizzle = swizzle_128b, l2promo = l2promo_128b, oob = zero, interleave = none>, memref<1x64x64xf16, #gpu.address_space<workgroup>>, memref<1xi64, #gpu.address_space<workgroup>>, index, index, index, index, index) -> ()
  // CHECK: tile.store (%[[T]], {{.*}} {dims = {{\[\[\[}}-1, 4], [1, 8]], 2]
  tile.store (%t, %o, %i, %i, %i, %i, %i) {dims = [[[-1, 4], [1, 8]], 2]} : (tensor<64x64xf16, "fragment">, memref<2x8x64xf16>, index, index, index, index, index) -> ()
  return
}

// CHECK-LABEL: func.func @skewed
func.func @skewed(%m: memref<4x1000x63xf16, strided<[?, ?, 1]>>, %i: index, %t: tensor<128x64xf16, "skewed">) {
  // CHECK: %[[S:.*]] = tile.row_shifts (%{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}) {aligned = 2 : i64, dim = 1 : i64{{.*}}} : {{.*}} -> (tensor<128xi32, "row">)
  %s = tile.row_shifts (%m, %i, %i, %i) {dim = 1 : i64, aligned = 2 : i64} : (memref<4x1000x63xf16, strided<[?, ?, 1]>>, index, index, index) -> (tensor<128xi32, "row">)
  // CHECK: tile.convert_layout %{{.*}} at %[[S]]{{.*}} : (tensor<128x64xf16, "skewed">, tensor<128xi32, "row">) -> (tensor<128x64xf16, "fragment">)
  %f = tile.convert_layout %t at %s : (tensor<128x64xf16, "skewed">, tensor<128xi32, "row">) -> (tensor<128x64xf16, "fragment">)
  return
}

// CHECK-LABEL: func.func @piece
func.func @piece(%m: memref<?x33xf16, strided<[?, 1]>>, %p: memref<?x40xf16>, %i: index) {
  // CHECK: tile.copy_piece (%{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}) {aligned = 2 : i64{{.*}}} : (memref<?x33xf16, strided<[?, 1]>>, memref<?x40xf16>, index, index, index, index, index) -> ()
  tile.copy_piece (%m, %p, %i, %i, %i, %i, %i) {aligned = 2 : i64} : (memref<?x33xf16, strided<[?, 1]>>, memref<?x40xf16>, index, index, index, index, index) -> ()
  return
}
