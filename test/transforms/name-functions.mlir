// RUN: attn-opt %s --name-functions | FileCheck %s

// CHECK: func.func @block_0_attention_9f42bcd0(
// CHECK:   call @f__00000000(
// CHECK:   call @exp_06be521b(
// CHECK:   call @sinf(
func.func @"block 0/attention"(%x: f32) -> f32 {
  %0 = call @""(%x) : (f32) -> f32
  %1 = call @exp(%0) : (f32) -> f32
  %2 = call @sinf(%1) : (f32) -> f32
  return %2 : f32
}

// CHECK: func.func private @f__00000000(
func.func private @""(%x: f32) -> f32 {
  return %x : f32
}

// That is not exp.
// CHECK: func.func @exponential(
func.func @exponential(%x: f32) -> f32 {
  return %x : f32
}

// CHECK: func.func private @exp_06be521b(
func.func private @exp(%x: f32) -> f32 {
  %0 = math.exp2 %x : f32
  return %0 : f32
}

// It is a library's.
// CHECK: func.func private @sinf(f32) -> f32
func.func private @sinf(f32) -> f32

// CHECK: func.func @a_b_1eef715d(
// CHECK-SAME: versions = {{\[\[}}"a_b_few_queries_{{[0-9a-f]+}}", {{\[\[}}32, [0, 2]]]]]
func.func @"a.b"(%x: f32) -> f32 attributes {versions = [["a.b_few_queries", [[32, [0, 2]]]]]} {
  return %x : f32
}
// CHECK: func.func @a_b_few_queries_
func.func @"a.b_few_queries"(%x: f32) -> f32 {
  return %x : f32
}
