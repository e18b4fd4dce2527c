// What is computed on the same rows, sums over them among it, is one kernel, whose threads share rows.
// RUN: attn-opt %s --split-input-file --outline-rows="multiprocessors=1" --canonicalize --cse | FileCheck %s

// A norm: 64 pieces of eight elements a row, so two of them for each of 32 threads, and eight rows a block. What is
// summed, x + y, is also returned: it is written, too.

// CHECK-LABEL: gpu.func @norm_rows_0
// CHECK-SAME:    (%[[X:[a-z0-9]*]]: memref<4096x512xf16, strided<[?, 1]>>, %[[Y:[a-z0-9]*]]: memref<4096x512xf16, strided<[?, 1]>>, %[[OUT:[a-z0-9]*]]: memref<4096x512xf16, strided<[?, 1]>>, %[[SUM:[a-z0-9]*]]: memref<4096x512xf16, strided<[?, 1]>>
// CHECK-SAME:    tile.threads = 256
// CHECK-DAG:     %[[ROW:.*]] = arith.divui %{{.*}}, %c32
// CHECK-DAG:     %[[LANE:.*]] = arith.remui %{{.*}}, %c32
// CHECK:         vector.load %[[X]][%[[AT:.*]], %{{.*}}] : memref<4096x512xf16, strided<[?, 1]>>, vector<8xf16>
// CHECK:         vector.load %[[Y]][%[[AT]],
// CHECK-COUNT-8: arith.addf
// CHECK:         vector.load %[[X]][%[[AT]],
// CHECK:         vector.load %[[Y]][%[[AT]],
// CHECK-NOT:     vector.load
// CHECK:         gpu.subgroup_reduce add %{{.*}} cluster(size = 32)
// CHECK-NOT:     vector.load
// CHECK:         vector.store %{{.*}}, %[[OUT]]
// CHECK:         vector.store %{{.*}}, %[[OUT]]
// CHECK:         vector.store %{{.*}}, %[[SUM]]
// CHECK:         vector.store %{{.*}}, %[[SUM]]
// CHECK-NEXT:    }
// CHECK-NEXT:    gpu.return

// CHECK-LABEL: func.func @norm
// CHECK-COUNT-2: memref.alloc
// CHECK:         gpu.launch_func @norm_kernels::@norm_rows_0 blocks in (%c512,
// CHECK-NOT:     linalg.generic

#id = affine_map<(i, j) -> (i, j)>
#row = affine_map<(i, j) -> (i)>
#keep = affine_map<(i, j) -> (i, 0)>
func.func @norm(%x: tensor<4096x512xf16>, %y: tensor<4096x512xf16>) -> (tensor<4096x512xf16>, tensor<4096x512xf16>) {
  %zero = arith.constant 0.0 : f32
  %wide = tensor.empty() : tensor<4096x512xf16>
  %e = tensor.empty() : tensor<4096xf32>
  %zeros = linalg.fill ins(%zero : f32) outs(%e : tensor<4096xf32>) -> tensor<4096xf32>
  %z = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x, %y : tensor<4096x512xf16>, tensor<4096x512xf16>) outs(%wide : tensor<4096x512xf16>) {
  ^bb0(%a: f16, %b: f16, %old: f16):
    %r = arith.addf %a, %b : f16
    linalg.yield %r : f16
  } -> tensor<4096x512xf16>
  %s = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]}
      ins(%z : tensor<4096x512xf16>) outs(%zeros : tensor<4096xf32>) {
  ^bb0(%a: f16, %old: f32):
    %w = arith.extf %a : f16 to f32
    %q = arith.mulf %w, %w : f32
    %r = arith.addf %old, %q : f32
    linalg.yield %r : f32
  } -> tensor<4096xf32>
  %n = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>], iterator_types = ["parallel"]}
      ins(%s : tensor<4096xf32>) outs(%e : tensor<4096xf32>) {
  ^bb0(%a: f32, %old: f32):
    %r = math.rsqrt %a : f32
    linalg.yield %r : f32
  } -> tensor<4096xf32>
  %o = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]}
      ins(%z, %n : tensor<4096x512xf16>, tensor<4096xf32>) outs(%wide : tensor<4096x512xf16>) {
  ^bb0(%a: f16, %b: f32, %old: f16):
    %w = arith.extf %a : f16 to f32
    %p = arith.mulf %w, %b : f32
    %r = arith.truncf %p : f32 to f16
    linalg.yield %r : f16
  } -> tensor<4096x512xf16>
  return %o, %z : tensor<4096x512xf16>, tensor<4096x512xf16>
}

