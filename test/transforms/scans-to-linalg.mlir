// RUN: attn-opt %s --split-input-file --linalg-generalize-named-ops --scans-to-linalg | FileCheck %s

// A running sum along the last dimension, and what it comes to.
// CHECK-DAG:   #[[ALL:.*]] = affine_map<(d0, d1) -> (d0, d1)>
// CHECK-DAG:   #[[ROWS:.*]] = affine_map<(d0, d1) -> (d0)>
// CHECK-LABEL: func.func @sums
// CHECK-SAME:    (%[[A:.*]]: tensor<?x?xf32>, %[[ZEROS:.*]]: tensor<?xf32>
// CHECK:         %[[N:.*]] = tensor.dim %[[A]], %c1
// CHECK:         %[[EMPTY:.*]] = tensor.empty
// CHECK:         %[[ALL_SLICES:.*]] = tensor.extract_slice %[[A]][0, 0] [%{{.*}}, %[[N]]] [1, 1]
// CHECK:         %[[R:.*]]:2 = linalg.generic {indexing_maps = [#[[ALL]], #[[ROWS]], #[[ALL]]],
// CHECK-SAME:        iterator_types = ["parallel", "reduction"]} ins(%[[ALL_SLICES]] : tensor<?x?xf32>)
// CHECK-SAME:        outs(%[[ZEROS]], %[[EMPTY]] : tensor<?xf32>, tensor<?x?xf32>)
// CHECK-NEXT:    ^bb0(%[[X:.*]]: f32, %[[SUM:.*]]: f32, %{{.*}}: f32):
// CHECK-NEXT:      %[[NEXT:.*]] = arith.addf %[[X]], %[[SUM]]
// CHECK-NEXT:      linalg.yield %[[NEXT]], %[[NEXT]]
// CHECK:         return %[[R]]#1, %[[R]]#0
func.func @sums(%a: tensor<?x?xf32>, %zeros: tensor<?xf32>) -> (tensor<?x?xf32>, tensor<?xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %m = tensor.dim %a, %c0 : tensor<?x?xf32>
  %n = tensor.dim %a, %c1 : tensor<?x?xf32>
  %e = tensor.empty(%m, %n) : tensor<?x?xf32>
  %t = tensor.empty(%m) : tensor<?xf32>
  %r:2 = scf.for %j = %c0 to %n step %c1 iter_args(%out = %e, %sum = %zeros) -> (tensor<?x?xf32>, tensor<?xf32>) {
    %x = tensor.extract_slice %a[0, %j] [%m, 1] [1, 1] : tensor<?x?xf32> to tensor<?xf32>
    %s = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>, affine_map<(i) -> (i)>],
        iterator_types = ["parallel"]} ins(%x, %sum : tensor<?xf32>, tensor<?xf32>) outs(%t : tensor<?xf32>) {
    ^bb0(%in: f32, %old: f32, %_: f32):
      %0 = arith.addf %in, %old : f32
      linalg.yield %0 : f32
    } -> tensor<?xf32>
    %o = tensor.insert_slice %s into %out[0, %j] [%m, 1] [1, 1] : tensor<?xf32> into tensor<?x?xf32>
    scf.yield %o, %s : tensor<?x?xf32>, tensor<?xf32>
  }
  return %r#0, %r#1 : tensor<?x?xf32>, tensor<?xf32>
}

// -----

