// RUN: attn-opt %s --vectorize-linalg="vector-bytes=32" | FileCheck %s

// Ops of one place in the source, the same but for their bodies: each is told from the one before when that is gone.

// CHECK-LABEL: func.func @twice
// CHECK:         math.absf
// CHECK:         math.rsqrt
// CHECK-NOT:     linalg.generic
#id = affine_map<(d0) -> (d0)>
func.func @twice(%x: memref<64xf32>) {
  linalg.generic {indexing_maps = [#id], iterator_types = ["parallel"]} outs(%x : memref<64xf32>) {
  ^bb0(%a: f32):
    %c = math.absf %a : f32
    linalg.yield %c : f32
  } loc("norm")
  linalg.generic {indexing_maps = [#id], iterator_types = ["parallel"]} outs(%x : memref<64xf32>) {
  ^bb0(%a: f32):
    %c = math.rsqrt %a : f32
    linalg.yield %c : f32
  } loc("norm")
  return
}