// -----

// A softmax, and the sum of each row: long rows are shared by a block, of whose 1024 threads 600 have a piece of four
// elements, and the sum is written by one thread.

// CHECK-LABEL: gpu.func @softmax_rows_0
// CHECK-SAME:    tile.threads = 1024
// CHECK:         %[[T:.*]] = gpu.thread_id x
// CHECK:         %[[INSIDE:.*]] = arith.cmpi ult, %[[T]], %c600
// CHECK:         %[[PIECE:.*]] = arith.minui %[[T]], %c599
// CHECK:         %[[MOST:.*]] = arith.select %[[INSIDE]], %{{.*}}, %{{.*}} : f32
// CHECK:         gpu.all_reduce maximumf %[[MOST]] uniform
// CHECK:         math.exp
// CHECK:         gpu.all_reduce add
// CHECK:         %[[FIRST:.*]] = arith.cmpi eq, %[[T]], %c0
// CHECK:         scf.if %[[FIRST]] {
// CHECK:           memref.store
// CHECK:         arith.divf
// CHECK:         scf.if %[[INSIDE]] {
// CHECK:           vector.store

// CHECK-LABEL: func.func @softmax
// CHECK:         gpu.launch_func @softmax_kernels::@softmax_rows_0 blocks in (%c2,

#id = affine_map<(i, j) -> (i, j)>
#row = affine_map<(i, j) -> (i)>
func.func @softmax(%x: tensor<2x2400xf32>) -> (tensor<2x2400xf32>, tensor<2xf32>) {
  %zero = arith.constant 0.0 : f32
  %lowest = arith.constant 0xFF800000 : f32
  %wide = tensor.empty() : tensor<2x2400xf32>
  %e = tensor.empty() : tensor<2xf32>
  %zeros = linalg.fill ins(%zero : f32) outs(%e : tensor<2xf32>) -> tensor<2xf32>
  %least = linalg.fill ins(%lowest : f32) outs(%e : tensor<2xf32>) -> tensor<2xf32>
  %m = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<2x2400xf32>) outs(%least : tensor<2xf32>) {
  ^bb0(%a: f32, %old: f32):
    %r = arith.maximumf %old, %a : f32
    linalg.yield %r : f32
  } -> tensor<2xf32>
  %p = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x, %m : tensor<2x2400xf32>, tensor<2xf32>) outs(%wide : tensor<2x2400xf32>) {
  ^bb0(%a: f32, %b: f32, %old: f32):
    %d = arith.subf %a, %b : f32
    %r = math.exp %d : f32
    linalg.yield %r : f32
  } -> tensor<2x2400xf32>
  %s = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]}
      ins(%p : tensor<2x2400xf32>) outs(%zeros : tensor<2xf32>) {
  ^bb0(%a: f32, %old: f32):
    %r = arith.addf %old, %a : f32
    linalg.yield %r : f32
  } -> tensor<2xf32>
  %o = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]}
      ins(%p, %s : tensor<2x2400xf32>, tensor<2xf32>) outs(%wide : tensor<2x2400xf32>) {
  ^bb0(%a: f32, %b: f32, %old: f32):
    %r = arith.divf %a, %b : f32
    linalg.yield %r : f32
  } -> tensor<2x2400xf32>
  return %o, %s : tensor<2x2400xf32>, tensor<2xf32>
}

