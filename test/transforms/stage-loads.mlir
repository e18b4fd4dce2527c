// Copies run one iteration ahead where shared memory has room for two stages (1 KiB is the system's); else in turn.
// RUN: attn-opt %s --allow-unregistered-dialect --stage-loads --cse | FileCheck %s --check-prefixes=BOTH,AHEAD
// RUN: attn-opt %s --allow-unregistered-dialect --stage-loads="shared-memory=17408" --cse | FileCheck %s --check-prefixes=BOTH,AHEAD
// RUN: attn-opt %s --allow-unregistered-dialect --stage-loads="shared-memory=17407" --cse --remarks 2>&1 | FileCheck %s --check-prefixes=TOLD,BOTH,TURN

// TOLD: remark: shared memory holds one stage of keys and values

gpu.module @kernels {
  // The two loops share a buffer.
  // BOTH-LABEL: gpu.func @loops
  // AHEAD:      %[[BUFFER:.*]] = memref.alloc() : memref<2x64x64xf16, #gpu.address_space<workgroup>>
  // TURN:       %[[BUFFER:.*]] = memref.alloc() : memref<1x64x64xf16, #gpu.address_space<workgroup>>
  // BOTH-NOT:   memref.alloc
  gpu.func @loops(%k: memref<512x64xf16, strided<[?, 1]>>) kernel {
    %c0 = arith.constant 0 : index
    %c64 = arith.constant 64 : index
    %c256 = arith.constant 256 : index
    %c512 = arith.constant 512 : index
    // AHEAD:      %[[SOME:.*]] = arith.cmpi slt, %c0, %c256
    // AHEAD-NEXT: scf.if %[[SOME]] {
    // AHEAD-NEXT:   tile.copy_async (%{{.*}}, %[[BUFFER]],
    // AHEAD-NEXT: }
    // AHEAD-NEXT: tile.commit_copies
    // BOTH:       scf.for %[[J:.*]] =
    // AHEAD:        tile.wait_copies {pending = 0 : i64}
    // AHEAD-NEXT:   gpu.barrier
    // AHEAD:        %[[NEXT:.*]] = arith.addi %[[J]]
    // AHEAD:        scf.if
    // AHEAD:          tile.copy_async (%{{.*}}, %[[BUFFER]], {{.*}}%[[NEXT]],
    // AHEAD:        tile.commit_copies
    // TURN:         gpu.barrier
    // TURN-NEXT:    tile.copy_async (%{{.*}}, %[[BUFFER]], {{.*}}%[[J]],
    // TURN-NEXT:    tile.commit_copies
    // TURN-NEXT:    tile.wait_copies {pending = 0 : i64}
    // TURN-NEXT:    gpu.barrier
    // BOTH:         tile.view %[[BUFFER]]
    scf.for %j = %c0 to %c256 step %c64 {
      %t = tile.load(%k, %j, %c0, %c64, %c64) {dims = [0, 1]} : (memref<512x64xf16, strided<[?, 1]>>, index, index, index, index) -> tensor<64x64xf16, "shared">
      "test.use"(%t) : (tensor<64x64xf16, "shared">) -> ()
    }
    // BOTH:       scf.for
    // BOTH:         tile.view %[[BUFFER]]
    scf.for %j = %c256 to %c512 step %c64 {
      %t = tile.load(%k, %j, %c0, %c64, %c64) {dims = [0, 1]} : (memref<512x64xf16, strided<[?, 1]>>, index, index, index, index) -> tensor<64x64xf16, "shared">
      "test.use"(%t) : (tensor<64x64xf16, "shared">) -> ()
    }
    gpu.return
  }
}
