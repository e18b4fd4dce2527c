// RUN: attn-opt %s --raise-attention | FileCheck %s

// A gather from a table without elements stays where it is: of such a table no slice can be taken.
// CHECK-LABEL: func.func @attention
// CHECK-NOT: tensor.extract_slice
// CHECK: tensor.extract %arg3[%{{.*}}] : tensor<0xf64>
func.func @attention(%a1: tensor<1x1x1x?x1xf64>, %a2: tensor<1x1x1x?x1xf64>, %a3: tensor<1x1x1x?x?xf64>, %a23: tensor<0xf64>) -> (tensor<1x1x1x?x?xf64>) {
  %c5 = arith.constant 0.00000000000000000e+00 : f64
  %c7 = arith.constant 3 : index
  %n6 = tensor.dim %a1, %c7 : tensor<1x1x1x?x1xf64>
  %c9 = arith.constant 3 : index
  %n8 = tensor.dim %a2, %c9 : tensor<1x1x1x?x1xf64>
  %t10 = tensor.empty(%n6, %n8) : tensor<1x1x1x?x?xf64>
  %t4 = linalg.fill ins(%c5 : f64) outs(%t10 : tensor<1x1x1x?x?xf64>) -> tensor<1x1x1x?x?xf64>
  %t16 = linalg.generic {indexing_maps = [affine_map<(a, b, h, m, n, d) -> (a, b, h, m, d)>, affine_map<(a, b, h, m, n, d) -> (a, b, h, n, d)>, affine_map<(a, b, h, m, n, d) -> (a, b, h, m, n)>], iterator_types = ["parallel", "parallel", "parallel", "parallel", "parallel", "reduction"]} ins(%a1, %a2 : tensor<1x1x1x?x1xf64>, tensor<1x1x1x?x1xf64>)
      outs(%t4 : tensor<1x1x1x?x?xf64>) {
  ^bb0(%x11: f64, %x12: f64, %x13: f64):
    %s14 = arith.mulf %x11, %x12 : f64
    %s15 = arith.addf %x13, %s14 : f64
    linalg.yield %s15 : f64
  } -> tensor<1x1x1x?x?xf64>
  %t17 = tensor.empty(%n6, %n8) : tensor<1x1x1x?x?xf64>
  %t22 = linalg.generic {indexing_maps = [affine_map<(a, b, h, m, n) -> (a, b, h, m, n)>, affine_map<(a, b, h, m, n) -> (a, b, h, m, n)>], iterator_types = ["parallel", "parallel", "parallel", "parallel", "parallel"]} ins(%t16 : tensor<1x1x1x?x?xf64>)
      outs(%t17 : tensor<1x1x1x?x?xf64>) {
  ^bb0(%x18: f64, %x19: f64):
    %s20 = arith.constant 3.33333333333333315e-01 : f64
    %s21 = arith.mulf %x18, %s20 : f64
    linalg.yield %s21 : f64
  } -> tensor<1x1x1x?x?xf64>
  %t24 = tensor.empty(%n6, %n8) : tensor<1x1x1x?x?xf64>
  %t30 = linalg.generic {indexing_maps = [affine_map<(a, b, h, m, n) -> (a, b, h, m, n)>, affine_map<(a, b, h, m, n) -> (a, b, h, m, n)>], iterator_types = ["parallel", "parallel", "parallel", "parallel", "parallel"]} ins(%t22 : tensor<1x1x1x?x?xf64>)
      outs(%t24 : tensor<1x1x1x?x?xf64>) {
  ^bb0(%x25: f64, %x26: f64):
    %s27 = linalg.index 3 : index
    %s28 = tensor.extract %a23[%s27] : tensor<0xf64>
    %s29 = arith.addf %x25, %s28 : f64
    linalg.yield %s29 : f64
  } -> tensor<1x1x1x?x?xf64>
  %t31 = tensor.empty(%n6, %n8) : tensor<1x1x1x?x?xf64>
  %t32 = linalg.softmax dimension(4) ins(%t30 : tensor<1x1x1x?x?xf64>) outs(%t31 : tensor<1x1x1x?x?xf64>) -> tensor<1x1x1x?x?xf64>
  %c34 = arith.constant 0.00000000000000000e+00 : f64
  %c36 = arith.constant 4 : index
  %n35 = tensor.dim %a3, %c36 : tensor<1x1x1x?x?xf64>
  %t37 = tensor.empty(%n6, %n35) : tensor<1x1x1x?x?xf64>
  %t33 = linalg.fill ins(%c34 : f64) outs(%t37 : tensor<1x1x1x?x?xf64>) -> tensor<1x1x1x?x?xf64>
  %t43 = linalg.generic {indexing_maps = [affine_map<(a, b, h, m, v, n) -> (a, b, h, m, n)>, affine_map<(a, b, h, m, v, n) -> (a, b, h, n, v)>, affine_map<(a, b, h, m, v, n) -> (a, b, h, m, v)>], iterator_types = ["parallel", "parallel", "parallel", "parallel", "parallel", "reduction"]} ins(%t32, %a3 : tensor<1x1x1x?x?xf64>, tensor<1x1x1x?x?xf64>)
      outs(%t33 : tensor<1x1x1x?x?xf64>) {
  ^bb0(%x38: f64, %x39: f64, %x40: f64):
    %s41 = arith.mulf %x38, %x39 : f64
    %s42 = arith.addf %x40, %s41 : f64
    linalg.yield %s42 : f64
  } -> tensor<1x1x1x?x?xf64>
  return %t43 : tensor<1x1x1x?x?xf64>
}

