// RUN: attn-opt %s --outline-kernels --canonicalize --cse | FileCheck %s
// RUN: attn-opt %s --outline-kernels --canonicalize --cse --assign-layouts --stage-loads --lower-affine --canonicalize --cse --tiles-to-nvvm | FileCheck %s --check-prefix=NVVM

#tile = affine_map<(i, j) -> (i, j)>
#row = affine_map<(i, j) -> (i)>
#rows = affine_map<(i) -> (i)>
#count = affine_map<(i) -> (64, -i + 100)>

// No matmul: a thread for each element of a tile of 64 × 24, 24 blocks of 64 threads for a tile. The sums of rows are
// stored by the threads of the first column; rows beyond the 100th have no thread.

// CHECK-LABEL: gpu.module @weighted_kernels
// CHECK:         gpu.func @weighted_0(%[[P:.*]]: memref<8x100x24xf32, {{.*}}>, %[[W:.*]]: memref<8x100xf32, {{.*}}>, %[[OUT:.*]]: memref<100x24xf16, {{.*}}>, %[[SUM:.*]]: memref<100xf32, {{.*}}>) kernel attributes {tile.threads = 64 : i64}
// CHECK:           %[[BLOCK:.*]] = gpu.block_id x
// CHECK:           %[[PIECE:.*]] = arith.remui %[[BLOCK]], %c24
// CHECK:           %[[FIRST:.*]] = arith.muli %[[PIECE]], %c64
// CHECK:           %[[THREAD:.*]] = gpu.thread_id x
// CHECK:           %[[NUMBER:.*]] = arith.addi %[[FIRST]], %[[THREAD]]
// CHECK:           %[[TILE:.*]] = arith.divui %[[BLOCK]], %c24
// CHECK:           %[[M:.*]] = affine.min
// CHECK:           %[[ROW:.*]] = arith.divui %[[NUMBER]], %c24
// CHECK:           %[[INSIDE:.*]] = arith.cmpi slt, %[[ROW]], %[[M]]
// CHECK:           scf.if %[[INSIDE]]
// CHECK:             %[[STATE:.*]]:2 = scf.for %[[I:.*]] = %c0 to %c8 step %c1 iter_args(%[[O:.*]] = %{{.*}}, %[[S:.*]] = %{{.*}}) -> (f32, f32)
// CHECK:               %[[PLACE:.*]] = arith.addi %{{.*}}, %[[ROW]]
// CHECK:               %[[A:.*]] = memref.load %[[W]][%[[I]], %[[PLACE]]]
// CHECK:               %[[COLUMN:.*]] = arith.remui %[[NUMBER]], %c24
// CHECK:               %[[X:.*]] = memref.load %[[P]][%[[I]], %[[PLACE]], %[[COLUMN]]]
// CHECK:               arith.mulf %[[X]], %[[A]]
// CHECK:             %[[T:.*]] = arith.truncf %[[STATE]]#0 : f32 to f16
// CHECK:             %[[AT:.*]] = arith.remui %[[NUMBER]], %c24
// CHECK:             memref.store %[[T]], %[[OUT]][%{{.*}}, %[[AT]]]
// CHECK:             %[[FIRST_COLUMN:.*]] = arith.cmpi eq, %[[AT]], %c0
// CHECK:             scf.if %[[FIRST_COLUMN]]
// CHECK:               memref.store %[[STATE]]#1, %[[SUM]][
// CHECK-LABEL: func.func @weighted
// CHECK:         gpu.launch_func @weighted_kernels::@weighted_0 blocks in (%c48,

// NVVM: llvm.func @weighted_0({{.*}}nvvm.maxntid = array<i32: 64>
// NVVM: gpu.launch_func @weighted_kernels::@weighted_0 blocks in (%c48, {{.*}} threads in (%c64,
func.func @weighted(%p: tensor<8x100x24xf32>, %w: tensor<8x100xf32>) -> (tensor<100x24xf16>, tensor<100xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c8 = arith.constant 8 : index
  %zero = arith.constant 0.0 : f32
  %eo = tensor.empty() : tensor<100x24xf16>
  %es = tensor.empty() : tensor<100xf32>
  %r:2 = scf.forall (%i) = (0) to (100) step (64) shared_outs(%out = %eo, %sums = %es) -> (tensor<100x24xf16>, tensor<100xf32>) {
    %m = affine.min #count(%i)
    %et = tensor.empty(%m) : tensor<?x24xf32>
    %er = tensor.empty(%m) : tensor<?xf32>
    %o0 = linalg.generic {indexing_maps = [affine_map<(i, j) -> ()>, #tile], iterator_types = ["parallel", "parallel"]} ins(%zero : f32) outs(%et : tensor<?x24xf32>) {
    ^bb0(%z: f32, %y: f32):
      linalg.yield %z : f32
    } -> tensor<?x24xf32>
    %s0 = linalg.generic {indexing_maps = [affine_map<(i) -> ()>, #rows], iterator_types = ["parallel"]} ins(%zero : f32) outs(%er : tensor<?xf32>) {
    ^bb0(%z: f32, %y: f32):
      linalg.yield %z : f32
    } -> tensor<?xf32>
    %both:2 = scf.for %k = %c0 to %c8 step %c1 iter_args(%o = %o0, %s = %s0) -> (tensor<?x24xf32>, tensor<?xf32>) {
      %x = tensor.extract_slice %p[%k, %i, 0] [1, %m, 24] [1, 1, 1] : tensor<8x100x24xf32> to tensor<?x24xf32>
      %a = tensor.extract_slice %w[%k, %i] [1, %m] [1, 1] : tensor<8x100xf32> to tensor<?xf32>
      %s1 = linalg.generic {indexing_maps = [#rows, #rows], iterator_types = ["parallel"]} ins(%a : tensor<?xf32>) outs(%s : tensor<?xf32>) {
      ^bb0(%u: f32, %v: f32):
        %t = arith.addf %u, %v : f32
        linalg.yield %t : f32
      } -> tensor<?xf32>
      %o1 = linalg.generic {indexing_maps = [#row, #tile, #tile], iterator_types = ["parallel", "parallel"]} ins(%a, %x : tensor<?xf32>, tensor<?x24xf32>) outs(%o : tensor<?x24xf32>) {
      ^bb0(%u: f32, %v: f32, %y: f32):
        %t = arith.mulf %v, %u : f32
        %z = arith.addf %y, %t : f32
        linalg.yield %z : f32
      } -> tensor<?x24xf32>
      scf.yield %o1, %s1 : tensor<?x24xf32>, tensor<?xf32>
    }
    %eh = tensor.empty(%m) : tensor<?x24xf16>
    %h = linalg.generic {indexing_maps = [#tile, #tile], iterator_types = ["parallel", "parallel"]} ins(%both#0 : tensor<?x24xf32>) outs(%eh : tensor<?x24xf16>) {
    ^bb0(%v: f32, %y: f16):
      %t = arith.truncf %v : f32 to f16
      linalg.yield %t : f16
    } -> tensor<?x24xf16>
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %h into %out[%i, 0] [%m, 24] [1, 1] : tensor<?x24xf16> into tensor<100x24xf16>
      tensor.parallel_insert_slice %both#1 into %sums[%i] [%m] [1] : tensor<?xf32> into tensor<100xf32>
    }
  }
  return %r#0, %r#1 : tensor<100x24xf16>, tensor<100xf32>
}
