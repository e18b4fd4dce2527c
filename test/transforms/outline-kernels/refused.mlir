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

// -----

func.func @no_matmul(%init: tensor<96x32xf32>, %y: tensor<96x32xf32>) -> tensor<96x32xf32> {
  %r = scf.forall (%i) = (0) to (96) step (32) shared_outs(%a = %init) -> (tensor<96x32xf32>) {
    %t = tensor.extract_slice %a[%i, 0] [32, 32] [1, 1] : tensor<96x32xf32> to tensor<32x32xf32>
    %u = tensor.extract_slice %y[%i, 0] [32, 32] [1, 1] : tensor<96x32xf32> to tensor<32x32xf32>
    // expected-error @below {{a dimension of 32 elements of a tile belongs to no matmul's row or column: tile it by 1}}
    %v = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]}
        ins(%u : tensor<32x32xf32>) outs(%t : tensor<32x32xf32>) {
    ^bb0(%p: f32, %q: f32):
      %z = arith.addf %p, %q : f32
      linalg.yield %z : f32
    } -> tensor<32x32xf32>
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %v into %a[%i, 0] [32, 32] [1, 1] : tensor<32x32xf32> into tensor<96x32xf32>
    }
  }
  return %r : tensor<96x32xf32>
}
