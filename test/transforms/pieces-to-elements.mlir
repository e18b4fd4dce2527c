// RUN: attn-opt %s --pieces-to-elements --canonicalize | FileCheck %s

// CHECK: #[[WINDOW:.*]] = affine_map<()[s0, s1] -> (s0 * 4 + s1)>

// CHECK-LABEL: func.func @grown
// CHECK-SAME:    %[[OLD:.*]]: tensor<?x8xf16>, %[[NEW:.*]]: tensor<3x8xf16>
// CHECK:         %[[N:.*]] = tensor.dim %[[OLD]]
// CHECK:         %[[ALL:.*]] = arith.addi %[[N]], %c3
// CHECK:         %[[EMPTY:.*]] = tensor.empty(%[[ALL]]) : tensor<?x8xf16>
// CHECK:         linalg.generic {{.*}} outs(%[[EMPTY]]
// CHECK:           %[[I:.*]] = linalg.index 0
// CHECK:           %[[FIRST:.*]] = arith.cmpi slt, %[[I]], %[[N]]
// CHECK:           scf.if %[[FIRST]] -> (f16) {
// CHECK:             tensor.extract %[[OLD]][%[[I]]
// CHECK:           } else {
// CHECK:             %[[AT:.*]] = arith.subi %[[I]], %[[N]]
// CHECK:             tensor.extract %[[NEW]][%[[AT]]
func.func @grown(%old: tensor<?x8xf16>, %new: tensor<3x8xf16>) -> tensor<?x8xf16> {
  %r = tensor.concat dim(0) %old, %new : (tensor<?x8xf16>, tensor<3x8xf16>) -> tensor<?x8xf16>
  return %r : tensor<?x8xf16>
}

// CHECK-LABEL: func.func @padded
// CHECK-SAME:    %[[A:.*]]: tensor<5x8xf32>
// CHECK:         linalg.generic {{.*}} outs(%{{.*}} : tensor<8x8xf32>)
// CHECK:           arith.cmpi ult
// CHECK:           scf.if
// CHECK:             tensor.extract %[[A]]
// CHECK:           } else {
// CHECK:             scf.yield %cst
func.func @padded(%a: tensor<5x8xf32>) -> tensor<8x8xf32> {
  %zero = arith.constant 0.0 : f32
  %r = tensor.pad %a low[1, 0] high[2, 0] {
  ^bb0(%i: index, %j: index):
    tensor.yield %zero : f32
  } : tensor<5x8xf32> to tensor<8x8xf32>
  return %r : tensor<8x8xf32>
}

// CHECK-LABEL: func.func @written
// CHECK-SAME:    %[[CACHE:.*]]: tensor<16x8xf32>, %[[NEW:.*]]: tensor<2x8xf32>, %[[AT:.*]]: index
// CHECK:         linalg.generic
// CHECK:           %[[I:.*]] = linalg.index 0
// CHECK:           arith.subi %[[I]], %[[AT]]
// CHECK:             tensor.extract %[[NEW]]
// CHECK:             tensor.extract %[[CACHE]]
func.func @written(%cache: tensor<16x8xf32>, %new: tensor<2x8xf32>, %at: index) -> tensor<16x8xf32> {
  %r = tensor.insert_slice %new into %cache[%at, 0] [2, 8] [1, 1] : tensor<2x8xf32> into tensor<16x8xf32>
  return %r : tensor<16x8xf32>
}

// Every third row from the second on: what is between them is of the target.
// CHECK-LABEL: func.func @in_steps
// CHECK-SAME:    %[[ALL:.*]]: tensor<16x8xf32>, %[[NEW:.*]]: tensor<5x8xf32>
// CHECK:           %[[I:.*]] = linalg.index 0
// CHECK:           %[[PLACE:.*]] = arith.subi %[[I]], %c1
// CHECK:           %[[BETWEEN:.*]] = arith.remui %[[PLACE]], %c3
// CHECK:           arith.cmpi eq, %[[BETWEEN]], %c0
// CHECK:           %[[ROW:.*]] = arith.divui %[[PLACE]], %c3
// CHECK:           arith.cmpi ult, %[[ROW]], %c5
// CHECK:             tensor.extract %[[NEW]][%[[ROW]]
// CHECK:             tensor.extract %[[ALL]][%[[I]]
func.func @in_steps(%all: tensor<16x8xf32>, %new: tensor<5x8xf32>) -> tensor<16x8xf32> {
  %r = tensor.insert_slice %new into %all[1, 0] [5, 8] [3, 1] : tensor<5x8xf32> into tensor<16x8xf32>
  return %r : tensor<16x8xf32>
}

