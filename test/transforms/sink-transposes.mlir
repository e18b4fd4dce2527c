// RUN: attn-opt %s --split-input-file --sink-transposes --canonicalize | FileCheck %s

// A cache is written as it stands, and what else reads it so has a transposed copy.
// CHECK-LABEL: func.func @cache
// CHECK-SAME:    (%[[CACHE:.*]]: tensor<4x256x64xf32>, %[[U:.*]]: tensor<3x4x64xf32>, %[[AT:.*]]: tensor<3xindex>)
// CHECK:         %[[R:.*]] = scf.for %[[N:.*]] = {{.*}} iter_args(%[[OUT:.*]] = %[[CACHE]]) -> (tensor<4x256x64xf32>) {
// CHECK:           %[[I:.*]] = tensor.extract %[[AT]][%[[N]]]
// CHECK:           %[[W:.*]] = scf.if {{.*}} -> (tensor<4x256x64xf32>) {
// CHECK-NEXT:        %[[ROW:.*]] = tensor.extract_slice %[[U]][%[[N]], 0, 0]
// CHECK-NEXT:        %[[NEW:.*]] = tensor.insert_slice %[[ROW]] into %[[OUT]][0, %[[I]], 0] [4, 1, 64] [1, 1, 1] : tensor<4x64xf32> into tensor<4x256x64xf32>
// CHECK-NEXT:        scf.yield %[[NEW]]
// CHECK-NEXT:      } else {
// CHECK-NEXT:        scf.yield %[[OUT]]
// CHECK:         %[[T:.*]] = linalg.transpose ins(%[[R]] : tensor<4x256x64xf32>) {{.*}} permutation = [1, 0, 2]
// CHECK:         return %[[R]], %[[T]]
func.func @cache(%cache: tensor<4x256x64xf32>, %u: tensor<3x4x64xf32>, %at: tensor<3xindex>) -> (tensor<4x256x64xf32>, tensor<256x4x64xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c3 = arith.constant 3 : index
  %e = tensor.empty() : tensor<256x4x64xf32>
  %t = linalg.transpose ins(%cache : tensor<4x256x64xf32>) outs(%e : tensor<256x4x64xf32>) permutation = [1, 0, 2]
  %r = scf.for %n = %c0 to %c3 step %c1 iter_args(%out = %t) -> (tensor<256x4x64xf32>) {
    %i = tensor.extract %at[%n] : tensor<3xindex>
    %size = tensor.dim %out, %c0 : tensor<256x4x64xf32>
    %fits = arith.cmpi slt, %i, %size : index
    %w = scf.if %fits -> (tensor<256x4x64xf32>) {
      %new = tensor.extract_slice %u[%n, 0, 0] [1, 4, 64] [1, 1, 1] : tensor<3x4x64xf32> to tensor<4x64xf32>
      %o = tensor.insert_slice %new into %out[%i, 0, 0] [1, 4, 64] [1, 1, 1] : tensor<4x64xf32> into tensor<256x4x64xf32>
      scf.yield %o : tensor<256x4x64xf32>
    } else {
      scf.yield %out : tensor<256x4x64xf32>
    }
    scf.yield %w : tensor<256x4x64xf32>
  }
  %f = tensor.empty() : tensor<4x256x64xf32>
  %b = linalg.transpose ins(%r : tensor<256x4x64xf32>) outs(%f : tensor<4x256x64xf32>) permutation = [1, 0, 2]
  return %b, %r : tensor<4x256x64xf32>, tensor<256x4x64xf32>
}

// -----

// Windows of several dimensions, and what is read of them, are in the other order.
// CHECK-LABEL: func.func @window
// CHECK-SAME:    (%[[X:.*]]: tensor<8x16xf32>, %[[I:.*]]: index)
// CHECK:         %[[OLD:.*]] = tensor.extract_slice %[[X]][0, %[[I]]] [2, 3] [1, 1] : tensor<8x16xf32> to tensor<2x3xf32>
// CHECK:         linalg.transpose ins(%[[OLD]] : tensor<2x3xf32>) {{.*}} permutation = [1, 0]
// CHECK:         %[[ADDED:.*]] = linalg.generic
// CHECK:         %[[NEW:.*]] = linalg.transpose ins(%[[ADDED]] : tensor<3x2xf32>) {{.*}} permutation = [1, 0]
// CHECK:         %[[R:.*]] = tensor.insert_slice %[[NEW]] into %[[X]][0, %[[I]]] [2, 3] [1, 1] : tensor<2x3xf32> into tensor<8x16xf32>
// CHECK:         return %[[R]]
#t = affine_map<(i, j) -> (j, i)>
#id = affine_map<(i, j) -> (i, j)>
func.func @window(%x: tensor<8x16xf32>, %i: index) -> tensor<8x16xf32> {
  %e = tensor.empty() : tensor<16x8xf32>
  %t = linalg.generic {indexing_maps = [#t, #id], iterator_types = ["parallel", "parallel"]} ins(%x : tensor<8x16xf32>) outs(%e : tensor<16x8xf32>) {
  ^bb0(%a: f32, %b: f32):
    linalg.yield %a : f32
  } -> tensor<16x8xf32>
  %old = tensor.extract_slice %t[%i, 0] [3, 2] [1, 1] : tensor<16x8xf32> to tensor<3x2xf32>
  %s = tensor.empty() : tensor<3x2xf32>
  %u = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%old : tensor<3x2xf32>) outs(%s : tensor<3x2xf32>) {
  ^bb0(%a: f32, %b: f32):
    %c = arith.addf %a, %a : f32
    linalg.yield %c : f32
  } -> tensor<3x2xf32>
  %r = tensor.insert_slice %u into %t[%i, 0] [3, 2] [1, 1] : tensor<3x2xf32> into tensor<16x8xf32>
  %f = tensor.empty() : tensor<8x16xf32>
  %b = linalg.transpose ins(%r : tensor<16x8xf32>) outs(%f : tensor<8x16xf32>) permutation = [1, 0]
  return %b : tensor<8x16xf32>
}

