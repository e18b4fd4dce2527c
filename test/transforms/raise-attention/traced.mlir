// RUN: attn-opt %s --raise-attention | FileCheck %s
// RUN: attn-opt %s --raise-attention --fuse-attention | FileCheck %s --check-prefix=FUSED

// A traced scaled_dot_product_attention: causal, two heads of queries for each of keys, matmuls on [batch·heads], a
// maximum with its index, a guard for fully masked rows, and the output brought to [batch, queries, heads·size].
// Keys and values are read as they are: their maps skip the group; the mask is computed from indices; the output is
// written in the order of the transpose.
// CHECK-DAG:   #[[KEYS:.*]] = affine_map<(d0, d1, d2, d3, d4, d5) -> (d0, d1, d4, d5)>
// CHECK-DAG:   #[[VALUES:.*]] = affine_map<(d0, d1, d2, d3, d4, d5) -> (d0, d1, d5, d4)>
// CHECK-DAG:   #[[OUT:.*]] = affine_map<(d0, d1, d2, d3, d4, d5) -> (d0, d3, d1, d2, d4)>
// CHECK-LABEL: func.func @grouped
// CHECK-SAME:    %[[Q:.*]]: tensor<2x4x12x16xf32>, %[[K:.*]]: tensor<2x2x20x16xf32>, %[[V:.*]]: tensor<2x2x20x16xf32>
// CHECK:         %[[QG:.*]] = tensor.expand_shape %[[Q]] {{.*}} into tensor<2x2x2x12x16xf32>
// CHECK:         %[[S:.*]] = linalg.generic {indexing_maps = [#{{.*}}, #[[KEYS]], #{{.*}}], {{.*}} ins(%[[QG]], %[[K]]
// CHECK:         %[[X:.*]] = linalg.generic {{.*}} ins(%[[S]]
// CHECK:           linalg.index
// CHECK:           arith.cmpi sle
// CHECK:           arith.select %{{.*}}, %{{.*}}, %{{.*}} : f32
// CHECK:         %[[P:.*]]:4 = linalg_ext.softmax dimension(4) ins(%[[X]] : tensor<2x2x2x12x20xf32>)
// CHECK:         %[[O:.*]] = linalg.generic {indexing_maps = [#{{.*}}, #[[VALUES]], #[[OUT]]], {{.*}} ins(%[[P]]#0, %[[V]]
// CHECK-NOT:     linalg.transpose
// CHECK:         return

