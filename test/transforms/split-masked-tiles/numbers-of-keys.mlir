// RUN: attn-opt %s --split-input-file --fuse-attention="tile-sizes=1,16,0,32" --fold-diag --canonicalize --cse --parallel-loops --canonicalize --split-masked-tiles="tests=false" --canonicalize --cse | FileCheck %s
// RUN: attn-opt %s --split-input-file --fuse-attention="tile-sizes=1,16,0,32" --fold-diag --canonicalize --cse --parallel-loops --canonicalize --defer-division --split-keys=parts=2 --canonicalize --split-masked-tiles="tests=false" --canonicalize --cse | FileCheck %s --check-prefix=PARTS
// RUN: attn-opt %s --split-input-file --fuse-attention="tile-sizes=1,16,0,32" --fold-diag --canonicalize --cse --parallel-loops --canonicalize --split-masked-tiles="tests=false from-data=false" --canonicalize | FileCheck %s --check-prefix=WHOLE

// A query sees keys of its own document, which a number for each token tells. Before the loops, the greatest and the
// least number of each tile are found, and of these, for each tile of queries, the first and the last tile of keys that
// may be of its documents, and whether those tiles follow each other that are surely of its only one. These need no number.

// CHECK-LABEL: func.func @documents
// CHECK:         %[[QUERIES:.*]]:2 = linalg.generic {{.*}} iterator_types = ["parallel", "parallel", "reduction"]} ins(%{{.*}} : tensor<16xi1>) outs(%{{.*}}, %{{.*}} : tensor<2x8xi32>, tensor<2x8xi32>)
// CHECK:           tensor.extract %arg3[
// CHECK-NEXT:      %[[BELOW:.*]] = arith.cmpi slt, %[[NUMBER:.*]], %c-268435456_i32
// CHECK-NEXT:      %[[ABOVE:.*]] = arith.cmpi sgt, %[[NUMBER]], %c268435456_i32
// CHECK-NEXT:      %[[FAR:.*]] = arith.ori %[[BELOW]], %[[ABOVE]]
// CHECK-NEXT:      %[[MOST:.*]] = arith.select %[[FAR]], %c805306368_i32, %[[NUMBER]]
// CHECK:           arith.maxsi %{{.*}}, %[[MOST]]
// CHECK:           arith.minsi
// CHECK:         %[[KEYS:.*]]:2 = linalg.generic {{.*}} ins(%{{.*}} : tensor<32xi1>) outs(%{{.*}}, %{{.*}} : tensor<2x4xi32>, tensor<2x4xi32>)
// CHECK:         %[[TILES:.*]]:10 = linalg.generic {{.*}} iterator_types = ["parallel", "parallel", "reduction"]} ins(%{{.*}} : tensor<4xi1>)
// CHECK:           %[[AT:.*]] = linalg.index 2
// CHECK:           %[[NUMBER:.*]] = arith.index_cast %[[AT]] : index to i32
// CHECK:           tensor.extract %[[QUERIES]]#1[
// CHECK:           tensor.extract %[[KEYS]]#0[
// CHECK:           %[[MAYBE:.*]] = arith.andi
// CHECK:           %[[FIRST:.*]] = arith.select %[[MAYBE]], %[[NUMBER]], %c4_i32
// CHECK:           arith.minsi %{{.*}}, %[[FIRST]]
// CHECK:           %[[LAST:.*]] = arith.select %[[MAYBE]], %{{.*}}, %c0_i32
// CHECK:           arith.maxsi %{{.*}}, %[[LAST]]
// CHECK:           tensor.extract %[[QUERIES]]#0[
// CHECK:           tensor.extract %[[KEYS]]#1[
// CHECK:         scf.forall (%[[B:.*]], %[[Q:.*]]) = (0, 0) to (2, 128) step (1, 16)
// CHECK:           %[[TILE:.*]] = affine.apply #{{.*}}(%[[Q]])
// CHECK:           tensor.extract %[[TILES]]#0[%[[B]], %[[TILE]]]
// CHECK:           tensor.extract %[[TILES]]#9[%[[B]], %[[TILE]]]
// CHECK:           %[[R0:.*]]:3 = scf.for %{{.*}} = %[[LOW:.*]] to %[[LIVE:.*]] step %c32
// CHECK:             arith.cmpi eq, %{{.*}}, %{{.*}} : i32
// CHECK:             linalg_ext.softmax
// CHECK:           %[[R1:.*]]:3 = scf.for %{{.*}} = %[[LIVE]] to %[[LATE:.*]] step %c32 iter_args(%{{.*}} = %[[R0]]#0,
// CHECK-NOT:         tensor.extract_slice %arg3
// CHECK:             linalg.generic {{.*}} ins(%{{[^ ,]*}} : tensor<1x16x32xf32>)
// CHECK-NOT:         arith.cmpi
// CHECK:             linalg_ext.softmax
// CHECK:           scf.for %{{.*}} = %[[LATE]] to %{{.*}} step %c32 iter_args(%{{.*}} = %[[R1]]#0,
// CHECK:             arith.cmpi eq, %{{.*}}, %{{.*}} : i32
// CHECK:             linalg_ext.softmax
// CHECK-NOT:         linalg_ext.softmax

