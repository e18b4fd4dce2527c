// RUN: attn-opt %s --tiles-to-nvvm | FileCheck %s

// What threads put together that stand side by side: integers of 64 bits as two halves.

gpu.module @kernels {
  // CHECK-LABEL: llvm.func @wide
  // CHECK: %[[X:.*]] = llvm.load %{{.*}} : !llvm.ptr<1> -> i64
  // CHECK: %[[UPPER:.*]] = llvm.lshr %[[X]], %c32_i64
  // CHECK-DAG: %[[LOW:.*]] = llvm.trunc %[[X]] : i64 to i32
  // CHECK-DAG: %[[HIGH:.*]] = llvm.trunc %[[UPPER]] : i64 to i32
  // CHECK-DAG: %[[LOW2:.*]] = nvvm.shfl.sync bfly %{{.*}}, %[[LOW]],
  // CHECK-DAG: %[[HIGH2:.*]] = nvvm.shfl.sync bfly %{{.*}}, %[[HIGH]],
  // CHECK-DAG: %[[LOW3:.*]] = llvm.zext %[[LOW2]] : i32 to i64
  // CHECK-DAG: %[[HIGH3:.*]] = llvm.zext %[[HIGH2]] : i32 to i64
  // CHECK: %[[UPPER2:.*]] = llvm.shl %[[HIGH3]], %{{.*}}
  // CHECK: %[[Y:.*]] = llvm.or %[[UPPER2]], %[[LOW3]]
  // CHECK: arith.minsi %[[X]], %[[Y]] : i64
  // CHECK-NOT: nvvm.shfl
  // CHECK: llvm.return
  gpu.func @wide(%n: memref<32xi64, strided<[?]>>, %out: memref<32xi64, strided<[?]>>) kernel {
    %i = gpu.thread_id x
    %x = memref.load %n[%i] : memref<32xi64, strided<[?]>>
    %s = gpu.subgroup_reduce minsi %x cluster(size = 2) : (i64) -> i64
    memref.store %s, %out[%i] : memref<32xi64, strided<[?]>>
    gpu.return
  }

  // CHECK-LABEL: llvm.func @narrow
  // CHECK: %[[X:.*]] = llvm.load %{{.*}} : !llvm.ptr<1> -> i32
  // CHECK: %[[A:.*]] = nvvm.shfl.sync bfly %{{.*}}, %[[X]],
  // CHECK: %[[B:.*]] = arith.addi %[[X]], %[[A]] : i32
  // CHECK: %[[C:.*]] = nvvm.shfl.sync bfly %{{.*}}, %[[B]],
  // CHECK: arith.addi %[[B]], %[[C]] : i32
  // CHECK: llvm.return
  gpu.func @narrow(%n: memref<32xi32, strided<[?]>>, %out: memref<32xi32, strided<[?]>>) kernel {
    %i = gpu.thread_id x
    %x = memref.load %n[%i] : memref<32xi32, strided<[?]>>
    %s = gpu.subgroup_reduce add %x cluster(size = 4) : (i32) -> i32
    memref.store %s, %out[%i] : memref<32xi32, strided<[?]>>
    gpu.return
  }
}
