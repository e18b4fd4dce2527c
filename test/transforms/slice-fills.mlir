// RUN: attn-opt %s --slice-fills | FileCheck %s

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
