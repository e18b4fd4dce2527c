// What is left outside of loops over tiles becomes kernels with a thread for each element.
// RUN: attn-opt %s --split-input-file --outline-elements --canonicalize | FileCheck %s

module attributes {gpu.container_module} {
  gpu.module @sums_kernels {
    // CHECK-LABEL: gpu.func @sums_elements_0
    // CHECK-SAME: (%[[A:.*]]: memref<?x8xf32, strided<[?, ?]>>, %[[OUT:.*]]: memref<?xf32, strided<[?]>>, %[[N:.*]]: index) kernel
    // CHECK: %[[BLOCK:.*]] = gpu.block_id x
    // CHECK: gpu.thread_id x
    // CHECK: %[[INSIDE:.*]] = arith.cmpi ult
    // CHECK: scf.if %[[INSIDE]] {
    // CHECK: %[[I:.*]] = arith.remui
    // CHECK: %[[SUM:.*]] = scf.for %[[J:.*]] = {{.*}} iter_args(%[[OLD:.*]] = {{.*}}) -> (f32) {
    // CHECK: %[[X:.*]] = memref.load %[[A]][%[[I]], %[[J]]]
    // CHECK: %[[NEW:.*]] = arith.addf %[[OLD]], %[[X]]
    // CHECK: scf.yield %[[NEW]]
    // CHECK: memref.store %[[SUM]], %[[OUT]][%[[I]]]
  }

  // CHECK-LABEL: func.func @sums
  // CHECK-SAME: (%[[ARG:.*]]: tensor<?x8xf32>)
  func.func @sums(%a: tensor<?x8xf32>) -> tensor<?xf32> {
    %c0 = arith.constant 0 : index
    %zero = arith.constant 0.0 : f32
    %n = tensor.dim %a, %c0 : tensor<?x8xf32>
    %e = tensor.empty(%n) : tensor<?xf32>
    %init = linalg.fill ins(%zero : f32) outs(%e : tensor<?xf32>) -> tensor<?xf32>
    // CHECK: %[[ALLOC:.*]] = memref.alloc(%{{.*}}) : memref<?xf32>
    // CHECK: %[[BUFFER:.*]] = bufferization.to_buffer %[[ARG]] read_only
    // CHECK: gpu.launch_func @sums_kernels::@sums_elements_0 {{.*}} args(%[[BUFFER]] :
    // CHECK: bufferization.to_tensor %[[ALLOC]]
    %r = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>],
        iterator_types = ["parallel", "reduction"]} ins(%a : tensor<?x8xf32>) outs(%init : tensor<?xf32>) {
    ^bb0(%x: f32, %old: f32):
      %s = arith.addf %old, %x : f32
      linalg.yield %s : f32
    } -> tensor<?xf32>
    return %r : tensor<?xf32>
  }
}

// -----

// A slice that drops a dimension of size 1: elements of the whole tensor are read.
module attributes {gpu.container_module} {
  gpu.module @rows_kernels {
    // CHECK-LABEL: gpu.func @rows_elements_0
    // CHECK-SAME: (%[[A:.*]]: memref<3x8xf32, strided<[?, ?]>>
    // CHECK-DAG: %[[TWO:.*]] = arith.constant 2 : index
    // CHECK: scf.if
    // CHECK: memref.load %[[A]][%[[TWO]], %{{.*}}] : memref<3x8xf32
  }
  func.func @rows(%a: tensor<3x8xf32>) -> tensor<8xf32> {
    %row = tensor.extract_slice %a[2, 0] [1, 8] [1, 1] : tensor<3x8xf32> to tensor<8xf32>
    %e = tensor.empty() : tensor<8xf32>
    %r = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>], iterator_types = ["parallel"]}
        ins(%row : tensor<8xf32>) outs(%e : tensor<8xf32>) {
    ^bb0(%x: f32, %old: f32):
      %s = arith.mulf %x, %x : f32
      linalg.yield %s : f32
    } -> tensor<8xf32>
    return %r : tensor<8xf32>
  }
}

// -----

