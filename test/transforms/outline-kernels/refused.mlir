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

// How long a tile is must be known, where all of a tensor is one, too: here keys are left to kernels of single ops.

// expected-remark @+2 {{no tile for one block: a dimension of a tile has no constant bound}}
// expected-remark @+1 {{no tile for one block: a dimension of a tile has no constant bound}}
func.func @open_keys(%p: tensor<7x?xf32>, %v: tensor<?x5xf32>) -> tensor<7x5xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<7x5xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<7x5xf32>) -> tensor<7x5xf32>
  %o = linalg.generic {indexing_maps = [affine_map<(i, j, k) -> (i, k)>, affine_map<(i, j, k) -> (k, j)>, affine_map<(i, j, k) -> (i, j)>], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%p, %v : tensor<7x?xf32>, tensor<?x5xf32>) outs(%z : tensor<7x5xf32>) {
  ^bb0(%x: f32, %y: f32, %s: f32):
    %t = arith.mulf %x, %y : f32
    %u = arith.addf %s, %t : f32
    linalg.yield %u : f32
  } -> tensor<7x5xf32>
  return %o : tensor<7x5xf32>
}
