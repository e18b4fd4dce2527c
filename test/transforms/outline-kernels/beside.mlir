// RUN: attn-opt %s --outline-kernels | FileCheck %s

// A matmul as small as a tile, with what is computed of it, beside a loop over tiles that reads both: what the loop
// needs, such as the tensor it writes to, stays in front of it.

#rows = affine_map<(i, j, k) -> (i, k)>
#columns = affine_map<(i, j, k) -> (k, j)>
#tile = affine_map<(i, j, k) -> (i, j)>
#id = affine_map<(i, j) -> (i, j)>

// CHECK:       gpu.func @beside_0
// CHECK:       gpu.func @beside_1
// CHECK:       func.func @beside
// CHECK:         gpu.launch_func @beside_kernels::@beside_0
// CHECK-NOT:     linalg.generic
// CHECK-NOT:     scf.forall
// CHECK:         gpu.launch_func @beside_kernels::@beside_1
func.func @beside(%x: tensor<16x32xf16>, %w: tensor<32x64xf16>, %y: tensor<16x640xf32>) -> tensor<16x640xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<16x64xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<16x64xf32>) -> tensor<16x64xf32>
  %p = linalg.generic {indexing_maps = [#rows, #columns, #tile], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%x, %w : tensor<16x32xf16>, tensor<32x64xf16>) outs(%z : tensor<16x64xf32>) {
  ^bb0(%l: f16, %r: f16, %o: f32):
    %1 = arith.extf %l : f16 to f32
    %2 = arith.extf %r : f16 to f32
    %3 = arith.mulf %1, %2 : f32
    %4 = arith.addf %o, %3 : f32
    linalg.yield %4 : f32
  } -> tensor<16x64xf32>
  %e1 = tensor.empty() : tensor<16x64xf32>
  %h = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%p : tensor<16x64xf32>) outs(%e1 : tensor<16x64xf32>) {
  ^bb0(%l: f32, %o: f32):
    %1 = arith.mulf %l, %l : f32
    linalg.yield %1 : f32
  } -> tensor<16x64xf32>
  %init = tensor.empty() : tensor<16x640xf32>
  %all = scf.forall (%i) = (0) to (640) step (64) shared_outs(%a = %init) -> (tensor<16x640xf32>) {
    %t = tensor.extract_slice %y[0, %i] [16, 64] [1, 1] : tensor<16x640xf32> to tensor<16x64xf32>
    %e2 = tensor.empty() : tensor<16x64xf32>
    %s = linalg.generic {indexing_maps = [#id, #id, #id, #id], iterator_types = ["parallel", "parallel"]}
        ins(%t, %p, %h : tensor<16x64xf32>, tensor<16x64xf32>, tensor<16x64xf32>) outs(%e2 : tensor<16x64xf32>) {
    ^bb0(%l: f32, %m: f32, %n: f32, %o: f32):
      %1 = arith.mulf %l, %m : f32
      %2 = arith.addf %1, %n : f32
      linalg.yield %2 : f32
    } -> tensor<16x64xf32>
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %s into %a[0, %i] [16, 64] [1, 1] : tensor<16x64xf32> into tensor<16x640xf32>
    }
  }
  return %all : tensor<16x640xf32>
}