// A slice that is a result; one that is read stays.
// CHECK-LABEL: func.func @parts
// CHECK-SAME:    %[[A:.*]]: tensor<16x8xf32>
// CHECK:         %[[R:.*]] = linalg.generic {{.*}} outs(%{{.*}} : tensor<4xf32>)
// CHECK:         %[[READ:.*]] = tensor.extract_slice %[[A]][1, 0] [2, 8] [1, 1]
// CHECK:         %[[S:.*]] = linalg.generic {{.*}} ins(%[[READ]]
// CHECK:         return %[[R]], %[[S]]
func.func @parts(%a: tensor<16x8xf32>) -> (tensor<4xf32>, tensor<2x8xf32>) {
  %r = tensor.extract_slice %a[3, 2] [4, 1] [2, 1] : tensor<16x8xf32> to tensor<4xf32>
  %read = tensor.extract_slice %a[1, 0] [2, 8] [1, 1] : tensor<16x8xf32> to tensor<2x8xf32>
  %e = tensor.empty() : tensor<2x8xf32>
  %s = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]}
      ins(%read : tensor<2x8xf32>) outs(%e : tensor<2x8xf32>) {
  ^bb0(%x: f32, %_: f32):
    %y = arith.mulf %x, %x : f32
    linalg.yield %y : f32
  } -> tensor<2x8xf32>
  return %r, %s : tensor<4xf32>, tensor<2x8xf32>
}

// A row, without the dimension of rows.
// CHECK-LABEL: func.func @row
// CHECK-SAME:    %[[ROW:.*]]: tensor<8xf32>
// CHECK:         %[[J:.*]] = linalg.index 1
// CHECK:         tensor.extract %[[ROW]][%[[J]]]
func.func @row(%row: tensor<8xf32>, %a: tensor<5x8xf32>) -> tensor<5x8xf32> {
  %r = tensor.insert_slice %row into %a[2, 0] [1, 8] [1, 1] : tensor<8xf32> into tensor<5x8xf32>
  return %r : tensor<5x8xf32>
}

// Pieces that are cast are read where they stand.
// CHECK-LABEL: func.func @rolled
// CHECK-SAME:    %[[A:.*]]: tensor<5x8xf32>
// CHECK:         %[[LAST:.*]] = tensor.extract_slice %[[A]][4, 0]
// CHECK-NOT:     tensor.cast
// CHECK:         tensor.extract %[[LAST]]
func.func @rolled(%a: tensor<5x8xf32>) -> tensor<?x8xf32> {
  %last = tensor.extract_slice %a[4, 0] [1, 8] [1, 1] : tensor<5x8xf32> to tensor<1x8xf32>
  %first = tensor.extract_slice %a[0, 0] [4, 8] [1, 1] : tensor<5x8xf32> to tensor<4x8xf32>
  %l = tensor.cast %last : tensor<1x8xf32> to tensor<?x8xf32>
  %f = tensor.cast %first : tensor<4x8xf32> to tensor<?x8xf32>
  %r = tensor.concat dim(0) %l, %f : (tensor<?x8xf32>, tensor<?x8xf32>) -> tensor<?x8xf32>
  return %r : tensor<?x8xf32>
}

// So are those that are cast to sizes which a type leaves open, where the result's type knows them.
// CHECK-LABEL: func.func @rolled_back
// CHECK-NOT:     tensor.cast
// CHECK-NOT:     tensor.dim
// CHECK:         return %{{.*}} : tensor<5x8xf32>
func.func @rolled_back(%a: tensor<5x8xf32>) -> tensor<5x8xf32> {
  %last = tensor.extract_slice %a[3, 0] [2, 8] [1, 1] : tensor<5x8xf32> to tensor<2x8xf32>
  %first = tensor.extract_slice %a[0, 0] [3, 8] [1, 1] : tensor<5x8xf32> to tensor<3x8xf32>
  %l = tensor.cast %last : tensor<2x8xf32> to tensor<?x8xf32>
  %f = tensor.cast %first : tensor<3x8xf32> to tensor<?x8xf32>
  %r = tensor.concat dim(0) %l, %f : (tensor<?x8xf32>, tensor<?x8xf32>) -> tensor<5x8xf32>
  return %r : tensor<5x8xf32>
}

