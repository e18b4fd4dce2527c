// Loads before a loop, and the loop's first ones, are copied at once; one behind it in its last iteration.
// RUN: attn-opt %s --split-input-file --allow-unregistered-dialect --stage-loads --canonicalize --cse | FileCheck %s

gpu.module @kernels {
  // CHECK-LABEL: gpu.func @around_a_loop
  // CHECK-DAG:  %[[Q:.*]] = memref.alloc() : memref<1x64x64xf16, #gpu.address_space<workgroup>>
  // CHECK-DAG:  %[[FIRST:.*]] = memref.alloc() : memref<1x32x64xf16, #gpu.address_space<workgroup>>
  // CHECK-DAG:  %[[RING:.*]] = memref.alloc() : memref<2x32x64xf16, #gpu.address_space<workgroup>>
  // CHECK-DAG:  %[[LAST:.*]] = memref.alloc() : memref<1x32x64xf16, #gpu.address_space<workgroup>>
  // CHECK:      tile.copy_async (%arg0, %[[Q]], %c0
  // CHECK-NEXT: tile.commit_copies
  // CHECK:      tile.copy_async (%arg1, %{{.*}}, %c0, %c0
  // CHECK-NEXT: tile.commit_copies
  // CHECK-NEXT: %[[SOME:.*]] = arith.cmpi sgt, %arg2, %c32
  // CHECK-NEXT: scf.if %[[SOME]] {
  // CHECK-NEXT:   tile.copy_async (%arg1, %[[RING]], %c0, %c32
  // CHECK-NEXT: }
  // CHECK-NEXT: tile.commit_copies
  // CHECK-NEXT: tile.wait_copies {pending = 2 : i64}
  // CHECK-NEXT: gpu.barrier
  // CHECK-NEXT: tile.view %[[Q]]
  // CHECK:      tile.wait_copies {pending = 1 : i64}
  // CHECK-NEXT: gpu.barrier
  // CHECK-NEXT: tile.view

  // Without an iteration there is no last one.
  // CHECK:      %[[NONE:.*]] = arith.cmpi sle, %arg2, %c32
  // CHECK-NEXT: scf.if %[[NONE]] {
  // CHECK-NEXT:   tile.copy_async (%arg1
  // CHECK-NEXT: }
  // CHECK-NEXT: tile.commit_copies
  // CHECK:      scf.for %[[J:.*]] = %c32 to %arg2 step %c32 {
  // CHECK-NEXT:   tile.wait_copies {pending = 0 : i64}
  // CHECK-NEXT:   gpu.barrier
  // CHECK:        scf.if
  // CHECK:          tile.copy_async (%arg1, %[[RING]]
  // CHECK-NEXT:   } else {
  // CHECK-NEXT:     tile.copy_async (%arg1, %{{.*}}, %c0, %arg2
  // CHECK-NEXT:   }
  // CHECK-NEXT:   tile.commit_copies
  // CHECK:      tile.wait_copies {pending = 0 : i64}
  // CHECK-NEXT: gpu.barrier
  // CHECK-NEXT: tile.view
  gpu.func @around_a_loop(%q: memref<64x64xf16, strided<[?, 1]>>, %k: memref<?x64xf16, strided<[?, 1]>>, %end: index) kernel {
    %c0 = arith.constant 0 : index
    %c32 = arith.constant 32 : index
    %c64 = arith.constant 64 : index
    %a = tile.load(%q, %c0, %c0, %c64, %c64) {dims = [0, 1]} : (memref<64x64xf16, strided<[?, 1]>>, index, index, index, index) -> tensor<64x64xf16, "shared">
    "test.use"(%a) : (tensor<64x64xf16, "shared">) -> ()
    %b = tile.load(%k, %c0, %c0, %c32, %c64) {dims = [0, 1]} : (memref<?x64xf16, strided<[?, 1]>>, index, index, index, index) -> tensor<32x64xf16, "shared">
    "test.use"(%b) : (tensor<32x64xf16, "shared">) -> ()
    scf.for %j = %c32 to %end step %c32 {
      %c = tile.load(%k, %j, %c0, %c32, %c64) {dims = [0, 1]} : (memref<?x64xf16, strided<[?, 1]>>, index, index, index, index) -> tensor<32x64xf16, "shared">
      "test.use"(%c) : (tensor<32x64xf16, "shared">) -> ()
    }
    %d = tile.load(%k, %end, %c0, %c32, %c64) {dims = [0, 1]} : (memref<?x64xf16, strided<[?, 1]>>, index, index, index, index) -> tensor<32x64xf16, "shared">
    "test.use"(%d) : (tensor<32x64xf16, "shared">) -> ()
    gpu.return
  }
}

