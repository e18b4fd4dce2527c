// Of three launches in a row, the second and the third may come early, and wait; the first and the second let them.
// RUN: attn-opt %s --overlap-launches | FileCheck %s

module attributes {gpu.container_module} {
  gpu.module @kernels {
    // CHECK-LABEL: llvm.func @first
    // CHECK-NEXT:    nvvm.griddepcontrol launch_dependents
    // CHECK-NEXT:    llvm.return
    llvm.func @first() attributes {gpu.kernel, nvvm.kernel} {
      llvm.return
    }
    // CHECK-LABEL: llvm.func @second
    // CHECK-NEXT:    nvvm.griddepcontrol wait
    // CHECK-NEXT:    nvvm.griddepcontrol launch_dependents
    // CHECK-NEXT:    llvm.return
    llvm.func @second() attributes {gpu.kernel, nvvm.kernel} {
      llvm.return
    }
    // CHECK-LABEL: llvm.func @third
    // CHECK-NEXT:    nvvm.griddepcontrol wait
    // CHECK-NEXT:    llvm.return
    llvm.func @third() attributes {gpu.kernel, nvvm.kernel} {
      llvm.return
    }
    // CHECK-LABEL: llvm.func @alone
    // CHECK-NEXT:    llvm.return
    llvm.func @alone() attributes {gpu.kernel, nvvm.kernel} {
      llvm.return
    }
  }
  // CHECK-LABEL: func.func @three
  // CHECK-NEXT:    @kernels::@first
  // CHECK-NEXT:    @kernels::@second {{.*}} {tile.early}
  // CHECK-NEXT:    @kernels::@third {{.*}} {tile.early}
  func.func @three(%n: index) {
    gpu.launch_func @kernels::@first blocks in (%n, %n, %n) threads in (%n, %n, %n)
    gpu.launch_func @kernels::@second blocks in (%n, %n, %n) threads in (%n, %n, %n)
    gpu.launch_func @kernels::@third blocks in (%n, %n, %n) threads in (%n, %n, %n)
    return
  }
  // CHECK-LABEL: func.func @one
  // CHECK-NOT:     tile.early
  func.func @one(%n: index) {
    gpu.launch_func @kernels::@alone blocks in (%n, %n, %n) threads in (%n, %n, %n)
    return
  }
}

// RUN: not attn-opt %S/outline-kernels/attention.mlir --outline-kernels --overlap-launches 2>&1 | FileCheck %s --check-prefix=EARLY
// EARLY: error: the kernel @{{.*}} is no llvm.func: run this pass after tiles-to-nvvm
// RUN: not attn-opt %S/outline-kernels/attention.mlir --outline-kernels --host-copies 2>&1 | FileCheck %s --check-prefix=HOST
// HOST: error: a launch that does not say how much shared memory: run this pass after tiles-to-nvvm
