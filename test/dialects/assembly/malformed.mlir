// RUN: attn-opt %s --split-input-file --verify-diagnostics

func.func @misspelled(%x: tensor<5xf32>) {
  // expected-error @+1 {{unknown op 'linalg_ext.diagg'; did you mean 'linalg_ext.diag'?}}
  %0 = linalg_ext.diagg ins(%x : tensor<5xf32>)
  return
}

// -----

func.func @keyword(%x: tensor<5xf32>) {
  // expected-error @+1 {{'linalg_ext.softmax': expected 'dimension' but found 'ins'}}
  %0:4 = linalg_ext.softmax ins(%x : tensor<5xf32>)
  return
}

// -----

func.func @on_a_later_line(%x: tensor<5xf32>, %o: tensor<5x5xf32>) {
  %0 = linalg_ext.diag
    ins(%x : tensor<5xf32>)  // a comment
    // expected-error @+1 {{'linalg_ext.diag': expected ')' but found ']'}}
    outs(%o : tensor<5x5xf32>])
  return
}

// -----

func.func @operand(%x: tensor<5xf32>) {
  // expected-error @+1 {{'linalg_ext.diag': expected an operand, input, but found ':'}}
  %0 = linalg_ext.diag ins( : tensor<5xf32>) outs(%x : tensor<5xf32>)
  return
}

// -----

func.func @type(%x: tensor<5xf32>) {
  // expected-error @+1 {{'linalg_ext.diag': expected a type but found ')'}}
  %0 = linalg_ext.diag ins(%x : ) outs(%x : tensor<5xf32>)
  return
}

// -----

func.func @number_of_types(%a: tensor<9x5xf32>) {
  // expected-error @+1 {{'linalg_ext.batch_matmul': expected 2 types, one per operand, but found 1}}
  %0 = linalg_ext.batch_matmul ins(%a, %a : tensor<9x5xf32>) outs(%a : tensor<9x5xf32>) layout = "nn"
  return
}

// -----

func.func @number_of_results(%x: tensor<5xf32>, %o: tensor<5x5xf32>) {
  // expected-error @+1 {{'linalg_ext.diag': expected 1 result type but found 2}}
  %0 = linalg_ext.diag ins(%x : tensor<5xf32>) outs(%o : tensor<5x5xf32>) : tensor<5x5xf32>, tensor<5x5xf32>
  return
}

// -----

func.func @twice(%a: tensor<5x5xf32>) {
  // expected-error @+1 {{'linalg_ext.batch_matmul': attribute 'layout' occurs more than once}}
  %0 = linalg_ext.batch_matmul {layout = "nt"} ins(%a, %a : tensor<5x5xf32>, tensor<5x5xf32>) outs(%a : tensor<5x5xf32>) layout = "nn"
  return
}

// -----

func.func @twice_in_two_dictionaries(%x: tensor<5xf32>, %o: tensor<5x5xf32>) {
  // expected-error @+1 {{'linalg_ext.diag': attribute 'a' occurs more than once}}
  %0 = linalg_ext.diag {a} ins(%x : tensor<5xf32>) outs(%o : tensor<5x5xf32>) {b, "a" = 1}
  return
}

// -----

func.func @never_closed(%x: tensor<5xf32>) {
  // expected-error @+1 {{'linalg_ext.diag': expected '>' but found ')'}}
  %0 = linalg_ext.diag ins(%x : tensor<5xf32) outs(%x : tensor<5xf32>)
  return
}

// -----

// What upstream's parser finds is reported where it stands in the custom form.
func.func @upstream(%x: tensor<5xf32>, %o: tensor<5x5xf32>) {
  %0 = linalg_ext.diag ins(%x : tensor<5xf32>)
    // expected-error @+1 {{use of undeclared SSA value name}}
    outs(%nothing : tensor<5x5xf32>)
  return
}

// -----

func.func @result_names(%x: tensor<5xf32>, %o: tensor<5x5xf32>) {
  // expected-error @+1 {{operation defines 1 results but was provided 2 to bind}}
  %0:2 = linalg_ext.diag ins(%x : tensor<5xf32>) outs(%o : tensor<5x5xf32>)
  return
}

// -----

func.func @old_expand_shape(%x: tensor<?xf32>) {
  // expected-error @+1 {{expected output_shape [sizes] before ':', since the result has dynamic sizes}}
  %0 = tensor.expand_shape %x [[0, 1]] : tensor<?xf32> into tensor<?x4xf32>
  return
}

// -----

func.func @never_closed_string(%a: tensor<5x5xf32>) {
  // expected-error @+1 {{'linalg_ext.batch_matmul': the string is never closed}}
  %0 = linalg_ext.batch_matmul ins(%a, %a : tensor<5x5xf32>, tensor<5x5xf32>) outs(%a : tensor<5x5xf32>) layout = "nn
  return
}

// -----

// Upstream's parser refuses this without a word.
func.func @closed() {
  // expected-error @below {{'linalg_ext.unnorm_softmax' is not followed by what its form asks for}}
  linalg_ext.unnorm_softmax} dimension(0)
  return
}
