// RUN: attn-opt %s --split-input-file --peel-tails --canonicalize | FileCheck %s
// RUN: attn-opt %s --split-input-file --pass-pipeline="builtin.module(peel-tails{matrix=dot},canonicalize)" | FileCheck %s --check-prefix=DOT
// RUN: attn-opt %s --split-input-file --pass-pipeline="builtin.module(peel-tails{matrix=amx-fp16},canonicalize)" | FileCheck %s --check-prefix=TILES

#rest = affine_map<(i) -> (-i + 300, 128)>

// The last tile, of 44, is no iteration of the loop.
// CHECK-LABEL: func.func @cut
// CHECK:       %[[MAIN:.*]] = scf.for %{{.*}} = %c0 to %c256 step %c128 iter_args(%{{.*}} = %arg1)
// CHECK:       %[[TAIL:.*]] = tensor.extract_slice %arg0[256] [44] [1]
// CHECK:       linalg.generic {{.*}} ins(%[[TAIL]] : tensor<44xbf16>) outs(%[[MAIN]] : tensor<f32>)
func.func @cut(%x: tensor<300xbf16>, %sum: tensor<f32>) -> tensor<f32> {
  %c0 = arith.constant 0 : index
  %c128 = arith.constant 128 : index
  %c300 = arith.constant 300 : index
  %r = scf.for %i = %c0 to %c300 step %c128 iter_args(%a = %sum) -> (tensor<f32>) {
    %n = affine.min #rest(%i)
    %t = tensor.extract_slice %x[%i] [%n] [1] : tensor<300xbf16> to tensor<?xbf16>
    %s = linalg.generic {indexing_maps = [affine_map<(d) -> (d)>, affine_map<(d) -> ()>], iterator_types = ["reduction"]}
        ins(%t : tensor<?xbf16>) outs(%a : tensor<f32>) {
    ^bb0(%u: bf16, %v: f32):
      %0 = arith.extf %u : bf16 to f32
      %1 = arith.addf %v, %0 : f32
      linalg.yield %1 : f32
    } -> tensor<f32>
    scf.yield %s : tensor<f32>
  }
  return %r : tensor<f32>
}

// -----

#rest = affine_map<(i)[n] -> (-i + n, 128)>

// The end is known at run time only: there may be a cut tile.
// CHECK-LABEL: func.func @dynamic
// CHECK:       %[[SPLIT:.*]] = affine.max #[[WHOLE:.*]]()[%arg1]
// CHECK:       %[[MAIN:.*]] = scf.for %{{.*}} = %c0 to %[[SPLIT]] step %c128
// CHECK-NOT:     affine.min
// CHECK:         tensor<128xbf16>
// CHECK:       scf.for %[[I:.*]] = %[[SPLIT]] to %arg1 step %c128 iter_args(%{{.*}} = %[[MAIN]])
// CHECK:         affine.min #{{.*}}(%[[I]])[%arg1]
// CHECK:         tensor<?xbf16>
func.func @dynamic(%x: tensor<?xbf16>, %end: index, %sum: tensor<f32>) -> tensor<f32> {
  %c0 = arith.constant 0 : index
  %c128 = arith.constant 128 : index
  %r = scf.for %i = %c0 to %end step %c128 iter_args(%a = %sum) -> (tensor<f32>) {
    %n = affine.min #rest(%i)[%end]
    %t = tensor.extract_slice %x[%i] [%n] [1] : tensor<?xbf16> to tensor<?xbf16>
    %s = linalg.generic {indexing_maps = [affine_map<(d) -> (d)>, affine_map<(d) -> ()>], iterator_types = ["reduction"]}
        ins(%t : tensor<?xbf16>) outs(%a : tensor<f32>) {
    ^bb0(%u: bf16, %v: f32):
      %0 = arith.extf %u : bf16 to f32
      %1 = arith.addf %v, %0 : f32
      linalg.yield %1 : f32
    } -> tensor<f32>
    scf.yield %s : tensor<f32>
  }
  return %r : tensor<f32>
}

// -----

#rest = affine_map<(i)[n] -> (-i + n, 128)>
#least = affine_map<(m, n) -> (m, n)>