// FUSED:         scf.for
// FUSED:           linalg_ext.softmax
#map = affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d3, d4)>
#map1 = affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d2, d3, d4)>
#map2 = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>
#map3 = affine_map<(d0) -> (d0)>
#map4 = affine_map<(d0, d1) -> (d1)>
#map5 = affine_map<(d0, d1) -> (d0, 0)>
#map6 = affine_map<(d0, d1) -> (d0, d1)>
#map7 = affine_map<(d0, d1, d2, d3) -> (d2, d3)>
#map8 = affine_map<(d0, d1, d2, d3) -> ()>
#map9 = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2)>
#map10 = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, 0)>
module {
  func.func @grouped(%arg0: tensor<2x4x12x16xf32>, %arg1: tensor<2x2x20x16xf32>, %arg2: tensor<2x2x20x16xf32>) -> tensor<2x12x64xf32> {
    %c0_i64 = arith.constant 0 : i64
    %cst = arith.constant 0.000000e+00 : f32
    %cst_0 = arith.constant 0xFF800000 : f32
    %true = arith.constant true
    %cst_1 = arith.constant dense<0.000000e+00> : tensor<2x4x12x20xf32>
    %cst_2 = arith.constant dense<0xFF800000> : tensor<f32>
    %cst_3 = arith.constant 0xFFF0000000000000 : f64
    %cst_4 = arith.constant 2.500000e-01 : f32
    %0 = tensor.empty() : tensor<2x2x2x20x16xf32>
    %1 = linalg.generic {indexing_maps = [#map, #map1], iterator_types = ["parallel", "parallel", "parallel", "parallel", "parallel"]} ins(%arg1 : tensor<2x2x20x16xf32>) outs(%0 : tensor<2x2x2x20x16xf32>) {
    ^bb0(%in: f32, %out: f32):
      linalg.yield %in : f32
    } -> tensor<2x2x2x20x16xf32>
    %collapsed = tensor.collapse_shape %1 [[0], [1, 2], [3], [4]] : tensor<2x2x2x20x16xf32> into tensor<2x4x20x16xf32>
    %2 = tensor.empty() : tensor<2x4x16x20xf32>
    %transposed = linalg.transpose ins(%collapsed : tensor<2x4x20x16xf32>) outs(%2 : tensor<2x4x16x20xf32>) permutation = [0, 1, 3, 2] 
    %collapsed_5 = tensor.collapse_shape %arg0 [[0, 1], [2], [3]] : tensor<2x4x12x16xf32> into tensor<8x12x16xf32>
    %collapsed_6 = tensor.collapse_shape %transposed [[0, 1], [2], [3]] : tensor<2x4x16x20xf32> into tensor<8x16x20xf32>
    %3 = tensor.empty() : tensor<8x12x20xf32>
    %4 = linalg.fill ins(%cst : f32) outs(%3 : tensor<8x12x20xf32>) -> tensor<8x12x20xf32>
    %5 = linalg.batch_matmul ins(%collapsed_5, %collapsed_6 : tensor<8x12x16xf32>, tensor<8x16x20xf32>) outs(%4 : tensor<8x12x20xf32>) -> tensor<8x12x20xf32>
    %expanded = tensor.expand_shape %5 [[0, 1], [2], [3]] output_shape [2, 4, 12, 20] : tensor<8x12x20xf32> into tensor<2x4x12x20xf32>
    %6 = tensor.empty() : tensor<2x4x12x20xf32>
    %7 = linalg.generic {indexing_maps = [#map2, #map2], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%expanded : tensor<2x4x12x20xf32>) outs(%6 : tensor<2x4x12x20xf32>) {
    ^bb0(%in: f32, %out: f32):
      %37 = arith.mulf %in, %cst_4 : f32
      linalg.yield %37 : f32
    } -> tensor<2x4x12x20xf32>
    %8 = tensor.empty() : tensor<12xi64>
    %9 = linalg.generic {indexing_maps = [#map3], iterator_types = ["parallel"]} outs(%8 : tensor<12xi64>) {
    ^bb0(%out: i64):
      %37 = linalg.index 0 : index
      %38 = arith.index_cast %37 : index to i64
      linalg.yield %38 : i64
    } -> tensor<12xi64>
    %expanded_7 = tensor.expand_shape %9 [[0, 1]] output_shape [12, 1] : tensor<12xi64> into tensor<12x1xi64>
    %10 = tensor.empty() : tensor<20xi64>
    %11 = linalg.generic {indexing_maps = [#map3], iterator_types = ["parallel"]} outs(%10 : tensor<20xi64>) {
    ^bb0(%out: i64):
      %37 = linalg.index 0 : index
      %38 = arith.index_cast %37 : index to i64
      linalg.yield %38 : i64
    } -> tensor<20xi64>
    %12 = tensor.empty() : tensor<12x20xi1>
    %13 = linalg.generic {indexing_maps = [#map4, #map5, #map6], iterator_types = ["parallel", "parallel"]} ins(%11, %expanded_7 : tensor<20xi64>, tensor<12x1xi64>) outs(%12 : tensor<12x20xi1>) {
    ^bb0(%in: i64, %in_14: i64, %out: i1):
      %37 = arith.cmpi sle, %in, %in_14 : i64
      linalg.yield %37 : i1
    } -> tensor<12x20xi1>
    %14 = linalg.generic {indexing_maps = [#map7, #map2, #map8, #map2], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%13, %7, %cst_2 : tensor<12x20xi1>, tensor<2x4x12x20xf32>, tensor<f32>) outs(%6 : tensor<2x4x12x20xf32>) {
    ^bb0(%in: i1, %in_14: f32, %in_15: f32, %out: f32):
      %37 = arith.select %in, %in_14, %in_15 : f32
      linalg.yield %37 : f32
    } -> tensor<2x4x12x20xf32>
    %15 = tensor.empty() : tensor<2x4x12xi64>
    %16 = linalg.fill ins(%c0_i64 : i64) outs(%15 : tensor<2x4x12xi64>) -> tensor<2x4x12xi64>
    %17 = tensor.empty() : tensor<2x4x12xf32>
    %18 = linalg.fill ins(%cst_0 : f32) outs(%17 : tensor<2x4x12xf32>) -> tensor<2x4x12xf32>
    %19:2 = linalg.generic {indexing_maps = [#map2, #map9, #map9], iterator_types = ["parallel", "parallel", "parallel", "reduction"]} ins(%14 : tensor<2x4x12x20xf32>) outs(%18, %16 : tensor<2x4x12xf32>, tensor<2x4x12xi64>) {
    ^bb0(%in: f32, %out: f32, %out_14: i64):
      %37 = linalg.index 3 : index
      %38 = arith.index_cast %37 : index to i64
      %39 = arith.maximumf %in, %out : f32
      %40 = arith.cmpf ogt, %in, %out : f32
      %41 = arith.select %40, %38, %out_14 : i64
      linalg.yield %39, %41 : f32, i64
    } -> (tensor<2x4x12xf32>, tensor<2x4x12xi64>)
    %expanded_8 = tensor.expand_shape %19#0 [[0], [1], [2, 3]] output_shape [2, 4, 12, 1] : tensor<2x4x12xf32> into tensor<2x4x12x1xf32>
    %20 = linalg.generic {indexing_maps = [#map2, #map10, #map2], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%14, %expanded_8 : tensor<2x4x12x20xf32>, tensor<2x4x12x1xf32>) outs(%6 : tensor<2x4x12x20xf32>) {
    ^bb0(%in: f32, %in_14: f32, %out: f32):
      %37 = arith.subf %in, %in_14 : f32
      linalg.yield %37 : f32
    } -> tensor<2x4x12x20xf32>
    %21 = linalg.generic {indexing_maps = [#map2, #map2], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%20 : tensor<2x4x12x20xf32>) outs(%6 : tensor<2x4x12x20xf32>) {
    ^bb0(%in: f32, %out: f32):
      %37 = math.exp %in : f32
      linalg.yield %37 : f32
    } -> tensor<2x4x12x20xf32>
    %22 = tensor.empty() : tensor<2x4x12x1xf32>
    %23 = linalg.fill ins(%cst : f32) outs(%22 : tensor<2x4x12x1xf32>) -> tensor<2x4x12x1xf32>
    %24 = linalg.generic {indexing_maps = [#map2, #map10], iterator_types = ["parallel", "parallel", "parallel", "reduction"]} ins(%21 : tensor<2x4x12x20xf32>) outs(%23 : tensor<2x4x12x1xf32>) {
    ^bb0(%in: f32, %out: f32):
      %37 = arith.addf %in, %out : f32
      linalg.yield %37 : f32
    } -> tensor<2x4x12x1xf32>
    %25 = linalg.generic {indexing_maps = [#map2, #map10, #map2], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%21, %24 : tensor<2x4x12x20xf32>, tensor<2x4x12x1xf32>) outs(%6 : tensor<2x4x12x20xf32>) {
    ^bb0(%in: f32, %in_14: f32, %out: f32):
      %37 = arith.divf %in, %in_14 : f32
      linalg.yield %37 : f32
    } -> tensor<2x4x12x20xf32>
    %26 = tensor.empty() : tensor<2x4x12x20xi1>
    %27 = linalg.generic {indexing_maps = [#map2, #map2], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%14 : tensor<2x4x12x20xf32>) outs(%26 : tensor<2x4x12x20xi1>) {
    ^bb0(%in: f32, %out: i1):
      %37 = arith.extf %in : f32 to f64
      %38 = arith.cmpf oeq, %37, %cst_3 : f64
      linalg.yield %38 : i1
    } -> tensor<2x4x12x20xi1>
    %28 = tensor.empty() : tensor<2x4x12x1xi1>
    %29 = linalg.fill ins(%true : i1) outs(%28 : tensor<2x4x12x1xi1>) -> tensor<2x4x12x1xi1>
    %30 = linalg.generic {indexing_maps = [#map2, #map10], iterator_types = ["parallel", "parallel", "parallel", "reduction"]} ins(%27 : tensor<2x4x12x20xi1>) outs(%29 : tensor<2x4x12x1xi1>) {
    ^bb0(%in: i1, %out: i1):
      %37 = arith.andi %in, %out : i1
      linalg.yield %37 : i1
    } -> tensor<2x4x12x1xi1>
    %31 = linalg.generic {indexing_maps = [#map10, #map2, #map2, #map2], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%30, %cst_1, %25 : tensor<2x4x12x1xi1>, tensor<2x4x12x20xf32>, tensor<2x4x12x20xf32>) outs(%6 : tensor<2x4x12x20xf32>) {
    ^bb0(%in: i1, %in_14: f32, %in_15: f32, %out: f32):
      %37 = arith.select %in, %in_14, %in_15 : f32
      linalg.yield %37 : f32
    } -> tensor<2x4x12x20xf32>
    %32 = linalg.generic {indexing_maps = [#map, #map1], iterator_types = ["parallel", "parallel", "parallel", "parallel", "parallel"]} ins(%arg2 : tensor<2x2x20x16xf32>) outs(%0 : tensor<2x2x2x20x16xf32>) {
    ^bb0(%in: f32, %out: f32):
      linalg.yield %in : f32
    } -> tensor<2x2x2x20x16xf32>
    %collapsed_9 = tensor.collapse_shape %31 [[0, 1], [2], [3]] : tensor<2x4x12x20xf32> into tensor<8x12x20xf32>
    %collapsed_10 = tensor.collapse_shape %32 [[0, 1, 2], [3], [4]] : tensor<2x2x2x20x16xf32> into tensor<8x20x16xf32>
    %33 = tensor.empty() : tensor<8x12x16xf32>
    %34 = linalg.fill ins(%cst : f32) outs(%33 : tensor<8x12x16xf32>) -> tensor<8x12x16xf32>
    %35 = linalg.batch_matmul ins(%collapsed_9, %collapsed_10 : tensor<8x12x20xf32>, tensor<8x20x16xf32>) outs(%34 : tensor<8x12x16xf32>) -> tensor<8x12x16xf32>
    %expanded_11 = tensor.expand_shape %35 [[0, 1], [2], [3]] output_shape [2, 4, 12, 16] : tensor<8x12x16xf32> into tensor<2x4x12x16xf32>
    %36 = tensor.empty() : tensor<2x12x4x16xf32>
    %transposed_12 = linalg.transpose ins(%expanded_11 : tensor<2x4x12x16xf32>) outs(%36 : tensor<2x12x4x16xf32>) permutation = [0, 2, 1, 3] 
    %collapsed_13 = tensor.collapse_shape %transposed_12 [[0], [1], [2, 3]] : tensor<2x12x4x16xf32> into tensor<2x12x64xf32>
    return %collapsed_13 : tensor<2x12x64xf32>
  }
}

