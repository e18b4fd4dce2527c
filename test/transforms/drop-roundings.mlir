// RUN: attn-opt %s --drop-roundings | FileCheck %s

// Number 1 is computed in two kernels; 2 in one, which does not store it; 3 is stored, and read by others alone; 4 is
// stored, as a choice, and read by the kernel, too. In the last, 8 is such a number; what it is computed of, through a
// sum, is 5, which is read twice, 6, which is read by a choice alone that is read twice, and 7, which is read once.
// Those that stay lose their numbers.

// CHECK-LABEL: gpu.func @one
// CHECK:         arith.addf %{{.*}}, %{{.*}} {tile.rounded} : bf16
// CHECK:         math.exp %{{.*}} : bf16
// CHECK:         arith.mulf %{{.*}}, %{{.*}} : bf16
// CHECK:         memref.store
// CHECK-LABEL: gpu.func @other
// CHECK:         arith.addf %{{.*}}, %{{.*}} {tile.rounded} : bf16
// CHECK:         arith.subf %{{.*}}, %{{.*}} : bf16
// CHECK:         memref.store
// CHECK-LABEL: gpu.func @own
// CHECK:         arith.addf %{{.*}}, %{{.*}} {tile.rounded} : bf16
// CHECK:         memref.store
// CHECK-LABEL: gpu.func @rows
// CHECK:         arith.mulf %{{.*}}, %{{.*}} {tile.rounded} : bf16
// CHECK:         arith.negf %{{.*}} {tile.rounded} : bf16
// CHECK:         math.log %{{.*}} : bf16
// CHECK:         arith.addf %{{.*}}, %{{.*}} {tile.rounded} : bf16
module attributes {gpu.container_module} {
  gpu.module @kernels {
    gpu.func @one(%x: bf16, %y: bf16, %m: memref<1xbf16>) kernel {
      %i = arith.constant 0 : index
      %s = arith.addf %x, %y {tile.rounded = 1 : i64} : bf16
      %e = math.exp %s {tile.rounded = 2 : i64} : bf16
      %p = arith.mulf %e, %e {tile.rounded = 3 : i64} : bf16
      memref.store %p, %m[%i] : memref<1xbf16>
      gpu.return
    }
    gpu.func @other(%x: bf16, %y: bf16, %m: memref<1xbf16>) kernel {
      %i = arith.constant 0 : index
      %s = arith.addf %x, %y {tile.rounded = 1 : i64} : bf16
      %d = arith.subf %s, %y : bf16
      memref.store %d, %m[%i] : memref<1xbf16>
      gpu.return
    }
    gpu.func @own(%x: bf16, %y: bf16, %k: i1, %m: memref<2xbf16>) kernel {
      %i = arith.constant 0 : index
      %j = arith.constant 1 : index
      %s = arith.addf %x, %y {tile.rounded = 4 : i64} : bf16
      %c = arith.select %k, %s, %x : bf16
      memref.store %c, %m[%i] : memref<2xbf16>
      %e = math.exp %c : bf16
      memref.store %e, %m[%j] : memref<2xbf16>
      gpu.return
    }
    gpu.func @rows(%x: bf16, %y: bf16, %k: i1, %m: memref<2xbf16>) kernel {
      %i = arith.constant 0 : index
      %j = arith.constant 1 : index
      %s = arith.mulf %x, %y {tile.rounded = 5 : i64} : bf16
      %n = arith.negf %x {tile.rounded = 6 : i64} : bf16
      %c = arith.select %k, %n, %y : bf16
      %e = math.exp %s : bf16
      %z = gpu.all_reduce add %e uniform {
      } : (bf16) -> bf16
      %l = math.log %z {tile.rounded = 7 : i64} : bf16
      %a = arith.addf %l, %c : bf16
      %lse = arith.addf %a, %s {tile.rounded = 8 : i64} : bf16
      memref.store %lse, %m[%i] : memref<2xbf16>
      %d = arith.subf %s, %lse : bf16
      %f = arith.divf %d, %c : bf16
      memref.store %f, %m[%j] : memref<2xbf16>
      gpu.return
    }
  }
}
