// RUN: attn-opt %s --raise-attention | FileCheck %s

// The derivative by queries of a softmax written by hand, e = exp(s − max s), o = (e / Σe)·v, as torch differentiates it:
// what goes through the maximum, to the n largest scores, of which n are counted as integers, is 0 and dropped. All is
// computed of one softmax, and no score is compared with a maximum.
// CHECK-LABEL: @by_queries
//   CHECK-NOT:   arith.cmpf une
//   CHECK-NOT:   arith.sitofp
//       CHECK:   linalg_ext.softmax
//   CHECK-NOT:   arith.cmpf une
//   CHECK-NOT:   arith.sitofp
//       CHECK:   return
#map = affine_map<(d0, d1) -> (d0, d1)>
#map1 = affine_map<(d0, d1) -> (d0)>
#map2 = affine_map<(d0, d1) -> (d0, 0)>
func.func @by_queries(%arg0: tensor<5x8xf32>, %arg1: tensor<7x8xf32>, %arg2: tensor<7x8xf32>, %arg3: tensor<5x8xf32>) -> tensor<5x8xf32> {
  %cst = arith.constant 0.000000e+00 : f32
  %c0_i64 = arith.constant 0 : i64
  %cst_0 = arith.constant 0xFF800000 : f32
  %false = arith.constant false
  %0 = tensor.empty() : tensor<8x7xf32>
  %transposed = linalg.transpose ins(%arg1 : tensor<7x8xf32>) outs(%0 : tensor<8x7xf32>) permutation = [1, 0] 
  %1 = tensor.empty() : tensor<5x7xf32>
  %2 = linalg.fill ins(%cst : f32) outs(%1 : tensor<5x7xf32>) -> tensor<5x7xf32>
  %3 = linalg.matmul ins(%arg0, %transposed : tensor<5x8xf32>, tensor<8x7xf32>) outs(%2 : tensor<5x7xf32>) -> tensor<5x7xf32>
  %4 = tensor.empty() : tensor<5xi64>
  %5 = linalg.fill ins(%c0_i64 : i64) outs(%4 : tensor<5xi64>) -> tensor<5xi64>
  %6 = tensor.empty() : tensor<5xf32>
  %7 = linalg.fill ins(%cst_0 : f32) outs(%6 : tensor<5xf32>) -> tensor<5xf32>
  %8:2 = linalg.generic {indexing_maps = [#map, #map1, #map1], iterator_types = ["parallel", "reduction"]} ins(%3 : tensor<5x7xf32>) outs(%7, %5 : tensor<5xf32>, tensor<5xi64>) {
  ^bb0(%in: f32, %out: f32, %out_2: i64):
    %38 = linalg.index 1 : index
    %39 = arith.index_cast %38 : index to i64
    %40 = arith.maximumf %in, %out : f32
    %41 = arith.cmpf ugt, %in, %out : f32
    %42 = arith.cmpf ord, %out, %out : f32
    %43 = arith.andi %41, %42 : i1
    %44 = arith.select %43, %39, %out_2 : i64
    linalg.yield %40, %44 : f32, i64
  } -> (tensor<5xf32>, tensor<5xi64>)
  %expanded = tensor.expand_shape %8#0 [[0, 1]] output_shape [5, 1] : tensor<5xf32> into tensor<5x1xf32>
  %9 = linalg.generic {indexing_maps = [#map, #map2, #map], iterator_types = ["parallel", "parallel"]} ins(%3, %expanded : tensor<5x7xf32>, tensor<5x1xf32>) outs(%1 : tensor<5x7xf32>) {
  ^bb0(%in: f32, %in_2: f32, %out: f32):
    %38 = arith.subf %in, %in_2 : f32
    linalg.yield %38 : f32
  } -> tensor<5x7xf32>
  %10 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel"]} ins(%9 : tensor<5x7xf32>) outs(%1 : tensor<5x7xf32>) {
  ^bb0(%in: f32, %out: f32):
    %38 = math.exp %in : f32
    linalg.yield %38 : f32
  } -> tensor<5x7xf32>
  %11 = tensor.empty() : tensor<5x1xf32>
  %12 = linalg.fill ins(%cst : f32) outs(%11 : tensor<5x1xf32>) -> tensor<5x1xf32>
  %13 = linalg.generic {indexing_maps = [#map, #map2], iterator_types = ["parallel", "reduction"]} ins(%10 : tensor<5x7xf32>) outs(%12 : tensor<5x1xf32>) {
  ^bb0(%in: f32, %out: f32):
    %38 = arith.addf %in, %out : f32
    linalg.yield %38 : f32
  } -> tensor<5x1xf32>
  %transposed_1 = linalg.transpose ins(%arg2 : tensor<7x8xf32>) outs(%0 : tensor<8x7xf32>) permutation = [1, 0] 
  %14 = linalg.matmul ins(%arg3, %transposed_1 : tensor<5x8xf32>, tensor<8x7xf32>) outs(%2 : tensor<5x7xf32>) -> tensor<5x7xf32>
  %15 = linalg.generic {indexing_maps = [#map, #map2, #map], iterator_types = ["parallel", "parallel"]} ins(%10, %13 : tensor<5x7xf32>, tensor<5x1xf32>) outs(%1 : tensor<5x7xf32>) {
  ^bb0(%in: f32, %in_2: f32, %out: f32):
    %38 = arith.divf %in, %in_2 : f32
    linalg.yield %38 : f32
  } -> tensor<5x7xf32>
  %16 = linalg.generic {indexing_maps = [#map, #map2, #map], iterator_types = ["parallel", "parallel"]} ins(%15, %13 : tensor<5x7xf32>, tensor<5x1xf32>) outs(%1 : tensor<5x7xf32>) {
  ^bb0(%in: f32, %in_2: f32, %out: f32):
    %38 = arith.divf %in, %in_2 : f32
    linalg.yield %38 : f32
  } -> tensor<5x7xf32>
  %17 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel"]} ins(%14 : tensor<5x7xf32>) outs(%1 : tensor<5x7xf32>) {
  ^bb0(%in: f32, %out: f32):
    %38 = arith.negf %in : f32
    linalg.yield %38 : f32
  } -> tensor<5x7xf32>
  %18 = linalg.generic {indexing_maps = [#map, #map, #map], iterator_types = ["parallel", "parallel"]} ins(%17, %16 : tensor<5x7xf32>, tensor<5x7xf32>) outs(%1 : tensor<5x7xf32>) {
  ^bb0(%in: f32, %in_2: f32, %out: f32):
    %38 = arith.mulf %in, %in_2 : f32
    linalg.yield %38 : f32
  } -> tensor<5x7xf32>
  %19 = linalg.generic {indexing_maps = [#map, #map2, #map], iterator_types = ["parallel", "parallel"]} ins(%14, %13 : tensor<5x7xf32>, tensor<5x1xf32>) outs(%1 : tensor<5x7xf32>) {
  ^bb0(%in: f32, %in_2: f32, %out: f32):
    %38 = arith.divf %in, %in_2 : f32
    linalg.yield %38 : f32
  } -> tensor<5x7xf32>
  %20 = linalg.generic {indexing_maps = [#map, #map2], iterator_types = ["parallel", "reduction"]} ins(%18 : tensor<5x7xf32>) outs(%12 : tensor<5x1xf32>) {
  ^bb0(%in: f32, %out: f32):
    %38 = arith.addf %in, %out : f32
    linalg.yield %38 : f32
  } -> tensor<5x1xf32>
  %collapsed = tensor.collapse_shape %20 [[0, 1]] : tensor<5x1xf32> into tensor<5xf32>
  %21 = linalg.generic {indexing_maps = [#map1, #map], iterator_types = ["parallel", "parallel"]} ins(%collapsed : tensor<5xf32>) outs(%1 : tensor<5x7xf32>) {
  ^bb0(%in: f32, %out: f32):
    linalg.yield %in : f32
  } -> tensor<5x7xf32>
  %22 = linalg.generic {indexing_maps = [#map, #map, #map], iterator_types = ["parallel", "parallel"]} ins(%19, %21 : tensor<5x7xf32>, tensor<5x7xf32>) outs(%1 : tensor<5x7xf32>) {
  ^bb0(%in: f32, %in_2: f32, %out: f32):
    %38 = arith.addf %in, %in_2 : f32
    linalg.yield %38 : f32
  } -> tensor<5x7xf32>
  %23 = linalg.generic {indexing_maps = [#map, #map, #map], iterator_types = ["parallel", "parallel"]} ins(%22, %10 : tensor<5x7xf32>, tensor<5x7xf32>) outs(%1 : tensor<5x7xf32>) {
  ^bb0(%in: f32, %in_2: f32, %out: f32):
    %38 = arith.mulf %in, %in_2 : f32
    linalg.yield %38 : f32
  } -> tensor<5x7xf32>
  %24 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel"]} ins(%23 : tensor<5x7xf32>) outs(%1 : tensor<5x7xf32>) {
  ^bb0(%in: f32, %out: f32):
    %38 = arith.negf %in : f32
    linalg.yield %38 : f32
  } -> tensor<5x7xf32>
  %25 = linalg.generic {indexing_maps = [#map, #map2], iterator_types = ["parallel", "reduction"]} ins(%24 : tensor<5x7xf32>) outs(%12 : tensor<5x1xf32>) {
  ^bb0(%in: f32, %out: f32):
    %38 = arith.addf %in, %out : f32
    linalg.yield %38 : f32
  } -> tensor<5x1xf32>
  %26 = tensor.empty() : tensor<5x7xi1>
  %27 = linalg.generic {indexing_maps = [#map2, #map, #map], iterator_types = ["parallel", "parallel"]} ins(%expanded, %3 : tensor<5x1xf32>, tensor<5x7xf32>) outs(%26 : tensor<5x7xi1>) {
  ^bb0(%in: f32, %in_2: f32, %out: i1):
    %38 = arith.cmpf une, %in, %in_2 : f32
    linalg.yield %38 : i1
  } -> tensor<5x7xi1>
  %28 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel"]} ins(%27 : tensor<5x7xi1>) outs(%26 : tensor<5x7xi1>) {
  ^bb0(%in: i1, %out: i1):
    %38 = arith.cmpi eq, %in, %false : i1
    linalg.yield %38 : i1
  } -> tensor<5x7xi1>
  %29 = tensor.empty() : tensor<5x1xi64>
  %30 = linalg.fill ins(%c0_i64 : i64) outs(%29 : tensor<5x1xi64>) -> tensor<5x1xi64>
  %31 = linalg.generic {indexing_maps = [#map, #map2], iterator_types = ["parallel", "reduction"]} ins(%28 : tensor<5x7xi1>) outs(%30 : tensor<5x1xi64>) {
  ^bb0(%in: i1, %out: i64):
    %38 = arith.extui %in : i1 to i64
    %39 = arith.addi %38, %out : i64
    linalg.yield %39 : i64
  } -> tensor<5x1xi64>
  %32 = linalg.generic {indexing_maps = [#map, #map, #map], iterator_types = ["parallel", "parallel"]} ins(%25, %31 : tensor<5x1xf32>, tensor<5x1xi64>) outs(%11 : tensor<5x1xf32>) {
  ^bb0(%in: f32, %in_2: i64, %out: f32):
    %38 = arith.sitofp %in_2 : i64 to f32
    %39 = arith.divf %in, %38 : f32
    linalg.yield %39 : f32
  } -> tensor<5x1xf32>
  %33 = linalg.generic {indexing_maps = [#map2, #map, #map], iterator_types = ["parallel", "parallel"]} ins(%32, %28 : tensor<5x1xf32>, tensor<5x7xi1>) outs(%1 : tensor<5x7xf32>) {
  ^bb0(%in: f32, %in_2: i1, %out: f32):
    %38 = arith.uitofp %in_2 : i1 to f32
    %39 = arith.mulf %in, %38 : f32
    linalg.yield %39 : f32
  } -> tensor<5x7xf32>
  %34 = linalg.generic {indexing_maps = [#map, #map, #map], iterator_types = ["parallel", "parallel"]} ins(%23, %33 : tensor<5x7xf32>, tensor<5x7xf32>) outs(%1 : tensor<5x7xf32>) {
  ^bb0(%in: f32, %in_2: f32, %out: f32):
    %38 = arith.addf %in, %in_2 : f32
    linalg.yield %38 : f32
  } -> tensor<5x7xf32>
  %35 = tensor.empty() : tensor<5x8xf32>
  %36 = linalg.fill ins(%cst : f32) outs(%35 : tensor<5x8xf32>) -> tensor<5x8xf32>
  %37 = linalg.matmul ins(%34, %arg1 : tensor<5x7xf32>, tensor<7x8xf32>) outs(%36 : tensor<5x8xf32>) -> tensor<5x8xf32>
  return %37 : tensor<5x8xf32>
}
