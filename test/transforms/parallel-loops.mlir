// RUN: attn-opt %s --parallel-loops --canonicalize --split-input-file | FileCheck %s

// Two perfectly nested loops, a boundary tile, and a sequential loop through which the tile goes.
// CHECK-LABEL: func.func @nest
// CHECK: scf.forall (%[[B:.*]], %[[Q:.*]]) = (0, 0) to (4, 100) step (1, 8) shared_outs(%[[OUT:.*]] = %arg1)
// CHECK: %[[N:.*]] = affine.min #{{.*}}(%[[Q]])
// CHECK: %[[TILE:.*]] = tensor.extract_slice %[[OUT]][%[[B]], %[[Q]], 0] [1, %[[N]], 16]
// CHECK: %[[R:.*]] = scf.for {{.*}} iter_args(%{{.*}} = %[[TILE]]) -> (tensor<1x?x16xf32>)
// CHECK: scf.forall.in_parallel
// CHECK: tensor.parallel_insert_slice %[[R]] into %[[OUT]][%[[B]], %[[Q]], 0] [1, %[[N]], 16]
func.func @nest(%x: tensor<4x100x16xf32>, %init: tensor<4x100x16xf32>) -> tensor<4x100x16xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %c8 = arith.constant 8 : index
  %c100 = arith.constant 100 : index
  %r = scf.for %b = %c0 to %c4 step %c1 iter_args(%o = %init) -> tensor<4x100x16xf32> {
    %r1 = scf.for %q = %c0 to %c100 step %c8 iter_args(%o1 = %o) -> tensor<4x100x16xf32> {
      %r2 = scf.for %k = %c0 to %c4 step %c1 iter_args(%o2 = %o1) -> tensor<4x100x16xf32> {
        %n = affine.min affine_map<(i) -> (-i + 100, 8)>(%q)
        %t = tensor.extract_slice %o2[%b, %q, 0] [1, %n, 16] [1, 1, 1] : tensor<4x100x16xf32> to tensor<1x?x16xf32>
        %s = tensor.extract_slice %x[%b, %q, 0] [1, %n, 16] [1, 1, 1] : tensor<4x100x16xf32> to tensor<1x?x16xf32>
        %u = linalg.add ins(%s, %t : tensor<1x?x16xf32>, tensor<1x?x16xf32>) outs(%t : tensor<1x?x16xf32>)
          -> tensor<1x?x16xf32>
        %o3 = tensor.insert_slice %u into %o2[%b, %q, 0] [1, %n, 16] [1, 1, 1]
          : tensor<1x?x16xf32> into tensor<4x100x16xf32>
        scf.yield %o3 : tensor<4x100x16xf32>
      }
      scf.yield %r2 : tensor<4x100x16xf32>
    }
    scf.yield %r1 : tensor<4x100x16xf32>
  }
  return %r : tensor<4x100x16xf32>
}

// -----

// A parallel loop in a sequential one, driven by a multiple of the induction variable.
// CHECK-LABEL: func.func @inner
// CHECK: scf.for
// CHECK: scf.forall (%{{.*}}) in (4) shared_outs
func.func @inner(%init: tensor<8xf32>) -> tensor<8xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %r = scf.for %k = %c0 to %c4 step %c1 iter_args(%o = %init) -> tensor<8xf32> {
    %r1 = scf.for %i = %c0 to %c4 step %c1 iter_args(%o1 = %o) -> tensor<8xf32> {
      %j = affine.apply affine_map<(i) -> (i * 2)>(%i)
      %t = tensor.extract_slice %o1[%j] [2] [1] : tensor<8xf32> to tensor<2xf32>
      %u = linalg.exp ins(%t : tensor<2xf32>) outs(%t : tensor<2xf32>) -> tensor<2xf32>
      %o2 = tensor.insert_slice %u into %o1[%j] [2] [1] : tensor<2xf32> into tensor<8xf32>
      scf.yield %o2 : tensor<8xf32>
    }
    scf.yield %r1 : tensor<8xf32>
  }
  return %r : tensor<8xf32>
}

