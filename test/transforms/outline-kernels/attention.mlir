// RUN: attn-opt %s --outline-kernels --canonicalize --cse | FileCheck %s
// RUN: attn-opt %s --outline-kernels --canonicalize --cse --assign-layouts --loop-invariant-code-motion --cse | FileCheck %s --check-prefix=LAYOUTS
// RUN: attn-opt %s --outline-kernels --canonicalize --cse --assign-layouts --loop-invariant-code-motion --cse --stage-loads --canonicalize --cse | FileCheck %s --check-prefix=STAGED

#q = affine_map<(b, i, j, d) -> (b, i, d)>
#k = affine_map<(b, i, j, d) -> (b, j, d)>
#s = affine_map<(b, i, j, d) -> (b, i, j)>
#tile = affine_map<(b, i, j) -> (b, i, j)>
#row = affine_map<(b, i, j) -> (b, i)>

// The largest score of each of 100 queries over 75 keys, in tiles of 64 × 32: what is padding is −∞ there.

// CHECK-LABEL: gpu.module @row_maximum_kernels
// CHECK:         gpu.func @row_maximum_0(%[[Q:.*]]: memref<3x100x40xf16, strided<[?, ?, 1]>>, %[[K:.*]]: memref<3x75x40xf16, strided<[?, ?, 1]>>, %[[OUT:.*]]: memref<3x100xf32, strided<[?, 1]>>) kernel
// CHECK-DAG:       %[[BLOCK:.*]] = gpu.block_id x
// CHECK-DAG:       %[[INIT:.*]] = arith.constant dense<0xFF800000> : tensor<64xf32>
// CHECK-DAG:       %[[IN:.*]] = arith.remui %[[BLOCK]], %c2
// CHECK-DAG:       %[[B:.*]] = arith.divui %[[BLOCK]], %c2
// CHECK-DAG:       %[[REVERSED:.*]] = arith.subi %c1, %[[IN]]
// CHECK-DAG:       %[[I:.*]] = arith.muli %[[REVERSED]], %c64
// CHECK:           %[[M:.*]] = affine.min
// CHECK:           %[[R:.*]] = scf.for %[[J:.*]] = %c0 to %c75 step %c32 iter_args(%[[MAX:.*]] = %[[INIT]]) -> (tensor<64xf32>)
// CHECK:             %[[N:.*]] = affine.min
// CHECK:             %[[QT:.*]] = tile.load (%[[Q]], %[[B]], %[[I]], %c0, %[[M]], %c40) {dims = [1, 2]{{.*}} -> (tensor<64x48xf16>)
// CHECK:             %[[KT:.*]] = tile.load (%[[K]], %[[B]], %[[J]], %c0, %[[N]], %c40) {dims = [1, 2]{{.*}} -> (tensor<32x48xf16>)
// CHECK:             %[[S:.*]] = linalg.generic {{.*}} ins(%[[QT]], %[[KT]] :
// CHECK:             %[[NEW:.*]] = linalg.generic {{.*}} ins(%[[S]] : tensor<64x32xf32>) outs(%[[MAX]] : tensor<64xf32>)
// CHECK:               %[[AT:.*]] = linalg.index 1
// CHECK:               %[[IN:.*]] = arith.cmpi slt, %[[AT]], %[[N]]
// CHECK:               %[[X:.*]] = arith.select %[[IN]], %{{.*}}, %{{.*}} : f32
// CHECK:               arith.maxnumf %[[X]]
// CHECK:             scf.yield %[[NEW]]
// CHECK:           tile.store (%[[R]], %[[OUT]], %[[B]], %[[I]], %[[M]]) {dims = [1]
// CHECK-LABEL: func.func @row_maximum
// CHECK-DAG:     %[[C6:.*]] = arith.constant 6
// CHECK:         %[[MEM:.*]] = memref.alloc() : memref<3x100xf32>
// CHECK:         gpu.launch_func @row_maximum_kernels::@row_maximum_0 blocks in (%[[C6]],
// CHECK:         %[[RESULT:.*]] = bufferization.to_tensor %[[MEM]]
// CHECK:         return %[[RESULT]]

// LAYOUTS-LABEL: gpu.func @row_maximum_0
// LAYOUTS:         %[[Q:.*]] = tile.load {{.*}} -> (tensor<64x48xf16, "shared">)
// LAYOUTS:         %[[A:.*]] = tile.convert_layout %[[Q]] : {{.*}} -> (tensor<64x48xf16, "operand_a">)
// LAYOUTS:         scf.for {{.*}} -> (tensor<64xf32, "row">)
// LAYOUTS:           %[[K:.*]] = tile.load {{.*}} -> (tensor<32x48xf16, "shared">)
// LAYOUTS:           %[[S:.*]] = linalg.generic {{.*}} ins(%[[A]], %[[K]] : tensor<64x48xf16, "operand_a">, tensor<32x48xf16, "shared">) outs(%{{.*}} : tensor<64x32xf32, "fragment">)
// LAYOUTS:           linalg.generic {{.*}} ins(%[[S]] : tensor<64x32xf32, "fragment">) outs(%{{.*}} : tensor<64xf32, "row">)