// Constants are numbers where all elements are the same, else part of the code; an index may be a constant, or computed.
module attributes {gpu.container_module} {
  gpu.module @tables_kernels {
    // CHECK: memref.global constant @tables_elements_0_constant_1 : memref<2xf32> = dense<[5.000000e-01, 2.500000e-01]>
    // CHECK-LABEL: gpu.func @tables_elements_0
    // CHECK-SAME: (%[[A:.*]]: memref<1x9xf32, strided<[?, ?]>>, %{{.*}}: memref<2x8xf32, strided<[?, ?]>>) kernel
    // CHECK-DAG: %[[ZERO:.*]] = arith.constant 0 : index
    // CHECK-DAG: %[[THREE:.*]] = arith.constant 3.000000e+00 : f32
    // CHECK-DAG: %[[TABLE:.*]] = memref.get_global @tables_elements_0_constant_1
    // CHECK: scf.if
    // CHECK: %[[AT:.*]] = affine.apply #{{.*}}%{{.*}}
    // CHECK: %[[X:.*]] = memref.load %[[A]][%[[ZERO]], %[[AT]]]
    // CHECK: %[[T:.*]] = memref.load %[[TABLE]][%{{.*}}] : memref<2xf32>
    // CHECK: %[[Y:.*]] = arith.mulf %[[X]], %[[T]]
    // CHECK: arith.addf %[[Y]], %[[THREE]]
  }
  func.func @tables(%a: tensor<1x9xf32>) -> tensor<2x8xf32> {
    %same = arith.constant dense<3.0> : tensor<8xf32>
    %table = arith.constant dense<[0.5, 0.25]> : tensor<2xf32>
    %e = tensor.empty() : tensor<2x8xf32>
    %r = linalg.generic {indexing_maps = [affine_map<(i, j) -> (j)>, affine_map<(i, j) -> (0, j + 1)>, affine_map<(i, j) -> (i)>, affine_map<(i, j) -> (i, j)>],
        iterator_types = ["parallel", "parallel"]} ins(%same, %a, %table : tensor<8xf32>, tensor<1x9xf32>, tensor<2xf32>) outs(%e : tensor<2x8xf32>) {
    ^bb0(%s: f32, %x: f32, %t: f32, %old: f32):
      %y = arith.mulf %x, %t : f32
      %z = arith.addf %y, %s : f32
      linalg.yield %z : f32
    } -> tensor<2x8xf32>
    return %r : tensor<2x8xf32>
  }
}

// -----

// What branches read is passed to the kernel as well.
module attributes {gpu.container_module} {
  gpu.module @joined_kernels {
    // CHECK-LABEL: gpu.func @joined_elements_0
    // CHECK-SAME: (%[[A:.*]]: memref<3xf32, strided<[?]>>, %[[B:.*]]: memref<5xf32, strided<[?]>>, %[[OUT:.*]]: memref<8xf32
    // CHECK: scf.if
    // CHECK: %[[X:.*]] = scf.if %{{.*}} -> (f32) {
    // CHECK: memref.load %[[A]]
    // CHECK: } else {
    // CHECK: memref.load %[[B]]
    // CHECK: memref.store %[[X]], %[[OUT]]
  }
  func.func @joined(%a: tensor<3xf32>, %b: tensor<5xf32>) -> tensor<8xf32> {
    %c3 = arith.constant 3 : index
    %e = tensor.empty() : tensor<8xf32>
    %r = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>], iterator_types = ["parallel"]} outs(%e : tensor<8xf32>) {
    ^bb0(%old: f32):
      %i = linalg.index 0 : index
      %first = arith.cmpi slt, %i, %c3 : index
      %x = scf.if %first -> (f32) {
        %y = tensor.extract %a[%i] : tensor<3xf32>
        scf.yield %y : f32
      } else {
        %j = arith.subi %i, %c3 : index
        %y = tensor.extract %b[%j] : tensor<5xf32>
        scf.yield %y : f32
      }
      linalg.yield %x : f32
    } -> tensor<8xf32>
    return %r : tensor<8xf32>
  }
}

// -----