// The loop starts anywhere, and ends before what the tiles are cut by, or there. One of masked tiles is left: there are
// few.
// CHECK-LABEL: func.func @end_before
// CHECK:       %[[N:.*]] = tensor.dim %arg0
// CHECK:       %[[END:.*]] = affine.max
// CHECK:       %[[SPLIT:.*]] = affine.max #{{.*}}()[%arg1, %[[END]]]
// CHECK:       scf.for %{{.*}} = %arg1 to %[[SPLIT]] step %c128
// CHECK:       scf.for %{{.*}} = %[[SPLIT]] to %[[END]] step %c128
// CHECK:       scf.for %{{.*}} = %[[END]] to %[[N]] step %c128
// CHECK-NOT:   scf.for
func.func @end_before(%x: tensor<?xbf16>, %low: index, %m: index, %all: i1, %sum: tensor<f32>) -> tensor<f32> {
  %c0 = arith.constant 0 : index
  %c128 = arith.constant 128 : index
  %zero = arith.constant 0.0 : bf16
  %n = tensor.dim %x, %c0 : tensor<?xbf16>
  %some = affine.min #least(%m, %n)
  %other = arith.select %all, %n, %c0 : index
  %end = affine.max #least(%some, %other)
  %r = scf.for %i = %low to %end step %c128 iter_args(%a = %sum) -> (tensor<f32>) {
    %size = affine.min #rest(%i)[%n]
    %t = tensor.extract_slice %x[%i] [%size] [1] : tensor<?xbf16> to tensor<?xbf16>
    %s = linalg.generic {indexing_maps = [affine_map<(d) -> (d)>, affine_map<(d) -> ()>], iterator_types = ["reduction"]}
        ins(%t : tensor<?xbf16>) outs(%a : tensor<f32>) {
    ^bb0(%u: bf16, %v: f32):
      %0 = arith.extf %u : bf16 to f32
      %1 = arith.addf %v, %0 : f32
      linalg.yield %1 : f32
    } -> tensor<f32>
    scf.yield %s : tensor<f32>
  }
  %q = scf.for %i = %end to %n step %c128 iter_args(%a = %r) -> (tensor<f32>) {
    %size = affine.min #rest(%i)[%n]
    %t = tensor.extract_slice %x[%i] [%size] [1] : tensor<?xbf16> to tensor<?xbf16>
    %s = linalg.generic {indexing_maps = [affine_map<(d) -> (d)>, affine_map<(d) -> ()>], iterator_types = ["reduction"]}
        ins(%t : tensor<?xbf16>) outs(%a : tensor<f32>) {
    ^bb0(%u: bf16, %v: f32):
      %d = linalg.index 0 : index
      %j = arith.addi %d, %i : index
      %live = arith.cmpi sle, %j, %m : index
      %masked = arith.select %live, %u, %zero : bf16
      %0 = arith.extf %masked : bf16 to f32
      %1 = arith.addf %v, %0 : f32
      linalg.yield %1 : f32
    } -> tensor<f32>
    scf.yield %s : tensor<f32>
  }
  return %q : tensor<f32>
}

// -----

#rest = affine_map<(i)[n] -> (-i + n, 128)>

// Of tiles of few rows, for what a matrix unit multiplies alone: f16 is not multiplied by dot products.
// CHECK-LABEL: func.func @few_rows
// DOT-LABEL: func.func @few_rows
// DOT:       scf.for %
// DOT-NOT:   scf.for %
// DOT:       } {few_rows}
// TILES-LABEL: func.func @few_rows
// TILES:       scf.for %
// TILES:       scf.for %
// TILES:       } {few_rows}
func.func @few_rows(%x: tensor<?xf16>, %n: index, %sums: tensor<?xf32>) -> tensor<?xf32> {
  %c0 = arith.constant 0 : index
  %c128 = arith.constant 128 : index
  %t = scf.forall (%j) in (%n) shared_outs(%o = %sums) -> (tensor<?xf32>) {
    %sum = tensor.extract_slice %o[%j] [1] [1] : tensor<?xf32> to tensor<f32>
    %r = scf.for %i = %c0 to %n step %c128 iter_args(%a = %sum) -> (tensor<f32>) {
      %m = affine.min #rest(%i)[%n]
      %t = tensor.extract_slice %x[%i] [%m] [1] : tensor<?xf16> to tensor<?xf16>
      %s = linalg.generic {indexing_maps = [affine_map<(d) -> (d)>, affine_map<(d) -> ()>], iterator_types = ["reduction"]}
          ins(%t : tensor<?xf16>) outs(%a : tensor<f32>) {
      ^bb0(%u: f16, %v: f32):
        %0 = arith.extf %u : f16 to f32
        %1 = arith.addf %v, %0 : f32
        linalg.yield %1 : f32
      } -> tensor<f32>
      scf.yield %s : tensor<f32>
    }
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %r into %o[%j] [1] [1] : tensor<f32> into tensor<?xf32>
    }
  } {few_rows}
  return %t : tensor<?xf32>
}

