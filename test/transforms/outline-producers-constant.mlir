// A constant in memory is there once, also where fewer lanes are tried: a piece of 12 columns is none of eight lanes.
// RUN: attn-opt %s --outline-producers="multiprocessors=1" | FileCheck %s

// CHECK:     gpu.module @f_kernels
// CHECK:       memref.global constant @f_producers_0_constant_[[N:[0-9]+]] : memref<32xf16>
// CHECK-NOT:   memref.global
// CHECK:       gpu.func @f_producers_0
// CHECK:         memref.get_global @f_producers_0_constant_[[N]]
// CHECK-NOT:     memref.get_global
// CHECK:         vector.store {{.*}} vector<4xf16>

#id = affine_map<(i, j) -> (i, j)>
func.func @f(%q: tensor<128x32xf16>) -> tensor<128x32xf16> {
  %t = arith.constant dense<[0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0, 12.0, 13.0, 14.0, 15.0, 16.0, 17.0, 18.0, 19.0, 20.0, 21.0, 22.0, 23.0, 24.0, 25.0, 26.0, 27.0, 28.0, 29.0, 30.0, 31.0]> : tensor<32xf16>
  %a = tensor.extract_slice %q[0, 0] [128, 20] [1, 1] : tensor<128x32xf16> to tensor<128x20xf16>
  %b = tensor.extract_slice %q[0, 20] [128, 12] [1, 1] : tensor<128x32xf16> to tensor<128x12xf16>
  %h = tensor.concat dim(1) %b, %a : (tensor<128x12xf16>, tensor<128x20xf16>) -> tensor<128x32xf16>
  %whole = tensor.empty() : tensor<128x32xf16>
  %r = linalg.generic {indexing_maps = [affine_map<(i, j) -> (j)>, #id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%t, %h : tensor<32xf16>, tensor<128x32xf16>) outs(%whole : tensor<128x32xf16>) {
  ^bb0(%x: f16, %y: f16, %old: f16):
    %z = arith.addf %x, %y : f16
    linalg.yield %z : f16
  } -> tensor<128x32xf16>
  %out = tensor.empty() : tensor<128x32xf16>
  %o = scf.forall (%i) = (0) to (128) step (64) shared_outs(%to = %out) -> (tensor<128x32xf16>) {
    %x = tensor.extract_slice %r[%i, 0] [64, 32] [1, 1] : tensor<128x32xf16> to tensor<64x32xf16>
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %x into %to[%i, 0] [64, 32] [1, 1] : tensor<64x32xf16> into tensor<128x32xf16>
    }
  }
  return %o : tensor<128x32xf16>
}
