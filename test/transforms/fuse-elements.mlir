// RUN: attn-opt %s --fuse-elements | FileCheck %s
// RUN: attn-opt %s --fuse-elements="along-sums=1" | FileCheck %s --check-prefix=ALONG

#id = affine_map<(d0, d1) -> (d0, d1)>
#t = affine_map<(d0, d1) -> (d1, d0)>
#row = affine_map<(d0, d1) -> (d0)>

// A product, read in another order, is computed where it is read; a constant tensor is a number.
// CHECK-DAG:   #[[T:.*]] = affine_map<(d0, d1) -> (d1, d0)>
// CHECK-LABEL: func.func @chain
// CHECK-SAME:    (%[[X:.*]]: tensor<8x64xf32>, %[[Y:.*]]: tensor<64x8xf32>)
// CHECK:         %[[R:.*]] = linalg.generic {{.*}} ins(%[[Y]], %[[X]] :
// CHECK:           %[[TWO:.*]] = arith.constant 2.0
// CHECK:           %[[P:.*]] = arith.mulf %{{.*}}, %[[TWO]]
// CHECK:           arith.addf %[[P]],
// CHECK-NOT:     linalg.generic
// CHECK:         return %[[R]]
func.func @chain(%x: tensor<8x64xf32>, %y: tensor<64x8xf32>) -> tensor<64x8xf32> {
  %two = arith.constant dense<2.0> : tensor<8x64xf32>
  %e = tensor.empty() : tensor<8x64xf32>
  %a = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x, %two : tensor<8x64xf32>, tensor<8x64xf32>) outs(%e : tensor<8x64xf32>) {
  ^bb0(%u: f32, %v: f32, %w: f32):
    %f = arith.mulf %u, %v : f32
    linalg.yield %f : f32
  } -> tensor<8x64xf32>
  %o = tensor.empty() : tensor<64x8xf32>
  %b = linalg.generic {indexing_maps = [#t, #id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%a, %y : tensor<8x64xf32>, tensor<64x8xf32>) outs(%o : tensor<64x8xf32>) {
  ^bb0(%u: f32, %v: f32, %w: f32):
    %f = arith.addf %u, %v : f32
    linalg.yield %f : f32
  } -> tensor<64x8xf32>
  return %b : tensor<64x8xf32>
}

// A row that each of 64 columns reads would be computed 64 times.
// CHECK-LABEL: func.func @many_times
// CHECK:         math.exp
// CHECK:         linalg.generic
// CHECK-NOT:     math.exp
// CHECK:         return
func.func @many_times(%x: tensor<8xf32>, %y: tensor<8x64xf32>) -> tensor<8x64xf32> {
  %e = tensor.empty() : tensor<8xf32>
  %a = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]}
      ins(%x : tensor<8xf32>) outs(%e : tensor<8xf32>) {
  ^bb0(%u: f32, %w: f32):
    %f = math.exp %u : f32
    linalg.yield %f : f32
  } -> tensor<8xf32>
  %o = tensor.empty() : tensor<8x64xf32>
  %b = linalg.generic {indexing_maps = [#row, #id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%a, %y : tensor<8xf32>, tensor<8x64xf32>) outs(%o : tensor<8x64xf32>) {
  ^bb0(%u: f32, %v: f32, %w: f32):
    %f = arith.addf %u, %v : f32
    linalg.yield %f : f32
  } -> tensor<8x64xf32>
  return %b : tensor<8x64xf32>
}

// What a body takes at a place of its own is computed there.
// CHECK-LABEL: func.func @at_a_place
// CHECK:         linalg.generic
// CHECK:           %[[V:.*]] = tensor.extract %{{.*}}[%{{.*}}] : tensor<8xf32>
// CHECK:           arith.negf %[[V]]
// CHECK-NOT:     linalg.generic
// CHECK:         return
func.func @at_a_place(%x: tensor<8xf32>) -> tensor<4xf32> {
  %c4 = arith.constant 4 : index
  %e = tensor.empty() : tensor<8xf32>
  %a = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]}
      ins(%x : tensor<8xf32>) outs(%e : tensor<8xf32>) {
  ^bb0(%u: f32, %w: f32):
    %f = arith.negf %u : f32
    linalg.yield %f : f32
  } -> tensor<8xf32>
  %o = tensor.empty() : tensor<4xf32>
  %b = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} outs(%o : tensor<4xf32>) {
  ^bb0(%w: f32):
    %i = linalg.index 0 : index
    %j = arith.addi %i, %c4 : index
    %f = tensor.extract %a[%j] : tensor<8xf32>
    linalg.yield %f : f32
  } -> tensor<4xf32>
  return %b : tensor<4xf32>
}

