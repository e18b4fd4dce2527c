// RUN: attn-opt %s | FileCheck %s
// RUN: attn-opt %s | attn-opt | FileCheck %s
// RUN: attn-opt %s --mlir-print-op-generic | attn-opt | FileCheck %s

// CHECK-LABEL: func.func @pairs
func.func @pairs(%m: memref<?x64xbf16, strided<[64, 1], offset: ?>>, %x: f32, %y: f32, %h: i16,
                 %n: memref<8x64xf8E5M2>) -> f32 {
  // CHECK: pair.view %{{.*}} : (memref<8x64xf8E5M2>) -> (memref<8x32xi16, strided<[32, 1]>>)
  %halves = pair.view %n : (memref<8x64xf8E5M2>) -> (memref<8x32xi16, strided<[32, 1]>>)
  // CHECK: pair.view %{{.*}} : (memref<?x64xbf16, strided<[64, 1], offset: ?>>) -> (memref<?x32xi32, strided<[32, 1]>>)
  %w = pair.view %m : (memref<?x64xbf16, strided<[64, 1], offset: ?>>) -> (memref<?x32xi32, strided<[32, 1]>>)
  // CHECK: %[[WORD:.*]] = pair.pack %{{.*}}, %{{.*}} : (f32, f32) -> (i32)
  %word = pair.pack %x, %y : (f32, f32) -> (i32)
  // CHECK: pair.widen %{{.*}} {element = f8E4M3FN} : (i16) -> (i32)
  %wide = pair.widen %h {element = f8E4M3FN} : (i16) -> (i32)
  // CHECK: pair.exp2 %{{.*}}, %{{.*}} : (f32, f32) -> (i32)
  %powers = pair.exp2 %x, %y : (f32, f32) -> (i32)
  // CHECK: pair.product %[[WORD]], %[[WORD]] : (i32, i32) -> (f32)
  %p = pair.product %word, %word : (i32, i32) -> (f32)
  return %p : f32
}