// -----

// Tiles wider than the step overlap.
// CHECK-LABEL: func.func @overlapping
// CHECK-NOT: scf.forall
func.func @overlapping(%init: tensor<9xf32>) -> tensor<9xf32> {
  %c0 = arith.constant 0 : index
  %c2 = arith.constant 2 : index
  %c6 = arith.constant 6 : index
  %r = scf.for %i = %c0 to %c6 step %c2 iter_args(%o = %init) -> tensor<9xf32> {
    %t = tensor.extract_slice %o[%i] [3] [1] : tensor<9xf32> to tensor<3xf32>
    %u = linalg.exp ins(%t : tensor<3xf32>) outs(%t : tensor<3xf32>) -> tensor<3xf32>
    %o1 = tensor.insert_slice %u into %o[%i] [3] [1] : tensor<3xf32> into tensor<9xf32>
    scf.yield %o1 : tensor<9xf32>
  }
  return %r : tensor<9xf32>
}

// -----

// What another iteration wrote is read, by a slice at another offset or as a whole.
// CHECK-LABEL: func.func @reads_elsewhere
// CHECK-NOT: scf.forall
func.func @reads_elsewhere(%init: tensor<9xf32>) -> tensor<9xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c8 = arith.constant 8 : index
  %r = scf.for %i = %c0 to %c8 step %c1 iter_args(%o = %init) -> tensor<9xf32> {
    %j = affine.apply affine_map<(i) -> (i + 1)>(%i)
    %t = tensor.extract_slice %o[%i] [1] [1] : tensor<9xf32> to tensor<1xf32>
    %o1 = tensor.insert_slice %t into %o[%j] [1] [1] : tensor<1xf32> into tensor<9xf32>
    scf.yield %o1 : tensor<9xf32>
  }
  return %r : tensor<9xf32>
}

// -----

// CHECK-LABEL: func.func @scalar_carried
// CHECK-NOT: scf.forall
func.func @scalar_carried(%init: tensor<8xf32>, %x: f32) -> (tensor<8xf32>, f32) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c8 = arith.constant 8 : index
  %r:2 = scf.for %i = %c0 to %c8 step %c1 iter_args(%o = %init, %s = %x) -> (tensor<8xf32>, f32) {
    %t = tensor.extract_slice %o[%i] [1] [1] : tensor<8xf32> to tensor<1xf32>
    %u = linalg.exp ins(%t : tensor<1xf32>) outs(%t : tensor<1xf32>) -> tensor<1xf32>
    %o1 = tensor.insert_slice %u into %o[%i] [1] [1] : tensor<1xf32> into tensor<8xf32>
    %s1 = arith.addf %s, %x : f32
    scf.yield %o1, %s1 : tensor<8xf32>, f32
  }
  return %r#0, %r#1 : tensor<8xf32>, f32
}

// -----

// A marking alone proves nothing.
// CHECK-LABEL: func.func @marked
// CHECK-NOT: scf.forall
func.func @marked(%init: tensor<8xf32>) -> tensor<8xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c8 = arith.constant 8 : index
  %r = scf.for %i = %c0 to %c8 step %c1 iter_args(%o = %init) -> tensor<8xf32> {
    %u = linalg.exp ins(%o : tensor<8xf32>) outs(%o : tensor<8xf32>) -> tensor<8xf32>
    scf.yield %u : tensor<8xf32>
  } {__byteir_parallel__}
  return %r : tensor<8xf32>
}

