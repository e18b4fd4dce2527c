// What is left outside of loops over tiles becomes kernels with a thread for each element.
// RUN: attn-opt %s --split-input-file --outline-elements --canonicalize | FileCheck %s

module attributes {gpu.container_module} {
  gpu.module @sums_kernels {
    // CHECK-LABEL: gpu.func @sums_elements_0
    // CHECK-SAME: (%[[A:.*]]: memref<?x8xf32, strided<[?, ?]>>, %[[OUT:.*]]: memref<?xf32, strided<[?]>>, %[[N:.*]]: index) kernel
    // CHECK: %[[BLOCK:.*]] = gpu.block_id x
    // CHECK: gpu.thread_id x
    // CHECK: %[[INSIDE:.*]] = arith.cmpi slt
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
