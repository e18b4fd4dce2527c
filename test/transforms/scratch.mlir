// RUN: attn-opt %s --scratch="limit=8192" | FileCheck %s

// A tile of bounded size goes to the stack of the task; one that is too large for it is allocated once per task.
// CHECK-LABEL: func.func @tiles
// CHECK: scf.forall
// CHECK-DAG: %[[SMALL:.*]] = memref.alloca() {alignment = 64 : i64} : memref<4096xi8>
// CHECK-DAG: %[[LARGE:.*]] = memref.alloc() {alignment = 64 : i64} : memref<65536xi8>
// CHECK: scf.for
// CHECK: %[[N:.*]] = affine.min
// CHECK: memref.view %[[SMALL]][%{{.*}}][%[[N]]] : memref<4096xi8> to memref<?x16xf32>
// CHECK: memref.view %[[LARGE]][%{{.*}}][] : memref<65536xi8> to memref<128x128xf32>
func.func @tiles(%o: memref<1000xf32>) {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  %c1000 = arith.constant 1000 : index
  %x = arith.constant 1.0 : f32
  scf.forall (%i) in (4) {
    scf.for %k = %c0 to %c1000 step %c64 {
      %n = affine.min affine_map<(i) -> (-i + 1000, 64)>(%k)
      %a = memref.alloc(%n) : memref<?x16xf32>
      linalg.fill ins(%x : f32) outs(%a : memref<?x16xf32>)
      %b = memref.alloc() : memref<128x128xf32>
      linalg.fill ins(%x : f32) outs(%b : memref<128x128xf32>)
    }
  }
  return
}

// What leaves the loop, or is large and outside of loops, stays.
// CHECK-LABEL: func.func @leaves
// CHECK-NOT: memref.alloca
// CHECK: memref.alloc() : memref<8192xf32>
// CHECK: scf.for
// CHECK: memref.alloc() : memref<16xf32>
func.func @leaves(%n: index) -> memref<16xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %x = arith.constant 1.0 : f32
  %large = memref.alloc() : memref<8192xf32>
  linalg.fill ins(%x : f32) outs(%large : memref<8192xf32>)
  %init = memref.alloc() : memref<16xf32>
  %r = scf.for %i = %c0 to %n step %c1 iter_args(%m = %init) -> memref<16xf32> {
    %a = memref.alloc() : memref<16xf32>
    linalg.copy ins(%m : memref<16xf32>) outs(%a : memref<16xf32>)
    scf.yield %a : memref<16xf32>
  }
  return %r : memref<16xf32>
}

// Of unknown size, but the same in all iterations: hoisted.
// CHECK-LABEL: func.func @unknown
// CHECK: memref.alloc(%arg0)
// CHECK-NEXT: scf.for
func.func @unknown(%n: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %x = arith.constant 1.0 : f32
  scf.for %i = %c0 to %n step %c1 {
    %a = memref.alloc(%n) : memref<?xf32>
    linalg.fill ins(%x : f32) outs(%a : memref<?xf32>)
  }
  return
}
