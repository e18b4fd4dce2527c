// RUN: attn-opt %s --linalg-generalize-named-ops --outline-kernels | FileCheck %s
// RUN: attn-opt %s --linalg-generalize-named-ops --outline-kernels --cse --assign-layouts | FileCheck %s --check-prefix=LAYOUTS

// What is rows of a matmul and columns of the same one is loaded once for each: loads that cse merges are two again.
// CHECK-LABEL: gpu.func @gram_0
// CHECK:         %[[ROWS:.*]] = tile.load {{.*}} -> (tensor<128x64xf16>
// CHECK:         %[[COLUMNS:.*]] = tile.load {{.*}} -> (tensor<128x64xf16>
// CHECK:         linalg.generic {{.*}} ins(%[[ROWS]], %[[COLUMNS]]
// LAYOUTS-LABEL: gpu.func @gram_0
// LAYOUTS:         %[[LOADED:.*]] = tile.load {{.*}} -> (tensor<128x64xf16, "shared">
// LAYOUTS:         %[[ROWS:.*]] = tile.convert_layout {{.*}}%[[LOADED]]
// LAYOUTS:         %[[COLUMNS:.*]] = tile.load {{.*}} -> (tensor<128x64xf16, "shared">
// LAYOUTS:         linalg.generic {{.*}} ins(%[[ROWS]], %[[COLUMNS]]
#rows = affine_map<(i, j, d) -> (i, d)>
#columns = affine_map<(i, j, d) -> (j, d)>
#out = affine_map<(i, j, d) -> (i, j)>
func.func @gram(%x: tensor<128x64xf16>) -> tensor<128x128xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<128x128xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<128x128xf32>) -> tensor<128x128xf32>
  %s = linalg.generic {indexing_maps = [#rows, #columns, #out], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%x, %x : tensor<128x64xf16>, tensor<128x64xf16>) outs(%z : tensor<128x128xf32>) {
  ^bb0(%a: f16, %b: f16, %o: f32):
    %0 = arith.extf %a : f16 to f32
    %1 = arith.extf %b : f16 to f32
    %2 = arith.mulf %0, %1 : f32
    %3 = arith.addf %o, %2 : f32
    linalg.yield %3 : f32
  } -> tensor<128x128xf32>
  return %s : tensor<128x128xf32>
}

// A vector that is a bias of rows, and one of columns.
// CHECK-LABEL: gpu.func @distances_0
// CHECK-SAME:    %[[C:[^:]*]]: memref<37xf32
// CHECK:         %[[ROW:.*]] = tile.load (%[[C]]{{.*}} -> (tensor<64xf32>
// CHECK:         %[[COLUMN:.*]] = tile.load (%[[C]]{{.*}} -> (tensor<48xf32>
// CHECK:         linalg.generic {{.*}} ins(%[[ROW]], %[[COLUMN]]
func.func @distances(%c: tensor<37xf32>, %q: tensor<37x16xf32>, %k: tensor<37x16xf32>) -> tensor<37x37xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<37x37xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<37x37xf32>) -> tensor<37x37xf32>
  %s = linalg.generic {indexing_maps = [#rows, #columns, #out], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%q, %k : tensor<37x16xf32>, tensor<37x16xf32>) outs(%z : tensor<37x37xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %2 = arith.mulf %a, %b : f32
    %3 = arith.addf %o, %2 : f32
    linalg.yield %3 : f32
  } -> tensor<37x37xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i)>, affine_map<(i, j) -> (j)>, affine_map<(i, j) -> (i, j)>,
      affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]}
      ins(%c, %c, %s : tensor<37xf32>, tensor<37xf32>, tensor<37x37xf32>) outs(%e : tensor<37x37xf32>) {
  ^bb0(%ci: f32, %cj: f32, %x: f32, %_: f32):
    %2 = arith.subf %ci, %cj : f32
    %3 = arith.addf %x, %2 : f32
    linalg.yield %3 : f32
  } -> tensor<37x37xf32>
  return %r : tensor<37x37xf32>
}

// A residual of a matmul's own rows: what it sums over is no column of the result.
// CHECK-LABEL: gpu.func @residual_0
// CHECK:         %[[LEFT:.*]] = tile.load (%[[X:[a-z0-9]*]]
// CHECK:         %[[RIGHT:.*]] = tile.load
// CHECK:         %[[M:.*]] = linalg.generic {{.*}} ins(%[[LEFT]], %[[RIGHT]] : tensor<64x64xf16>, tensor<64x64xf16>)
// CHECK:         %[[OTHER:.*]] = tile.load (%[[X]]
// CHECK:         linalg.generic {{.*}} ins(%[[M]], %[[OTHER]] :
func.func @residual(%x: tensor<64x64xf16>, %w: tensor<64x64xf16>) -> tensor<64x64xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<64x64xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<64x64xf32>) -> tensor<64x64xf32>
  %m = linalg.generic {indexing_maps = [#rows, #columns, #out], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%x, %w : tensor<64x64xf16>, tensor<64x64xf16>) outs(%z : tensor<64x64xf32>) {
  ^bb0(%a: f16, %b: f16, %o: f32):
    %0 = arith.extf %a : f16 to f32
    %1 = arith.extf %b : f16 to f32
    %2 = arith.mulf %0, %1 : f32
    %3 = arith.addf %o, %2 : f32
    linalg.yield %3 : f32
  } -> tensor<64x64xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>,
      affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]}
      ins(%m, %x : tensor<64x64xf32>, tensor<64x64xf16>) outs(%e : tensor<64x64xf32>) {
  ^bb0(%a: f32, %b: f16, %o: f32):
    %0 = arith.extf %b : f16 to f32
    %1 = arith.addf %a, %0 : f32
    linalg.yield %1 : f32
  } -> tensor<64x64xf32>
  return %r : tensor<64x64xf32>
}

