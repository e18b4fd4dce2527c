// RUN: attn-opt %s --split-input-file --fuse-attention="tile-sizes=1,16,0,32" --fold-diag --canonicalize --cse --parallel-loops --canonicalize --split-masked-tiles="tests=false lists=true" --canonicalize --cse | FileCheck %s --check-prefix=LISTS
// RUN: attn-opt %s --split-input-file --fuse-attention="tile-sizes=1,16,0,32" --fold-diag --canonicalize --cse --parallel-loops --canonicalize --split-masked-tiles --canonicalize --cse | FileCheck %s --check-prefix=TESTS

// Documents may have tokens between those of others. What each tile is, is listed before the loops: 0 is dead, 1 live, 2
// needs the mask. Of the latter two it is counted how many come up to a tile, and of that follows which tile an entry is.

// LISTS-LABEL: func.func @documents
// LISTS:         %[[QUERIES:.*]]:2 = linalg.generic {{.*}} : tensor<2x32xi32>, tensor<2x32xi32>)
// LISTS:         %[[KEYS:.*]]:2 = linalg.generic {{.*}} : tensor<2x16xi32>, tensor<2x16xi32>)
// LISTS:         %[[STATES:.*]] = linalg.generic {{.*}} iterator_types = ["parallel", "parallel", "parallel"]} outs(%{{.*}} : tensor<2x32x16xi32>)
// LISTS:           tensor.extract %[[QUERIES]]#1[
// LISTS:           tensor.extract %[[KEYS]]#0[
// LISTS:           %[[LIVE:.*]] = arith.select %{{.*}}, %c1_i32, %c2_i32
// LISTS:           arith.select %{{.*}}, %c0_i32, %[[LIVE]]
// LISTS:         %[[COUNTS:.*]]:2 = linalg.generic {{.*}} iterator_types = ["parallel", "parallel", "parallel", "reduction"]} ins(%[[STATES]] : tensor<2x32x16xi32>)
// LISTS:           arith.cmpi eq, %{{.*}}, %c1_i32
// LISTS:           arith.cmpi eq, %{{.*}}, %c2_i32
// LISTS:         %[[LIST:.*]] = linalg.generic {{.*}} ins(%[[COUNTS]]#0, %[[COUNTS]]#1 : tensor<2x32x16xi32>, tensor<2x32x16xi32>)
// LISTS:         scf.forall (%[[B:.*]], %[[Q:.*]]) = (0, 0) to (2, 512) step (1, 16)
// LISTS:           %[[PLACE:.*]] = affine.apply #{{.*}}(%[[Q]])
// LISTS:           %[[N0:.*]] = tensor.extract %[[COUNTS]]#0[%[[B]], %[[PLACE]], %c15]
// LISTS:           %[[END0:.*]] = arith.index_cast %[[N0]]
// LISTS:           %[[N1:.*]] = tensor.extract %[[COUNTS]]#1[%[[B]], %[[PLACE]], %c15]
// LISTS:           %[[MORE:.*]] = arith.index_cast %[[N1]]
// LISTS:           %[[END1:.*]] = arith.addi %[[END0]], %[[MORE]]
// LISTS:           %[[R0:.*]]:3 = scf.for %[[E0:.*]] = %c0 to %[[END0]] step %c1
// LISTS:             %[[TILE:.*]] = tensor.extract %[[LIST]][%[[B]], %[[PLACE]], %[[E0]]]
// LISTS:             %[[AT:.*]] = arith.index_cast %[[TILE]]
// LISTS:             %[[K:.*]] = arith.muli %[[AT]], %c32
// LISTS-NOT:         arith.cmpi
// LISTS:             tensor.extract_slice %arg1[%[[B]], 0, %[[K]]]
// LISTS-NOT:         arith.cmpi
// LISTS:             linalg_ext.softmax
// LISTS:           scf.for %{{.*}} = %[[END0]] to %[[END1]] step %c1 iter_args(%{{.*}} = %[[R0]]#0,
// LISTS:             arith.cmpi eq, %{{.*}}, %{{.*}} : i32
// LISTS:             linalg_ext.softmax
// LISTS-NOT:         linalg_ext.softmax

