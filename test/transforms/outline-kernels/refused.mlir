// RUN: attn-opt %s --split-input-file --verify-diagnostics --outline-kernels

func.func @part(%init: tensor<96x32xf32>, %x: f32) -> tensor<96x32xf32> {
  %r = scf.forall (%i) = (0) to (64) step (32) shared_outs(%a = %init) -> (tensor<96x32xf32>) {
    %t = tensor.extract_slice %a[%i, 0] [32, 32] [1, 1] : tensor<96x32xf32> to tensor<32x32xf32>
    scf.forall.in_parallel {
      // expected-error @below {{the tiles of a result do not cover all of it, which kernels rely on}}
      tensor.parallel_insert_slice %t into %a[%i, 0] [32, 32] [1, 1] : tensor<32x32xf32> into tensor<96x32xf32>
    }
  }
  return %r : tensor<96x32xf32>
}

