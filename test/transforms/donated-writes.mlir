// RUN: attn-opt %s --split-input-file --donated-writes | FileCheck %s

// Of rows at the same place the last one is put; those that do not fit have no place.
// CHECK-DAG: #[[N:.*]] = affine_map<(d0, d1) -> (d0)>
// CHECK-DAG: #[[ALL:.*]] = affine_map<(d0, d1) -> (d0, d1)>
// CHECK-LABEL: func.func @rows
// CHECK-SAME:    (%[[CACHE:.*]]: tensor<8x16xf32> {{{.*}}}, %[[AT:.*]]: tensor<3xi32>, %[[NEW:.*]]: tensor<3x16xf32>)
// CHECK:         %[[LAST:.*]] = linalg.generic {{.*}} iterator_types = ["parallel", "reduction"]} ins(%[[AT]], %[[AT]], %{{.*}} : tensor<3xi32>, tensor<3xi32>, tensor<3xi1>)
// CHECK:           arith.cmpi ult
// CHECK:           arith.cmpi eq
// CHECK:         } -> tensor<3xi1>
// CHECK:         %[[R:.*]]:2 = linalg.generic {indexing_maps = [#[[ALL]], #[[N]], #[[N]], #[[ALL]], #[[ALL]]], iterator_types = ["parallel", "parallel"]}
// CHECK-SAME:        ins(%[[NEW]], %[[AT]], %[[LAST]] : tensor<3x16xf32>, tensor<3xi32>, tensor<3xi1>)
// CHECK-NEXT:    ^bb0(%[[X:.*]]: f32, %[[I:.*]]: i32, %[[IS_LAST:.*]]: i1,
// CHECK:           %[[PLACE:.*]] = arith.select
// CHECK-NEXT:      linalg.yield %[[X]], %[[PLACE]] : f32, i64
// CHECK:         %[[P:.*]] = linalg_ext.put ins(%[[R]]#0, %[[R]]#1 : tensor<3x16xf32>, tensor<3x16xi64>) outs(%[[CACHE]] : tensor<8x16xf32>)
// CHECK-NOT:     scf.for
// CHECK:         return %[[P]]
func.func @rows(%cache: tensor<8x16xf32> {bufferization.writable = true}, %at: tensor<3xi32>, %u: tensor<3x16xf32>) -> tensor<8x16xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c3 = arith.constant 3 : index
  %c7 = arith.constant 7 : index
  %r = scf.for %n = %c0 to %c3 step %c1 iter_args(%out = %cache) -> (tensor<8x16xf32>) {
    %x = tensor.extract %at[%n] : tensor<3xi32>
    %i = arith.index_cast %x : i32 to index
    %low = arith.cmpi sge, %i, %c0 : index
    %high = arith.cmpi sle, %i, %c7 : index
    %fits = arith.andi %low, %high : i1
    %w = scf.if %fits -> (tensor<8x16xf32>) {
      %new = tensor.extract_slice %u[%n, 0] [1, 16] [1, 1] : tensor<3x16xf32> to tensor<16xf32>
      %o = tensor.insert_slice %new into %out[%i, 0] [1, 16] [1, 1] : tensor<16xf32> into tensor<8x16xf32>
      scf.yield %o : tensor<8x16xf32>
    } else {
      scf.yield %out : tensor<8x16xf32>
    }
    scf.yield %w : tensor<8x16xf32>
  }
  return %r : tensor<8x16xf32>
}

// -----

// A slice at a place that the host knows, through a view: no search, and nothing beyond the cache.
// CHECK-LABEL: func.func @slice
// CHECK-SAME:    (%[[CACHE:.*]]: tensor<2x4x16xf32> {{{.*}}}, %[[NEW:.*]]: tensor<1x16xf32>, %[[AT:.*]]: index)
// CHECK:         %[[R:.*]]:2 = linalg.generic {{.*}} iterator_types = ["parallel"]} ins(%[[NEW]] : tensor<1x16xf32>)
// CHECK:           arith.cmpi ult, %[[AT]]
// CHECK:         %[[P:.*]] = linalg_ext.put ins(%[[R]]#0, %[[R]]#1 : tensor<16xf32>, tensor<16xi64>) outs(%[[CACHE]] : tensor<2x4x16xf32>)
// CHECK:         %[[V:.*]] = tensor.collapse_shape %[[P]] {{\[}}[0, 1], [2]] : tensor<2x4x16xf32> into tensor<8x16xf32>
// CHECK:         return %[[V]]
func.func @slice(%cache: tensor<2x4x16xf32> {bufferization.writable = true}, %u: tensor<1x16xf32>, %at: index) -> tensor<8x16xf32> {
  %v = tensor.collapse_shape %cache [[0, 1], [2]] : tensor<2x4x16xf32> into tensor<8x16xf32>
  %r = tensor.insert_slice %u into %v[%at, 0] [1, 16] [1, 1] : tensor<1x16xf32> into tensor<8x16xf32>
  return %r : tensor<8x16xf32>
}