// -----

#rest = affine_map<(i)[n] -> (-i + n, 128)>

// Dot products of few rows need a second body only where all sizes are known.
// DOT-LABEL: func.func @few_rows_in_pairs
// DOT:       scf.for %
// DOT-NOT:   scf.for %
// DOT:       scf.forall
// DOT:       scf.for %{{.*}} = %c0 to %c256 step %c128
// DOT:       tensor.extract_slice %arg0[256] [45] [1]
// TILES-LABEL: func.func @few_rows_in_pairs
// TILES-COUNT-3: scf.for %
func.func @few_rows_in_pairs(%x: tensor<?xbf16>, %n: index, %sums: tensor<?xf32>) -> (tensor<?xf32>, tensor<?xf32>) {
  %c0 = arith.constant 0 : index
  %c128 = arith.constant 128 : index
  %c301 = arith.constant 301 : index
  %dynamic = scf.forall (%j) in (%n) shared_outs(%o = %sums) -> (tensor<?xf32>) {
    %sum = tensor.extract_slice %o[%j] [1] [1] : tensor<?xf32> to tensor<f32>
    %r = scf.for %i = %c0 to %n step %c128 iter_args(%a = %sum) -> (tensor<f32>) {
      %m = affine.min #rest(%i)[%n]
      %t = tensor.extract_slice %x[%i] [%m] [1] : tensor<?xbf16> to tensor<?xbf16>
      %s = linalg.generic {indexing_maps = [affine_map<(d) -> (d)>, affine_map<(d) -> ()>], iterator_types = ["reduction"]}
          ins(%t : tensor<?xbf16>) outs(%a : tensor<f32>) {
      ^bb0(%u: bf16, %v: f32):
        %0 = arith.extf %u : bf16 to f32
        %1 = arith.addf %v, %0 : f32
        linalg.yield %1 : f32
      } -> tensor<f32>
      scf.yield %s : tensor<f32>
    }
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %r into %o[%j] [1] [1] : tensor<f32> into tensor<?xf32>
    }
  } {few_rows}
  %static = scf.forall (%j) in (%n) shared_outs(%o = %sums) -> (tensor<?xf32>) {
    %sum = tensor.extract_slice %o[%j] [1] [1] : tensor<?xf32> to tensor<f32>
    %r = scf.for %i = %c0 to %c301 step %c128 iter_args(%a = %sum) -> (tensor<f32>) {
      %m = affine.min #rest(%i)[%c301]
      %t = tensor.extract_slice %x[%i] [%m] [1] : tensor<?xbf16> to tensor<?xbf16>
      %s = linalg.generic {indexing_maps = [affine_map<(d) -> (d)>, affine_map<(d) -> ()>], iterator_types = ["reduction"]}
          ins(%t : tensor<?xbf16>) outs(%a : tensor<f32>) {
      ^bb0(%u: bf16, %v: f32):
        %0 = arith.extf %u : bf16 to f32
        %1 = arith.addf %v, %0 : f32
        linalg.yield %1 : f32
      } -> tensor<f32>
      scf.yield %s : tensor<f32>
    }
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %r into %o[%j] [1] [1] : tensor<f32> into tensor<?xf32>
    }
  } {few_rows}
  return %dynamic, %static : tensor<?xf32>, tensor<?xf32>
}
