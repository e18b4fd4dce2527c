// RUN: attn-opt %s --split-input-file --verify-diagnostics --tiles-to-nvvm

gpu.module @kernels {
  gpu.func @element() kernel {
    %x = arith.constant dense<0.0> : tensor<64x16xf32, "fragment">
    %r = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]} outs(%x : tensor<64x16xf32, "fragment">) {
    ^bb0(%y: f32):
      %w = arith.extf %y : f32 to f64
      // expected-error @below {{'math.erf' on f64 is not lowered for GPUs}}
      %z = math.erf %w : f64
      %n = arith.truncf %z : f64 to f32
      linalg.yield %n : f32
    } -> tensor<64x16xf32, "fragment">
    gpu.return
  }
}

// -----

gpu.module @kernels {
  // expected-error @below {{tiles have 48 rows; expects 64, 128, … up to 512}}
  gpu.func @rows() kernel {
    %x = arith.constant dense<0.0> : tensor<48xf32, "row">
    gpu.return
  }
}
