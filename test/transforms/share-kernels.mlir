// RUN: attn-opt %s --share-kernels --split-input-file | FileCheck %s

// The kernel of the second layer is that of the third one, and one of another constant stays; so does the first one,
// which is the same, too.
module attributes {gpu.container_module} {
  gpu.module @main_kernels {
    // CHECK:     gpu.func @main_0(
    // CHECK:     gpu.func @main_1(
    // CHECK-NOT: gpu.func @main_2(
    // CHECK:     gpu.func @main_3(
    gpu.func @main_0(%a: memref<8xf32>) kernel {
      %c0 = arith.constant 0 : index
      %x = arith.constant 1.0 : f32
      memref.store %x, %a[%c0] : memref<8xf32>
      gpu.return
    }
    gpu.func @main_1(%a: memref<8xf32>) kernel {
      %c0 = arith.constant 0 : index
      %x = arith.constant 1.0 : f32
      memref.store %x, %a[%c0] : memref<8xf32>
      gpu.return
    }
    gpu.func @main_2(%a: memref<8xf32>) kernel {
      %c0 = arith.constant 0 : index
      %x = arith.constant 1.0 : f32
      memref.store %x, %a[%c0] : memref<8xf32>
      gpu.return
    }
    gpu.func @main_3(%a: memref<8xf32>) kernel {
      %c0 = arith.constant 0 : index
      %x = arith.constant 2.0 : f32
      memref.store %x, %a[%c0] : memref<8xf32>
      gpu.return
    }
  }
  // CHECK-LABEL: func.func @main
  // CHECK:       gpu.launch_func @main_kernels::@main_0
  // CHECK-NEXT:  gpu.launch_func @main_kernels::@main_1 blocks in (%c1, %c1, %c1) {{.*}} args(%arg1
  // CHECK-NEXT:  gpu.launch_func @main_kernels::@main_1 blocks in (%c2, %c1, %c1) {{.*}} args(%arg2
  // CHECK-NEXT:  gpu.launch_func @main_kernels::@main_3
  func.func @main(%a: memref<8xf32>, %b: memref<8xf32>, %c: memref<8xf32>) {
    %c1 = arith.constant 1 : index
    %c2 = arith.constant 2 : index
    gpu.launch_func @main_kernels::@main_0 blocks in (%c1, %c1, %c1) threads in (%c1, %c1, %c1) args(%a : memref<8xf32>)
    gpu.launch_func @main_kernels::@main_1 blocks in (%c1, %c1, %c1) threads in (%c1, %c1, %c1) args(%b : memref<8xf32>)
    gpu.launch_func @main_kernels::@main_2 blocks in (%c2, %c1, %c1) threads in (%c1, %c1, %c1) args(%c : memref<8xf32>)
    gpu.launch_func @main_kernels::@main_3 blocks in (%c1, %c1, %c1) threads in (%c1, %c1, %c1) args(%c : memref<8xf32>)
    return
  }
}