// -----

// A place that comes from what is computed on tiles in between cannot be known earlier.
gpu.module @kernels {
  // CHECK-LABEL: gpu.func @place_from_a_tile
  // CHECK:      tile.copy_async (%arg0
  // CHECK-NEXT: tile.commit_copies
  // CHECK-NEXT: tile.wait_copies {pending = 0 : i64}
  // CHECK:      %[[PLACE:.*]] = "test.place"
  // CHECK:      tile.copy_async (%arg0, %{{.*}}, %c0, %[[PLACE]]
  gpu.func @place_from_a_tile(%k: memref<?x64xf16, strided<[?, 1]>>) kernel {
    %c0 = arith.constant 0 : index
    %c32 = arith.constant 32 : index
    %c64 = arith.constant 64 : index
    %a = tile.load(%k, %c0, %c0, %c32, %c64) {dims = [0, 1]} : (memref<?x64xf16, strided<[?, 1]>>, index, index, index, index) -> tensor<32x64xf16, "shared">
    %place = "test.place"(%a) : (tensor<32x64xf16, "shared">) -> index
    %b = tile.load(%k, %place, %c0, %c32, %c64) {dims = [0, 1]} : (memref<?x64xf16, strided<[?, 1]>>, index, index, index, index) -> tensor<32x64xf16, "shared">
    "test.use"(%b) : (tensor<32x64xf16, "shared">) -> ()
    gpu.return
  }
}

// -----

// Without an iteration the first tile of a loop may be beyond the array: nothing is copied, then, not early either. A
// loop whose end comes from a tile waits for that.
gpu.module @kernels {
  // CHECK-LABEL: gpu.func @no_iteration
  // CHECK:      tile.copy_async (%arg0
  // CHECK-NEXT: tile.commit_copies
  // CHECK-NEXT: %[[SOME:.*]] = arith.cmpi slt, %arg1, %arg2
  // CHECK-NEXT: scf.if %[[SOME]] {
  // CHECK-NEXT:   %[[PLACE:.*]] = arith.muli %arg1, %c2
  // CHECK-NEXT:   tile.copy_async (%arg0, %{{.*}}, %c0, %[[PLACE]]
  // CHECK-NEXT: }
  // CHECK-NEXT: tile.commit_copies
  // CHECK-NEXT: tile.wait_copies {pending = 1 : i64}
  // CHECK:      scf.for
  // CHECK:      %[[END:.*]] = "test.end"
  // CHECK:      %[[MORE:.*]] = arith.cmpi slt, %arg2, %[[END]]
  // CHECK-NEXT: scf.if %[[MORE]] {
  // CHECK-NEXT:   %[[NEXT:.*]] = arith.muli %arg2, %c2
  // CHECK-NEXT:   tile.copy_async (%arg0, %{{.*}}, %c0, %[[NEXT]]
  // CHECK-NEXT: }
  // CHECK-NEXT: tile.commit_copies
  // CHECK:      scf.for %{{.*}} = %arg2 to %[[END]]
  gpu.func @no_iteration(%k: memref<128x64xf16, strided<[?, 1]>>, %begin: index, %middle: index) kernel {
    %c0 = arith.constant 0 : index
    %c2 = arith.constant 2 : index
    %c32 = arith.constant 32 : index
    %c64 = arith.constant 64 : index
    %a = tile.load(%k, %c0, %c0, %c64, %c64) {dims = [0, 1]} : (memref<128x64xf16, strided<[?, 1]>>, index, index, index, index) -> tensor<64x64xf16, "shared">
    "test.use"(%a) : (tensor<64x64xf16, "shared">) -> ()
    scf.for %j = %begin to %middle step %c32 {
      %at = arith.muli %j, %c2 : index
      %b = tile.load(%k, %at, %c0, %c32, %c64) {dims = [0, 1]} : (memref<128x64xf16, strided<[?, 1]>>, index, index, index, index) -> tensor<32x64xf16, "shared">
      "test.use"(%b) : (tensor<32x64xf16, "shared">) -> ()
    }
    %end = "test.end"(%a) : (tensor<64x64xf16, "shared">) -> index
    scf.for %j = %middle to %end step %c32 {
      %at = arith.muli %j, %c2 : index
      %b = tile.load(%k, %at, %c0, %c32, %c64) {dims = [0, 1]} : (memref<128x64xf16, strided<[?, 1]>>, index, index, index, index) -> tensor<32x64xf16, "shared">
      "test.use"(%b) : (tensor<32x64xf16, "shared">) -> ()
    }
    gpu.return
  }
}