// -----

// So are the tokens that are written read as they stand.
// CHECK-LABEL: func.func @tokens
// CHECK-SAME:    (%[[CACHE:.*]]: tensor<4x16xf32>, %[[U:.*]]: tensor<4x3xf32>, %[[I:.*]]: index)
// CHECK-NOT:     transpose
// CHECK:         %[[ROW:.*]] = tensor.extract_slice %[[U]][0, %[[I]]] [4, 1] [1, 1] : tensor<4x3xf32> to tensor<4xf32>
// CHECK:         %[[R:.*]] = tensor.insert_slice %[[ROW]] into %[[CACHE]][0, %[[I]]] [4, 1] [1, 1]
// CHECK:         return %[[R]]
func.func @tokens(%cache: tensor<4x16xf32>, %u: tensor<4x3xf32>, %i: index) -> tensor<4x16xf32> {
  %e = tensor.empty() : tensor<16x4xf32>
  %t = linalg.transpose ins(%cache : tensor<4x16xf32>) outs(%e : tensor<16x4xf32>) permutation = [1, 0]
  %d = tensor.empty() : tensor<3x4xf32>
  %tu = linalg.transpose ins(%u : tensor<4x3xf32>) outs(%d : tensor<3x4xf32>) permutation = [1, 0]
  %row = tensor.extract_slice %tu[%i, 0] [1, 4] [1, 1] : tensor<3x4xf32> to tensor<4xf32>
  %r = tensor.insert_slice %row into %t[%i, 0] [1, 4] [1, 1] : tensor<4xf32> into tensor<16x4xf32>
  %f = tensor.empty() : tensor<4x16xf32>
  %b = linalg.transpose ins(%r : tensor<16x4xf32>) outs(%f : tensor<4x16xf32>) permutation = [1, 0]
  return %b : tensor<4x16xf32>
}

// -----

// Who reads an insertion's result as it was gets it transposed, where that is transposed back, too.
// CHECK-LABEL: func.func @both
// CHECK-SAME:    (%[[X:.*]]: tensor<8x16xf32>, %[[U:.*]]: tensor<8xf32>, %[[I:.*]]: index)
// CHECK:         %[[R:.*]] = tensor.insert_slice %[[U]] into %[[X]][0, %[[I]]] [8, 1] [1, 1] : tensor<8xf32> into tensor<8x16xf32>
// CHECK:         %[[T:.*]] = linalg.transpose ins(%[[R]] : tensor<8x16xf32>) outs(%{{.*}} : tensor<16x8xf32>)
// CHECK:         return %[[R]], %[[T]]
func.func @both(%x: tensor<8x16xf32>, %u: tensor<8xf32>, %i: index) -> (tensor<8x16xf32>, tensor<16x8xf32>) {
  %e = tensor.empty() : tensor<16x8xf32>
  %t = linalg.transpose ins(%x : tensor<8x16xf32>) outs(%e : tensor<16x8xf32>) permutation = [1, 0]
  %r = tensor.insert_slice %u into %t[%i, 0] [1, 8] [1, 1] : tensor<8xf32> into tensor<16x8xf32>
  %f = tensor.empty() : tensor<8x16xf32>
  %b = linalg.transpose ins(%r : tensor<16x8xf32>) outs(%f : tensor<8x16xf32>) permutation = [1, 0]
  return %b, %r : tensor<8x16xf32>, tensor<16x8xf32>
}

// -----

// What is not transposed back stays.
// CHECK-LABEL: func.func @other
// CHECK:         linalg.transpose ins(%{{.*}} : tensor<8x16xf32>)
func.func @other(%x: tensor<8x16xf32>, %u: tensor<1x8xf32>, %i: index) -> tensor<16x8xf32> {
  %e = tensor.empty() : tensor<16x8xf32>
  %t = linalg.transpose ins(%x : tensor<8x16xf32>) outs(%e : tensor<16x8xf32>) permutation = [1, 0]
  %r = tensor.insert_slice %u into %t[%i, 0] [1, 8] [1, 1] : tensor<1x8xf32> into tensor<16x8xf32>
  return %r : tensor<16x8xf32>
}