// What comes before each slice, in f16, of squares of another dimension: ops one after the other.
// CHECK-DAG:   #[[ALL:.*]] = affine_map<(d0, d1) -> (d1, d0)>
// CHECK-DAG:   #[[ROWS:.*]] = affine_map<(d0, d1) -> (d0)>
// CHECK-LABEL: func.func @before
// CHECK:         linalg.generic {indexing_maps = [#[[ALL]], #[[ROWS]], #[[ALL]]]
// CHECK-NEXT:    ^bb0(%[[X:.*]]: f16, %[[OLD:.*]]: f16, %{{.*}}: f16):
// CHECK:           %[[SQUARE:.*]] = arith.mulf %[[X]], %[[X]]
// CHECK:           %[[NEXT:.*]] = arith.maximumf %[[SQUARE]], %[[OLD]]
// CHECK:           linalg.yield %[[NEXT]], %[[OLD]]
#id = affine_map<(i) -> (i)>
func.func @before(%a: tensor<5x7xf16>, %init: tensor<7xf16>) -> tensor<5x7xf16> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c5 = arith.constant 5 : index
  %e = tensor.empty() : tensor<5x7xf16>
  %t = tensor.empty() : tensor<7xf16>
  %r:2 = scf.for %j = %c0 to %c5 step %c1 iter_args(%out = %e, %max = %init) -> (tensor<5x7xf16>, tensor<7xf16>) {
    %x = tensor.extract_slice %a[%j, 0] [1, 7] [1, 1] : tensor<5x7xf16> to tensor<7xf16>
    %q = linalg.square ins(%x : tensor<7xf16>) outs(%t : tensor<7xf16>) -> tensor<7xf16>
    %s = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel"]}
        ins(%q, %max : tensor<7xf16>, tensor<7xf16>) outs(%t : tensor<7xf16>) {
    ^bb0(%in: f16, %old: f16, %_: f16):
      %0 = arith.maximumf %in, %old : f16
      linalg.yield %0 : f16
    } -> tensor<7xf16>
    %o = tensor.insert_slice %max into %out[%j, 0] [1, 7] [1, 1] : tensor<7xf16> into tensor<5x7xf16>
    scf.yield %o, %s : tensor<5x7xf16>, tensor<7xf16>
  }
  return %r#0 : tensor<5x7xf16>
}

// -----

// Loops that are none: one that leaves a slice as it was, one that reads what it puts together, one whose elements
// depend on others.
// CHECK-LABEL: func.func @others
// CHECK-COUNT-3: scf.for
#id = affine_map<(i) -> (i)>
#swapped = affine_map<(i, j) -> (j, i)>
#same = affine_map<(i, j) -> (i, j)>
func.func @others(%a: tensor<5x7xf32>, %b: tensor<5x4x4xf32>, %m: tensor<4x4xf32>)
    -> (tensor<5x7xf32>, tensor<5x7xf32>, tensor<5x4x4xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %c5 = arith.constant 5 : index
  %e = tensor.empty() : tensor<5x4x4xf32>
  %t = tensor.empty() : tensor<4x4xf32>
  %r = scf.for %j = %c0 to %c4 step %c1 iter_args(%out = %a) -> (tensor<5x7xf32>) {
    %x = tensor.extract_slice %a[%j, 0] [1, 7] [1, 1] : tensor<5x7xf32> to tensor<7xf32>
    %o = tensor.insert_slice %x into %out[%j, 0] [1, 7] [1, 1] : tensor<7xf32> into tensor<5x7xf32>
    scf.yield %o : tensor<5x7xf32>
  }
  %s = scf.for %j = %c0 to %c5 step %c1 iter_args(%out = %a) -> (tensor<5x7xf32>) {
    %x = tensor.extract_slice %out[0, 0] [1, 7] [1, 1] : tensor<5x7xf32> to tensor<7xf32>
    %o = tensor.insert_slice %x into %out[%j, 0] [1, 7] [1, 1] : tensor<7xf32> into tensor<5x7xf32>
    scf.yield %o : tensor<5x7xf32>
  }
  %u:2 = scf.for %j = %c0 to %c5 step %c1 iter_args(%out = %e, %old = %m) -> (tensor<5x4x4xf32>, tensor<4x4xf32>) {
    %x = tensor.extract_slice %b[%j, 0, 0] [1, 4, 4] [1, 1, 1] : tensor<5x4x4xf32> to tensor<4x4xf32>
    %n = linalg.generic {indexing_maps = [#same, #swapped, #same], iterator_types = ["parallel", "parallel"]}
        ins(%x, %old : tensor<4x4xf32>, tensor<4x4xf32>) outs(%t : tensor<4x4xf32>) {
    ^bb0(%in: f32, %other: f32, %_: f32):
      %0 = arith.addf %in, %other : f32
      linalg.yield %0 : f32
    } -> tensor<4x4xf32>
    %o = tensor.insert_slice %n into %out[%j, 0, 0] [1, 4, 4] [1, 1, 1] : tensor<4x4xf32> into tensor<5x4x4xf32>
    scf.yield %o, %n : tensor<5x4x4xf32>, tensor<4x4xf32>
  }
  return %r, %s, %u#0 : tensor<5x7xf32>, tensor<5x7xf32>, tensor<5x4x4xf32>
}
