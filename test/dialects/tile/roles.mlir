// RUN: attn-opt %s | FileCheck %s
// RUN: attn-opt %s | attn-opt | FileCheck %s
// RUN: attn-opt %s --mlir-print-op-generic | attn-opt | FileCheck %s

!map = !nvgpu.tensormap.descriptor<tensor = memref<128x64xf16, 3>, swizzle = swizzle_128b, l2promo = l2promo_128b, oob = zero, interleave = none>
!barriers = memref<2xi64, #gpu.address_space<workgroup>>
!buffer = memref<2x128x64xf16, #gpu.address_space<workgroup>>
!flags = memref<256xi32, #gpu.address_space<workgroup>>

// CHECK-LABEL: func.func @map
func.func @map(%m: memref<4x1000x64xf16, strided<[?, ?, 1]>>, %n: index) -> !map {
  // CHECK: tile.tensor_map (%{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}) {box = [1, 128, 64]{{.*}}} : {{.*}} -> (!nvgpu.tensormap.descriptor<
  %r = tile.tensor_map (%m, %n, %n, %n) {box = [1, 128, 64]} : (memref<4x1000x64xf16, strided<[?, ?, 1]>>, index, index, index) -> (!map)
  return %r : !map
}

// CHECK-LABEL: func.func @roles
func.func @roles(%map: !map, %ready: !barriers, %buffer: !buffer, %n: index) {
  // CHECK: tile.init_barriers %[[B:.*]] {arrivals = 1 : i64} : memref<2xi64
  tile.init_barriers %ready {arrivals = 1 : i64} : (!barriers) -> ()
  // CHECK: tile.warp : index
  %w = tile.warp : index
  // CHECK: tile.set_registers {count = 24 : i64}
  tile.set_registers {count = 24 : i64}
  // CHECK: tile.copy_bulk (%{{.*}}, %{{.*}}, %[[B]], %[[N:.*]], %[[N]], %[[N]], %[[N]]) {dims = [1, 2]
  tile.copy_bulk (%map, %buffer, %ready, %n, %n, %n, %n) {dims = [1, 2]} : (!map, !buffer, !barriers, index, index, index, index) -> ()
  // CHECK: tile.wait_barrier %[[B]] [%[[N]]] {behind = 0 : i64}
  tile.wait_barrier %ready [%n] {behind = 0 : i64} : (!barriers, index) -> ()
  // CHECK: tile.arrive %[[B]] [%[[N]]]
  tile.arrive %ready [%n] : (!barriers, index) -> ()
  // CHECK: tile.start_turns {warpgroups = 2 : i64}
  tile.start_turns {warpgroups = 2 : i64}
  // CHECK: tile.take_turn {warpgroups = 2 : i64}
  tile.take_turn {warpgroups = 2 : i64}
  // CHECK: tile.pass_turn {warpgroups = 2 : i64}
  tile.pass_turn {warpgroups = 2 : i64}
  return
}

