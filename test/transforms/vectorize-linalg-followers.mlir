// RUN: attn-opt %s --split-input-file --vectorize-linalg="vector-bytes=64" --canonicalize --cse | FileCheck %s

#sk = affine_map<(k, q, d) -> (k, d)>
#sq = affine_map<(k, q, d) -> (d, q)>
#s = affine_map<(k, q, d) -> (k, q)>
#kq = affine_map<(k, q) -> (k, q)>
#q = affine_map<(k, q) -> (q)>
#of_q = affine_map<(q) -> (q)>
#none = affine_map<(q) -> ()>

// A register tile of scores is combined with the rows' maxima before it is stored; scores are not loaded again.
// CHECK-LABEL: func.func @maximum
// CHECK-SAME:    %{{[a-z0-9]+}}: memref<64x64xf32>, %{{[a-z0-9]+}}: memref<64x64xf32>, %[[S:[a-z0-9]+]]: memref<64x64xf32>
// CHECK:         %[[M:.*]] = memref.alloca() : memref<64xf32>
// CHECK:         vector.store %{{.*}}, %[[M]]
// CHECK:         scf.for
// CHECK:           %{{.*}}:16 = scf.for
// CHECK:             math.fma
// CHECK:             scf.yield
// CHECK-NEXT:      }
// CHECK:           %[[OLD:.*]] = vector.load %[[M]]
// CHECK-NEXT:      %[[MORE:.*]] = arith.cmpf ogt, %[[FIRST:.*]], %[[OLD]]
// CHECK-NEXT:      %[[NEW:.*]] = arith.select %[[MORE]], %[[FIRST]], %[[OLD]]
// CHECK:           vector.store %{{.*}}, %[[M]]
// CHECK-COUNT-16:  vector.store %{{.*}}, %[[S]]
// CHECK-NOT:     vector.load %[[S]]
// CHECK:         return
func.func @maximum(%k: memref<64x64xf32>, %qt: memref<64x64xf32>, %s: memref<64x64xf32>, %result: memref<64xf32>) {
  %zero = arith.constant 0.0 : f32
  %least = arith.constant 0xFF800000 : f32
  %m = memref.alloca() : memref<64xf32>
  linalg.generic {indexing_maps = [#sk, #sq, #s], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%k, %qt : memref<64x64xf32>, memref<64x64xf32>) outs(%s : memref<64x64xf32>) {
  ^bb0(%a: f32, %b: f32, %c: f32):
    %p = arith.mulf %a, %b : f32
    %sum = arith.addf %c, %p : f32
    linalg.yield %sum : f32
  }
  linalg.generic {indexing_maps = [#none, #of_q], iterator_types = ["parallel"]} ins(%least : f32) outs(%m : memref<64xf32>) {
  ^bb0(%a: f32, %b: f32):
    linalg.yield %a : f32
  }
  linalg.generic {indexing_maps = [#kq, #q], iterator_types = ["reduction", "parallel"]}
      ins(%s : memref<64x64xf32>) outs(%m : memref<64xf32>) {
  ^bb0(%a: f32, %b: f32):
    %n = arith.maxnumf %a, %b : f32
    linalg.yield %n : f32
  }
  memref.copy %m, %result : memref<64xf32> to memref<64xf32>
  return
}

// -----

#sk = affine_map<(k, q, d) -> (k, d)>
#sq = affine_map<(k, q, d) -> (d, q)>
#s = affine_map<(k, q, d) -> (k, q)>
#kq = affine_map<(k, q) -> (k, q)>
#q = affine_map<(k, q) -> (q)>
#of_q = affine_map<(q) -> (q)>
#none = affine_map<(q) -> ()>

// What stands between the two may be a view of either.
// CHECK-LABEL: func.func @apart
// CHECK-SAME:    %{{[a-z0-9]+}}: memref<64x64xf32>, %{{[a-z0-9]+}}: memref<64x64xf32>, %[[S:[a-z0-9]+]]: memref<64x64xf32>
// CHECK:         math.fma
// CHECK:         memref.copy
// CHECK:         vector.load %[[S]]
func.func @apart(%k: memref<64x64xf32>, %qt: memref<64x64xf32>, %s: memref<64x64xf32>, %other: memref<64x64xf32>,
                 %result: memref<64xf32>) {
  %least = arith.constant 0xFF800000 : f32
  %m = memref.alloca() : memref<64xf32>
  linalg.generic {indexing_maps = [#sk, #sq, #s], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%k, %qt : memref<64x64xf32>, memref<64x64xf32>) outs(%s : memref<64x64xf32>) {
  ^bb0(%a: f32, %b: f32, %c: f32):
    %p = arith.mulf %a, %b : f32
    %sum = arith.addf %c, %p : f32
    linalg.yield %sum : f32
  }
  memref.copy %other, %s : memref<64x64xf32> to memref<64x64xf32>
  linalg.generic {indexing_maps = [#none, #of_q], iterator_types = ["parallel"]} ins(%least : f32) outs(%m : memref<64xf32>) {
  ^bb0(%a: f32, %b: f32):
    linalg.yield %a : f32
  }
  linalg.generic {indexing_maps = [#kq, #q], iterator_types = ["reduction", "parallel"]}
      ins(%s : memref<64x64xf32>) outs(%m : memref<64xf32>) {
  ^bb0(%a: f32, %b: f32):
    %n = arith.maxnumf %a, %b : f32
    linalg.yield %n : f32
  }
  memref.copy %m, %result : memref<64xf32> to memref<64xf32>
  return
}

// -----

#ij = affine_map<(i, j) -> (i)>
#of_j = affine_map<(i, j) -> (j)>
#none = affine_map<(i) -> ()>
#of_i = affine_map<(i) -> (i)>

// What goes over more than the result has is no follower: it reads each element of it several times.
// CHECK-LABEL: func.func @places
// CHECK:         arith.addi
// CHECK:         arith.maxsi
func.func @places(%x: memref<64xf32>, %ranks: memref<64xi32>, %places: memref<64xi32>) {
  %zero = arith.constant 0 : i32
  linalg.generic {indexing_maps = [#none, #of_i], iterator_types = ["parallel"]} ins(%zero : i32) outs(%ranks : memref<64xi32>) {
  ^bb0(%a: i32, %b: i32):
    linalg.yield %a : i32
  }
  linalg.generic {indexing_maps = [#ij, #of_j, #ij], iterator_types = ["parallel", "reduction"]}
      ins(%x, %x : memref<64xf32>, memref<64xf32>) outs(%ranks : memref<64xi32>) {
  ^bb0(%a: f32, %b: f32, %c: i32):
    %less = arith.cmpf olt, %b, %a : f32
    %one = arith.extui %less : i1 to i32
    %sum = arith.addi %c, %one : i32
    linalg.yield %sum : i32
  }
  linalg.generic {indexing_maps = [#none, #of_i], iterator_types = ["parallel"]} ins(%zero : i32) outs(%places : memref<64xi32>) {
  ^bb0(%a: i32, %b: i32):
    linalg.yield %a : i32
  }
  linalg.generic {indexing_maps = [#of_j, #ij], iterator_types = ["parallel", "reduction"]}
      ins(%ranks : memref<64xi32>) outs(%places : memref<64xi32>) {
  ^bb0(%a: i32, %b: i32):
    %most = arith.maxsi %b, %a : i32
    linalg.yield %most : i32
  }
  return
}
