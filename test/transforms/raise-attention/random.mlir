// RUN: attn-opt %s --raise-attention | FileCheck %s

// A mask by random numbers, floats that are made of bits: it is computed from the place of each score, where scores
// are, not read.
// CHECK-LABEL: @of_bits
//       CHECK: %[[P:.*]]:4 = linalg_ext.softmax
//       CHECK: %[[W:.*]] = linalg.generic {{.*}} ins(%[[P]]#0 : tensor<6x10xf32>)
//       CHECK: linalg.index
//       CHECK: arith.muli
//       CHECK: %[[BITS:.*]] = arith.ori {{.*}} : i32
//  CHECK-NEXT: %[[NUMBER:.*]] = arith.bitcast %[[BITS]] : i32 to f32
//       CHECK: arith.cmpf olt
//       CHECK: arith.select
//       CHECK: linalg.generic {{.*}} ins(%[[W]], %arg2 : tensor<6x10xf32>, tensor<10x4xf32>)
func.func @of_bits(%q: tensor<6x8xf32>, %k: tensor<8x10xf32>, %v: tensor<10x4xf32>) -> tensor<6x4xf32> {
  %zero = arith.constant 0.0 : f32
  %one = arith.constant 1.0 : f32
  %most = arith.constant 0.8 : f32
  %columns = arith.constant 10 : i32
  %factor = arith.constant -1640531527 : i32
  %nine = arith.constant 9 : i32
  %exponent = arith.constant 1065353216 : i32
  %e_s = tensor.empty() : tensor<6x10xf32>
  %z_s = linalg.fill ins(%zero : f32) outs(%e_s : tensor<6x10xf32>) -> tensor<6x10xf32>
  %s = linalg.matmul ins(%q, %k : tensor<6x8xf32>, tensor<8x10xf32>) outs(%z_s : tensor<6x10xf32>) -> tensor<6x10xf32>
  %p = linalg.softmax dimension(1) ins(%s : tensor<6x10xf32>) outs(%e_s : tensor<6x10xf32>) -> tensor<6x10xf32>
  %uniform = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]}
      outs(%e_s : tensor<6x10xf32>) {
  ^bb0(%o: f32):
    %i = linalg.index 0 : index
    %j = linalg.index 1 : index
    %row = arith.index_cast %i : index to i32
    %column = arith.index_cast %j : index to i32
    %start = arith.muli %row, %columns : i32
    %place = arith.addi %start, %column : i32
    %hash = arith.muli %place, %factor : i32
    %high = arith.shrui %hash, %nine : i32
    %bits = arith.ori %high, %exponent : i32
    %number = arith.bitcast %bits : i32 to f32
    %u = arith.subf %number, %one : f32
    linalg.yield %u : f32
  } -> tensor<6x10xf32>
  %d = linalg.map ins(%p, %uniform : tensor<6x10xf32>, tensor<6x10xf32>) outs(%e_s : tensor<6x10xf32>)
    (%x: f32, %u: f32, %o: f32) {
      %is = arith.cmpf olt, %u, %most : f32
      %y = arith.select %is, %x, %zero : f32
      linalg.yield %y : f32
    }
  %e_o = tensor.empty() : tensor<6x4xf32>
  %z_o = linalg.fill ins(%zero : f32) outs(%e_o : tensor<6x4xf32>) -> tensor<6x4xf32>
  %o = linalg.matmul ins(%d, %v : tensor<6x10xf32>, tensor<10x4xf32>) outs(%z_o : tensor<6x4xf32>) -> tensor<6x4xf32>
  return %o : tensor<6x4xf32>
}