// The slices that carried tensors become are before all that reads them, also where the body starts with one that goes.
// CHECK-LABEL: func.func @two(
// CHECK:         scf.forall (%[[I:.*]]) = (0) to (8) step (2) shared_outs(%[[A:.*]] = %{{.*}}, %[[B:.*]] = %{{.*}})
// CHECK:           %[[DIM:.*]] = tensor.dim %[[B]]
// CHECK:           %[[TA:.*]] = tensor.extract_slice %[[A]][%[[I]]] [2] [1] : tensor<8xf32> to tensor<2xf32>
// CHECK:           %[[TB:.*]] = tensor.extract_slice %[[B]][%[[I]], 0] [2, %[[DIM]]] [1, 1] : tensor<8x?xf32> to tensor<2x?xf32>
// CHECK:           linalg.exp ins(%[[TA]]
// CHECK:           %{{.*}} = tensor.extract_slice %[[TB]][0, 0]
// CHECK:           tensor.parallel_insert_slice %{{.*}} into %[[A]][%[[I]]] [2] [1]
// CHECK:           tensor.parallel_insert_slice %{{.*}} into %[[B]][%[[I]], 0] [2, %[[DIM]]] [1, 1]
func.func @two(%a: tensor<8xf32>, %b: tensor<8x?xf32>, %n: index) -> (tensor<8xf32>, tensor<8x?xf32>) {
  %c0 = arith.constant 0 : index
  %c2 = arith.constant 2 : index
  %c8 = arith.constant 8 : index
  %r:2 = scf.for %i = %c0 to %c8 step %c2 iter_args(%a1 = %a, %b1 = %b) -> (tensor<8xf32>, tensor<8x?xf32>) {
    %ta = tensor.extract_slice %a1[%i] [2] [1] : tensor<8xf32> to tensor<2xf32>
    %ea = linalg.exp ins(%ta : tensor<2xf32>) outs(%ta : tensor<2xf32>) -> tensor<2xf32>
    %tb = tensor.extract_slice %b1[%i, 0] [2, %n] [1, 1] : tensor<8x?xf32> to tensor<2x?xf32>
    %eb = linalg.exp ins(%tb : tensor<2x?xf32>) outs(%tb : tensor<2x?xf32>) -> tensor<2x?xf32>
    %a2 = tensor.insert_slice %ea into %a1[%i] [2] [1] : tensor<2xf32> into tensor<8xf32>
    %b2 = tensor.insert_slice %eb into %b1[%i, 0] [2, %n] [1, 1] : tensor<2x?xf32> into tensor<8x?xf32>
    scf.yield %a2, %b2 : tensor<8xf32>, tensor<8x?xf32>
  }
  return %r#0, %r#1 : tensor<8xf32>, tensor<8x?xf32>
}

// -----

// Tiles of columns: what rows have for each tile stands at the number of the iteration, and is a row in the tile.
// CHECK-LABEL: func.func @columns
// CHECK: %[[R:.*]]:2 = scf.forall (%[[C:.*]]) = (0) to (500) step (256) shared_outs(%[[O:.*]] = %arg0, %[[M:.*]] = %arg1)
// CHECK-DAG: %[[I:.*]] = affine.apply #[[FLOOR:.*]](%[[C]])
// CHECK-DAG: %[[ROW:.*]] = tensor.extract_slice %[[M]][%[[I]], 0] [1, 8] [1, 1] : tensor<2x8xf32> to tensor<8xf32>
// CHECK: scf.for {{.*}} iter_args(%{{.*}} = %{{.*}}, %{{.*}} = %[[ROW]]) -> (tensor<8x?xf32>, tensor<8xf32>)
// CHECK: scf.forall.in_parallel
// CHECK: tensor.parallel_insert_slice %{{.*}} into %[[M]][%[[I]], 0] [1, 8] [1, 1] : tensor<8xf32> into tensor<2x8xf32>
func.func @columns(%o: tensor<8x500xf32>, %m: tensor<2x8xf32>, %x: tensor<64x8xf32>) -> (tensor<8x500xf32>, tensor<2x8xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c64 = arith.constant 64 : index
  %c256 = arith.constant 256 : index
  %c500 = arith.constant 500 : index
  %r:2 = scf.for %c = %c0 to %c500 step %c256 iter_args(%o1 = %o, %m1 = %m) -> (tensor<8x500xf32>, tensor<2x8xf32>) {
    %r1:2 = scf.for %k = %c0 to %c64 step %c1 iter_args(%o2 = %o1, %m2 = %m1) -> (tensor<8x500xf32>, tensor<2x8xf32>) {
      %n = affine.min affine_map<(i) -> (-i + 500, 256)>(%c)
      %i = affine.apply affine_map<(i) -> (i floordiv 256)>(%c)
      %row = tensor.extract_slice %m2[%i, 0] [1, 8] [1, 1] : tensor<2x8xf32> to tensor<8xf32>
      %y = tensor.extract_slice %x[%k, 0] [1, 8] [1, 1] : tensor<64x8xf32> to tensor<8xf32>
      %max = linalg.max ins(%row, %y : tensor<8xf32>, tensor<8xf32>) outs(%row : tensor<8xf32>) -> tensor<8xf32>
      %t = tensor.extract_slice %o2[0, %c] [8, %n] [1, 1] : tensor<8x500xf32> to tensor<8x?xf32>
      %u = linalg.exp ins(%t : tensor<8x?xf32>) outs(%t : tensor<8x?xf32>) -> tensor<8x?xf32>
      %o3 = tensor.insert_slice %u into %o2[0, %c] [8, %n] [1, 1] : tensor<8x?xf32> into tensor<8x500xf32>
      %m3 = tensor.insert_slice %max into %m2[%i, 0] [1, 8] [1, 1] : tensor<8xf32> into tensor<2x8xf32>
      scf.yield %o3, %m3 : tensor<8x500xf32>, tensor<2x8xf32>
    }
    scf.yield %r1#0, %r1#1 : tensor<8x500xf32>, tensor<2x8xf32>
  }
  return %r#0, %r#1 : tensor<8x500xf32>, tensor<2x8xf32>
}