// Rows of 64 bytes or more have several threads, which read pieces of 16 bytes: two threads here, of whose five pieces
// the first one has the last. Their parts are put together behind all branches.
module attributes {gpu.container_module} {
  gpu.module @norms_kernels {
    // CHECK-LABEL: gpu.func @norms_elements_0
    // CHECK-SAME: (%[[A:.*]]: memref<?x40xf16, strided<[?, 1]>>, %[[INIT:.*]]: memref<?xf32, strided<[?]>>, %[[OUT:.*]]: memref<?xf32, strided<[?]>>, %[[N:.*]]: index) kernel
    // CHECK-DAG: %[[C0:.*]] = arith.constant 0 : index
    // CHECK-DAG: %[[C1:.*]] = arith.constant 1 : index
    // CHECK-DAG: %[[C2:.*]] = arith.constant 2 : index
    // CHECK-DAG: %[[C8:.*]] = arith.constant 8 : index
    // CHECK-DAG: %[[ZERO:.*]] = arith.constant 0.0{{.*}} : f32
    // CHECK-DAG: %[[LANE:.*]] = arith.remui %[[NUMBER:.*]], %[[C2]]
    // CHECK-DAG: %[[ROW:.*]] = arith.divui %[[NUMBER]], %[[C2]]
    // CHECK-DAG: %[[THREADS:.*]] = arith.muli %[[N]], %[[C2]]
    // CHECK-DAG: %[[INSIDE:.*]] = arith.cmpi ult, %[[NUMBER]], %[[THREADS]]
    // CHECK: %[[I:.*]] = arith.remui %[[ROW]], %[[N]]
    // CHECK: %[[PART:.*]] = scf.if %[[INSIDE]] -> (f32) {
    // CHECK:   %[[AT:.*]] = arith.muli %[[LANE]], %[[C8]]
    // CHECK:   %[[V:.*]] = vector.load %[[A]][%[[I]], %[[AT]]] : memref<?x40xf16, strided<[?, 1]>>, vector<8xf16>
    // CHECK:   %[[X:.*]] = vector.extract %[[V]][0]
    // CHECK:   %[[Y:.*]] = arith.extf %[[X]] : f16 to f32
    // CHECK:   %[[YY:.*]] = arith.extf %[[X]] : f16 to f32
    // CHECK:   %[[Z:.*]] = arith.mulf %[[Y]], %[[YY]]
    // CHECK:   arith.addf %[[Z]], %[[ZERO]]
    // CHECK-COUNT-7: arith.addf
    // CHECK:   %[[PIECE:.*]] = arith.addi %[[LANE]], %[[C2]]
    // CHECK:   %[[NEXT:.*]] = arith.muli %[[PIECE]], %[[C8]]
    // CHECK:   vector.load %[[A]][%[[I]], %[[NEXT]]]
    // CHECK-COUNT-7: arith.addf
    // CHECK:   %[[TWO:.*]] = arith.addf
    // CHECK:   %[[MORE:.*]] = arith.cmpi ult, %[[LANE]], %[[C1]]
    // CHECK:   %[[ALL:.*]] = scf.if %[[MORE]] -> (f32) {
    // CHECK:     %[[LAST:.*]] = arith.muli
    // CHECK:     vector.load %[[A]]
    // CHECK:   } else {
    // CHECK:     scf.yield %[[TWO]]
    // CHECK:   scf.yield %[[ALL]]
    // CHECK: } else {
    // CHECK:   scf.yield %[[ZERO]]
    // CHECK: %[[SUM:.*]] = gpu.subgroup_reduce add %[[PART]] cluster(size = 2) : (f32) -> f32
    // CHECK: %[[STORES:.*]] = arith.andi %[[INSIDE]]
    // CHECK: scf.if %[[STORES]] {
    // CHECK:   %[[START:.*]] = memref.load %[[INIT]][%[[I]]]
    // CHECK:   %[[WHOLE:.*]] = arith.addf %[[START]], %[[SUM]]
    // CHECK:   memref.store %[[WHOLE]], %[[OUT]][%[[I]]]
  }

  // CHECK-LABEL: func.func @norms
  // CHECK: gpu.launch_func @norms_kernels::@norms_elements_0
  func.func @norms(%a: tensor<?x40xf16>, %init: tensor<?xf32>) -> tensor<?xf32> {
    %r = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>],
        iterator_types = ["parallel", "reduction"]} ins(%a, %a : tensor<?x40xf16>, tensor<?x40xf16>) outs(%init : tensor<?xf32>) {
    ^bb0(%x: f16, %y: f16, %old: f32):
      %u = arith.extf %x : f16 to f32
      %v = arith.extf %y : f16 to f32
      %w = arith.mulf %u, %v : f32
      %s = arith.addf %old, %w : f32
      linalg.yield %s : f32
    } -> tensor<?xf32>
    return %r : tensor<?xf32>
  }
}

// -----

