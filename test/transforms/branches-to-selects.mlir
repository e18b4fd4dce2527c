// RUN: attn-opt %s --split-input-file --branches-to-selects --verify-diagnostics | FileCheck %s

// CHECK-LABEL: func.func @either
// CHECK-SAME:    (%[[A:.*]]: tensor<8xf32>, %[[N:.*]]: i32, %[[C:.*]]: i1)
// CHECK:         %[[X:.*]] = linalg.exp ins(%[[A]]
// CHECK:         %[[M:.*]] = arith.addi %[[N]], %[[N]]
// CHECK:         %[[R:.*]] = linalg.generic {{.*}} ins(%[[X]], %[[A]] : tensor<8xf32>, tensor<8xf32>)
// CHECK-NEXT:    ^bb0(%[[THEN:.*]]: f32, %[[ELSE:.*]]: f32, %{{.*}}: f32):
// CHECK-NEXT:      %[[S:.*]] = arith.select %[[C]], %[[THEN]], %[[ELSE]] : f32
// CHECK-NEXT:      linalg.yield %[[S]]
// CHECK:         %[[K:.*]] = arith.select %[[C]], %[[M]], %[[N]] : i32
// CHECK-NOT:     scf.if
// CHECK:         return %[[R]], %[[K]], %[[N]]
func.func @either(%a: tensor<8xf32>, %n: i32, %c: i1) -> (tensor<8xf32>, i32, i32) {
  %r:3 = scf.if %c -> (tensor<8xf32>, i32, i32) {
    %e = tensor.empty() : tensor<8xf32>
    %x = linalg.exp ins(%a : tensor<8xf32>) outs(%e : tensor<8xf32>) -> tensor<8xf32>
    %m = arith.addi %n, %n : i32
    scf.yield %x, %m, %n : tensor<8xf32>, i32, i32
  } else {
    scf.yield %a, %n, %n : tensor<8xf32>, i32, i32
  }
  return %r#0, %r#1, %r#2 : tensor<8xf32>, i32, i32
}

// -----

// One of three, one branch within another: of any other number the default is taken.
// CHECK-LABEL: func.func @one_of
// CHECK-SAME:    (%[[A:.*]]: f32, %[[B:.*]]: f32, %[[I:.*]]: index, %[[C:.*]]: i1)
// CHECK:         %[[SUM:.*]] = arith.addf
// CHECK-DAG:     %[[IS2:.*]] = arith.cmpi eq, %[[I]], %c2
// CHECK-DAG:     %[[IS5:.*]] = arith.cmpi eq, %[[I]], %c5
// CHECK-DAG:     %[[INNER:.*]] = arith.select %[[C]], %[[A]], %[[SUM]]
// CHECK:         %[[TWO:.*]] = arith.select %[[IS2]], %[[A]], %[[B]]
// CHECK:         %[[R:.*]] = arith.select %[[IS5]], %[[INNER]], %[[TWO]]
// CHECK:         return %[[R]]
func.func @one_of(%a: f32, %b: f32, %i: index, %c: i1) -> f32 {
  %r = scf.index_switch %i -> f32
  case 2 {
    scf.yield %a : f32
  }
  case 5 {
    %s = scf.if %c -> (f32) {
      scf.yield %a : f32
    } else {
      %t = arith.addf %a, %b : f32
      scf.yield %t : f32
    }
    scf.yield %s : f32
  }
  default {
    scf.yield %b : f32
  }
  return %r : f32
}

// -----

// What takes its time, though it may not be taken, is told of.
// CHECK-LABEL: func.func @sum
// CHECK-NOT:     scf.if
func.func @sum(%a: tensor<8xf32>, %b: tensor<f32>, %c: i1) -> tensor<f32> {
  // expected-warning @+1 {{only the GPU knows what decides on a branch: all branches are computed, and one is chosen}}
  %r = scf.if %c -> (tensor<f32>) {
    %s = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> ()>], iterator_types = ["reduction"]}
        ins(%a : tensor<8xf32>) outs(%b : tensor<f32>) {
    ^bb0(%x: f32, %y: f32):
      %z = arith.addf %x, %y : f32
      linalg.yield %z : f32
    } -> tensor<f32>
    scf.yield %s : tensor<f32>
  } else {
    scf.yield %b : tensor<f32>
  }
  return %r : tensor<f32>
}

// -----

// A place from data, read only where it is known to be one of the array: it stays. One that is clamped does not.
// CHECK-LABEL: func.func @guarded
// CHECK:         scf.if
// CHECK:           tensor.extract_slice
// CHECK-LABEL: func.func @of_the_host
// CHECK:         scf.if
// CHECK:           tensor.extract
// CHECK-LABEL: func.func @clamped
// CHECK-NOT:     scf.if
func.func @guarded(%a: tensor<8x16xf32>, %at: tensor<index>, %b: tensor<16xf32>, %c: i1) -> tensor<16xf32> {
  %r = scf.if %c -> (tensor<16xf32>) {
    %i = tensor.extract %at[] : tensor<index>
    %row = tensor.extract_slice %a[%i, 0] [1, 16] [1, 1] : tensor<8x16xf32> to tensor<16xf32>
    scf.yield %row : tensor<16xf32>
  } else {
    scf.yield %b : tensor<16xf32>
  }
  return %r : tensor<16xf32>
}
func.func @of_the_host(%a: tensor<8xf32>, %i: index, %b: f32) -> f32 {
  %c8 = arith.constant 8 : index
  %c = arith.cmpi ult, %i, %c8 : index
  %r = scf.if %c -> (f32) {
    %x = tensor.extract %a[%i] : tensor<8xf32>
    scf.yield %x : f32
  } else {
    scf.yield %b : f32
  }
  return %r : f32
}
func.func @clamped(%a: tensor<8x16xf32>, %at: tensor<index>, %b: tensor<16xf32>, %c: i1) -> tensor<16xf32> {
  %c0 = arith.constant 0 : index
  %c7 = arith.constant 7 : index
  %r = scf.if %c -> (tensor<16xf32>) {
    %x = tensor.extract %at[] : tensor<index>
    %y = arith.maxsi %x, %c0 : index
    %i = arith.minsi %y, %c7 : index
    %row = tensor.extract_slice %a[%i, 0] [1, 16] [1, 1] : tensor<8x16xf32> to tensor<16xf32>
    scf.yield %row : tensor<16xf32>
  } else {
    scf.yield %b : tensor<16xf32>
  }
  return %r : tensor<16xf32>
}

// -----

// What may not end, and results of sizes that differ.
// CHECK-LABEL: func.func @endless
// CHECK:         scf.if
// CHECK-LABEL: func.func @sizes
// CHECK:         scf.if
func.func @endless(%a: f32, %c: i1) -> f32 {
  %r = scf.if %c -> (f32) {
    %w = scf.while (%x = %a) : (f32) -> f32 {
      %more = arith.cmpf olt, %x, %a : f32
      scf.condition(%more) %x : f32
    } do {
    ^bb0(%x: f32):
      scf.yield %x : f32
    }
    scf.yield %w : f32
  } else {
    scf.yield %a : f32
  }
  return %r : f32
}
func.func @sizes(%a: tensor<?xf32>, %b: tensor<?xf32>, %c: i1) -> tensor<?xf32> {
  %r = scf.if %c -> (tensor<?xf32>) {
    scf.yield %a : tensor<?xf32>
  } else {
    scf.yield %b : tensor<?xf32>
  }
  return %r : tensor<?xf32>
}