// -----

// Numbers of other tiles, or of iterations that do not begin with the first one, may be the same twice.
// CHECK-LABEL: func.func @other_numbers
// CHECK-NOT: scf.forall
func.func @other_numbers(%m: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  %c128 = arith.constant 128 : index
  %c500 = arith.constant 500 : index
  %r = scf.for %c = %c0 to %c500 step %c64 iter_args(%m1 = %m) -> (tensor<4x8xf32>) {
    %i = affine.apply affine_map<(i) -> (i floordiv 128)>(%c)
    %row = tensor.extract_slice %m1[%i, 0] [1, 8] [1, 1] : tensor<4x8xf32> to tensor<8xf32>
    %exp = linalg.exp ins(%row : tensor<8xf32>) outs(%row : tensor<8xf32>) -> tensor<8xf32>
    %m2 = tensor.insert_slice %exp into %m1[%i, 0] [1, 8] [1, 1] : tensor<8xf32> into tensor<4x8xf32>
    scf.yield %m2 : tensor<4x8xf32>
  }
  %s = scf.for %c = %c64 to %c500 step %c128 iter_args(%m1 = %r) -> (tensor<4x8xf32>) {
    %i = affine.apply affine_map<(i) -> (i floordiv 128)>(%c)
    %row = tensor.extract_slice %m1[%i, 0] [1, 8] [1, 1] : tensor<4x8xf32> to tensor<8xf32>
    %exp = linalg.exp ins(%row : tensor<8xf32>) outs(%row : tensor<8xf32>) -> tensor<8xf32>
    %m2 = tensor.insert_slice %exp into %m1[%i, 0] [1, 8] [1, 1] : tensor<8xf32> into tensor<4x8xf32>
    scf.yield %m2 : tensor<4x8xf32>
  }
  return %s : tensor<4x8xf32>
}

// -----

