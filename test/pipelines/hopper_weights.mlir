// RUN: attn-opt %s --raise-attention --fuse-attention="machine=sm_90a" --lower-to=nvidia --print-ir-after=rescale-rarely -o /dev/null 2>&1 | FileCheck %s

// Probabilities have weights before they are rounded to f16: products that f16 does not hold would not show in the sum,
// so the maximum is brought up to date in every iteration.
// CHECK-LABEL: (rescale-rarely) //-----
// CHECK-LABEL: gpu.func @weighed_0
// CHECK-NOT:   tile.any
// CHECK:       arith.maxnumf
// CHECK:       math.exp2
// CHECK:       arith.mulf
// CHECK:       arith.truncf {{.*}} : f32 to f16
// CHECK-NOT:   tile.any

// Those that a dropout keeps are as they were, its factor comes after the loop.
// CHECK-LABEL: gpu.func @dropout_0
// CHECK:       scf.for
// CHECK:       %[[KEPT:.*]] = arith.select %in, %in_{{.*}}, %{{.*}} : f32
// CHECK-NEXT:  arith.truncf %[[KEPT]] : f32 to f16
// CHECK:       arith.mulf {{.*}}, %cst{{.*}} : f32
// CHECK:       tile.any

!rows = tensor<32x4096x64xf16>
!scores = tensor<32x4096x4096xf32>
!probabilities = tensor<32x4096x4096xf16>
!out = tensor<32x4096x64xf32>
#id = affine_map<(b, q, k) -> (b, q, k)>

func.func @weighed(%q: !rows, %k: tensor<32x64x4096xf16>, %v: !rows, %w: !scores) -> !out {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : !scores
  %z = linalg.fill ins(%zero : f32) outs(%e : !scores) -> !scores
  %s = linalg.batch_matmul ins(%q, %k : !rows, tensor<32x64x4096xf16>) outs(%z : !scores) -> !scores
  %p = linalg.softmax dimension(2) ins(%s : !scores) outs(%e : !scores) -> !scores
  %pe = tensor.empty() : !probabilities
  %d = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%p, %w : !scores, !scores) outs(%pe : !probabilities) {
  ^bb0(%x: f32, %y: f32, %o: f16):
    %scaled = arith.mulf %x, %y : f32
    %narrow = arith.truncf %scaled : f32 to f16
    linalg.yield %narrow : f16
  } -> !probabilities
  %oe = tensor.empty() : !out
  %oz = linalg.fill ins(%zero : f32) outs(%oe : !out) -> !out
  %o = linalg.batch_matmul ins(%d, %v : !probabilities, !rows) outs(%oz : !out) -> !out
  return %o : !out
}

func.func @dropout(%q: !rows, %k: tensor<32x64x4096xf16>, %v: !rows, %keep: tensor<32x4096x4096xi1>) -> !out {
  %zero = arith.constant 0.0 : f32
  %two = arith.constant 2.0 : f32
  %e = tensor.empty() : !scores
  %z = linalg.fill ins(%zero : f32) outs(%e : !scores) -> !scores
  %s = linalg.batch_matmul ins(%q, %k : !rows, tensor<32x64x4096xf16>) outs(%z : !scores) -> !scores
  %p = linalg.softmax dimension(2) ins(%s : !scores) outs(%e : !scores) -> !scores
  %pe = tensor.empty() : !probabilities
  %d = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%p, %keep : !scores, tensor<32x4096x4096xi1>) outs(%pe : !probabilities) {
  ^bb0(%x: f32, %is: i1, %o: f16):
    %scaled = arith.mulf %x, %two : f32
    %kept = arith.select %is, %scaled, %zero : f32
    %narrow = arith.truncf %kept : f32 to f16
    linalg.yield %narrow : f16
  } -> !probabilities
  %oe = tensor.empty() : !out
  %oz = linalg.fill ins(%zero : f32) outs(%oe : !out) -> !out
  %o = linalg.batch_matmul ins(%d, %v : !probabilities, !rows) outs(%oz : !out) -> !out
  return %o : !out
}