// -----

// Rows longer than threads keep: 8 pieces of 4 elements come in a loop for the maximum, and those of the last 8 that
// there are behind it; they are read again for the quotients.

// CHECK-LABEL: gpu.func @long_rows_0
// CHECK:         scf.for %{{.*}} = %c0 to %c16 step %c8 iter_args(%{{.*}} = %{{.*}}) -> (f32) {
// CHECK-COUNT-8:   vector.load
// CHECK:           scf.yield
// CHECK:         vector.load
// CHECK:         gpu.all_reduce maximumf
// CHECK:         scf.for
// CHECK-COUNT-8:   vector.load
// CHECK-COUNT-8:   vector.store

// CHECK-LABEL: func.func @long
// CHECK:         gpu.launch_func @long_kernels::@long_rows_0 blocks in (%c2,

#id = affine_map<(i, j) -> (i, j)>
#row = affine_map<(i, j) -> (i)>
func.func @long(%x: tensor<2x80000xf32>) -> tensor<2x80000xf32> {
  %lowest = arith.constant 0xFF800000 : f32
  %wide = tensor.empty() : tensor<2x80000xf32>
  %e = tensor.empty() : tensor<2xf32>
  %least = linalg.fill ins(%lowest : f32) outs(%e : tensor<2xf32>) -> tensor<2xf32>
  %m = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<2x80000xf32>) outs(%least : tensor<2xf32>) {
  ^bb0(%a: f32, %old: f32):
    %r = arith.maximumf %old, %a : f32
    linalg.yield %r : f32
  } -> tensor<2xf32>
  %o = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x, %m : tensor<2x80000xf32>, tensor<2xf32>) outs(%wide : tensor<2x80000xf32>) {
  ^bb0(%a: f32, %b: f32, %old: f32):
    %r = arith.divf %a, %b : f32
    linalg.yield %r : f32
  } -> tensor<2x80000xf32>
  return %o : tensor<2x80000xf32>
}

// -----

// No groups: a sum alone, and one that only what is computed by element reads (a producer, that of a loop, say, takes
// it along). Sums of a matmul are no rows: it reads them again for each column.

// CHECK-NOT: gpu.launch_func

#id = affine_map<(i, j) -> (i, j)>
#row = affine_map<(i, j) -> (i)>
func.func @alone(%x: tensor<8x64xf32>) -> tensor<8xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<8xf32>
  %zeros = linalg.fill ins(%zero : f32) outs(%e : tensor<8xf32>) -> tensor<8xf32>
  %s = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<8x64xf32>) outs(%zeros : tensor<8xf32>) {
  ^bb0(%a: f32, %old: f32):
    %r = arith.addf %old, %a : f32
    linalg.yield %r : f32
  } -> tensor<8xf32>
  %n = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>], iterator_types = ["parallel"]}
      ins(%s : tensor<8xf32>) outs(%e : tensor<8xf32>) {
  ^bb0(%a: f32, %old: f32):
    %r = math.rsqrt %a : f32
    linalg.yield %r : f32
  } -> tensor<8xf32>
  return %n : tensor<8xf32>
}

