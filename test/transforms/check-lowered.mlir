// RUN: not attn-opt %s --check-lowered 2>&1 | FileCheck %s

// CHECK: check-lowered.mlir:5:8: error: 'vector.extract' could not be lowered to the LLVM dialect for the CPU
llvm.func @f(%x: vector<4xf32>) -> f32 {
  %y = vector.extract %x[0] : f32 from vector<4xf32>
  llvm.return %y : f32
}

// RUN: not attn-opt %S/../../examples/multihead_attention.mlir --lower-to=cpu 2>&1 | FileCheck %s --check-prefix=SCRIPT
// SCRIPT: error: 'transform.structured.match' is left: transform-interpreter applies scripts and removes them