// Each part of the keys has first and last tiles of its own.
// PARTS-LABEL: func.func @documents
// PARTS:         %[[TILES:.*]]:10 = linalg.generic {{.*}} iterator_types = ["parallel", "parallel", "parallel", "reduction"]} {{.*}} : tensor<2x8x2xi32>
// PARTS:         scf.forall (%[[B:.*]], %[[Q:.*]], %[[PART:.*]]) = (0, 0, 0) to (2, 128, 2) step (1, 16, 1)
// PARTS:           tensor.extract %[[TILES]]#0[%[[B]], %{{.*}}, %[[PART]]]
// PARTS-COUNT-3:   scf.for %

// WHOLE-LABEL: func.func @documents
// WHOLE-NOT:     tensor.extract %
// WHOLE:         scf.for %{{.*}} = %c0 to %c128 step %c32
// WHOLE-NOT:     scf.for %
// WHOLE:         return
func.func @documents(%q: tensor<2x128x8xf32>, %k: tensor<2x8x128xf32>, %v: tensor<2x128x8xf32>, %n: tensor<2x128xi32>) -> tensor<2x128x8xf32> {
  %zero = arith.constant 0.0 : f32
  %half = arith.constant 0.5 : f32
  %minus_inf = arith.constant 0xFF800000 : f32
  %e0 = tensor.empty() : tensor<2x128x128xf32>
  %e1 = tensor.empty() : tensor<2x128x8xf32>
  %e2 = tensor.empty() : tensor<2x128xf32>
  %max = linalg.fill ins(%minus_inf : f32) outs(%e2 : tensor<2x128xf32>) -> tensor<2x128xf32>
  %sum = linalg.fill ins(%zero : f32) outs(%e2 : tensor<2x128xf32>) -> tensor<2x128xf32>
  %s0 = linalg.fill ins(%zero : f32) outs(%e0 : tensor<2x128x128xf32>) -> tensor<2x128x128xf32>
  %o0 = linalg.fill ins(%zero : f32) outs(%e1 : tensor<2x128x8xf32>) -> tensor<2x128x8xf32>
  %s = linalg.batch_matmul ins(%q, %k : tensor<2x128x8xf32>, tensor<2x8x128xf32>) outs(%s0 : tensor<2x128x128xf32>) -> tensor<2x128x128xf32>
  %x = linalg.generic {indexing_maps = [affine_map<(b, i, j) -> (b, i, j)>, affine_map<(b, i, j) -> (b, i)>, affine_map<(b, i, j) -> (b, j)>, affine_map<(b, i, j) -> (b, i, j)>], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%s, %n, %n : tensor<2x128x128xf32>, tensor<2x128xi32>, tensor<2x128xi32>) outs(%e0 : tensor<2x128x128xf32>) {
  ^bb0(%a: f32, %own: i32, %other: i32, %out: f32):
    %live = arith.cmpi eq, %own, %other : i32
    %w = arith.mulf %a, %half : f32
    %y = arith.select %live, %w, %minus_inf : f32
    linalg.yield %y : f32
  } -> tensor<2x128x128xf32>
  %p:4 = linalg_ext.softmax dimension(2) ins(%x : tensor<2x128x128xf32>)
    outs(%e0, %max, %sum, %e2 : tensor<2x128x128xf32>, tensor<2x128xf32>, tensor<2x128xf32>, tensor<2x128xf32>)
    : tensor<2x128x128xf32>, tensor<2x128xf32>, tensor<2x128xf32>, tensor<2x128xf32>
  %o = linalg.batch_matmul ins(%p#0, %v : tensor<2x128x128xf32>, tensor<2x128x8xf32>) outs(%o0 : tensor<2x128x8xf32>) -> tensor<2x128x8xf32>
  return %o : tensor<2x128x8xf32>
}

// -----

// Padding that an array of i1 tells: the same tiles of keys for all queries of a batch entry.

// CHECK-LABEL: func.func @padding
// CHECK:         %[[KEYS:.*]]:2 = linalg.generic {{.*}} ins(%{{.*}} : tensor<32xi1>) outs(%{{.*}}, %{{.*}} : tensor<2x4xi32>, tensor<2x4xi32>)
// CHECK:           %[[BIT:.*]] = tensor.extract %arg3[
// CHECK-NEXT:      %[[WIDE:.*]] = arith.extui %[[BIT]] : i1 to i32
// CHECK-NEXT:      arith.maxsi %{{.*}}, %[[WIDE]]
// CHECK:         %[[TILES:.*]]:5 = linalg.generic {{.*}} iterator_types = ["parallel", "reduction"]} ins(%{{.*}} : tensor<4xi1>) outs({{.*}} : tensor<2xi32>,
// CHECK:           tensor.extract %[[KEYS]]#0[
// CHECK:           tensor.extract %[[KEYS]]#1[
// CHECK:         scf.forall (%[[B:.*]], %{{.*}}) = (0, 0) to (2, 128) step (1, 16)
// CHECK:           tensor.extract %[[TILES]]#0[%[[B]]]
// CHECK:           scf.for %
// CHECK:             arith.select %{{.*}}, %{{.*}}, %{{.*}} : f32
// CHECK:             linalg_ext.softmax
// CHECK:           scf.for %
// CHECK-NOT:         arith.select
// CHECK:             linalg_ext.softmax
// CHECK:           scf.for %
// CHECK:             arith.select %{{.*}}, %{{.*}}, %{{.*}} : f32
// CHECK:             linalg_ext.softmax
// CHECK-NOT:       scf.if

// PARTS-LABEL: func.func @padding
// PARTS:         %[[TILES:.*]]:5 = linalg.generic {{.*}} iterator_types = ["parallel", "parallel", "reduction"]} {{.*}} : tensor<2x2xi32>
// PARTS:         scf.forall (%[[B:.*]], %[[Q:.*]], %[[PART:.*]]) = (0, 0, 0) to (2, 128, 2) step (1, 16, 1)
// PARTS:           tensor.extract %[[TILES]]#0[%[[B]], %[[PART]]]

// WHOLE-LABEL: func.func @padding
// WHOLE-NOT:     tensor.extract %
// WHOLE:         scf.for %{{.*}} = %c0 to %c128 step %c32
// WHOLE-NOT:     scf.for %
// WHOLE:         return
func.func @padding(%q: tensor<2x128x8xf32>, %k: tensor<2x8x128xf32>, %v: tensor<2x128x8xf32>, %mask: tensor<2x128xi1>) -> tensor<2x128x8xf32> {
  %zero = arith.constant 0.0 : f32
  %minus_inf = arith.constant 0xFF800000 : f32
  %e0 = tensor.empty() : tensor<2x128x128xf32>
  %e1 = tensor.empty() : tensor<2x128x8xf32>
  %e2 = tensor.empty() : tensor<2x128xf32>
  %max = linalg.fill ins(%minus_inf : f32) outs(%e2 : tensor<2x128xf32>) -> tensor<2x128xf32>
  %sum = linalg.fill ins(%zero : f32) outs(%e2 : tensor<2x128xf32>) -> tensor<2x128xf32>
  %s0 = linalg.fill ins(%zero : f32) outs(%e0 : tensor<2x128x128xf32>) -> tensor<2x128x128xf32>
  %o0 = linalg.fill ins(%zero : f32) outs(%e1 : tensor<2x128x8xf32>) -> tensor<2x128x8xf32>
  %s = linalg.batch_matmul ins(%q, %k : tensor<2x128x8xf32>, tensor<2x8x128xf32>) outs(%s0 : tensor<2x128x128xf32>) -> tensor<2x128x128xf32>
  %x = linalg.generic {indexing_maps = [affine_map<(b, i, j) -> (b, i, j)>, affine_map<(b, i, j) -> (b, j)>, affine_map<(b, i, j) -> (b, i, j)>], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%s, %mask : tensor<2x128x128xf32>, tensor<2x128xi1>) outs(%e0 : tensor<2x128x128xf32>) {
  ^bb0(%a: f32, %live: i1, %out: f32):
    %y = arith.select %live, %a, %minus_inf : f32
    linalg.yield %y : f32
  } -> tensor<2x128x128xf32>
  %p:4 = linalg_ext.softmax dimension(2) ins(%x : tensor<2x128x128xf32>)
    outs(%e0, %max, %sum, %e2 : tensor<2x128x128xf32>, tensor<2x128xf32>, tensor<2x128xf32>, tensor<2x128xf32>)
    : tensor<2x128x128xf32>, tensor<2x128xf32>, tensor<2x128xf32>, tensor<2x128xf32>
  %o = linalg.batch_matmul ins(%p#0, %v : tensor<2x128x128xf32>, tensor<2x128x8xf32>) outs(%o0 : tensor<2x128x8xf32>) -> tensor<2x128x8xf32>
  return %o : tensor<2x128x8xf32>
}

// -----

// From which query on each key is seen, of sizes that are not known. Numbers of 64 bits that are far from 0 count as if
// they were further: differences do not overflow.

// CHECK-LABEL: func.func @dynamic
// CHECK-DAG:     %[[FAR:.*]] = arith.constant 268435456 : i64
// CHECK-DAG:     %[[BEYOND:.*]] = arith.constant 805306368 : i64
// CHECK:         %[[COUNT:.*]] = affine.max #{{.*}}()[%{{.*}}]
// CHECK:         %[[KEYS:.*]]:2 = linalg.generic {{.*}} ins(%{{.*}} : tensor<32xi1>) outs(%{{.*}}, %{{.*}} : tensor<2x?xi64>, tensor<2x?xi64>)
// CHECK:           %[[AT:.*]] = arith.minsi
// CHECK:           %[[N:.*]] = tensor.extract %arg3[%{{.*}}, %[[AT]]] : tensor<2x?xi64>
// CHECK:           arith.cmpi sgt, %[[N]], %[[FAR]]
// CHECK:           %[[BOUNDED:.*]] = arith.select %{{.*}}, %[[BEYOND]], %[[N]]
// CHECK:           arith.maxsi %{{.*}}, %[[BOUNDED]]
// CHECK:         %[[TILES:.*]]:5 = linalg.generic {{.*}} iterator_types = ["parallel", "parallel", "reduction"]} {{.*}} : tensor<2x?xi32>
// CHECK:           affine.min #{{.*}}()[%{{.*}}, %{{.*}}]
// CHECK:           tensor.extract %[[KEYS]]#1[
// CHECK:         scf.forall (%{{.*}}, %[[Q:.*]]) = (0, 0) to (2, %{{.*}}) step (1, 16)
// CHECK:           %[[TILE:.*]] = affine.apply #{{.*}}(%[[Q]])
// CHECK:           tensor.extract %[[TILES]]#0[%{{.*}}, %[[TILE]]] : tensor<2x?xi32>
// CHECK-COUNT-3:   scf.for %
// CHECK-NOT:       scf.for %

// PARTS-LABEL: func.func @dynamic
// PARTS:         linalg.generic {{.*}} iterator_types = ["parallel", "parallel", "parallel", "reduction"]} {{.*}} : tensor<2x?x2xi32>

// WHOLE-LABEL: func.func @dynamic
// WHOLE-NOT:     tensor.extract %
// WHOLE:         scf.for %
// WHOLE-NOT:     scf.for %
// WHOLE:         return
func.func @dynamic(%q: tensor<2x?x8xf32>, %k: tensor<2x8x?xf32>, %v: tensor<2x?x8xf32>, %from: tensor<2x?xi64>) -> tensor<2x?x8xf32> {
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %rows = tensor.dim %q, %c1 : tensor<2x?x8xf32>
  %keys = tensor.dim %k, %c2 : tensor<2x8x?xf32>
  %zero = arith.constant 0.0 : f32
  %minus_inf = arith.constant 0xFF800000 : f32
  %e0 = tensor.empty(%rows, %keys) : tensor<2x?x?xf32>
  %e1 = tensor.empty(%rows) : tensor<2x?x8xf32>
  %e2 = tensor.empty(%rows) : tensor<2x?xf32>
  %max = linalg.fill ins(%minus_inf : f32) outs(%e2 : tensor<2x?xf32>) -> tensor<2x?xf32>
  %sum = linalg.fill ins(%zero : f32) outs(%e2 : tensor<2x?xf32>) -> tensor<2x?xf32>
  %s0 = linalg.fill ins(%zero : f32) outs(%e0 : tensor<2x?x?xf32>) -> tensor<2x?x?xf32>
  %o0 = linalg.fill ins(%zero : f32) outs(%e1 : tensor<2x?x8xf32>) -> tensor<2x?x8xf32>
  %s = linalg.batch_matmul ins(%q, %k : tensor<2x?x8xf32>, tensor<2x8x?xf32>) outs(%s0 : tensor<2x?x?xf32>) -> tensor<2x?x?xf32>
  %x = linalg.generic {indexing_maps = [affine_map<(b, i, j) -> (b, i, j)>, affine_map<(b, i, j) -> (b, j)>, affine_map<(b, i, j) -> (b, i, j)>], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%s, %from : tensor<2x?x?xf32>, tensor<2x?xi64>) outs(%e0 : tensor<2x?x?xf32>) {
  ^bb0(%a: f32, %first: i64, %out: f32):
    %i = linalg.index 1 : index
    %at = arith.index_cast %i : index to i64
    %live = arith.cmpi sge, %at, %first : i64
    %y = arith.select %live, %a, %minus_inf : f32
    linalg.yield %y : f32
  } -> tensor<2x?x?xf32>
  %p:4 = linalg_ext.softmax dimension(2) ins(%x : tensor<2x?x?xf32>)
    outs(%e0, %max, %sum, %e2 : tensor<2x?x?xf32>, tensor<2x?xf32>, tensor<2x?xf32>, tensor<2x?xf32>)
    : tensor<2x?x?xf32>, tensor<2x?xf32>, tensor<2x?xf32>, tensor<2x?xf32>
  %o = linalg.batch_matmul ins(%p#0, %v : tensor<2x?x?xf32>, tensor<2x?x8xf32>) outs(%o0 : tensor<2x?x8xf32>) -> tensor<2x?x8xf32>
  return %o : tensor<2x?x8xf32>
}
