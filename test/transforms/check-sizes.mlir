// RUN: attn-opt %s --check-sizes --split-input-file --verify-diagnostics
// RUN: not attn-opt %s --lower-to=cpu 2>&1 | FileCheck %s
// RUN: not attn-opt %s --lower-to=nvidia 2>&1 | FileCheck %s

// CHECK: check-sizes.mlir:10:9: error: argument 1, tensor<4294967296x2147483648xf32>, takes more than 2^63 - 1 bytes
// CHECK-NOT: {{error|bug}}
func.func @argument(
        %small: tensor<4294967296x1073741823xf16>,
        // expected-error @below {{argument 1, tensor<4294967296x2147483648xf32>, takes more than 2^63 - 1 bytes: give it smaller sizes, or split it}}
        %large: tensor<4294967296x2147483648xf32>) {
  return
}

// -----

func.func @result(%n: index) -> tensor<9223372036854775807x?xf16> {
  %0 = tensor.empty(%n) : tensor<9223372036854775807x?xf16>
  // expected-error @below {{result 0, tensor<9223372036854775807x?xf16>, takes more than 2^63 - 1 bytes}}
  return %0 : tensor<9223372036854775807x?xf16>
}

// -----

// Strides are products of sizes that others beside zero have.
// expected-error @below {{argument 0, tensor<0x4294967296x4294967296xi1>, takes more}}
func.func private @declared(tensor<0x4294967296x4294967296xi1>)

// -----

func.func @dimension(%a: tensor<?x4xf32>) -> index {
  %c2 = arith.constant 2 : index
  // expected-error @below {{there is no dimension 2 in tensor<?x4xf32>: name one of its 2, from 0}}
  %0 = tensor.dim %a, %c2 : tensor<?x4xf32>
  return %0 : index
}

// -----

// As large as can be.
func.func @largest(%a: tensor<9223372036854775807xi8>, %b: tensor<1152921504606846975xindex>,
    %c: tensor<576460752303423487xcomplex<f64>>, %d: memref<?x1152921504606846975xf64>, %e: tensor<0xf32>, %f: f32,
    %g: tensor<*xf32>) {
  return
}

// -----

func.func @slices(%x: tensor<4x8xf32>, %y: tensor<18x8xf32>, %o: tensor<16x8xf32>, %c: i1) -> tensor<16x8xf32> {
  %r = scf.forall (%i) = (0) to (18) step (4) shared_outs(%a = %o) -> (tensor<16x8xf32>) {
    scf.if %c {
      %s = tensor.extract_slice %y[%i, 0] [4, 8] [1, 1] : tensor<18x8xf32> to tensor<4x8xf32>
    }
    %s = tensor.extract_slice %y[%i, 0] [2, 8] [1, 1] : tensor<18x8xf32> to tensor<2x8xf32>
    scf.forall.in_parallel {
      // expected-error @below {{a slice of tensor<16x8xf32> passes its end: dimension 0 is read or written up to 20}}
      tensor.parallel_insert_slice %x into %a[%i, 0] [4, 8] [1, 1] : tensor<4x8xf32> into tensor<16x8xf32>
    }
  }
  return %r : tensor<16x8xf32>
}
