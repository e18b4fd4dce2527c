// RUN: attn-opt %s --split-input-file --verify-diagnostics -o /dev/null
// RUN: printf 'func.func @f() {\n  // expected-error@+1 {{nothing}}\n  return\n}' | not attn-opt --verify-diagnostics 2>&1 | FileCheck %s --check-prefix=MISSING
// MISSING: <stdin>:2:0: error: expected error "nothing" was not produced
// RUN: printf 'func.func @f() {\n  foo\n}' | not attn-opt --verify-diagnostics 2>&1 | FileCheck %s --check-prefix=UNEXPECTED
// UNEXPECTED: <stdin>:2:3: error: unexpected error: custom op 'foo' is unknown

func.func @above(%x: tensor<3xf32>) {
  linalg_ext.diag ins(%x : tensor<3xf32>) outs(%x : tensor<3xf32>)
  // expected-error@above {{expects output to have rank 2}}
  return
}

// -----

func.func @regular_expression(%x: tensor<3xf32>) {
  // expected-error-re@+1 {{expects output to have rank {{[0-9]+}} (the input's shape}}
  linalg_ext.diag ins(%x : tensor<3xf32>) outs(%x : tensor<3xf32>)
  return
}

// -----

func.func @same_line(%x: tensor<3xf32>) {
  linalg_ext.diag ins(%y : tensor<3xf32>) outs(%x : tensor<3xf32>) // expected-error {{use of undeclared SSA value}}
}
