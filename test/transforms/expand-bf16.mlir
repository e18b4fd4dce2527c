// RUN: attn-opt %s --split-input-file --expand-bf16="vector-bytes=32" | FileCheck %s

// CHECK-LABEL: func.func @vectors
// CHECK: %[[BITS:.*]] = arith.bitcast %{{.*}} : vector<8xf32> to vector<8xi32>
// CHECK: %[[HIGH:.*]] = arith.shrui %[[BITS]]
// CHECK: %[[ODD:.*]] = arith.andi %[[HIGH]]
// CHECK: %[[NEAR:.*]] = arith.shrui
// CHECK: %[[ORDERED:.*]] = arith.cmpf ord
// CHECK: %[[CHOSEN:.*]] = arith.select %[[ORDERED]], %[[NEAR]]
// CHECK: %[[SHORT:.*]] = arith.trunci %[[CHOSEN]] : vector<8xi32> to vector<8xi16>
// CHECK: arith.bitcast %[[SHORT]] : vector<8xi16> to vector<8xbf16>
func.func @vectors(%x: vector<8xf32>) -> vector<8xbf16> {
  %y = arith.truncf %x : vector<8xf32> to vector<8xbf16>
  return %y : vector<8xbf16>
}

// CHECK-LABEL: func.func @others
// CHECK: arith.truncf %{{.*}} : f32 to f16
func.func @others(%x: f32) -> f16 {
  %y = arith.truncf %x : f32 to f16
  return %y : f16
}

// CHECK: llvm.func @__truncsfbf2(%{{.*}}: f32) -> f32 {

// -----

// Numbers that stay within a function need it, too.

// CHECK-LABEL: func.func @inside
// CHECK: llvm.func @__truncsfbf2
func.func @inside(%x: i16) -> f32 {
  %y = arith.bitcast %x : i16 to bf16
  %z = arith.extf %y : bf16 to f32
  return %z : f32
}

// -----

// CHECK-LABEL: func.func @none
// CHECK-NOT: __truncsfbf2
func.func @none(%x: f32) -> f16 {
  %y = arith.truncf %x : f32 to f16
  return %y : f16
}