// Where rows are aligned to nothing, neighbouring threads read single elements; a slice says how rows begin. Of a long
// row a thread has pieces in a loop. Sums that no one reads before the last of them are one launch: 9 rows of 32
// threads are the first two blocks.
module attributes {gpu.container_module} {
  gpu.module @maxima_kernels {
    // CHECK-LABEL: gpu.func @maxima_elements_0
    // CHECK-SAME: (%[[A:.*]]: memref<9x320xf32, strided<[?, ?]>>, %[[INIT:.*]]: memref<9xf32{{.*}}>, %[[B:.*]]: memref<9x64xf32, strided<[?, 1]>>, %[[R:.*]]: memref<9xf32{{.*}}>, %[[T:.*]]: memref<9xf32{{.*}}>) kernel
    // CHECK-DAG: %[[C9:.*]] = arith.constant 9 : index
    // CHECK-DAG: %[[BEFORE:.*]] = arith.constant 2 : index
    // CHECK-DAG: %[[C17:.*]] = arith.constant 17 : index
    // CHECK-DAG: %[[LOW:.*]] = arith.constant 0xFF800000 : f32
    // CHECK: %[[NINE:.*]] = scf.for {{.*}} to %[[C9]] {{.*}} iter_args(%{{.*}} = %[[LOW]])
    // CHECK: %[[AT:.*]] = arith.addi %{{.*}}, %[[C17]]
    // CHECK: memref.load %[[A]][%{{.*}}, %[[AT]]]
    // CHECK: gpu.subgroup_reduce maximumf %{{.*}} cluster(size = 32)
    // CHECK: memref.store %{{.*}}, %[[R]]
    // CHECK: %[[BLOCK:.*]] = arith.subi %block_id_x, %[[BEFORE]]
    // CHECK: arith.muli %[[BLOCK]]
    // CHECK: vector.load %[[B]]{{.*}} vector<4xf32>
    // CHECK: gpu.subgroup_reduce maximumf %{{.*}} cluster(size = 4)
    // CHECK: memref.store %{{.*}}, %[[T]]
  }
  // CHECK-LABEL: func.func @maxima
  // CHECK: %[[BLOCKS:.*]] = arith.constant 3 : index
  // CHECK: gpu.launch_func @maxima_kernels::@maxima_elements_0 blocks in (%[[BLOCKS]],
  // CHECK-NOT: gpu.launch_func
  func.func @maxima(%a: tensor<9x320xf32>, %b: tensor<9x64xf32>, %init: tensor<9xf32>) -> (tensor<9xf32>, tensor<9xf32>) {
    %odd = tensor.extract_slice %a[0, 17] [9, 289] [1, 1] : tensor<9x320xf32> to tensor<9x289xf32>
    %even = tensor.extract_slice %b[0, 16] [9, 32] [1, 1] : tensor<9x64xf32> to tensor<9x32xf32>
    %r = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>],
        iterator_types = ["parallel", "reduction"]} ins(%odd : tensor<9x289xf32>) outs(%init : tensor<9xf32>) {
    ^bb0(%x: f32, %old: f32):
      %s = arith.maximumf %x, %old : f32
      linalg.yield %s : f32
    } -> tensor<9xf32>
    %t = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>],
        iterator_types = ["parallel", "reduction"]} ins(%even : tensor<9x32xf32>) outs(%init : tensor<9xf32>) {
    ^bb0(%x: f32, %old: f32):
      %s = arith.maximumf %x, %old : f32
      linalg.yield %s : f32
    } -> tensor<9xf32>
    return %r, %t : tensor<9xf32>, tensor<9xf32>
  }
}

// -----

// What a thread has to compute alone: where a result is more than a sum, and where rows are of no use to neighbours, or
// of use to many results.
module attributes {gpu.container_module} {
  gpu.module @alone_kernels {
    // CHECK-LABEL: gpu.func @alone_elements_0
    // CHECK-NOT: gpu.subgroup_reduce
    // CHECK-LABEL: gpu.func @alone_elements_1
    // CHECK-NOT: gpu.subgroup_reduce
    // CHECK-LABEL: gpu.func @alone_elements_2
    // CHECK-NOT: gpu.subgroup_reduce
    // CHECK: gpu.return
  }
  func.func @alone(%a: tensor<9x64xf32>, %init: tensor<9xf32>, %rows: tensor<64xf32>, %b: tensor<65x64xf32>, %square: tensor<65x65xf32>)
      -> (tensor<9xf32>, tensor<64xf32>, tensor<65x65xf32>) {
    %r = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>],
        iterator_types = ["parallel", "reduction"]} ins(%a : tensor<9x64xf32>) outs(%init : tensor<9xf32>) {
    ^bb0(%x: f32, %old: f32):
      %s = arith.mulf %old, %old : f32
      %t = arith.addf %x, %s : f32
      linalg.yield %t : f32
    } -> tensor<9xf32>
    %t = linalg.generic {indexing_maps = [affine_map<(j, i) -> (i, j)>, affine_map<(j, i) -> (j)>],
        iterator_types = ["parallel", "reduction"]} ins(%a : tensor<9x64xf32>) outs(%rows : tensor<64xf32>) {
    ^bb0(%x: f32, %old: f32):
      %s = arith.addf %x, %old : f32
      linalg.yield %s : f32
    } -> tensor<64xf32>
    %u = linalg.generic {indexing_maps = [affine_map<(i, j, k) -> (i, k)>, affine_map<(i, j, k) -> (j, k)>, affine_map<(i, j, k) -> (i, j)>],
        iterator_types = ["parallel", "parallel", "reduction"]} ins(%b, %b : tensor<65x64xf32>, tensor<65x64xf32>) outs(%square : tensor<65x65xf32>) {
    ^bb0(%x: f32, %y: f32, %old: f32):
      %z = arith.mulf %x, %y : f32
      %s = arith.addf %z, %old : f32
      linalg.yield %s : f32
    } -> tensor<65x65xf32>
    return %r, %t, %u : tensor<9xf32>, tensor<64xf32>, tensor<65x65xf32>
  }
}

