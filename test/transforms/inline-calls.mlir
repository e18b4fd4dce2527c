// RUN: attn-opt %s --inline-calls | FileCheck %s
// RUN: attn-opt %s --inline-calls=every=1 | FileCheck %s --check-prefix=EVERY

// Called once, through another that is called once: both end up in @once.
// CHECK-NOT:   @inner
// CHECK-NOT:   @outer
// CHECK-LABEL: func.func @once(
// CHECK-NEXT:    %[[E:.*]] = math.exp %arg0
// CHECK-NEXT:    %[[T:.*]] = math.tanh %[[E]]
// CHECK-NEXT:    return %[[T]], %arg0
func.func private @inner(%x: tensor<4xf32>) -> tensor<4xf32> {
  %e = math.exp %x : tensor<4xf32>
  return %e : tensor<4xf32>
}
func.func private @outer(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  %e = call @inner(%x) : (tensor<4xf32>) -> tensor<4xf32>
  %t = math.tanh %e : tensor<4xf32>
  return %t, %x : tensor<4xf32>, tensor<4xf32>
}
func.func @once(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  %t:2 = call @outer(%x) : (tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>)
  return %t#0, %t#1 : tensor<4xf32>, tensor<4xf32>
}

// Called more than once.
// CHECK-LABEL: func.func @twice(
// CHECK:         call @shared
// CHECK:         call @shared
// EVERY-NOT:   @shared
// EVERY-LABEL: func.func @twice(
// EVERY-COUNT-2: math.sqrt
func.func private @shared(%x: tensor<4xf32>) -> tensor<4xf32> {
  %r = math.sqrt %x : tensor<4xf32>
  return %r : tensor<4xf32>
}
func.func @twice(%x: tensor<4xf32>) -> tensor<4xf32> {
  %a = call @shared(%x) : (tensor<4xf32>) -> tensor<4xf32>
  %b = call @shared(%a) : (tensor<4xf32>) -> tensor<4xf32>
  return %b : tensor<4xf32>
}

// Functions that call themselves or each other stay; what has no body, too.
// CHECK-LABEL: func.func @recursive(
// CHECK:         call @recursive
// EVERY-LABEL: func.func @recursive(
// EVERY:         call @recursive
// EVERY:         call @declared
func.func private @declared(tensor<4xf32>) -> tensor<4xf32>
func.func @recursive(%x: tensor<4xf32>, %c: i1) -> tensor<4xf32> {
  %r = scf.if %c -> tensor<4xf32> {
    %y = func.call @other(%x, %c) : (tensor<4xf32>, i1) -> tensor<4xf32>
    scf.yield %y : tensor<4xf32>
  } else {
    %y = func.call @declared(%x) : (tensor<4xf32>) -> tensor<4xf32>
    scf.yield %y : tensor<4xf32>
  }
  return %r : tensor<4xf32>
}
func.func private @other(%x: tensor<4xf32>, %c: i1) -> tensor<4xf32> {
  %y = call @recursive(%x, %c) : (tensor<4xf32>, i1) -> tensor<4xf32>
  return %y : tensor<4xf32>
}