// The size of what a body reads at some place is asked for before the op.
// CHECK-LABEL: func.func @sizes_in_bodies
// CHECK-SAME:    (%[[X:.*]]: tensor<?x8xf32>, %[[T:.*]]: tensor<4xi64>)
// CHECK:         tensor.dim %[[X]]
// CHECK:         linalg.generic
// CHECK-NOT:     tensor.dim
// CHECK:           tensor.extract %[[X]]
func.func @sizes_in_bodies(%x: tensor<?x8xf32>, %t: tensor<4xi64>) -> tensor<4x8xf32> {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0 : i64
  %e = tensor.empty() : tensor<4x8xf32>
  %r = linalg.generic {indexing_maps = [#row, #id], iterator_types = ["parallel", "parallel"]}
      ins(%t : tensor<4xi64>) outs(%e : tensor<4x8xf32>) {
  ^bb0(%i: i64, %w: f32):
    %n = tensor.dim %x, %c0 : tensor<?x8xf32>
    %m = arith.index_cast %n : index to i64
    %behind = arith.addi %i, %m : i64
    %negative = arith.cmpi slt, %i, %zero : i64
    %at = arith.select %negative, %behind, %i : i64
    %place = arith.index_cast %at : i64 to index
    %j = linalg.index 1 : index
    %v = tensor.extract %x[%place, %j] : tensor<?x8xf32>
    linalg.yield %v : f32
  } -> tensor<4x8xf32>
  return %r : tensor<4x8xf32>
}

// A sum over what is made of places alone runs along that: it stays a tensor.
// CHECK-LABEL: func.func @sum_of_places
// CHECK:         %[[MADE:.*]] = linalg.generic
// CHECK:           linalg.index 1
// CHECK:         linalg.generic {{.*}} ins(%[[MADE]] : tensor<4x8xf32>)
func.func @sum_of_places(%init: tensor<4xf32>) -> tensor<4xf32> {
  %e = tensor.empty() : tensor<4x8xf32>
  %places = linalg.generic {indexing_maps = [#id], iterator_types = ["parallel", "parallel"]} outs(%e : tensor<4x8xf32>) {
  ^bb0(%w: f32):
    %j = linalg.index 1 : index
    %i = arith.index_cast %j : index to i32
    %x = arith.sitofp %i : i32 to f32
    linalg.yield %x : f32
  } -> tensor<4x8xf32>
  %r = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]}
      ins(%places : tensor<4x8xf32>) outs(%init : tensor<4xf32>) {
  ^bb0(%x: f32, %s: f32):
    %t = arith.addf %x, %s : f32
    linalg.yield %t : f32
  } -> tensor<4xf32>
  return %r : tensor<4xf32>
}

// Floats that are only made wider are so wherever they are read.
// CHECK-LABEL: func.func @wider
// CHECK-SAME:    (%[[X:.*]]: tensor<8x64xf16>, 
// CHECK-NOT:     outs(%{{.*}} : tensor<8x64xf32>)
// CHECK:         linalg.generic {{.*}} "reduction"]} ins(%[[X]] : tensor<8x64xf16>)
// CHECK:           arith.extf
// CHECK:         linalg.generic {{.*}} ins({{.*}}%[[X]]{{.*}} :
// CHECK:           arith.extf
func.func @wider(%x: tensor<8x64xf16>, %zeros: tensor<8xf32>) -> tensor<8x64xf16> {
  %e = tensor.empty() : tensor<8x64xf32>
  %w = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<8x64xf16>) outs(%e : tensor<8x64xf32>) {
  ^bb0(%a: f16, %b: f32):
    %f = arith.extf %a : f16 to f32
    linalg.yield %f : f32
  } -> tensor<8x64xf32>
  %s = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]}
      ins(%w : tensor<8x64xf32>) outs(%zeros : tensor<8xf32>) {
  ^bb0(%a: f32, %b: f32):
    %f = arith.addf %a, %b : f32
    linalg.yield %f : f32
  } -> tensor<8xf32>
  %o = tensor.empty() : tensor<8x64xf16>
  %y = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]}
      ins(%w, %s : tensor<8x64xf32>, tensor<8xf32>) outs(%o : tensor<8x64xf16>) {
  ^bb0(%a: f32, %b: f32, %c: f16):
    %f = arith.mulf %a, %b : f32
    %g = arith.truncf %f : f32 to f16
    linalg.yield %g : f16
  } -> tensor<8x64xf16>
  return %y : tensor<8x64xf16>
}

