// RUN: attn-opt %s --slice-fills --split-input-file | FileCheck %s

// CHECK-LABEL: func.func @statistics
// CHECK-SAME:    %[[N:.*]]: index
// CHECK:       %[[M:.*]] = arith.constant 0xFF800000
// CHECK:       scf.forall
// CHECK:         %[[E:.*]] = tensor.empty(%[[N]]) : tensor<?xf32>
// CHECK:         linalg.fill ins(%[[M]] : f32) outs(%[[E]] : tensor<?xf32>)
// CHECK-NOT:     extract_slice
func.func @statistics(%n: index, %out: tensor<64xf32>) -> tensor<64xf32> {
  %m = arith.constant 0xFF800000 : f32
  %e = tensor.empty() : tensor<64xf32>
  %f = linalg.fill ins(%m : f32) outs(%e : tensor<64xf32>) -> tensor<64xf32>
  %r = scf.forall (%i) = (0) to (64) step (16) shared_outs(%o = %out) -> (tensor<64xf32>) {
    %s = tensor.extract_slice %f[%i] [%n] [1] : tensor<64xf32> to tensor<?xf32>
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %s into %o[%i] [%n] [1] : tensor<?xf32> into tensor<64xf32>
    }
  }
  return %r : tensor<64xf32>
}

// -----

// A tile of what a parallel loop shares is filled too: it is what it was before the loop.
// CHECK-LABEL: func.func @tiles
// CHECK:       scf.forall
// CHECK-NOT:   tensor.extract_slice
// CHECK:       linalg.fill {{.*}} -> tensor<4xf32>
// CHECK:       linalg.fill {{.*}} -> tensor<4x8xf32>
func.func @tiles(%x: tensor<4xf32>) -> tensor<16x8xf32> {
  %zero = arith.constant 0.0 : f32
  %one = arith.constant 1.0 : f32
  %e = tensor.empty() : tensor<16x8xf32>
  %o = linalg.fill ins(%zero : f32) outs(%e : tensor<16x8xf32>) -> tensor<16x8xf32>
  %r = tensor.empty() : tensor<16xf32>
  %m = linalg.fill ins(%one : f32) outs(%r : tensor<16xf32>) -> tensor<16xf32>
  %0 = scf.forall (%i) = (0) to (16) step (4) shared_outs(%c = %o) -> (tensor<16x8xf32>) {
    %a = tensor.extract_slice %m[%i] [4] [1] : tensor<16xf32> to tensor<4xf32>
    %b = tensor.extract_slice %c[%i, 0] [4, 8] [1, 1] : tensor<16x8xf32> to tensor<4x8xf32>
    %t = linalg.broadcast ins(%a : tensor<4xf32>) outs(%b : tensor<4x8xf32>) dimensions = [1]
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %t into %c[%i, 0] [4, 8] [1, 1] : tensor<4x8xf32> into tensor<16x8xf32>
    }
  }
  return %0 : tensor<16x8xf32>
}
