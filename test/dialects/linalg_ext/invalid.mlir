// RUN: attn-opt %s --split-input-file --verify-diagnostics

func.func @dimension(%x: tensor<6x10xf32>, %m: tensor<6xf32>) {
  // expected-error @below {{'linalg_ext.softmax' op expects dimension in [0, 2), the rank of its input, but found 2}}
  linalg_ext.softmax dimension(2) ins(%x : tensor<6x10xf32>) outs(%x, %m, %m, %m : tensor<6x10xf32>, tensor<6xf32>, tensor<6xf32>, tensor<6xf32>)
  return
}

// -----

func.func @output_shape(%x: tensor<6x10xf32>, %o: tensor<6x9xf32>, %m: tensor<6xf32>) {
  // expected-error @+1 {{expects dimension 1 of output to be 10 (the shape of the input), but found 9: tensor<6x9xf32>}}
  linalg_ext.softmax dimension(1) ins(%x : tensor<6x10xf32>) outs(%o, %m, %m, %m : tensor<6x9xf32>, tensor<6xf32>, tensor<6xf32>, tensor<6xf32>)
  return
}

// -----

func.func @statistics_shape(%x: tensor<6x10xf32>, %m: tensor<6xf32>, %a: tensor<10xf32>) {
  // expected-error @+1 {{expects dimension 0 of accum to be 6 (the input's shape without dimension 1), but found 10}}
  linalg_ext.softmax dimension(1) ins(%x : tensor<6x10xf32>) outs(%x, %m, %a, %m : tensor<6x10xf32>, tensor<6xf32>, tensor<10xf32>, tensor<6xf32>)
  return
}

// -----

func.func @statistics_type(%x: tensor<6x10xf32>, %m: tensor<6xf16>) {
  // expected-error @+1 {{expects statistics of the input's element type f32, but found f16}}
  linalg_ext.unnorm_softmax dimension(1) ins(%x : tensor<6x10xf32>) outs(%x, %m, %m, %m : tensor<6x10xf32>, tensor<6xf16>, tensor<6xf16>, tensor<6xf16>)
  return
}

// -----

func.func @element_type(%x: tensor<6x10xi32>, %m: tensor<6xi32>) {
  // expected-error @+1 {{expects input to have element type f16, bf16, f32, f64 or one of 8 bits, but found i32}}
  linalg_ext.softmax dimension(1) ins(%x : tensor<6x10xi32>) outs(%x, %m, %m, %m : tensor<6x10xi32>, tensor<6xi32>, tensor<6xi32>, tensor<6xi32>)
  return
}

// -----

func.func @result_type(%x: tensor<5xf32>, %o: tensor<5x5xf32>) {
  // expected-error @+1 {{expects result 0 to have the type of its outs operand, tensor<5x5xf32>, but found tensor<?x5xf32>}}
  %0 = linalg_ext.diag ins(%x : tensor<5xf32>) outs(%o : tensor<5x5xf32>) : tensor<?x5xf32>
  return
}

// -----

func.func @diag_rank(%x: tensor<5xf32>, %o: tensor<5xf32>) {
  // expected-error @+1 {{expects output to have rank 2}}
  %0 = linalg_ext.diag ins(%x : tensor<5xf32>) outs(%o : tensor<5xf32>)
  return
}

// -----

func.func @layout(%a: tensor<9x5xf32>, %b: tensor<5x7xf32>, %c: tensor<9x7xf32>) {
  // expected-error @+1 {{expects layout to be one of nn, nt, tn, tt, but found "mn"}}
  %0 = linalg_ext.batch_matmul ins(%a, %b : tensor<9x5xf32>, tensor<5x7xf32>) outs(%c : tensor<9x7xf32>) layout = "mn"
  return
}

// -----

func.func @contraction(%a: tensor<2x9x5xf32>, %b: tensor<2x6x7xf32>, %c: tensor<2x9x7xf32>) {
  // expected-error @+1 {{expects dimension 1 of rhs to be 5}}
  %0 = linalg_ext.batch_matmul ins(%a, %b : tensor<2x9x5xf32>, tensor<2x6x7xf32>) outs(%c : tensor<2x9x7xf32>) layout = "nn"
  return
}

// -----

func.func @batch(%a: tensor<2x9x5xf32>, %b: tensor<3x5x7xf32>, %c: tensor<2x9x7xf32>) {
  // expected-error @+1 {{expects dimension 0 of rhs to be 2}}
  %0 = linalg_ext.batch_matmul ins(%a, %b : tensor<2x9x5xf32>, tensor<3x5x7xf32>) outs(%c : tensor<2x9x7xf32>) layout = "nn"
  return
}

// -----

func.func @generic_operands(%x: tensor<5xf32>) {
  // expected-error @+1 {{'linalg_ext.diag' op expects 2 operands, but found 1}}
  %0 = "linalg_ext.diag"(%x) : (tensor<5xf32>) -> tensor<5xf32>
  return
}

// -----

func.func @generic_results(%x: tensor<5xf32>) {
  // expected-error @+1 {{'linalg_ext.diag' op expects 1 result, but found 2}}
  %0:2 = "linalg_ext.diag"(%x, %x) : (tensor<5xf32>, tensor<5xf32>) -> (tensor<5xf32>, tensor<5xf32>)
  return
}

// -----

func.func @generic_attribute(%x: tensor<5x5xf32>) {
  // expected-error @+1 {{'linalg_ext.batch_matmul' op expects attribute 'layout'}}
  %0 = "linalg_ext.batch_matmul"(%x, %x, %x) : (tensor<5x5xf32>, tensor<5x5xf32>, tensor<5x5xf32>) -> tensor<5x5xf32>
  return
}

// -----

func.func @kind_of_attribute(%x: tensor<5xf32>, %m: tensor<f32>) {
  // expected-error @+1 {{'linalg_ext.softmax' op expects attribute 'dimension' to be of kind integer, but found "one"}}
  linalg_ext.softmax dimension("one") ins(%x : tensor<5xf32>) outs(%x, %m, %m, %m : tensor<5xf32>, tensor<f32>, tensor<f32>, tensor<f32>)
  return
}

// -----

func.func @not_a_tensor(%x: memref<5xf32>, %o: tensor<5x5xf32>) {
  // expected-error @+1 {{expects input to be a ranked tensor, but found memref<5xf32>}}
  %0 = linalg_ext.diag ins(%x : memref<5xf32>) outs(%o : tensor<5x5xf32>)
  return
}

// -----

func.func @places_shape(%v: tensor<3xf32>, %p: tensor<4xi64>, %t: tensor<8xf32>) {
  // expected-error @+1 {{'linalg_ext.put' op expects dimension 0 of places to be 3 (the shape of values), but found 4}}
  linalg_ext.put ins(%v, %p : tensor<3xf32>, tensor<4xi64>) outs(%t : tensor<8xf32>)
  return
}

// -----

func.func @places_type(%v: tensor<3xf32>, %p: tensor<3xi32>, %t: tensor<8xf32>) {
  // expected-error @+1 {{expects places to have element type i64, but found i32}}
  linalg_ext.put ins(%v, %p : tensor<3xf32>, tensor<3xi32>) outs(%t : tensor<8xf32>)
  return
}

// -----

func.func @values_type(%v: tensor<3xf16>, %p: tensor<3xi64>, %t: tensor<8xf32>) {
  // expected-error @+1 {{expects values to have the target's element type f32, but found f16}}
  linalg_ext.put ins(%v, %p : tensor<3xf16>, tensor<3xi64>) outs(%t : tensor<8xf32>)
  return
}
