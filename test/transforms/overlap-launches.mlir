// Of three launches in a row, the second and the third may come early, and wait; the first and the second let them.
// RUN: attn-opt %s --split-input-file --overlap-launches | FileCheck %s

module attributes {gpu.container_module} {
  gpu.module @kernels {
    // CHECK-LABEL: llvm.func @first
    // CHECK-NEXT:    nvvm.griddepcontrol launch_dependents
    // CHECK-NEXT:    llvm.return
    llvm.func @first() attributes {gpu.kernel, nvvm.kernel} {
      llvm.return
    }
    // CHECK-LABEL: llvm.func @second
    // CHECK-NEXT:    nvvm.griddepcontrol launch_dependents
    // CHECK-NEXT:    nvvm.griddepcontrol wait
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

// -----

// Two kernels read what the first writes, and nothing of each other's: the second of them waits at its end, and so does
// a third one. What reads a result of these waits before all else; so does what writes what one of them may still read,
// and what follows a launch that may have no blocks.

module attributes {gpu.container_module} {
  gpu.module @kernels {
    // CHECK-LABEL: llvm.func @norm
    // CHECK-NEXT:    nvvm.griddepcontrol launch_dependents
    // CHECK-NEXT:    llvm.return
    llvm.func @norm() attributes {gpu.kernel, nvvm.kernel} { llvm.return }
    // CHECK-LABEL: llvm.func @queries
    // CHECK-NEXT:    nvvm.griddepcontrol wait
    // CHECK-NEXT:    nvvm.griddepcontrol launch_dependents
    // CHECK-NEXT:    llvm.return
    llvm.func @queries() attributes {gpu.kernel, nvvm.kernel} { llvm.return }
    // CHECK-LABEL: llvm.func @keys
    // CHECK-NEXT:    nvvm.griddepcontrol launch_dependents
    // CHECK-NEXT:    llvm.mlir.constant
    // CHECK-NEXT:    nvvm.griddepcontrol wait
    // CHECK-NEXT:    llvm.return
    llvm.func @keys() attributes {gpu.kernel, nvvm.kernel} {
      %0 = llvm.mlir.constant(0 : i32) : i32
      llvm.return
    }
    // CHECK-LABEL: llvm.func @values
    // CHECK-NEXT:    nvvm.griddepcontrol launch_dependents
    // CHECK-NEXT:    nvvm.griddepcontrol wait
    // CHECK-NEXT:    llvm.return
    llvm.func @values() attributes {gpu.kernel, nvvm.kernel} { llvm.return }
    // CHECK-LABEL: llvm.func @attention
    // CHECK-NEXT:    nvvm.griddepcontrol launch_dependents
    // CHECK-NEXT:    nvvm.griddepcontrol wait
    llvm.func @attention() attributes {gpu.kernel, nvvm.kernel} { llvm.return }
    // CHECK-LABEL: llvm.func @again
    // CHECK-NEXT:    nvvm.griddepcontrol launch_dependents
    // CHECK-NEXT:    nvvm.griddepcontrol wait
    llvm.func @again() attributes {gpu.kernel, nvvm.kernel} { llvm.return }
    // CHECK-LABEL: llvm.func @unknown
    // CHECK-NEXT:    nvvm.griddepcontrol launch_dependents
    // CHECK-NEXT:    nvvm.griddepcontrol wait
    llvm.func @unknown() attributes {gpu.kernel, nvvm.kernel} { llvm.return }
    // CHECK-LABEL: llvm.func @behind
    // CHECK-NEXT:    nvvm.griddepcontrol wait
    // CHECK-NEXT:    llvm.return
    llvm.func @behind() attributes {gpu.kernel, nvvm.kernel} { llvm.return }
  }
  func.func @layer(%x: tensor<8xf32>, %n: index) {
    %c1 = arith.constant 1 : index
    %s = arith.constant 0 : i32
    %y = memref.alloc() : memref<8xf32>
    %q = memref.alloc() : memref<2x4xf32>
    %k = memref.alloc() : memref<8xf32>
    %v = memref.alloc() : memref<8xf32>
    %o = memref.alloc() : memref<8xf32>
    %a = bufferization.to_buffer %x read_only : tensor<8xf32> to memref<8xf32>
    gpu.launch_func @kernels::@norm blocks in (%c1, %c1, %c1) threads in (%c1, %c1, %c1)
        dynamic_shared_memory_size %s args(%a : memref<8xf32>, %y : memref<8xf32>) {tile.writes = array<i32: 1>}
    gpu.launch_func @kernels::@queries blocks in (%c1, %c1, %c1) threads in (%c1, %c1, %c1)
        dynamic_shared_memory_size %s args(%y : memref<8xf32>, %q : memref<2x4xf32>) {tile.writes = array<i32: 1>}
    gpu.launch_func @kernels::@keys blocks in (%c1, %c1, %c1) threads in (%c1, %c1, %c1)
        dynamic_shared_memory_size %s args(%y : memref<8xf32>, %k : memref<8xf32>) {tile.writes = array<i32: 1>}
    %t = bufferization.to_tensor %y restrict : memref<8xf32> to tensor<8xf32>
    %b = bufferization.to_buffer %t read_only : tensor<8xf32> to memref<8xf32>
    gpu.launch_func @kernels::@values blocks in (%c1, %c1, %c1) threads in (%c1, %c1, %c1)
        dynamic_shared_memory_size %s args(%b : memref<8xf32>, %v : memref<8xf32>) {tile.writes = array<i32: 1>}
    %p = memref.collapse_shape %q [[0, 1]] : memref<2x4xf32> into memref<8xf32>
    gpu.launch_func @kernels::@attention blocks in (%c1, %c1, %c1) threads in (%c1, %c1, %c1)
        dynamic_shared_memory_size %s args(%p : memref<8xf32>, %o : memref<8xf32>) {tile.writes = array<i32: 1>}
    gpu.launch_func @kernels::@again blocks in (%c1, %c1, %c1) threads in (%c1, %c1, %c1)
        dynamic_shared_memory_size %s args(%k : memref<8xf32>, %q : memref<2x4xf32>) {tile.writes = array<i32: 1>}
    gpu.launch_func @kernels::@unknown blocks in (%n, %c1, %c1) threads in (%c1, %c1, %c1)
        dynamic_shared_memory_size %s args(%q : memref<2x4xf32>, %y : memref<8xf32>) {tile.writes = array<i32: 1>}
    gpu.launch_func @kernels::@behind blocks in (%c1, %c1, %c1) threads in (%c1, %c1, %c1)
        dynamic_shared_memory_size %s args(%v : memref<8xf32>, %k : memref<8xf32>) {tile.writes = array<i32: 1>}
    return
  }
}

// -----

// A kernel that is launched twice: what it does the first time need not wait, the second time it reads what the launch
// before it writes, so that it waits before all else. One that is first in its function, and not in another, waits.

module attributes {gpu.container_module} {
  gpu.module @kernels {
    // CHECK-LABEL: llvm.func @norm
    // CHECK-NEXT:    nvvm.griddepcontrol launch_dependents
    // CHECK-NEXT:    nvvm.griddepcontrol wait
    // CHECK-NEXT:    llvm.return
    llvm.func @norm() attributes {gpu.kernel, nvvm.kernel} { llvm.return }
    // CHECK-LABEL: llvm.func @queries
    // CHECK-NEXT:    nvvm.griddepcontrol launch_dependents
    // CHECK-NEXT:    nvvm.griddepcontrol wait
    // CHECK-NEXT:    llvm.return
    llvm.func @queries() attributes {gpu.kernel, nvvm.kernel} { llvm.return }
    // CHECK-LABEL: llvm.func @shared
    // CHECK-NEXT:    nvvm.griddepcontrol launch_dependents
    // CHECK-NEXT:    nvvm.griddepcontrol wait
    // CHECK-NEXT:    llvm.mlir.constant
    // CHECK-NEXT:    llvm.return
    llvm.func @shared() attributes {gpu.kernel, nvvm.kernel} {
      %0 = llvm.mlir.constant(0 : i32) : i32
      llvm.return
    }
  }
  // CHECK-LABEL: func.func @twice
  // CHECK:         @kernels::@norm {{.*}}) {tile.writes
  // CHECK:         @kernels::@queries {{.*}}tile.early
  // CHECK:         @kernels::@shared {{.*}}tile.early
  // CHECK:         @kernels::@shared {{.*}}tile.early
  func.func @twice(%a: memref<8xf32>) {
    %c1 = arith.constant 1 : index
    %s = arith.constant 0 : i32
    %x = memref.alloc() : memref<8xf32>
    %q = memref.alloc() : memref<8xf32>
    %k = memref.alloc() : memref<8xf32>
    %v = memref.alloc() : memref<8xf32>
    gpu.launch_func @kernels::@norm blocks in (%c1, %c1, %c1) threads in (%c1, %c1, %c1)
        dynamic_shared_memory_size %s args(%a : memref<8xf32>, %x : memref<8xf32>) {tile.writes = array<i32: 1>}
    gpu.launch_func @kernels::@queries blocks in (%c1, %c1, %c1) threads in (%c1, %c1, %c1)
        dynamic_shared_memory_size %s args(%x : memref<8xf32>, %q : memref<8xf32>) {tile.writes = array<i32: 1>}
    gpu.launch_func @kernels::@shared blocks in (%c1, %c1, %c1) threads in (%c1, %c1, %c1)
        dynamic_shared_memory_size %s args(%x : memref<8xf32>, %k : memref<8xf32>) {tile.writes = array<i32: 1>}
    gpu.launch_func @kernels::@shared blocks in (%c1, %c1, %c1) threads in (%c1, %c1, %c1)
        dynamic_shared_memory_size %s args(%k : memref<8xf32>, %v : memref<8xf32>) {tile.writes = array<i32: 1>}
    return
  }
  // CHECK-LABEL: func.func @later
  // CHECK:         @kernels::@queries {{.*}}) {tile.writes
  // CHECK:         @kernels::@norm {{.*}}tile.early
  func.func @later(%a: memref<8xf32>) {
    %c1 = arith.constant 1 : index
    %s = arith.constant 0 : i32
    %x = memref.alloc() : memref<8xf32>
    gpu.launch_func @kernels::@queries blocks in (%c1, %c1, %c1) threads in (%c1, %c1, %c1)
        dynamic_shared_memory_size %s args(%a : memref<8xf32>, %x : memref<8xf32>) {tile.writes = array<i32: 1>}
    gpu.launch_func @kernels::@norm blocks in (%c1, %c1, %c1) threads in (%c1, %c1, %c1)
        dynamic_shared_memory_size %s args(%x : memref<8xf32>, %a : memref<8xf32>) {tile.writes = array<i32: 1>}
    return
  }
}

// RUN: not attn-opt %S/outline-kernels/attention.mlir --outline-kernels --overlap-launches 2>&1 | FileCheck %s --check-prefix=EARLY
// EARLY: error: the kernel @{{.*}} is no llvm.func: run this pass after tiles-to-nvvm
// RUN: not attn-opt %S/outline-kernels/attention.mlir --outline-kernels --host-copies 2>&1 | FileCheck %s --check-prefix=HOST
// HOST: error: a launch that does not say how much shared memory: run this pass after tiles-to-nvvm