// CHECK-LABEL: func.func @arrange
func.func @arrange(%t: tensor<128x64xf8E4M3FN, "shared">, %b: memref<2x128x64xf8E4M3FN, #gpu.address_space<workgroup>>, %n: index) {
  // CHECK: tile.arrange %{{.*}}, %{{.*}} [%{{.*}}] {inner = 0 : i64}
  tile.arrange %t, %b [%n] {inner = 0 : i64} : (tensor<128x64xf8E4M3FN, "shared">, memref<2x128x64xf8E4M3FN, #gpu.address_space<workgroup>>, index) -> ()
  return
}

// CHECK-LABEL: func.func @rows
func.func @rows(%m: memref<1000x63xf16, strided<[?, 1]>>, %b: !buffer, %ready: !barriers, %n: index) {
  // CHECK: tile.copy_rows (%{{.*}}, %{{.*}}, %{{.*}}, %[[N:.*]], %[[N]], %[[N]], %[[N]], %[[N]]) {dims = [0, 1]
  tile.copy_rows (%m, %b, %ready, %n, %n, %n, %n, %n) {dims = [0, 1]} : (memref<1000x63xf16, strided<[?, 1]>>, !buffer, !barriers, index, index, index, index, index) -> ()
  return
}

// CHECK-LABEL: func.func @flags
func.func @flags(%bad: tensor<128xi1, "row">, %flags: !flags, %n: index) -> (i1, i1) {
  // CHECK: tile.init_flags %[[F:.*]] :
  tile.init_flags %flags : (!flags) -> ()
  // CHECK: tile.any %[[BAD:.*]] : (tensor<128xi1, "row">) -> (i1)
  %any = tile.any %bad : (tensor<128xi1, "row">) -> (i1)
  // CHECK: tile.any_of_warp %[[BAD]] : (tensor<128xi1, "row">) -> (i1)
  %mine = tile.any_of_warp %bad : (tensor<128xi1, "row">) -> (i1)
  // CHECK: tile.raise %[[BAD]], %[[F]] [%[[N:.*]]]
  tile.raise %bad, %flags [%n] : (tensor<128xi1, "row">, !flags, index) -> ()
  // CHECK: tile.meet
  tile.meet
  // CHECK: tile.raised %[[F]] [%[[N]]] : {{.*}} -> (i1)
  %raised = tile.raised %flags [%n] : (!flags, index) -> (i1)
  return %any, %raised : i1, i1
}

// CHECK-LABEL: func.func @sums
func.func @sums(%v: tensor<64x64xbf16, "shared">, %o: tensor<128x72xf32, "fragment">, %n: memref<1x16x64xbf16, #gpu.address_space<workgroup>>) -> tensor<128xf32, "row"> {
  // CHECK: tile.fill_ones %[[N:.*]] :
  tile.fill_ones %n : (memref<1x16x64xbf16, #gpu.address_space<workgroup>>) -> ()
  // CHECK: tile.append_ones (%{{.*}}, %[[N]]) : {{.*}} -> (tensor<64x72xbf16, "shared">)
  %w = tile.append_ones (%v, %n) : (tensor<64x64xbf16, "shared">, memref<1x16x64xbf16, #gpu.address_space<workgroup>>) -> (tensor<64x72xbf16, "shared">)
  // CHECK: %{{.*}}:2 = tile.split_sums %{{.*}} : (tensor<128x72xf32, "fragment">) -> (tensor<128x64xf32, "fragment">, tensor<128xf32, "row">)
  %r, %l = tile.split_sums %o : (tensor<128x72xf32, "fragment">) -> (tensor<128x64xf32, "fragment">, tensor<128xf32, "row">)
  return %l : tensor<128xf32, "row">
}

// CHECK-LABEL: func.func @quotient
func.func @quotient(%a: f32, %b: f32) -> f32 {
  // CHECK: tile.divide (%{{.*}}, %{{.*}}) {share = 6 : i64} : (f32, f32) -> (f32)
  %r = tile.divide (%a, %b) {share = 6 : i64} : (f32, f32) -> (f32)
  return %r : f32
}

// CHECK-LABEL: func.func @table
func.func @table(%x: f32, %t: memref<8192xi32, #gpu.address_space<workgroup>>) -> f32 {
  // CHECK: tile.fill_exp2 %[[T:.*]] :
  tile.fill_exp2 %t : (memref<8192xi32, #gpu.address_space<workgroup>>) -> ()
  // CHECK: tile.exp2 (%{{.*}}, %[[T]]) {bound = -1 : i64, share = 6 : i64} : {{.*}} -> (f32)
  %p = tile.exp2 (%x, %t) {bound = -1 : i64, share = 6 : i64} : (f32, memref<8192xi32, #gpu.address_space<workgroup>>) -> (f32)
  return %p : f32
}

// CHECK-LABEL: func.func @numbers
func.func @numbers(%taken: memref<?xi32, strided<[1]>>, %told: memref<2xi32, #gpu.address_space<workgroup>>, %n: index) -> (index, index, index) {
  // CHECK: %[[T:.*]] = tile.take %{{.*}} [%[[N:.*]]] : (memref<?xi32, strided<[1]>>, index) -> (index)
  %t = tile.take %taken [%n] : (memref<?xi32, strided<[1]>>, index) -> (index)
  // CHECK: tile.share %[[T]] [%[[N]]] : (index, index) -> (index)
  %shared = tile.share %t [%n] : (index, index) -> (index)
  // CHECK: tile.tell %[[T]], %[[M:.*]] [%[[N]]]
  tile.tell %t, %told [%n] : (index, memref<2xi32, #gpu.address_space<workgroup>>, index) -> ()
  // CHECK: tile.told %[[M]] [%[[N]]]
  %was = tile.told %told [%n] : (memref<2xi32, #gpu.address_space<workgroup>>, index) -> (index)
  return %t, %shared, %was : index, index, index
}