func.func @matmul(%x: tensor<8x64xf32>, %y: tensor<8x64xf32>, %z: tensor<16xf32>) -> tensor<8x8x16xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<8x8xf32>
  %zeros = linalg.fill ins(%zero : f32) outs(%e : tensor<8x8xf32>) -> tensor<8x8xf32>
  %s = linalg.generic {indexing_maps = [affine_map<(i, j, k) -> (i, k)>, affine_map<(i, j, k) -> (j, k)>,
      affine_map<(i, j, k) -> (i, j)>], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%x, %y : tensor<8x64xf32>, tensor<8x64xf32>) outs(%zeros : tensor<8x8xf32>) {
  ^bb0(%a: f32, %b: f32, %old: f32):
    %p = arith.mulf %a, %b : f32
    %r = arith.addf %old, %p : f32
    linalg.yield %r : f32
  } -> tensor<8x8xf32>
  %wide = tensor.empty() : tensor<8x8x16xf32>
  %o = linalg.generic {indexing_maps = [affine_map<(i, j, k) -> (i, j)>, affine_map<(i, j, k) -> (k)>,
      affine_map<(i, j, k) -> (i, j, k)>], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%s, %z : tensor<8x8xf32>, tensor<16xf32>) outs(%wide : tensor<8x8x16xf32>) {
  ^bb0(%a: f32, %b: f32, %old: f32):
    %r = arith.mulf %a, %b : f32
    linalg.yield %r : f32
  } -> tensor<8x8x16xf32>
  return %o : tensor<8x8x16xf32>
}

// -----

// Two sums of rows, whose elements others compute with in another shape: rows are read once for both.

// CHECK-LABEL: gpu.func @group_rows_0
// CHECK-COUNT-2: vector.load
// CHECK-NOT:     vector.load
// CHECK:         gpu.subgroup_reduce add
// CHECK-NOT:     vector.load
// CHECK:         gpu.subgroup_reduce add
// CHECK:         gpu.return
// CHECK-LABEL: func.func @group
// CHECK:         gpu.launch_func @group_kernels::@group_rows_0
// CHECK:         linalg.generic
// CHECK-NOT:     linalg.generic

#id = affine_map<(i, j) -> (i, j)>
#row = affine_map<(i, j) -> (i)>

func.func @group(%x: tensor<8x64xf32>) -> tensor<8x4x16xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<8xf32>
  %zeros = linalg.fill ins(%zero : f32) outs(%e : tensor<8xf32>) -> tensor<8xf32>
  %s = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<8x64xf32>) outs(%zeros : tensor<8xf32>) {
  ^bb0(%a: f32, %old: f32):
    %r = arith.addf %old, %a : f32
    linalg.yield %r : f32
  } -> tensor<8xf32>
  %v = linalg.generic {indexing_maps = [#id, #row, #row], iterator_types = ["parallel", "reduction"]}
      ins(%x, %s : tensor<8x64xf32>, tensor<8xf32>) outs(%zeros : tensor<8xf32>) {
  ^bb0(%a: f32, %b: f32, %old: f32):
    %d = arith.subf %a, %b : f32
    %q = arith.mulf %d, %d : f32
    %r = arith.addf %old, %q : f32
    linalg.yield %r : f32
  } -> tensor<8xf32>
  %y = tensor.expand_shape %x [[0], [1, 2]] output_shape [8, 4, 16] : tensor<8x64xf32> into tensor<8x4x16xf32>
  %wide = tensor.empty() : tensor<8x4x16xf32>
  %o = linalg.generic {indexing_maps = [affine_map<(i, j, k) -> (i, j, k)>, affine_map<(i, j, k) -> (i)>,
      affine_map<(i, j, k) -> (i)>, affine_map<(i, j, k) -> (i, j, k)>], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%y, %s, %v : tensor<8x4x16xf32>, tensor<8xf32>, tensor<8xf32>) outs(%wide : tensor<8x4x16xf32>) {
  ^bb0(%a: f32, %b: f32, %c: f32, %old: f32):
    %d = arith.subf %a, %b : f32
    %r = arith.mulf %d, %c : f32
    linalg.yield %r : f32
  } -> tensor<8x4x16xf32>
  return %o : tensor<8x4x16xf32>
}

// -----

// As many rows as a multiple of an open size: that is computed, and no one asks a member for its size, which is gone.

// CHECK-LABEL: func.func @open
// CHECK:         %[[ROWS:.*]] = affine.apply #{{.*}}()[%{{.*}}]
// CHECK-NOT:     tensor.dim %{{[0-9]}}
// CHECK:         memref.alloc(%{{.*}}) : memref<?x64xf32>
// CHECK:         gpu.launch_func @open_kernels::@open_rows_0
// CHECK-NOT:     linalg.generic

#id = affine_map<(i, j) -> (i, j)>
#row = affine_map<(i, j) -> (i)>

func.func @open(%a: tensor<?x8x64xf32>) -> tensor<?x64xf32> {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : f32
  %n = tensor.dim %a, %c0 : tensor<?x8x64xf32>
  %m = affine.apply affine_map<()[s0] -> (s0 * 8)>()[%n]
  %x = tensor.collapse_shape %a [[0, 1], [2]] : tensor<?x8x64xf32> into tensor<?x64xf32>
  %e = tensor.empty(%m) : tensor<?xf32>
  %zeros = linalg.fill ins(%zero : f32) outs(%e : tensor<?xf32>) -> tensor<?xf32>
  %s = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<?x64xf32>) outs(%zeros : tensor<?xf32>) {
  ^bb0(%b: f32, %old: f32):
    %r = arith.addf %old, %b : f32
    linalg.yield %r : f32
  } -> tensor<?xf32>
  %wide = tensor.empty(%m) : tensor<?x64xf32>
  %o = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x, %s : tensor<?x64xf32>, tensor<?xf32>) outs(%wide : tensor<?x64xf32>) {
  ^bb0(%b: f32, %c: f32, %old: f32):
    %r = arith.divf %b, %c : f32
    linalg.yield %r : f32
  } -> tensor<?x64xf32>
  return %o : tensor<?x64xf32>
}