// Every second row, which loops over tiles read.
// CHECK-LABEL: func.func @every_second
// CHECK-SAME:    %[[A:.*]]: tensor<16x8xf32>
// CHECK:         %[[ROWS:.*]] = linalg.generic {{.*}} outs(%{{.*}} : tensor<8x8xf32>)
// CHECK:           %[[TWICE:.*]] = arith.muli %{{.*}}, %c2
// CHECK:           %[[I:.*]] = arith.addi %[[TWICE]], %c1
// CHECK:           tensor.extract %[[A]][%[[I]]
// CHECK:         scf.forall
// CHECK:           tensor.extract_slice %[[ROWS]]
func.func @every_second(%a: tensor<16x8xf32>) -> tensor<8x8xf32> {
  %rows = tensor.extract_slice %a[1, 0] [8, 8] [2, 1] : tensor<16x8xf32> to tensor<8x8xf32>
  %e = tensor.empty() : tensor<8x8xf32>
  %r = scf.forall (%i) = (0) to (8) step (4) shared_outs(%to = %e) -> (tensor<8x8xf32>) {
    %tile = tensor.extract_slice %rows[%i, 0] [4, 8] [1, 1] : tensor<8x8xf32> to tensor<4x8xf32>
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %tile into %to[%i, 0] [4, 8] [1, 1] : tensor<4x8xf32> into tensor<8x8xf32>
    }
  }
  return %r : tensor<8x8xf32>
}

// Windows that overlap.
// CHECK-LABEL: func.func @windows
// CHECK-SAME:    %[[A:.*]]: tensor<20xf32>
// CHECK:         %[[COPY:.*]] = linalg.generic {{.*}} outs(%{{.*}} : tensor<4x8xf32>)
// CHECK:           %[[W:.*]] = linalg.index 0
// CHECK:           %[[J:.*]] = linalg.index 1
// CHECK:           %[[I:.*]] = affine.apply #[[WINDOW]]()[%[[W]], %[[J]]]
// CHECK:           tensor.extract %[[A]][%[[I]]]
// CHECK:         linalg.generic {{.*}} ins(%[[COPY]] : tensor<4x8xf32>) outs(%{{.*}} : tensor<4x3x8xf32>)
func.func @windows(%a: tensor<20xf32>) -> tensor<4x3x8xf32> {
  %e = tensor.empty() : tensor<4x3x8xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(w, h, j) -> (j + w * 4)>, affine_map<(w, h, j) -> (w, h, j)>], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%a : tensor<20xf32>) outs(%e : tensor<4x3x8xf32>) {
  ^bb0(%x: f32, %_: f32):
    linalg.yield %x : f32
  } -> tensor<4x3x8xf32>
  return %r : tensor<4x3x8xf32>
}

// A place that is read from memory is read where an element's place is computed from it.
// CHECK-LABEL: func.func @written_at
// CHECK-SAME:    %[[CACHE:.*]]: tensor<16x8xf32>, %[[NEW:.*]]: tensor<2x8xf32>, %[[AT:.*]]: tensor<i32>
// CHECK-NOT:     tensor.extract
// CHECK:         linalg.generic
// CHECK:           %[[N:.*]] = tensor.extract %[[AT]][]
// CHECK:           %[[FROM:.*]] = arith.index_cast %[[N]]
// CHECK:           arith.subi %{{.*}}, %[[FROM]]
func.func @written_at(%cache: tensor<16x8xf32>, %new: tensor<2x8xf32>, %at: tensor<i32>) -> tensor<16x8xf32> {
  %n = tensor.extract %at[] : tensor<i32>
  %from = arith.index_cast %n : i32 to index
  %r = tensor.insert_slice %new into %cache[%from, 0] [2, 8] [1, 1] : tensor<2x8xf32> into tensor<16x8xf32>
  return %r : tensor<16x8xf32>
}

// A slice at a place that only the GPU knows: a kernel's element tells where it is from.
// CHECK-LABEL: func.func @at_some_place
// CHECK-SAME:    %[[A:.*]]: tensor<16x8xf32>, %[[AT:.*]]: tensor<index>
// CHECK:         linalg.generic {{.*}} outs(%{{.*}} : tensor<2x8xf32>)
// CHECK:           %[[PLACE:.*]] = tensor.extract %[[AT]][]
// CHECK:           %[[ROW:.*]] = arith.addi %{{.*}}, %[[PLACE]]
// CHECK:           tensor.extract %[[A]][%[[ROW]]
// CHECK-NOT:     tensor.extract_slice
func.func @at_some_place(%a: tensor<16x8xf32>, %at: tensor<index>) -> tensor<2x8xf32> {
  %i = tensor.extract %at[] : tensor<index>
  %s = tensor.extract_slice %a[%i, 0] [2, 8] [1, 1] : tensor<16x8xf32> to tensor<2x8xf32>
  %e = tensor.empty() : tensor<2x8xf32>
  %x = linalg.exp ins(%s : tensor<2x8xf32>) outs(%e : tensor<2x8xf32>) -> tensor<2x8xf32>
  return %x : tensor<2x8xf32>
}
