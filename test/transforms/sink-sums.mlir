// RUN: attn-opt %s --sink-sums | FileCheck %s

#rows = affine_map<(i, j) -> (i, j)>
#columns = affine_map<(i, j) -> (j)>
#one = affine_map<(j) -> (j)>

// The gradient of a bias, and its rounding, move behind the loop that reads what is summed, by way of a reshape.
// CHECK-LABEL: func.func @bias
// CHECK:         linalg.generic {{.*}} iterator_types = ["parallel", "parallel"]
// CHECK-NOT:     linalg.generic
// CHECK:         scf.forall
// CHECK:           tensor.extract_slice
// CHECK:         %[[SUM:.*]] = linalg.generic {{.*}} iterator_types = ["reduction", "parallel"]
// CHECK:         %[[ROUNDED:.*]] = linalg.generic {{.*}} ins(%[[SUM]] : tensor<64xf32>)
// CHECK:         return %{{.*}}, %[[ROUNDED]]
func.func @bias(%a: tensor<256x64xf32>, %zeros: tensor<64xf32>, %e: tensor<64xf16>) -> (tensor<256x4x16xf32>, tensor<64xf16>) {
  %n = tensor.empty() : tensor<256x64xf32>
  %x = linalg.generic {indexing_maps = [#rows, #rows], iterator_types = ["parallel", "parallel"]}
      ins(%a : tensor<256x64xf32>) outs(%n : tensor<256x64xf32>) {
  ^bb0(%v: f32, %o: f32):
    %t = math.exp %v : f32
    linalg.yield %t : f32
  } -> tensor<256x64xf32>
  %s = linalg.generic {indexing_maps = [#rows, #columns], iterator_types = ["reduction", "parallel"]}
      ins(%x : tensor<256x64xf32>) outs(%zeros : tensor<64xf32>) {
  ^bb0(%v: f32, %o: f32):
    %t = arith.addf %o, %v : f32
    linalg.yield %t : f32
  } -> tensor<64xf32>
  %r = linalg.generic {indexing_maps = [#one, #one], iterator_types = ["parallel"]} ins(%s : tensor<64xf32>) outs(%e : tensor<64xf16>) {
  ^bb0(%v: f32, %o: f16):
    %t = arith.truncf %v : f32 to f16
    linalg.yield %t : f16
  } -> tensor<64xf16>
  %heads = tensor.expand_shape %x [[0], [1, 2]] output_shape [256, 4, 16] : tensor<256x64xf32> into tensor<256x4x16xf32>
  %m = tensor.empty() : tensor<256x4x16xf32>
  %y = scf.forall (%i) in (256) shared_outs(%o = %m) -> tensor<256x4x16xf32> {
    %p = tensor.extract_slice %heads[%i, 0, 0] [1, 4, 16] [1, 1, 1] : tensor<256x4x16xf32> to tensor<1x4x16xf32>
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %p into %o[%i, 0, 0] [1, 4, 16] [1, 1, 1] : tensor<1x4x16xf32> into tensor<256x4x16xf32>
    }
  }
  return %y, %r : tensor<256x4x16xf32>, tensor<64xf16>
}

// One that a loop needs stays before it.
// CHECK-LABEL: func.func @needed
// CHECK:         %[[SUM:.*]] = linalg.generic {{.*}} iterator_types = ["reduction", "parallel"]
// CHECK:         scf.forall
// CHECK:           tensor.extract_slice %[[SUM]]
func.func @needed(%x: tensor<256x64xf32>, %zeros: tensor<64xf32>) -> tensor<64xf32> {
  %s = linalg.generic {indexing_maps = [#rows, #columns], iterator_types = ["reduction", "parallel"]}
      ins(%x : tensor<256x64xf32>) outs(%zeros : tensor<64xf32>) {
  ^bb0(%v: f32, %o: f32):
    %t = arith.addf %o, %v : f32
    linalg.yield %t : f32
  } -> tensor<64xf32>
  %m = tensor.empty() : tensor<64xf32>
  %y = scf.forall (%i) in (64) shared_outs(%o = %m) -> tensor<64xf32> {
    %p = tensor.extract_slice %s[%i] [1] [1] : tensor<64xf32> to tensor<1xf32>
    %q = tensor.extract_slice %x[0, %i] [1, 1] [1, 1] : tensor<256x64xf32> to tensor<1xf32>
    %e = tensor.empty() : tensor<1xf32>
    %r = linalg.generic {indexing_maps = [#one, #one, #one], iterator_types = ["parallel"]}
        ins(%p, %q : tensor<1xf32>, tensor<1xf32>) outs(%e : tensor<1xf32>) {
    ^bb0(%a: f32, %b: f32, %c: f32):
      %t = arith.addf %a, %b : f32
      linalg.yield %t : f32
    } -> tensor<1xf32>
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %r into %o[%i] [1] [1] : tensor<1xf32> into tensor<64xf32>
    }
  }
  return %y : tensor<64xf32>
}

// One of few rows, which a thread adds up, stays where it is.
// CHECK-LABEL: func.func @few
// CHECK:         linalg.generic {{.*}} iterator_types = ["reduction", "parallel"]
// CHECK:         scf.forall
func.func @few(%x: tensor<8x64xf32>, %zeros: tensor<64xf32>) -> (tensor<8x64xf32>, tensor<64xf32>) {
  %s = linalg.generic {indexing_maps = [#rows, #columns], iterator_types = ["reduction", "parallel"]}
      ins(%x : tensor<8x64xf32>) outs(%zeros : tensor<64xf32>) {
  ^bb0(%v: f32, %o: f32):
    %t = arith.addf %o, %v : f32
    linalg.yield %t : f32
  } -> tensor<64xf32>
  %m = tensor.empty() : tensor<8x64xf32>
  %y = scf.forall (%i) in (8) shared_outs(%o = %m) -> tensor<8x64xf32> {
    %p = tensor.extract_slice %x[%i, 0] [1, 64] [1, 1] : tensor<8x64xf32> to tensor<1x64xf32>
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %p into %o[%i, 0] [1, 64] [1, 1] : tensor<1x64xf32> into tensor<8x64xf32>
    }
  }
  return %y, %s : tensor<8x64xf32>, tensor<64xf32>
}