// -----

// Where there are few results, rows are shared whatever they are made of: numbers that are looked up, as tables of the
// extremes of tiles have them, or products. Integers of 32 and 64 bits are put together, too.
module attributes {gpu.container_module} {
  gpu.module @few_kernels {
    // CHECK-LABEL: gpu.func @few_elements_0
    // CHECK: %[[PARTS:.*]]:2 = scf.if %{{.*}} -> (i32, i32) {
    // CHECK: %[[M:.*]] = memref.load %[[N:.*]][%{{.*}}] : memref<500xi32
    // CHECK: %[[K:.*]] = memref.load %[[N]][
    // CHECK: arith.maxsi %[[M]], %[[K]] : i32
    // CHECK: arith.minsi %[[M]], %[[K]] : i32
    // CHECK: } else {
    // CHECK: scf.yield %c-2147483648_i32, %c2147483647_i32
    // CHECK: %[[MOST:.*]] = gpu.subgroup_reduce maxsi %[[PARTS]]#0 cluster(size = 32) : (i32) -> i32
    // CHECK: %[[LEAST:.*]] = gpu.subgroup_reduce minsi %[[PARTS]]#1 cluster(size = 32) : (i32) -> i32
    // CHECK: arith.maxsi %{{.*}}, %[[MOST]]
    // CHECK: arith.minsi %{{.*}}, %[[LEAST]]
    // CHECK: gpu.subgroup_reduce add %{{.*}} cluster(size = 8) : (i64) -> i64
    // CHECK: gpu.subgroup_reduce add %{{.*}} cluster(size = 32) : (f32) -> f32
    // CHECK-LABEL: gpu.func @few_elements_1
    // CHECK-NOT: gpu.subgroup_reduce
    // CHECK: gpu.return
  }
  func.func @few(%n: tensor<500xi32>, %a: tensor<9x64xf32>, %counts: tensor<9x40xi64>, %bits: tensor<9x64xi8>,
      %most: tensor<8xi32>, %least: tensor<8xi32>, %sums: tensor<9xi64>, %square: tensor<9x9xf32>, %bytes: tensor<9xi8>)
      -> (tensor<8xi32>, tensor<8xi32>, tensor<9xi64>, tensor<9x9xf32>, tensor<9xi8>) {
    %c64 = arith.constant 64 : index
    %c499 = arith.constant 499 : index
    %steps = tensor.empty() : tensor<64xi1>
    %r:2 = linalg.generic {indexing_maps = [affine_map<(i, j) -> (j)>, affine_map<(i, j) -> (i)>, affine_map<(i, j) -> (i)>],
        iterator_types = ["parallel", "reduction"]} ins(%steps : tensor<64xi1>) outs(%most, %least : tensor<8xi32>, tensor<8xi32>) {
    ^bb0(%step: i1, %old0: i32, %old1: i32):
      %i = linalg.index 0 : index
      %j = linalg.index 1 : index
      %start = arith.muli %i, %c64 : index
      %at = arith.addi %start, %j : index
      %inside = arith.minsi %at, %c499 : index
      %x = tensor.extract %n[%inside] : tensor<500xi32>
      %s = arith.maxsi %old0, %x : i32
      %t = arith.minsi %old1, %x : i32
      linalg.yield %s, %t : i32, i32
    } -> (tensor<8xi32>, tensor<8xi32>)
    %t = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>],
        iterator_types = ["parallel", "reduction"]} ins(%counts : tensor<9x40xi64>) outs(%sums : tensor<9xi64>) {
    ^bb0(%x: i64, %old: i64):
      %s = arith.addi %x, %old : i64
      linalg.yield %s : i64
    } -> tensor<9xi64>
    %u = linalg.generic {indexing_maps = [affine_map<(i, j, k) -> (i, k)>, affine_map<(i, j, k) -> (j, k)>, affine_map<(i, j, k) -> (i, j)>],
        iterator_types = ["parallel", "parallel", "reduction"]} ins(%a, %a : tensor<9x64xf32>, tensor<9x64xf32>) outs(%square : tensor<9x9xf32>) {
    ^bb0(%x: f32, %y: f32, %old: f32):
      %z = arith.mulf %x, %y : f32
      %s = arith.addf %z, %old : f32
      linalg.yield %s : f32
    } -> tensor<9x9xf32>
    %v = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>],
        iterator_types = ["parallel", "reduction"]} ins(%bits : tensor<9x64xi8>) outs(%bytes : tensor<9xi8>) {
    ^bb0(%x: i8, %old: i8):
      %s = arith.maxsi %x, %old : i8
      linalg.yield %s : i8
    } -> tensor<9xi8>
    return %r#0, %r#1, %t, %u, %v : tensor<8xi32>, tensor<8xi32>, tensor<9xi64>, tensor<9x9xf32>, tensor<9xi8>
  }
}

