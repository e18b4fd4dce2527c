// RUN: attn-opt %s --lower-pair-views | FileCheck %s

// The address is in bytes, strides and offset of the words are half of what those of bf16 are.
// CHECK-LABEL: func.func @words
// CHECK:       %{{.*}}, %[[OFFSET:.*]], %[[SIZES:.*]]:2, %[[STRIDES:.*]]:2 = memref.extract_strided_metadata %arg0
// CHECK:       %[[START:.*]] = memref.extract_aligned_pointer_as_index %arg0
// CHECK:       %[[BYTES:.*]] = arith.muli %[[OFFSET]], %c2
// CHECK:       arith.addi %[[START]], %[[BYTES]]
// CHECK:       llvm.inttoptr
// CHECK:       %[[SIZE:.*]] = arith.index_cast %[[SIZES]]#0
// CHECK:       llvm.insertvalue %[[SIZE]], %{{.*}}[3, 0]
// CHECK:       %[[PITCH:.*]] = arith.divui %[[STRIDES]]#0
// CHECK:       %[[CAST:.*]] = arith.index_cast %[[PITCH]]
// CHECK:       llvm.insertvalue %[[CAST]], %{{.*}}[4, 0]
// CHECK:       %[[WORDS:.*]] = builtin.unrealized_conversion_cast %{{.*}} : !llvm.struct<{{.*}}> to memref<?x32xi32, strided<[?, 1]>>
// CHECK:       memref.load %[[WORDS]]
// CHECK-NOT:   pair.view
func.func @words(%m: memref<?x64xbf16, strided<[?, 1], offset: ?>>, %i: index) -> i32 {
  %w = pair.view %m : (memref<?x64xbf16, strided<[?, 1], offset: ?>>) -> (memref<?x32xi32, strided<[?, 1]>>)
  %x = memref.load %w[%i, %i] : memref<?x32xi32, strided<[?, 1]>>
  return %x : i32
}

// CHECK-LABEL: func.func @halves
// CHECK:       %{{.*}}, %[[OFFSET:.*]], %{{.*}}:2, %{{.*}}:2 = memref.extract_strided_metadata %arg0
// CHECK:       arith.muli %[[OFFSET]], %c1
func.func @halves(%m: memref<8x64xf8E5M2, strided<[64, 1], offset: ?>>, %i: index) -> i16 {
  %w = pair.view %m : (memref<8x64xf8E5M2, strided<[64, 1], offset: ?>>) -> (memref<8x32xi16, strided<[32, 1]>>)
  %x = memref.load %w[%i, %i] : memref<8x32xi16, strided<[32, 1]>>
  return %x : i16
}
