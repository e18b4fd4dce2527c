// RUN: attn-opt %s --check-elements --split-input-file --verify-diagnostics
// RUN: not attn-opt %s --lower-to=cpu 2>&1 | FileCheck %s
// RUN: not attn-opt %s --lower-to=nvidia 2>&1 | FileCheck %s

// As vectors these are packed, two to a byte, and in an array they are not.
// CHECK: check-elements.mlir:10:8: error: no code is made for i4, the elements of tensor<8x8xi4>
// CHECK-NOT: {{error|bug}}
func.func @narrow(%a: tensor<8x8xi8>) -> tensor<8x8xi8> {
  // expected-error @below {{no code is made for i4, the elements of tensor<8x8xi4>: use i1, i8, i16, i32 or i64 (arith.extsi, arith.extui and arith.trunci convert)}}
  %0 = arith.trunci %a : tensor<8x8xi8> to tensor<8x8xi4>
  %1 = arith.extsi %0 : tensor<8x8xi4> to tensor<8x8xi8>
  return %1 : tensor<8x8xi8>
}

// -----

// expected-error @below {{no code is made for f80, the elements of tensor<4xf80>: use f16, bf16, f32, f64 or a float of 8 bits (arith.extf and arith.truncf convert)}}
func.func @wide(%a: tensor<4xf80>) {
  return
}

// -----

// Also of floats that are in no tensor.
func.func @scalar(%a: f32) -> f32 {
  // expected-error @below {{no code is made for tf32: use f16,}}
  %0 = arith.truncf %a : f32 to tf32
  %1 = arith.extf %0 : tf32 to f32
  return %1 : f32
}

// -----

func.func @complex(%a: f32) {
  %0 = complex.create %a, %a : complex<f32>
  // expected-error @below {{no code is made for complex<f32>, the elements of tensor<2xcomplex<f32>>: use two tensors, of the real and of the imaginary parts}}
  %1 = tensor.from_elements %0, %0 : tensor<2xcomplex<f32>>
  return
}

// -----

// The sign of an argument is the caller's, as long as nothing is done with it.
// expected-error @below {{no code is made for ui8, the elements of tensor<4x4xui8>: use i8: ops say whether there is a sign, types do not}}
func.func @sign(%a: tensor<4x4xui8>) -> tensor<4x4xui8> {
  return %a : tensor<4x4xui8>
}

// -----

// expected-error @below {{no code is made for !pdl.operation, the elements of tensor<4x!pdl.operation>: use floats or integers}}
func.func @no_numbers(%a: tensor<4x!pdl.operation>) {
  return
}

// -----

func.func @lanes(%a: vector<128x128xf32>) {
  // expected-error @below {{vector<4294967296xf32> has more than 16384 elements: use a tensor, or smaller vectors}}
  %0 = arith.constant dense<1.0> : vector<4294967296xf32>
  return
}

// -----

// As registers hold them.
func.func @taken(%a: tensor<4xf8E4M3FNUZ>, %b: memref<4xvector<2xf64>>, %c: tensor<4xindex>, %d: tensor<4xui16>, %e: i32)
    -> i128 {
  %0 = arith.extsi %e : i32 to i128
  %1 = arith.muli %0, %0 : i128
  return %1 : i128
}