// STAGED-LABEL: gpu.func @row_maximum_0
// STAGED-DAG:     %[[KEYS:.*]] = memref.alloc() : memref<2x32x48xf16, #gpu.address_space<workgroup>>
// STAGED-DAG:     %[[QUERIES:.*]] = memref.alloc() : memref<1x64x48xf16, #gpu.address_space<workgroup>>
// STAGED:         tile.copy_async (%{{.*}}, %[[QUERIES]], %c0
// STAGED-NEXT:    tile.commit_copies
// STAGED:         tile.copy_async (%{{.*}}, %[[KEYS]], %c0
// STAGED-NEXT:    tile.commit_copies
// STAGED-NEXT:    tile.wait_copies {pending = 1 : i64}
// STAGED-NEXT:    gpu.barrier
// STAGED:         tile.view %[[QUERIES]]
// STAGED:         scf.for %[[J:.*]] = %c0 to %c75 step %c32
// STAGED:           tile.wait_copies {pending = 0 : i64}
// STAGED-NEXT:      gpu.barrier
// STAGED:           %[[STAGE:.*]] = arith.remui
// STAGED:           %[[NEXT:.*]] = arith.addi %[[J]], %c32
// STAGED:           scf.if
// STAGED:             %[[OTHER:.*]] = arith.subi %c1, %[[STAGE]]
// STAGED:             tile.copy_async (%{{.*}}, %[[KEYS]], %[[OTHER]], %{{.*}}, %[[NEXT]]
// STAGED:           tile.commit_copies
// STAGED:           tile.view %[[KEYS]] [%[[STAGE]]]
func.func @row_maximum(%q: tensor<3x100x40xf16>, %k: tensor<3x75x40xf16>) -> tensor<3x100xf32> {
  %c0 = arith.constant 0 : index
  %c75 = arith.constant 75 : index
  %c32 = arith.constant 32 : index
  %zero = arith.constant 0.0 : f32
  %minus_inf = arith.constant 0xFF800000 : f32
  %e = tensor.empty() : tensor<3x100xf32>
  %init = linalg.fill ins(%minus_inf : f32) outs(%e : tensor<3x100xf32>) -> tensor<3x100xf32>
  %r = scf.forall (%b, %i) = (0, 0) to (3, 100) step (1, 64) shared_outs(%out = %init) -> (tensor<3x100xf32>) {
    %m = affine.min affine_map<(d0) -> (64, 100 - d0)>(%i)
    %max0 = tensor.extract_slice %out[%b, %i] [1, %m] [1, 1] : tensor<3x100xf32> to tensor<1x?xf32>
    %max = scf.for %j = %c0 to %c75 step %c32 iter_args(%old = %max0) -> (tensor<1x?xf32>) {
      %n = affine.min affine_map<(d0) -> (32, 75 - d0)>(%j)
      %qt = tensor.extract_slice %q[%b, %i, 0] [1, %m, 40] [1, 1, 1] : tensor<3x100x40xf16> to tensor<1x?x40xf16>
      %kt = tensor.extract_slice %k[%b, %j, 0] [1, %n, 40] [1, 1, 1] : tensor<3x75x40xf16> to tensor<1x?x40xf16>
      %se = tensor.empty(%m, %n) : tensor<1x?x?xf32>
      %s0 = linalg.generic {indexing_maps = [affine_map<(b, i, j) -> ()>, #tile], iterator_types = ["parallel", "parallel", "parallel"]}
          ins(%zero : f32) outs(%se : tensor<1x?x?xf32>) {
      ^bb0(%x: f32, %y: f32):
        linalg.yield %x : f32
      } -> tensor<1x?x?xf32>
      %s = linalg.generic {indexing_maps = [#q, #k, #s], iterator_types = ["parallel", "parallel", "parallel", "reduction"]}
          ins(%qt, %kt : tensor<1x?x40xf16>, tensor<1x?x40xf16>) outs(%s0 : tensor<1x?x?xf32>) {
      ^bb0(%x: f16, %y: f16, %z: f32):
        %xw = arith.extf %x : f16 to f32
        %yw = arith.extf %y : f16 to f32
        %p = arith.mulf %xw, %yw : f32
        %t = arith.addf %z, %p : f32
        linalg.yield %t : f32
      } -> tensor<1x?x?xf32>
      %new = linalg.generic {indexing_maps = [#tile, #row], iterator_types = ["parallel", "parallel", "reduction"]}
          ins(%s : tensor<1x?x?xf32>) outs(%old : tensor<1x?xf32>) {
      ^bb0(%x: f32, %y: f32):
        %t = arith.maxnumf %x, %y : f32
        linalg.yield %t : f32
      } -> tensor<1x?xf32>
      scf.yield %new : tensor<1x?xf32>
    }
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %max into %out[%b, %i] [1, %m] [1, 1] : tensor<1x?xf32> into tensor<3x100xf32>
    }
  }
  return %r : tensor<3x100xf32>
}