// -----

// Ops on whole tiles that go over the same rows: a block has a row of both, and its threads meet between them. The third
// one reads the elements of other rows, which are there when all blocks are done.
module attributes {gpu.container_module} {
  gpu.module @lists_kernels {
    // CHECK-LABEL: gpu.func @lists_elements_0
    // CHECK-SAME: (%[[N:.*]]: memref<?xi32, strided<[?]>>, %[[A:.*]]: memref<?x17xi32, strided<[?, ?]>>, %[[B:.*]]: memref<?x17xi32, strided<[?, ?]>>, %[[ROWS:.*]]: index) kernel attributes {tile.threads = 128 : i64}
    // CHECK-DAG: %[[C4:.*]] = arith.constant 4 : index
    // CHECK-DAG: %[[C17:.*]] = arith.constant 17 : index
    // CHECK: %[[BLOCK:.*]] = gpu.block_id x
    // CHECK: %[[ROW:.*]] = arith.remui %[[BLOCK]], %[[ROWS]]
    // CHECK: %[[THREAD:.*]] = gpu.thread_id x
    // CHECK: %[[HAS:.*]] = arith.cmpi ult, %[[THREAD]], %[[C17]]
    // CHECK: scf.if %[[HAS]] {
    // CHECK: memref.load %[[N]][%[[ROW]]]
    // CHECK: memref.store %{{.*}}, %[[A]][%[[ROW]], %{{.*}}]
    // CHECK: gpu.barrier
    // CHECK: %[[LANE:.*]] = arith.remui %[[THREAD]], %[[C4]]
    // CHECK: scf.if
    // CHECK: memref.load %[[A]][%[[ROW]], %{{.*}}]
    // CHECK: gpu.subgroup_reduce add %{{.*}} cluster(size = 4)
    // CHECK: memref.store %{{.*}}, %[[B]][%[[ROW]], %{{.*}}]
    // CHECK-NOT: gpu.barrier
    // CHECK: gpu.return
    // CHECK-LABEL: gpu.func @lists_elements_1
    // CHECK-NOT: gpu.barrier
    // CHECK: gpu.return
  }
  // CHECK-LABEL: func.func @lists
  // CHECK: %[[M:.*]] = tensor.dim
  // CHECK: gpu.launch_func @lists_kernels::@lists_elements_0 blocks in (%[[M]], %{{.*}}, %{{.*}})
  // CHECK: gpu.launch_func @lists_kernels::@lists_elements_1
  func.func @lists(%n: tensor<?xi32>) -> (tensor<?x17xi32>, tensor<?x17xi32>) {
    %c0 = arith.constant 0 : index
    %zero = arith.constant 0 : i32
    %m = tensor.dim %n, %c0 : tensor<?xi32>
    %e = tensor.empty(%m) : tensor<?x17xi32>
    %zeros = linalg.fill ins(%zero : i32) outs(%e : tensor<?x17xi32>) -> tensor<?x17xi32>
    %a = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i)>, affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]}
        ins(%n : tensor<?xi32>) outs(%e : tensor<?x17xi32>) attrs = {small} {
    ^bb0(%x: i32, %old: i32):
      %j = linalg.index 1 : index
      %y = arith.index_cast %j : index to i32
      %z = arith.addi %x, %y : i32
      linalg.yield %z : i32
    } -> tensor<?x17xi32>
    %b = linalg.generic {indexing_maps = [affine_map<(i, j, k) -> (i, k)>, affine_map<(i, j, k) -> (i, j)>], iterator_types = ["parallel", "parallel", "reduction"]}
        ins(%a : tensor<?x17xi32>) outs(%zeros : tensor<?x17xi32>) attrs = {small} {
    ^bb0(%x: i32, %old: i32):
      %s = arith.addi %old, %x : i32
      linalg.yield %s : i32
    } -> tensor<?x17xi32>
    %c = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]}
        ins(%b : tensor<?x17xi32>) outs(%e : tensor<?x17xi32>) attrs = {small} {
    ^bb0(%x: i32, %old: i32):
      %j = linalg.index 1 : index
      %other = tensor.extract %a[%c0, %j] : tensor<?x17xi32>
      %s = arith.addi %x, %other : i32
      linalg.yield %s : i32
    } -> tensor<?x17xi32>
    return %b, %c : tensor<?x17xi32>, tensor<?x17xi32>
  }
}

