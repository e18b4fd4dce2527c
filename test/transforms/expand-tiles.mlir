// RUN: attn-opt %s --expand-tiles | FileCheck %s

// Tiles are buffers at the top of the function; what is read and written in memory are views of it, as many rows apart
// as the op says. A sum that is used once more is copied.
// CHECK-LABEL: func.func private @tile_zero_f32(
// CHECK-SAME:    attributes {llvm.no_inline}
// CHECK:       func.func private @tile_load_bf16(%{{.*}}: memref<16x32xbf16, strided<[?, 1], offset: ?>>, %{{.*}}: memref<16x32xbf16>)
// CHECK:       func.func private @tile_mulf_bf16(%[[A:.*]]: memref<16x32xbf16>, %[[B:.*]]: memref<16x32xbf16>, %[[C:.*]]: memref<16x16xf32>)
// CHECK:         scf.for %[[ROW:.*]] =
// CHECK:           %[[SUMS:.*]]:2 = scf.for %[[PAIR:.*]] = {{.*}} iter_args(%[[EVEN:.*]] = %{{.*}}, %[[ODD:.*]] = %{{.*}})
// CHECK:             %[[PAIRS:.*]] = vector.load %[[B]][%[[PAIR]], %{{.*}}]
// CHECK:             vector.deinterleave %[[PAIRS]]
// CHECK:             memref.load %[[A]][%[[ROW]], %{{.*}}]
// CHECK:             math.fma %{{.*}}, %{{.*}}, %[[EVEN]]
// CHECK:             math.fma %{{.*}}, %{{.*}}, %[[ODD]]
// CHECK:           arith.addf %[[SUMS]]#0, %[[SUMS]]#1
// CHECK:           vector.store %{{.*}}, %[[C]][%[[ROW]], %{{.*}}]
// CHECK:       func.func private @tile_store_f32(
// CHECK-LABEL: func.func @product
// CHECK-DAG:     %[[ZERO:.*]] = memref.alloca() {{.*}} : memref<16x16xf32>
// CHECK-DAG:     %[[COPY:.*]] = memref.alloca() {{.*}} : memref<16x16xf32>
// CHECK:         scf.for
// CHECK:           call @tile_zero_f32(%[[SUM:[a-z0-9_]+]])
// CHECK:           %[[BASE:.*]], %[[OFFSET:.*]], %{{.*}}:2, %[[STRIDES:.*]]:2 = memref.extract_strided_metadata %arg0
// CHECK:           %[[ROWS:.*]] = arith.muli %{{.*}}, %[[STRIDES]]#0
// CHECK:           arith.addi %[[OFFSET]], %[[ROWS]]
// CHECK:           %[[VIEW:.*]] = memref.reinterpret_cast %[[BASE]] to offset: [%{{.*}}], sizes: [16, 32], strides: [%arg3, 1]
// CHECK:           call @tile_load_bf16(%[[VIEW]], %[[X:[a-z0-9_]+]])
// CHECK:           call @tile_load_bf16(%{{.*}}, %[[Y:[a-z0-9_]+]])
// CHECK:           memref.copy %[[SUM]], %[[FIRST:[a-z0-9_]+]] :
// CHECK:           call @tile_mulf_bf16(%[[X]], %[[Y]], %[[FIRST]])
// CHECK:           memref.copy %[[SUM]], %[[SECOND:[a-z0-9_]+]] :
// CHECK:           call @tile_mulf_bf16(%[[Y]], %[[X]], %[[SECOND]])
// CHECK:           call @tile_mulf_bf16(%[[X]], %[[Y]], %[[SECOND]])
// CHECK:           call @tile_store_f32(%[[FIRST]], %{{.*}})
// CHECK:           call @tile_store_f32(%[[SECOND]], %{{.*}})
// CHECK-NOT:   x86.amx
func.func @product(%a: memref<?x64xbf16, strided<[?, 1], offset: ?>>, %b: memref<2x16x32xbf16>, %c: memref<32x16xf32>, %pitch: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %c16 = arith.constant 16 : index
  %c32 = arith.constant 32 : index
  scf.for %i = %c0 to %c2 step %c1 {
    %zero = x86.amx.tile_zero : !x86.amx.tile<16x16xf32>
    %x = x86.amx.tile_load %a[%i, %c32], %pitch : memref<?x64xbf16, strided<[?, 1], offset: ?>> into !x86.amx.tile<16x32xbf16>
    %y = x86.amx.tile_load %b[%i, %c0, %c0], %c32 : memref<2x16x32xbf16> into !x86.amx.tile<16x32xbf16>
    %first = x86.amx.tile_mulf %x, %y, %zero : !x86.amx.tile<16x32xbf16>, !x86.amx.tile<16x32xbf16>, !x86.amx.tile<16x16xf32>
    %other = x86.amx.tile_mulf %y, %x, %zero : !x86.amx.tile<16x32xbf16>, !x86.amx.tile<16x32xbf16>, !x86.amx.tile<16x16xf32>
    %second = x86.amx.tile_mulf %x, %y, %other : !x86.amx.tile<16x32xbf16>, !x86.amx.tile<16x32xbf16>, !x86.amx.tile<16x16xf32>
    x86.amx.tile_store %c[%c0, %c0], %first, %c16 : memref<32x16xf32>, !x86.amx.tile<16x16xf32>
    x86.amx.tile_store %c[%c16, %c0], %second, %c16 : memref<32x16xf32>, !x86.amx.tile<16x16xf32>
  }
  return
}