// -----

// Sums on buffers have no result, and are left.
// CHECK-LABEL: func.func @buffers
// CHECK-NEXT:    linalg.generic
func.func @buffers(%x: memref<8x16xf32>, %o: memref<8xf32>) {
  linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>],
                  iterator_types = ["parallel", "reduction"]} ins(%x : memref<8x16xf32>) outs(%o : memref<8xf32>) {
  ^bb0(%a: f32, %old: f32):
    %r = arith.addf %old, %a : f32
    linalg.yield %r : f32
  }
  return
}

// -----

// Two sums of the same elements, neither of which reads the other one, share their rows.
// CHECK-LABEL: gpu.func @extremes_rows_0
// CHECK-COUNT-1: vector.load
// CHECK-DAG:     gpu.subgroup_reduce minimumf
// CHECK-DAG:     gpu.subgroup_reduce maximumf
// CHECK-LABEL: func.func @extremes
// CHECK:         gpu.launch_func @extremes_kernels::@extremes_rows_0
// CHECK-NOT:     linalg.generic

#id = affine_map<(i, j) -> (i, j)>
#row = affine_map<(i, j) -> (i)>

func.func @extremes(%x: tensor<8x64xf32>) -> (tensor<8xf32>, tensor<8xf32>) {
  %low = arith.constant 0xFF800000 : f32
  %high = arith.constant 0x7F800000 : f32
  %e = tensor.empty() : tensor<8xf32>
  %lows = linalg.fill ins(%low : f32) outs(%e : tensor<8xf32>) -> tensor<8xf32>
  %highs = linalg.fill ins(%high : f32) outs(%e : tensor<8xf32>) -> tensor<8xf32>
  %s = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<8x64xf32>) outs(%highs : tensor<8xf32>) {
  ^bb0(%b: f32, %old: f32):
    %r = arith.minimumf %old, %b : f32
    linalg.yield %r : f32
  } -> tensor<8xf32>
  %t = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<8x64xf32>) outs(%lows : tensor<8xf32>) {
  ^bb0(%b: f32, %old: f32):
    %r = arith.maximumf %old, %b : f32
    linalg.yield %r : f32
  } -> tensor<8xf32>
  return %s, %t : tensor<8xf32>, tensor<8xf32>
}