// -----

// A running sum: the 16 threads of a row have a part of 3 elements each, the last ones less, which they go through twice.
module attributes {gpu.container_module} {
  gpu.module @running_kernels {
    // CHECK-LABEL: gpu.func @running_elements_0
    // CHECK-SAME: (%[[A:.*]]: memref<5x37xi64, strided<[?, ?]>>, %[[LAST:.*]]: memref<5xi64, strided<[?]>>, %[[ALL:.*]]: memref<5x37xi64, strided<[?, ?]>>) kernel
    // CHECK-DAG: %[[C1:.*]] = arith.constant 1 : i32
    // CHECK-DAG: %[[C8:.*]] = arith.constant 8 : i32
    // CHECK-DAG: %[[LANE:.*]] = arith.remui %{{.*}}, %c16
    // CHECK-DAG: %[[ROW:.*]] = arith.divui %{{.*}}, %c16
    // CHECK: %[[PART:.*]] = scf.if
    // CHECK: scf.for
    // CHECK: memref.load %[[A]]
    // CHECK-NOT: memref.store
    // CHECK: } else {
    // CHECK: %[[BEFORE:.*]], %{{.*}} = gpu.shuffle up %[[PART]], %[[C1]], %{{.*}} : i64
    // CHECK: %[[MORE:.*]] = arith.addi %[[PART]], %[[BEFORE]]
    // CHECK: arith.select %{{.*}}, %[[MORE]], %[[PART]]
    // CHECK-COUNT-2: gpu.shuffle up
    // CHECK: gpu.shuffle up %{{.*}}, %[[C8]], %{{.*}} : i64
    // CHECK: gpu.shuffle up %{{.*}}, %[[C1]], %{{.*}} : i64
    // CHECK: scf.if
    // CHECK: %[[WHOLE:.*]] = scf.for %[[J:.*]] = %{{.*}} to %{{.*}} step
    // CHECK: memref.load %[[A]]
    // CHECK: %[[SUM:.*]] = arith.addi
    // CHECK: memref.store %[[SUM]], %[[ALL]][%{{.*}}, %[[J]]]
    // CHECK: scf.yield %[[SUM]]
    // CHECK: arith.cmpi eq, %[[LANE]], %c15
    // CHECK: memref.store %[[WHOLE]], %[[LAST]]
  }
  func.func @running(%a: tensor<5x37xi64>) -> (tensor<5xi64>, tensor<5x37xi64>) {
    %zero = arith.constant 0 : i64
    %row = tensor.empty() : tensor<5xi64>
    %e = tensor.empty() : tensor<5x37xi64>
    %start = linalg.fill ins(%zero : i64) outs(%row : tensor<5xi64>) -> tensor<5xi64>
    %r:2 = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>, affine_map<(i, j) -> (i, j)>],
        iterator_types = ["parallel", "reduction"]} ins(%a : tensor<5x37xi64>) outs(%start, %e : tensor<5xi64>, tensor<5x37xi64>) {
    ^bb0(%x: i64, %sum: i64, %_: i64):
      %s = arith.addi %sum, %x : i64
      linalg.yield %s, %s : i64, i64
    } -> (tensor<5xi64>, tensor<5x37xi64>)
    return %r#0, %r#1 : tensor<5xi64>, tensor<5x37xi64>
  }
}

// -----

