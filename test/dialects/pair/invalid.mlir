// RUN: attn-opt %s --split-input-file --verify-diagnostics

func.func @element(%m: memref<8x64xf16>) {
  // expected-error @+1 {{'pair.view' op expects a source of bf16 or floats of 8 bits, but found f16}}
  %w = pair.view %m : (memref<8x64xf16>) -> (memref<8x32xi32>)
  return
}

// -----

func.func @odd(%m: memref<8x63xbf16>) {
  // expected-error @+1 {{expects a source with an even number of elements in its rows, but found memref<8x63xbf16>}}
  %w = pair.view %m : (memref<8x63xbf16>) -> (memref<8x31xi32>)
  return
}

// -----

func.func @shape(%m: memref<8x64xbf16>) {
  // expected-error @+1 {{expects a result of the source's shape with half its last dimension, but found memref<8x64xi32>}}
  %w = pair.view %m : (memref<8x64xbf16>) -> (memref<8x64xi32>)
  return
}

// -----

func.func @word(%m: memref<8x64xbf16>) {
  // expected-error @+1 {{expects the result's element to be i32, two numbers of bf16, but found i64}}
  %w = pair.view %m : (memref<8x64xbf16>) -> (memref<8x32xi64>)
  return
}

// -----

func.func @pack(%x: bf16) {
  // expected-error @+1 {{'pair.pack' op expects the lower half to be f32, but found bf16}}
  %w = pair.pack %x, %x : (bf16, bf16) -> (i32)
  return
}

// -----

func.func @exp2(%x: f32) {
  // expected-error @+1 {{'pair.exp2' op expects the result to be i32, two numbers of bf16, but found i16}}
  %w = pair.exp2 %x, %x : (f32, f32) -> (i16)
  return
}

// -----

func.func @product(%x: i32) {
  // expected-error @+1 {{'pair.product' op expects the result to be f32, but found bf16}}
  %p = pair.product %x, %x : (i32, i32) -> (bf16)
  return
}

// -----

func.func @half(%m: memref<8x64xf8E5M2>) {
  // expected-error @+1 {{expects the result's element to be i16, two floats of 8 bits, but found i32}}
  %w = pair.view %m : (memref<8x64xf8E5M2>) -> (memref<8x32xi32>)
  return
}

// -----

func.func @widen(%x: i16) {
  // expected-error @+1 {{'pair.widen' op expects element to be a float of 8 bits, but found f16}}
  %p = pair.widen %x {element = f16} : (i16) -> (i32)
  return
}
