// RUN: attn-opt %s --expand-pairs | FileCheck %s

// CHECK-LABEL: func.func @words
// CHECK-DAG: %[[LOW:.*]] = arith.truncf %{{.*}} : f32 to bf16
// CHECK-DAG: %[[HIGH:.*]] = arith.truncf %{{.*}} : f32 to bf16
// CHECK: arith.shli
// CHECK: arith.ori
// CHECK: math.fma
// CHECK: math.fma
// CHECK-NOT: pair.
func.func @words(%x: f32, %y: f32, %word: i32) -> f32 {
  %w = pair.pack %x, %y : (f32, f32) -> i32
  %s = pair.product %w, %word : (i32, i32) -> f32
  return %s : f32
}

// CHECK-LABEL: func.func @bytes
// CHECK: arith.extf %{{.*}} : vector<2xf8E4M3FN> to vector<2xbf16>
// CHECK-NOT: pair.
func.func @bytes(%half: i16) -> i32 {
  %w = pair.widen %half {element = f8E4M3FN} : (i16) -> i32
  return %w : i32
}