// A sum over columns: 16 blocks, each of which has 32 columns, in four threads beside each other. Its 512 threads have
// 16 rows each, four at once, and every fourth one of them puts its sums together.
#whole = affine_map<(i, j) -> (i, j)>
module attributes {gpu.container_module} {
  gpu.module @columns_kernels {
    // CHECK-LABEL: gpu.func @columns_elements_0
    // CHECK-SAME: (%[[A:.*]]: memref<2048x512xbf16, strided<[?, 1]>>, %[[OUT:.*]]: memref<512xf32, strided<[?]>>) kernel
    // CHECK-SAME: tile.threads = 512
    // CHECK-DAG: %[[THREADS:.*]] = arith.constant 512 : index
    // CHECK-DAG: %[[BESIDE:.*]] = arith.constant 4 : index
    // CHECK-DAG: %[[WIDTH:.*]] = arith.constant 8 : index
    // CHECK: scf.if
    // CHECK: %[[LANE:.*]] = arith.remui %[[NUMBER:.*]], %[[THREADS]]
    // CHECK: %[[GROUP:.*]] = arith.divui %[[NUMBER]], %[[THREADS]]
    // CHECK: %[[PIECE:.*]] = arith.remui %[[LANE]], %[[BESIDE]]
    // CHECK: %[[ROW:.*]] = arith.divui %[[LANE]], %[[BESIDE]]
    // CHECK: %[[BEFORE:.*]] = arith.muli %{{.*}}, %[[BESIDE]]
    // CHECK: %[[PIECES:.*]] = arith.addi %[[BEFORE]], %[[PIECE]]
    // CHECK: arith.muli %[[PIECES]], %[[WIDTH]]
    // CHECK: scf.for
    // CHECK-COUNT-4: vector.load %[[A]][%{{.*}}, %{{.*}}] : {{.*}}, vector<8xbf16>
    // CHECK-NOT: vector.load
    // CHECK-COUNT-8: } {tile.beside = 4 : i64} : (f32) -> f32
    // CHECK: %[[IS_FIRST:.*]] = arith.cmpi eq, %[[ROW]]
    // CHECK: scf.if %[[IS_FIRST]] {
    // CHECK-COUNT-8: memref.store %{{.*}}, %[[OUT]]
  }
  // CHECK-LABEL: func.func @columns
  // CHECK: gpu.launch_func @columns_kernels::@columns_elements_0 blocks in (%c16,
  func.func @columns(%a: tensor<2048x512xbf16>) -> tensor<512xf32> {
    %zero = arith.constant 0.0 : f32
    %e = tensor.empty() : tensor<512xf32>
    %init = linalg.fill ins(%zero : f32) outs(%e : tensor<512xf32>) -> tensor<512xf32>
    %r = linalg.generic {indexing_maps = [#whole, affine_map<(i, j) -> (j)>], iterator_types = ["reduction", "parallel"]}
        ins(%a : tensor<2048x512xbf16>) outs(%init : tensor<512xf32>) {
    ^bb0(%x: bf16, %old: f32):
      %y = arith.extf %x : bf16 to f32
      %s = arith.addf %old, %y : f32
      linalg.yield %s : f32
    } -> tensor<512xf32>
    return %r : tensor<512xf32>
  }
}

// -----

// Of more elements than there are threads on a GPU each has several of a row, as many as 16 bytes hold.
#each = affine_map<(i, j) -> (i, j)>
module attributes {gpu.container_module} {
  gpu.module @pieces_kernels {
    // CHECK-LABEL: gpu.func @pieces_elements_0
    // CHECK-SAME: (%[[N:.*]]: memref<4096xi64, strided<[?]>>, %[[A:.*]]: memref<4096x512xbf16, strided<[?, 1]>>, %[[OUT:.*]]: memref<4096x512xbf16, strided<[?, 1]>>) kernel
    // CHECK-DAG: %[[WIDTH:.*]] = arith.constant 8 : index
    // CHECK-DAG: %[[PIECES:.*]] = arith.constant 64 : index
    // CHECK: scf.if
    // CHECK: %[[PIECE:.*]] = arith.remui %[[NUMBER:.*]], %[[PIECES]]
    // CHECK: arith.divui %[[NUMBER]], %[[PIECES]]
    // CHECK: %[[J:.*]] = arith.muli %[[PIECE]], %[[WIDTH]]
    // CHECK: %[[OLD:.*]] = vector.load %[[A]][%[[I:.*]], %[[J]]] : {{.*}}, vector<8xbf16>
    // CHECK-COUNT-8: arith.select
    // CHECK: %[[ALL:.*]] = vector.from_elements
    // CHECK: vector.store %[[ALL]], %[[OUT]][%[[I]], %[[J]]]
  }
  // CHECK-LABEL: func.func @pieces
  // CHECK: gpu.launch_func @pieces_kernels::@pieces_elements_0 blocks in (%c1024,
  func.func @pieces(%n: tensor<4096xi64>, %a: tensor<4096x512xbf16>) -> tensor<4096x512xbf16> {
    %e = tensor.empty() : tensor<4096x512xbf16>
    %r = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i)>, #each, #each], iterator_types = ["parallel", "parallel"]}
        ins(%n, %a : tensor<4096xi64>, tensor<4096x512xbf16>) outs(%e : tensor<4096x512xbf16>) {
    ^bb0(%number: i64, %old: bf16, %_: bf16):
      %zero = arith.constant 0 : i64
      %one = arith.constant 1.0 : bf16
      %is_none = arith.cmpi slt, %number, %zero : i64
      %x = arith.select %is_none, %one, %old : bf16
      linalg.yield %x : bf16
    } -> tensor<4096x512xbf16>
    return %r : tensor<4096x512xbf16>
  }
}