// -----

// What is read elsewhere, and what is not donated, stays.
// CHECK-LABEL: func.func @read
// CHECK-NOT:     put
func.func @read(%cache: tensor<8x4xf32> {bufferization.writable = true}, %other: tensor<8x4xf32>, %u: tensor<1x4xf32>, %at: index)
    -> (tensor<8x4xf32>, tensor<8x4xf32>, tensor<8x4xf32>) {
  %r = tensor.insert_slice %u into %cache[%at, 0] [1, 4] [1, 1] : tensor<1x4xf32> into tensor<8x4xf32>
  %s = tensor.insert_slice %u into %other[%at, 0] [1, 4] [1, 1] : tensor<1x4xf32> into tensor<8x4xf32>
  return %r, %cache, %s : tensor<8x4xf32>, tensor<8x4xf32>, tensor<8x4xf32>
}

// -----

// Windows that may overlap by a part are written one after the other.
// CHECK-LABEL: func.func @overlapping
// CHECK:         scf.for
// CHECK-NOT:     put
func.func @overlapping(%cache: tensor<8xf32> {bufferization.writable = true}, %at: tensor<3xindex>, %u: tensor<3x2xf32>) -> tensor<8xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c3 = arith.constant 3 : index
  %r = scf.for %n = %c0 to %c3 step %c1 iter_args(%out = %cache) -> (tensor<8xf32>) {
    %i = tensor.extract %at[%n] : tensor<3xindex>
    %new = tensor.extract_slice %u[%n, 0] [1, 2] [1, 1] : tensor<3x2xf32> to tensor<2xf32>
    %o = tensor.insert_slice %new into %out[%i] [2] [1] : tensor<2xf32> into tensor<8xf32>
    scf.yield %o : tensor<8xf32>
  }
  return %r : tensor<8xf32>
}

// -----

// Each token of each sequence, at that sequence's place: the number of the sequence is a place, too.
// CHECK-LABEL: func.func @batches
// CHECK:         linalg.generic {{.*}} iterator_types = ["parallel", "parallel"]}
// CHECK-NOT:     reduction
// CHECK:         linalg_ext.put ins(%{{.*}}, %{{.*}} : tensor<3x4xf32>, tensor<3x4xi64>)
func.func @batches(%cache: tensor<3x8x4xf32> {bufferization.writable = true}, %at: tensor<3xindex>, %u: tensor<3x4xf32>) -> tensor<3x8x4xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c3 = arith.constant 3 : index
  %r = scf.for %n = %c0 to %c3 step %c1 iter_args(%out = %cache) -> (tensor<3x8x4xf32>) {
    %i = tensor.extract %at[%n] : tensor<3xindex>
    %new = tensor.extract_slice %u[%n, 0] [1, 4] [1, 1] : tensor<3x4xf32> to tensor<4xf32>
    %o = tensor.insert_slice %new into %out[%n, %i, 0] [1, 1, 4] [1, 1, 1] : tensor<4xf32> into tensor<3x8x4xf32>
    scf.yield %o : tensor<3x8x4xf32>
  }
  return %r : tensor<3x8x4xf32>
}

// -----

// Two writes with one condition are two.
// CHECK-LABEL: func.func @together
// CHECK-SAME:    (%[[K:.*]]: tensor<8x4xf32> {{{.*}}}, %[[V:.*]]: tensor<8x4xf32> {{{.*}}},
// CHECK-NOT:     scf.if
// CHECK:         %[[R:.*]] = linalg_ext.put ins({{.*}}) outs(%[[K]] :
// CHECK:         %[[S:.*]] = linalg_ext.put ins({{.*}}) outs(%[[V]] :
// CHECK:         return %[[R]], %[[S]]
func.func @together(%keys: tensor<8x4xf32> {bufferization.writable = true}, %values: tensor<8x4xf32> {bufferization.writable = true},
    %u: tensor<1x4xf32>, %at: tensor<index>) -> (tensor<8x4xf32>, tensor<8x4xf32>) {
  %c8 = arith.constant 8 : index
  %i = tensor.extract %at[] : tensor<index>
  %fits = arith.cmpi ult, %i, %c8 : index
  %r:2 = scf.if %fits -> (tensor<8x4xf32>, tensor<8x4xf32>) {
    %k = tensor.insert_slice %u into %keys[%i, 0] [1, 4] [1, 1] : tensor<1x4xf32> into tensor<8x4xf32>
    %v = tensor.insert_slice %u into %values[%i, 0] [1, 4] [1, 1] : tensor<1x4xf32> into tensor<8x4xf32>
    scf.yield %k, %v : tensor<8x4xf32>, tensor<8x4xf32>
  } else {
    scf.yield %keys, %values : tensor<8x4xf32>, tensor<8x4xf32>
  }
  return %r#0, %r#1 : tensor<8x4xf32>, tensor<8x4xf32>
}
