// Copies to aligned rows become kernels, whose threads copy 16 bytes each.
// RUN: attn-opt %s --split-input-file --outline-pads --canonicalize | FileCheck %s

// Two copies, one launch. Rows of 33 elements: 5 threads each. Of an open number of elements: a warp.
module attributes {gpu.container_module} {
  gpu.module @two_kernels {
    // CHECK-LABEL: gpu.func @two_pad_0
    // CHECK-SAME: (%[[A:.*]]: memref<?x4x33xf16, strided<[?, ?, 1]>>, %[[AP:.*]]: memref<?x4x40xf16, strided<[?, ?, 1]>>,
    // CHECK-SAME:  %[[B:.*]]: memref<9x?xi1, strided<[?, 1]>>, %[[BP:.*]]: memref<9x?xi1, strided<[?, 1]>>, %[[N:.*]]: index, %[[M:.*]]: index) kernel
    // CHECK-DAG: %[[FIVE:.*]] = arith.constant 5 : index
    // CHECK-DAG: %[[EIGHT:.*]] = arith.constant 8 : index
    // CHECK-DAG: %[[LENGTH:.*]] = arith.constant 33 : index
    // CHECK: %[[BLOCK:.*]] = gpu.block_id x
    // CHECK: %[[THREADS:.*]] = arith.muli %[[N]], %c20
    // CHECK: %[[IN:.*]] = arith.cmpi ult, %[[NUMBER:.*]], %[[THREADS]]
    // CHECK: scf.if %[[IN]] {
    // CHECK:   %[[LANE:.*]] = arith.remui %[[NUMBER]], %[[FIVE]]
    // CHECK:   %[[ROW:.*]] = arith.divui %[[NUMBER]], %[[FIVE]]
    // CHECK:   %[[J:.*]] = arith.remui %[[ROW]], %{{.*}}
    // CHECK:   %[[I:.*]] = arith.divui %[[ROW]], %{{.*}}
    // CHECK:   %[[COLUMN:.*]] = arith.muli %[[LANE]], %[[EIGHT]]
    // CHECK:   %[[LEFT:.*]] = arith.subi %[[LENGTH]], %[[COLUMN]]
    // CHECK:   tile.copy_piece (%[[A]], %[[AP]], %[[I]], %[[J]], %[[COLUMN]], %[[I]], %[[J]], %[[COLUMN]], %[[LEFT]]) {aligned = 2 : i64
    // CHECK: }
    // CHECK: %[[OTHER:.*]] = arith.subi %[[BLOCK]], %{{.*}}
    // CHECK: arith.muli %[[OTHER]], %{{.*}}
    // CHECK: scf.if
    // CHECK:   %[[PIECE:.*]] = arith.remui %{{.*}}, %[[WARP:.*]] : index
    // CHECK:   scf.for %[[AT:.*]] = %[[PIECE]] to %{{.*}} step %[[WARP]] {
    // CHECK:     tile.copy_piece (%[[B]], %[[BP]], {{.*}}) {aligned = 1 : i64
  }

  // CHECK-LABEL: func.func @two
  // CHECK-SAME: (%[[A:.*]]: tensor<?x4x33xf16>, %[[B:.*]]: tensor<9x?xi1>, %[[H:.*]]: index)
  func.func @two(%a: tensor<?x4x33xf16>, %b: tensor<9x?xi1>, %high: index) -> (tensor<?x4x40xf16>, tensor<9x?xi1>) {
    // CHECK: %[[N:.*]] = tensor.dim %[[A]]
    // CHECK: %[[AP:.*]] = memref.alloc(%[[N]]) : memref<?x4x40xf16>
    // CHECK: %[[M:.*]] = tensor.dim %[[B]]
    // CHECK: %[[MP:.*]] = arith.addi %[[M]], %[[H]]
    // CHECK: %[[BP:.*]] = memref.alloc(%[[MP]]) : memref<9x?xi1>
    // CHECK: gpu.launch_func @two_kernels::@two_pad_0 {{.*}} args(%{{.*}}, %[[N]] : index, %[[M]] : index)
    // CHECK-NOT: gpu.launch_func
    // CHECK-DAG: %[[RA:.*]] = bufferization.to_tensor %[[AP]] restrict
    // CHECK-DAG: %[[RB:.*]] = bufferization.to_tensor %[[BP]] restrict
    // CHECK: return %[[RA]], %[[RB]]
    %p = tensor.pad %a low[0, 0, 0] high[0, 0, 7] {
    ^bb0(%i: index, %j: index, %k: index):
      %zero = arith.constant 0.0 : f16
      tensor.yield %zero : f16
    } {tile.copy} : tensor<?x4x33xf16> to tensor<?x4x40xf16>
    %q = tensor.pad %b low[0, 0] high[0, %high] {
    ^bb0(%i: index, %j: index):
      %zero = arith.constant false
      tensor.yield %zero : i1
    } {tile.copy} : tensor<9x?xi1> to tensor<9x?xi1>
    return %p, %q : tensor<?x4x40xf16>, tensor<9x?xi1>
  }
}