// What is the same along a sum is an op of its own: it would be computed for each element. Threads of a GPU compute it
// once for all elements that they add up.
// CHECK-LABEL: func.func @variance
// CHECK:         %[[MEAN:.*]] = linalg.generic {{.*}} iterator_types = ["parallel"]
// CHECK:         linalg.generic {{.*}} iterator_types = ["parallel", "reduction"]} ins(%{{.*}}, %[[MEAN]] :
// ALONG-LABEL: func.func @variance
// ALONG-SAME:    (%[[X:.*]]: tensor<8x64xf32>, %[[SUM:.*]]: tensor<8xf32>, %{{.*}}: tensor<8xf32>)
// ALONG:         linalg.generic {{.*}} iterator_types = ["parallel", "reduction"]} ins(%[[X]], %[[SUM]] :
// ALONG:           arith.divf
// ALONG:           arith.subf
func.func @variance(%x: tensor<8x64xf32>, %sum: tensor<8xf32>, %zero: tensor<8xf32>) -> tensor<8xf32> {
  %n = arith.constant 64.0 : f32
  %e = tensor.empty() : tensor<8xf32>
  %mean = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>],
      iterator_types = ["parallel"]} ins(%sum : tensor<8xf32>) outs(%e : tensor<8xf32>) {
  ^bb0(%s: f32, %o: f32):
    %m = arith.divf %s, %n : f32
    linalg.yield %m : f32
  } -> tensor<8xf32>
  %v = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>,
      affine_map<(i, j) -> (i)>], iterator_types = ["parallel", "reduction"]}
      ins(%x, %mean : tensor<8x64xf32>, tensor<8xf32>) outs(%zero : tensor<8xf32>) {
  ^bb0(%a: f32, %m: f32, %o: f32):
    %d = arith.subf %a, %m : f32
    %q = arith.mulf %d, %d : f32
    %t = arith.addf %o, %q : f32
    linalg.yield %t : f32
  } -> tensor<8xf32>
  return %v : tensor<8xf32>
}

// What an element reads in two places is computed once; a chain of such would otherwise be computed 2 to the power of
// its length times.
// CHECK-LABEL: func.func @diamonds
// CHECK-SAME:    (%[[X:.*]]: tensor<8x64xi32>)
// CHECK:         linalg.generic {{.*}} ins(%[[X]] : tensor<8x64xi32>)
// CHECK-COUNT-3:   arith.muli
// CHECK-NOT:       arith.muli
// CHECK:         return
func.func @diamonds(%x: tensor<8x64xi32>) -> tensor<8x64xi32> {
  %e = tensor.empty() : tensor<8x64xi32>
  %a = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x, %x : tensor<8x64xi32>, tensor<8x64xi32>) outs(%e : tensor<8x64xi32>) {
  ^bb0(%u: i32, %v: i32, %w: i32):
    %f = arith.muli %u, %v : i32
    linalg.yield %f : i32
  } -> tensor<8x64xi32>
  %b = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%a, %x : tensor<8x64xi32>, tensor<8x64xi32>) outs(%e : tensor<8x64xi32>) {
  ^bb0(%u: i32, %v: i32, %w: i32):
    %f = arith.muli %u, %v : i32
    linalg.yield %f : i32
  } -> tensor<8x64xi32>
  %c = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%a, %b : tensor<8x64xi32>, tensor<8x64xi32>) outs(%e : tensor<8x64xi32>) {
  ^bb0(%u: i32, %v: i32, %w: i32):
    %f = arith.muli %u, %v : i32
    linalg.yield %f : i32
  } -> tensor<8x64xi32>
  return %c : tensor<8x64xi32>
}

// What comes before floats are made wider, for several readers, stays narrow: each makes it wider itself.
// CHECK-LABEL: func.func @narrow_before
// CHECK:         %[[S:.*]] = linalg.generic {{.*}} outs(%{{.*}} : tensor<8x64xf16>)
// CHECK:           arith.addf {{.*}} : f16
// CHECK-NOT:     outs(%{{.*}} : tensor<8x64xf32>)
// CHECK:         linalg.generic {{.*}} "reduction"]} ins(%[[S]] : tensor<8x64xf16>)
// CHECK:         linalg.generic {{.*}} ins({{.*}}%[[S]]{{.*}} :
func.func @narrow_before(%x: tensor<8x64xf16>, %y: tensor<8x64xf16>, %zeros: tensor<8xf32>) -> tensor<8x64xf16> {
  %h = tensor.empty() : tensor<8x64xf16>
  %e = tensor.empty() : tensor<8x64xf32>
  %sum = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x, %y : tensor<8x64xf16>, tensor<8x64xf16>) outs(%h : tensor<8x64xf16>) {
  ^bb0(%a: f16, %b: f16, %c: f16):
    %f = arith.addf %a, %b : f16
    linalg.yield %f : f16
  } -> tensor<8x64xf16>
  %w = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%sum : tensor<8x64xf16>) outs(%e : tensor<8x64xf32>) {
  ^bb0(%a: f16, %b: f32):
    %f = arith.extf %a : f16 to f32
    linalg.yield %f : f32
  } -> tensor<8x64xf32>
  %s = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]}
      ins(%w : tensor<8x64xf32>) outs(%zeros : tensor<8xf32>) {
  ^bb0(%a: f32, %b: f32):
    %f = arith.addf %a, %b : f32
    linalg.yield %f : f32
  } -> tensor<8xf32>
  %r = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]}
      ins(%w, %s : tensor<8x64xf32>, tensor<8xf32>) outs(%h : tensor<8x64xf16>) {
  ^bb0(%a: f32, %b: f32, %c: f16):
    %f = arith.mulf %a, %b : f32
    %g = arith.truncf %f : f32 to f16
    linalg.yield %g : f16
  } -> tensor<8x64xf16>
  return %r : tensor<8x64xf16>
}