// Threads share the heads alone. Within, the loop over keys carries all of %y, to which every tile of keys adds, and of
// %x a tile of its own, which starts as that of %x0 and is inserted once. A size that the inner loop does not change is
// computed before it.
// CHECK-LABEL: func.func @own_tiles
// CHECK-SAME:    %{{.*}}: tensor<4xf32>, %[[X0:.*]]: tensor<2x100xf32>, %{{.*}}: tensor<2x32xf32>)
// CHECK:       scf.forall (%{{.*}}) in (2) shared_outs
// CHECK:         %[[X:.*]] = tensor.extract_slice
// CHECK:         %[[R:.*]]:2 = scf.for %[[J:.*]] = {{.*}} iter_args(%[[A:.*]] = %[[X]], %[[B:.*]] = %{{.*}})
// CHECK:           %[[N:.*]] = affine.min {{.*}}(%[[J]])
// CHECK:           %[[T:.*]] = tensor.extract_slice %[[X]][0, %[[J]]] [1, %[[N]]]
// CHECK:           %[[I:.*]]:2 = scf.for %{{.*}} iter_args(%[[C:.*]] = %[[T]], %[[D:.*]] = %[[B]]) -> (tensor<1x?xf32>, tensor<1x32xf32>)
// CHECK-NOT:         affine.min
// CHECK:             linalg.exp ins(%[[C]] :
// CHECK:           %[[DONE:.*]] = tensor.insert_slice %[[I]]#0 into %[[A]][0, %[[J]]] [1, %[[N]]]
// CHECK:           scf.yield %[[DONE]], %[[I]]#1
func.func @own_tiles(%z: tensor<4xf32>, %x0: tensor<2x100xf32>, %y0: tensor<2x32xf32>) -> (tensor<2x100xf32>, tensor<2x32xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %c16 = arith.constant 16 : index
  %c32 = arith.constant 32 : index
  %c100 = arith.constant 100 : index
  %r:2 = scf.for %h = %c0 to %c2 step %c1 iter_args(%x1 = %x0, %y1 = %y0) -> (tensor<2x100xf32>, tensor<2x32xf32>) {
    %r1:2 = scf.for %j = %c0 to %c100 step %c16 iter_args(%x2 = %x1, %y2 = %y1) -> (tensor<2x100xf32>, tensor<2x32xf32>) {
      %r2:2 = scf.for %i = %c0 to %c32 step %c16 iter_args(%x3 = %x2, %y3 = %y2) -> (tensor<2x100xf32>, tensor<2x32xf32>) {
        %n = affine.min affine_map<(j) -> (-j + 100, 16)>(%j)
        %t = tensor.extract_slice %x3[%h, %j] [1, %n] [1, 1] : tensor<2x100xf32> to tensor<1x?xf32>
        %u = linalg.exp ins(%t : tensor<1x?xf32>) outs(%t : tensor<1x?xf32>) -> tensor<1x?xf32>
        %x4 = tensor.insert_slice %u into %x3[%h, %j] [1, %n] [1, 1] : tensor<1x?xf32> into tensor<2x100xf32>
        %v = tensor.extract_slice %y3[%h, %i] [1, 16] [1, 1] : tensor<2x32xf32> to tensor<1x16xf32>
        %w = linalg.exp ins(%v : tensor<1x16xf32>) outs(%v : tensor<1x16xf32>) -> tensor<1x16xf32>
        %y4 = tensor.insert_slice %w into %y3[%h, %i] [1, 16] [1, 1] : tensor<1x16xf32> into tensor<2x32xf32>
        scf.yield %x4, %y4 : tensor<2x100xf32>, tensor<2x32xf32>
      }
      scf.yield %r2#0, %r2#1 : tensor<2x100xf32>, tensor<2x32xf32>
    } {__sequential__}
    scf.yield %r1#0, %r1#1 : tensor<2x100xf32>, tensor<2x32xf32>
  }
  return %r#0, %r#1 : tensor<2x100xf32>, tensor<2x32xf32>
}

// -----

