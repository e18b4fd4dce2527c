// RUN: attn-opt %s --align-rows | FileCheck %s

// A mask that all heads share is copied to rows of 304 bytes; the bias that each head has its own of is not.
// CHECK-LABEL: func.func @masked
// CHECK-SAME:      %[[MASK:[a-z0-9]+]]: tensor<200x301xi1>, %[[BIAS:[a-z0-9]+]]: tensor<8x200x301xbf16>
// CHECK:         %[[E:.*]] = tensor.empty() : tensor<200x304xi1>
// CHECK:         %[[COPY:.*]] = linalg.generic {{.*}} outs(%[[E]] : tensor<200x304xi1>)
// CHECK-DAG:       %[[I:.*]] = linalg.index 0
// CHECK-DAG:       %[[J:.*]] = linalg.index 1
// CHECK-DAG:       %[[INSIDE:.*]] = arith.cmpi slt, %[[J]], %{{.*}} : index
// CHECK-DAG:       %[[LAST:.*]] = arith.minsi %[[J]], %{{.*}} : index
// CHECK:           %[[X:.*]] = tensor.extract %[[MASK]][%[[I]], %[[LAST]]]
// CHECK:           arith.select %[[INSIDE]], %[[X]], %false
// CHECK:         scf.forall
// CHECK:           tensor.extract_slice %[[COPY]][{{.*}}] [96, 43] [1, 1] : tensor<200x304xi1> to tensor<96x43xi1>
// CHECK:           tensor.extract_slice %[[BIAS]]
// CHECK-NOT:     %[[MASK]]

#lhs = affine_map<(i, j, d) -> (i, d)>
#rhs = affine_map<(i, j, d) -> (j, d)>
#out = affine_map<(i, j, d) -> (i, j)>
#id = affine_map<(i, j) -> (i, j)>
func.func @masked(%mask: tensor<200x301xi1>, %bias: tensor<8x200x301xbf16>, %q: tensor<8x192x64xf16>, %k: tensor<8x301x64xf16>,
                  %e: tensor<8x192x43xf32>, %z: tensor<96x43xf32>) -> tensor<8x192x43xf32> {
  %r = scf.forall (%h, %i) = (0, 0) to (8, 192) step (1, 96) shared_outs(%o = %e) -> (tensor<8x192x43xf32>) {
    %qt = tensor.extract_slice %q[%h, %i, 0] [1, 96, 64] [1, 1, 1] : tensor<8x192x64xf16> to tensor<96x64xf16>
    %kt = tensor.extract_slice %k[%h, 258, 0] [1, 43, 64] [1, 1, 1] : tensor<8x301x64xf16> to tensor<43x64xf16>
    %s = linalg.generic {indexing_maps = [#lhs, #rhs, #out], iterator_types = ["parallel", "parallel", "reduction"]}
        ins(%qt, %kt : tensor<96x64xf16>, tensor<43x64xf16>) outs(%z : tensor<96x43xf32>) {
    ^bb0(%x: f16, %y: f16, %a: f32):
      %xw = arith.extf %x : f16 to f32
      %yw = arith.extf %y : f16 to f32
      %t = arith.mulf %xw, %yw : f32
      %u = arith.addf %a, %t : f32
      linalg.yield %u : f32
    } -> tensor<96x43xf32>
    %m = tensor.extract_slice %mask[%i, 258] [96, 43] [1, 1] : tensor<200x301xi1> to tensor<96x43xi1>
    %b = tensor.extract_slice %bias[%h, %i, 258] [1, 96, 43] [1, 1, 1] : tensor<8x200x301xbf16> to tensor<96x43xbf16>
    %t = linalg.generic {indexing_maps = [#id, #id, #id, #id], iterator_types = ["parallel", "parallel"]}
        ins(%s, %m, %b : tensor<96x43xf32>, tensor<96x43xi1>, tensor<96x43xbf16>) outs(%z : tensor<96x43xf32>) {
    ^bb0(%x: f32, %live: i1, %y: bf16, %a: f32):
      %yw = arith.extf %y : bf16 to f32
      %u = arith.addf %x, %yw : f32
      %v = arith.select %live, %u, %a : f32
      linalg.yield %v : f32
    } -> tensor<96x43xf32>
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %t into %o[%h, %i, 0] [1, 96, 43] [1, 1, 1] : tensor<96x43xf32> into tensor<8x192x43xf32>
    }
  }
  return %r : tensor<8x192x43xf32>
}