// -----

// A slice of a slice, and a constant, which is part of the code. Rows that begin at multiples of 4 bytes.
module attributes {gpu.container_module} {
  gpu.module @slices_kernels {
    // CHECK: memref.global constant @slices_pad_0_constant_1 : memref<2x3xf16>
    // CHECK-LABEL: gpu.func @slices_pad_0
    // CHECK-SAME: (%[[A:.*]]: memref<3x?x36xf16, strided<[?, ?, 1]>>, %[[AP:.*]]: memref<?x40xf16, strided<[?, 1]>>, %[[CP:.*]]: memref<2x8xf16, strided<[?, 1]>>, %[[N:.*]]: index, %[[AT:.*]]: index) kernel
    // CHECK-DAG: %[[TWO:.*]] = arith.constant 2 : index
    // CHECK-DAG: %[[SEVEN:.*]] = arith.constant 7 : index
    // CHECK: scf.if
    // CHECK:   %[[PLACE:.*]] = arith.addi %[[ROW:.*]], %[[SEVEN]]
    // CHECK:   %[[START:.*]] = arith.addi %[[COLUMN:.*]], %[[TWO]]
    // CHECK:   tile.copy_piece (%[[A]], %[[AP]], %[[AT]], %[[PLACE]], %[[START]], %[[ROW]], %[[COLUMN]], %{{.*}}) {aligned = 4 : i64
    // CHECK: %[[C:.*]] = memref.get_global @slices_pad_0_constant_1
    // CHECK: tile.copy_piece (%[[C]], %[[CP]]
  }

  func.func @slices(%a: tensor<3x?x36xf16>, %at: index, %n: index) -> (tensor<?x40xf16>, tensor<2x8xf16>) {
    %s = tensor.extract_slice %a[%at, 0, 0] [1, %n, 36] [1, 1, 1] : tensor<3x?x36xf16> to tensor<?x36xf16>
    %t = tensor.extract_slice %s[7, 2] [%n, 34] [1, 1] : tensor<?x36xf16> to tensor<?x34xf16>
    %p = tensor.pad %t low[0, 0] high[0, 6] {
    ^bb0(%i: index, %j: index):
      %zero = arith.constant 0.0 : f16
      tensor.yield %zero : f16
    } {tile.copy} : tensor<?x34xf16> to tensor<?x40xf16>
    %c = arith.constant dense<[[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]> : tensor<2x3xf16>
    %q = tensor.pad %c low[0, 0] high[0, 5] {
    ^bb0(%i: index, %j: index):
      %zero = arith.constant 0.0 : f16
      tensor.yield %zero : f16
    } {tile.copy} : tensor<2x3xf16> to tensor<2x8xf16>
    return %p, %q : tensor<?x40xf16>, tensor<2x8xf16>
  }
}

// -----

// Other padding is none of ours.
module attributes {gpu.container_module} {
  gpu.module @other_kernels {
  }
  // CHECK-LABEL: func.func @other
  // CHECK: tensor.pad
  func.func @other(%a: tensor<3x33xf16>) -> tensor<3x40xf16> {
    %p = tensor.pad %a low[0, 0] high[0, 7] {
    ^bb0(%i: index, %j: index):
      %one = arith.constant 1.0 : f16
      tensor.yield %one : f16
    } : tensor<3x33xf16> to tensor<3x40xf16>
    return %p : tensor<3x40xf16>
  }
}
