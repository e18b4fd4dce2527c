// RUN: attn-opt %s --round-shared | FileCheck %s

#id = affine_map<(i, j) -> (i, j)>
#row = affine_map<(i, j) -> (i)>

// What the maximum and the difference read is rounded, and so is what it is computed from: choices of numbers that are
// rounded are, and f32 is rounded nowhere. The difference is read once.
// CHECK-LABEL: func.func @scores
// CHECK:         arith.truncf %{{.*}} {tile.rounded = 2 : i64} : f32 to bf16
// CHECK:         %[[SUM:.*]] = arith.addf %{{.*}}, %{{.*}} {tile.rounded = 1 : i64} : bf16
// CHECK-NEXT:    arith.select %{{.*}}, %{{.*}}, %[[SUM]] : bf16
// CHECK:         arith.maximumf %{{.*}}, %{{.*}} : bf16
// CHECK:         arith.subf %{{.*}}, %{{.*}} : bf16
// CHECK-NEXT:    math.exp %{{.*}} : bf16
func.func @scores(%x: tensor<4x8xf32>, %b: tensor<4x8xbf16>, %keep: tensor<4x8xi1>) -> tensor<4x8xbf16> {
  %low = arith.constant 0xFF80 : bf16
  %e = tensor.empty() : tensor<4x8xbf16>
  %er = tensor.empty() : tensor<4xbf16>
  %h = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<4x8xf32>) outs(%e : tensor<4x8xbf16>) {
  ^bb0(%in: f32, %out: bf16):
    %y = arith.mulf %in, %in : f32
    %r = arith.truncf %y : f32 to bf16
    linalg.yield %r : bf16
  } -> tensor<4x8xbf16>
  %flat = tensor.collapse_shape %h [[0, 1]] : tensor<4x8xbf16> into tensor<32xbf16>
  %back = tensor.expand_shape %flat [[0, 1]] output_shape [4, 8] : tensor<32xbf16> into tensor<4x8xbf16>
  %s = linalg.generic {indexing_maps = [#id, #id, #id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%back, %b, %keep : tensor<4x8xbf16>, tensor<4x8xbf16>, tensor<4x8xi1>) outs(%e : tensor<4x8xbf16>) {
  ^bb0(%in: bf16, %bias: bf16, %k: i1, %out: bf16):
    %y = arith.addf %in, %bias : bf16
    %r = arith.select %k, %low, %y : bf16
    linalg.yield %r : bf16
  } -> tensor<4x8xbf16>
  %lowest = linalg.fill ins(%low : bf16) outs(%er : tensor<4xbf16>) -> tensor<4xbf16>
  %m = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]}
      ins(%s : tensor<4x8xbf16>) outs(%lowest : tensor<4xbf16>) {
  ^bb0(%in: bf16, %out: bf16):
    %r = arith.maximumf %in, %out : bf16
    linalg.yield %r : bf16
  } -> tensor<4xbf16>
  %p = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]}
      ins(%s, %m : tensor<4x8xbf16>, tensor<4xbf16>) outs(%e : tensor<4x8xbf16>) {
  ^bb0(%in: bf16, %most: bf16, %out: bf16):
    %d = arith.subf %in, %most : bf16
    %r = math.exp %d : bf16
    linalg.yield %r : bf16
  } -> tensor<4x8xbf16>
  return %p : tensor<4x8xbf16>
}

// What loops give is rounded in them where others read it, too.
// CHECK-LABEL: func.func @of_loops
// CHECK:         scf.forall
// CHECK:           arith.truncf %{{.*}} {tile.rounded = {{.*}}} : f32 to f16
// CHECK:         arith.mulf %{{.*}}, %{{.*}} : f16
func.func @of_loops(%x: tensor<64x8xf32>) -> (tensor<64x8xf16>, tensor<64x8xf16>) {
  %e = tensor.empty() : tensor<64x8xf16>
  %o = scf.forall (%i) = (0) to (64) step (16) shared_outs(%out = %e) -> (tensor<64x8xf16>) {
    %t = tensor.extract_slice %x[%i, 0] [16, 8] [1, 1] : tensor<64x8xf32> to tensor<16x8xf32>
    %et = tensor.empty() : tensor<16x8xf16>
    %r = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
        ins(%t : tensor<16x8xf32>) outs(%et : tensor<16x8xf16>) {
    ^bb0(%in: f32, %old: f16):
      %h = arith.truncf %in : f32 to f16
      linalg.yield %h : f16
    } -> tensor<16x8xf16>
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %r into %out[%i, 0] [16, 8] [1, 1] : tensor<16x8xf16> into tensor<64x8xf16>
    }
  }
  %g = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%o : tensor<64x8xf16>) outs(%e : tensor<64x8xf16>) {
  ^bb0(%in: f16, %old: f16):
    %r = arith.mulf %in, %in : f16
    linalg.yield %r : f16
  } -> tensor<64x8xf16>
  return %o, %g : tensor<64x8xf16>, tensor<64x8xf16>
}

// A chain with one reader at a time is computed in one place.
// CHECK-LABEL: func.func @chain
// CHECK-NOT:     tile.rounded
// CHECK:         return
func.func @chain(%x: tensor<4x8xf16>) -> tensor<4x8xf16> {
  %e = tensor.empty() : tensor<4x8xf16>
  %a = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<4x8xf16>) outs(%e : tensor<4x8xf16>) {
  ^bb0(%in: f16, %out: f16):
    %r = math.exp %in : f16
    linalg.yield %r : f16
  } -> tensor<4x8xf16>
  %b = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%a : tensor<4x8xf16>) outs(%e : tensor<4x8xf16>) {
  ^bb0(%in: f16, %out: f16):
    %r = arith.mulf %in, %in : f16
    linalg.yield %r : f16
  } -> tensor<4x8xf16>
  return %b : tensor<4x8xf16>
}
