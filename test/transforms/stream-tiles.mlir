// RUN: attn-opt %s --stream-tiles | FileCheck %s

// A tile that is read once comes by the instruction that does not keep it in L1; others are left.
// CHECK-LABEL: func.func @panel
// CHECK-SAME:    %[[A:.*]]: memref<4x2x16x32xbf16>, %[[N:.*]]: index
// CHECK:         %[[META:.*]], %[[OFFSET:.*]], %{{.*}}:4, %[[STRIDES:.*]]:4 = memref.extract_strided_metadata %[[A]]
// CHECK:         %[[T:.*]] = arith.muli %[[N]], %[[STRIDES]]#0
// CHECK:         arith.addi %[[OFFSET]], %[[T]]
// CHECK:         memref.extract_aligned_pointer_as_index %[[A]]
// CHECK:         %[[POINTER:.*]] = llvm.inttoptr
// CHECK:         %[[TILE:.*]] = llvm.call_intrinsic "llvm.x86.tileloaddt164.internal"(%c16_i16, %c64_i16, %[[POINTER]], %{{.*}}) : (i16, i16, !llvm.ptr, i64) -> !llvm.x86_amx
// CHECK:         builtin.unrealized_conversion_cast %[[TILE]] : !llvm.x86_amx to !x86.amx.tile<16x32xbf16>
// CHECK:         x86.amx.tile_load %[[A]]
func.func @panel(%a: memref<4x2x16x32xbf16>, %n: index, %o: memref<16x32xbf16>) {
  %c0 = arith.constant 0 : index
  %c32 = arith.constant 32 : index
  %t = x86.amx.tile_load %a[%n, %c0, %c0, %c0], %c32 {streamed}
      : memref<4x2x16x32xbf16> into !x86.amx.tile<16x32xbf16>
  %u = x86.amx.tile_load %a[%n, %c0, %c0, %c0], %c32
      : memref<4x2x16x32xbf16> into !x86.amx.tile<16x32xbf16>
  x86.amx.tile_store %o[%c0, %c0], %t, %c32 : memref<16x32xbf16>, !x86.amx.tile<16x32xbf16>
  x86.amx.tile_store %o[%c0, %c0], %u, %c32 : memref<16x32xbf16>, !x86.amx.tile<16x32xbf16>
  return
}