// Of one query a score's row stands beside its batch as one element, and behind views of it they are each other's: what
// one matmul sums over is the batch of the other.
// CHECK-LABEL: gpu.func @one_query_0
// CHECK:         linalg.generic
// CHECK-SAME:      iterator_types = ["parallel", "parallel", "reduction"]
// CHECK:         linalg.generic
// CHECK-SAME:      iterator_types = ["parallel", "parallel", "reduction"]
// CHECK:         tile.store
func.func @one_query(%ds: tensor<2x1x17xf32>, %q: tensor<2x1x4xf32>, %u: tensor<1x4xf32>) -> tensor<2x17x4xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<2x17x4xf32>
  %r = scf.forall (%b) in (2) shared_outs(%all = %e) -> (tensor<2x17x4xf32>) {
    %s = tensor.extract_slice %ds[%b, 0, 0] [1, 1, 17] [1, 1, 1] : tensor<2x1x17xf32> to tensor<1x1x17xf32>
    %x = tensor.extract_slice %q[%b, 0, 0] [1, 1, 4] [1, 1, 1] : tensor<2x1x4xf32> to tensor<1x1x4xf32>
    %e0 = tensor.empty() : tensor<1x17x4xf32>
    %z = linalg.fill ins(%zero : f32) outs(%e0 : tensor<1x17x4xf32>) -> tensor<1x17x4xf32>
    %dk = linalg.generic {indexing_maps = [affine_map<(b, j, c, i) -> (b, i, j)>, affine_map<(b, j, c, i) -> (b, i, c)>,
        affine_map<(b, j, c, i) -> (b, j, c)>], iterator_types = ["parallel", "parallel", "parallel", "reduction"]}
        ins(%s, %x : tensor<1x1x17xf32>, tensor<1x1x4xf32>) outs(%z : tensor<1x17x4xf32>) {
    ^bb0(%l: f32, %m: f32, %o: f32):
      %1 = arith.mulf %l, %m : f32
      %2 = arith.addf %o, %1 : f32
      linalg.yield %2 : f32
    } -> tensor<1x17x4xf32>
    %wide = tensor.expand_shape %s [[0], [1], [2, 3]] output_shape [1, 1, 17, 1] : tensor<1x1x17xf32> into tensor<1x1x17x1xf32>
    %keys = tensor.collapse_shape %wide [[0, 1], [2], [3]] : tensor<1x1x17x1xf32> into tensor<1x17x1xf32>
    %more = linalg.generic {indexing_maps = [affine_map<(b, j, c, i) -> (b, j, i)>, affine_map<(b, j, c, i) -> (i, c)>,
        affine_map<(b, j, c, i) -> (b, j, c)>], iterator_types = ["parallel", "parallel", "parallel", "reduction"]}
        ins(%keys, %u : tensor<1x17x1xf32>, tensor<1x4xf32>) outs(%z : tensor<1x17x4xf32>) {
    ^bb0(%l: f32, %m: f32, %o: f32):
      %1 = arith.mulf %l, %m : f32
      %2 = arith.addf %o, %1 : f32
      linalg.yield %2 : f32
    } -> tensor<1x17x4xf32>
    %sum = linalg.generic {indexing_maps = [affine_map<(b, j, c) -> (b, j, c)>, affine_map<(b, j, c) -> (b, j, c)>,
        affine_map<(b, j, c) -> (b, j, c)>], iterator_types = ["parallel", "parallel", "parallel"]}
        ins(%dk, %more : tensor<1x17x4xf32>, tensor<1x17x4xf32>) outs(%e0 : tensor<1x17x4xf32>) {
    ^bb0(%l: f32, %m: f32, %o: f32):
      %1 = arith.addf %l, %m : f32
      linalg.yield %1 : f32
    } -> tensor<1x17x4xf32>
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %sum into %all[%b, 0, 0] [1, 17, 4] [1, 1, 1] : tensor<1x17x4xf32> into tensor<2x17x4xf32>
    }
  }
  return %r : tensor<2x17x4xf32>
}