// The sizes of such a tile are those of what the loop starts from: known before the tile is.
// CHECK-LABEL: func.func @own_tiles_of_open_sizes
// CHECK:       scf.forall
// CHECK:         %[[X:.*]] = tensor.extract_slice %{{.*}}[%{{.*}}, 0, 0] [1, %{{.*}}, %[[WIDTH:.*]]] [1, 1, 1]
// CHECK:         scf.for %[[J:.*]] = {{.*}} iter_args(%[[A:.*]] = %[[X]], %{{.*}} = %{{.*}})
// CHECK:           %[[T:.*]] = tensor.extract_slice %[[X]][0, %[[J]], 0] [1, 1, %[[WIDTH]]]
// CHECK:           %[[I:.*]]:2 = scf.for %{{.*}} iter_args(%[[C:.*]] = %[[T]], %{{.*}} = %{{.*}}) -> (tensor<1x1x?xf32>, tensor<1x32xf32>)
// CHECK:           tensor.insert_slice %[[I]]#0 into %[[A]][0, %[[J]], 0] [1, 1, %[[WIDTH]]]
func.func @own_tiles_of_open_sizes(%x0: tensor<2x?x?xf32>, %y0: tensor<2x32xf32>, %rows: index, %width: index) -> (tensor<2x?x?xf32>, tensor<2x32xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %c16 = arith.constant 16 : index
  %c32 = arith.constant 32 : index
  %r:2 = scf.for %h = %c0 to %c2 step %c1 iter_args(%x1 = %x0, %y1 = %y0) -> (tensor<2x?x?xf32>, tensor<2x32xf32>) {
    %r1:2 = scf.for %j = %c0 to %rows step %c1 iter_args(%x2 = %x1, %y2 = %y1) -> (tensor<2x?x?xf32>, tensor<2x32xf32>) {
      %r2:2 = scf.for %i = %c0 to %c32 step %c16 iter_args(%x3 = %x2, %y3 = %y2) -> (tensor<2x?x?xf32>, tensor<2x32xf32>) {
        %t = tensor.extract_slice %x3[%h, %j, 0] [1, 1, %width] [1, 1, 1] : tensor<2x?x?xf32> to tensor<1x1x?xf32>
        %u = linalg.exp ins(%t : tensor<1x1x?xf32>) outs(%t : tensor<1x1x?xf32>) -> tensor<1x1x?xf32>
        %x4 = tensor.insert_slice %u into %x3[%h, %j, 0] [1, 1, %width] [1, 1, 1] : tensor<1x1x?xf32> into tensor<2x?x?xf32>
        %v = tensor.extract_slice %y3[%h, %i] [1, 16] [1, 1] : tensor<2x32xf32> to tensor<1x16xf32>
        %w = linalg.exp ins(%v : tensor<1x16xf32>) outs(%v : tensor<1x16xf32>) -> tensor<1x16xf32>
        %y4 = tensor.insert_slice %w into %y3[%h, %i] [1, 16] [1, 1] : tensor<1x16xf32> into tensor<2x32xf32>
        scf.yield %x4, %y4 : tensor<2x?x?xf32>, tensor<2x32xf32>
      }
      scf.yield %r2#0, %r2#1 : tensor<2x?x?xf32>, tensor<2x32xf32>
    } {__sequential__}
    scf.yield %r1#0, %r1#1 : tensor<2x?x?xf32>, tensor<2x32xf32>
  }
  return %r#0, %r#1 : tensor<2x?x?xf32>, tensor<2x32xf32>
}

// -----

// A loop that is parallel stays as it is if it is to.
// CHECK-LABEL: func.func @sequential
// CHECK:       scf.forall (%{{.*}}) in (2)
// CHECK:         scf.for
func.func @sequential(%x0: tensor<2x64xf32>) -> tensor<2x64xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %c16 = arith.constant 16 : index
  %c64 = arith.constant 64 : index
  %r = scf.for %h = %c0 to %c2 step %c1 iter_args(%x1 = %x0) -> (tensor<2x64xf32>) {
    %r1 = scf.for %j = %c0 to %c64 step %c16 iter_args(%x2 = %x1) -> (tensor<2x64xf32>) {
      %t = tensor.extract_slice %x2[%h, %j] [1, 16] [1, 1] : tensor<2x64xf32> to tensor<1x16xf32>
      %u = linalg.exp ins(%t : tensor<1x16xf32>) outs(%t : tensor<1x16xf32>) -> tensor<1x16xf32>
      %x3 = tensor.insert_slice %u into %x2[%h, %j] [1, 16] [1, 1] : tensor<1x16xf32> into tensor<2x64xf32>
      scf.yield %x3 : tensor<2x64xf32>
    } {__sequential__}
    scf.yield %r1 : tensor<2x64xf32>
  }
  return %r : tensor<2x64xf32>
}