// Or each tile from the first to the last one is looked at when the loop comes to it.
// TESTS-LABEL: func.func @documents
// TESTS:         %[[ENDS:.*]]:2 = linalg.generic {{.*}} iterator_types = ["parallel", "parallel", "reduction"]} ins(%{{.*}} : tensor<16xi1>) outs(%{{.*}}, %{{.*}} : tensor<2x32xi32>, tensor<2x32xi32>)
// TESTS:         scf.forall
// TESTS:           scf.for %[[K:.*]] = %{{.*}} to %{{.*}} step %c32 iter_args(%[[O:.*]] = %{{[^,]*}}, %[[M:.*]] = %{{[^,]*}}, %[[S:.*]] = %{{[^)]*}})
// TESTS:             %[[DEAD:.*]] = arith.ori
// TESTS:             %[[LIVE:.*]] = arith.andi
// TESTS:             scf.if %[[DEAD]] -> {{.*}} {
// TESTS-NEXT:          scf.yield %[[O]], %[[M]], %[[S]]
// TESTS-NEXT:        } else {
// TESTS-NEXT:          scf.if %[[LIVE]]
// TESTS-NOT:             arith.cmpi
// TESTS:                 linalg_ext.softmax
// TESTS:               } else {
// TESTS:                 arith.cmpi eq, %{{.*}}, %{{.*}} : i32
// TESTS:                 linalg_ext.softmax
// TESTS-NOT:             linalg_ext.softmax
// TESTS:         return
func.func @documents(%q: tensor<2x512x8xf32>, %k: tensor<2x8x512xf32>, %v: tensor<2x512x8xf32>, %n: tensor<2x512xi32>) -> tensor<2x512x8xf32> {
  %zero = arith.constant 0.0 : f32
  %minus_inf = arith.constant 0xFF800000 : f32
  %e0 = tensor.empty() : tensor<2x512x512xf32>
  %e1 = tensor.empty() : tensor<2x512x8xf32>
  %e2 = tensor.empty() : tensor<2x512xf32>
  %max = linalg.fill ins(%minus_inf : f32) outs(%e2 : tensor<2x512xf32>) -> tensor<2x512xf32>
  %sum = linalg.fill ins(%zero : f32) outs(%e2 : tensor<2x512xf32>) -> tensor<2x512xf32>
  %s0 = linalg.fill ins(%zero : f32) outs(%e0 : tensor<2x512x512xf32>) -> tensor<2x512x512xf32>
  %o0 = linalg.fill ins(%zero : f32) outs(%e1 : tensor<2x512x8xf32>) -> tensor<2x512x8xf32>
  %s = linalg.batch_matmul ins(%q, %k : tensor<2x512x8xf32>, tensor<2x8x512xf32>) outs(%s0 : tensor<2x512x512xf32>) -> tensor<2x512x512xf32>
  %x = linalg.generic {indexing_maps = [affine_map<(b, i, j) -> (b, i, j)>, affine_map<(b, i, j) -> (b, i)>, affine_map<(b, i, j) -> (b, j)>, affine_map<(b, i, j) -> (b, i, j)>], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%s, %n, %n : tensor<2x512x512xf32>, tensor<2x512xi32>, tensor<2x512xi32>) outs(%e0 : tensor<2x512x512xf32>) {
  ^bb0(%a: f32, %own: i32, %other: i32, %out: f32):
    %live = arith.cmpi eq, %own, %other : i32
    %y = arith.select %live, %a, %minus_inf : f32
    linalg.yield %y : f32
  } -> tensor<2x512x512xf32>
  %p:4 = linalg_ext.softmax dimension(2) ins(%x : tensor<2x512x512xf32>)
    outs(%e0, %max, %sum, %e2 : tensor<2x512x512xf32>, tensor<2x512xf32>, tensor<2x512xf32>, tensor<2x512xf32>)
    : tensor<2x512x512xf32>, tensor<2x512xf32>, tensor<2x512xf32>, tensor<2x512xf32>
  %o = linalg.batch_matmul ins(%p#0, %v : tensor<2x512x512xf32>, tensor<2x512x8xf32>) outs(%o0 : tensor<2x512x8xf32>) -> tensor<2x512x8xf32>
  return %o : tensor<2x512x8xf32>
}

// -----

// A table of blocks, two tiles of keys each, says of each tile what it is: none needs the mask.

// LISTS-LABEL: func.func @blocks
// LISTS:         linalg.generic {{.*}} iterator_types = ["parallel", "parallel"]} outs(%{{.*}} : tensor<32x16xi32>)
// LISTS:           tensor.extract %arg3[%{{.*}}, %{{.*}}] : tensor<8x8xi1>
// LISTS:         scf.forall
// LISTS:           scf.for %{{.*}} = %c0 to %{{.*}} step %c1
// LISTS-NOT:         tensor.extract %arg3
// LISTS:             linalg_ext.softmax
// LISTS-NOT:         linalg_ext.softmax
// LISTS:         return

// TESTS-LABEL: func.func @blocks
// TESTS:         scf.forall
// TESTS:           scf.for
// TESTS:             %[[BIT:.*]] = tensor.extract %arg3[%{{.*}}, %{{.*}}] : tensor<8x8xi1>
// TESTS:             scf.if
// TESTS:             } else {
// TESTS-NOT:           tensor.extract %arg3
// TESTS:               linalg_ext.softmax
// TESTS-NOT:           linalg_ext.softmax
// TESTS:         return
func.func @blocks(%q: tensor<2x512x8xf32>, %k: tensor<2x8x512xf32>, %v: tensor<2x512x8xf32>, %n: tensor<8x8xi1>) -> tensor<2x512x8xf32> {
  %zero = arith.constant 0.0 : f32
  %minus_inf = arith.constant 0xFF800000 : f32
  %c64 = arith.constant 64 : index
  %e0 = tensor.empty() : tensor<2x512x512xf32>
  %e1 = tensor.empty() : tensor<2x512x8xf32>
  %e2 = tensor.empty() : tensor<2x512xf32>
  %max = linalg.fill ins(%minus_inf : f32) outs(%e2 : tensor<2x512xf32>) -> tensor<2x512xf32>
  %sum = linalg.fill ins(%zero : f32) outs(%e2 : tensor<2x512xf32>) -> tensor<2x512xf32>
  %s0 = linalg.fill ins(%zero : f32) outs(%e0 : tensor<2x512x512xf32>) -> tensor<2x512x512xf32>
  %o0 = linalg.fill ins(%zero : f32) outs(%e1 : tensor<2x512x8xf32>) -> tensor<2x512x8xf32>
  %s = linalg.batch_matmul ins(%q, %k : tensor<2x512x8xf32>, tensor<2x8x512xf32>) outs(%s0 : tensor<2x512x512xf32>) -> tensor<2x512x512xf32>
  %x = linalg.generic {indexing_maps = [affine_map<(b, i, j) -> (b, i, j)>, affine_map<(b, i, j) -> (b, i, j)>], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%s : tensor<2x512x512xf32>) outs(%e0 : tensor<2x512x512xf32>) {
  ^bb0(%a: f32, %out: f32):
    %i = linalg.index 1 : index
    %j = linalg.index 2 : index
    %row = arith.divui %i, %c64 : index
    %column = arith.divui %j, %c64 : index
    %live = tensor.extract %n[%row, %column] : tensor<8x8xi1>
    %y = arith.select %live, %a, %minus_inf : f32
    linalg.yield %y : f32
  } -> tensor<2x512x512xf32>
  %p:4 = linalg_ext.softmax dimension(2) ins(%x : tensor<2x512x512xf32>)
    outs(%e0, %max, %sum, %e2 : tensor<2x512x512xf32>, tensor<2x512xf32>, tensor<2x512xf32>, tensor<2x512xf32>)
    : tensor<2x512x512xf32>, tensor<2x512xf32>, tensor<2x512xf32>, tensor<2x512xf32>
  %o = linalg.batch_matmul ins(%p#0, %v : tensor<2x512x512xf32>, tensor<2x512x8xf32>) outs(%o0 : tensor<2x512x8xf32>) -> tensor<2x512x8xf32>
  return %o : tensor<2x512x8xf32>
}
