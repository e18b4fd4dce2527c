// RUN: attn-opt %s --split-input-file --verify-diagnostics --fuse-attention="tile-sizes=4,0,8" | FileCheck %s

// Where online softmax would be wrong, softmax stays before the loops, and says why.

// Its result is returned, normalised over all keys.
// CHECK-LABEL: func.func @result_used_elsewhere
// CHECK:         linalg_ext.softmax dimension(1) ins(%{{.*}} : tensor<12x16xf32>)
// CHECK:         scf.for
// CHECK-NOT:       linalg_ext.softmax
func.func @result_used_elsewhere(%s: tensor<12x16xf32>, %v: tensor<16x6xf32>, %m0: tensor<12xf32>, %a0: tensor<12xf32>) -> (tensor<12x6xf32>, tensor<12x16xf32>) {
  %zero = arith.constant 0.0 : f32
  %e0 = tensor.empty() : tensor<12x16xf32>
  %e1 = tensor.empty() : tensor<12x6xf32>
  %e2 = tensor.empty() : tensor<12xf32>
  %o0 = linalg.fill ins(%zero : f32) outs(%e1 : tensor<12x6xf32>) -> tensor<12x6xf32>
  // expected-warning@below {{stays outside the loops: its result is used elsewhere too, where the value over all tiles is needed}}
  %p:4 = linalg_ext.softmax dimension(1) ins(%s : tensor<12x16xf32>) outs(%e0, %m0, %a0, %e2 : tensor<12x16xf32>, tensor<12xf32>, tensor<12xf32>, tensor<12xf32>)
  // expected-remark@below {{tiled into 2 loops, fused with nothing}}
  %o = linalg.matmul {__root__} ins(%p#0, %v : tensor<12x16xf32>, tensor<16x6xf32>) outs(%o0 : tensor<12x6xf32>) -> tensor<12x6xf32>
  return %o, %p#0 : tensor<12x6xf32>, tensor<12x16xf32>
}

// -----

// CHECK-LABEL: func.func @right_operand
// CHECK:         linalg_ext.softmax dimension(0) ins(%{{.*}} : tensor<16x6xf32>)
// CHECK:         scf.for
func.func @right_operand(%s: tensor<16x6xf32>, %a: tensor<12x16xf32>, %m0: tensor<6xf32>, %a0: tensor<6xf32>) -> tensor<12x6xf32> {
  %zero = arith.constant 0.0 : f32
  %e0 = tensor.empty() : tensor<16x6xf32>
  %e1 = tensor.empty() : tensor<12x6xf32>
  %e2 = tensor.empty() : tensor<6xf32>
  %o0 = linalg.fill ins(%zero : f32) outs(%e1 : tensor<12x6xf32>) -> tensor<12x6xf32>
  // expected-warning@below {{must be the left operand}}
  %p:4 = linalg_ext.softmax dimension(0) ins(%s : tensor<16x6xf32>) outs(%e0, %m0, %a0, %e2 : tensor<16x6xf32>, tensor<6xf32>, tensor<6xf32>, tensor<6xf32>)
  // expected-remark@below {{tiled into 2 loops, fused with nothing}}
  %o = linalg.matmul {__root__} ins(%a, %p#0 : tensor<12x16xf32>, tensor<16x6xf32>) outs(%o0 : tensor<12x6xf32>) -> tensor<12x6xf32>
  return %o : tensor<12x6xf32>
}

// -----

// Rescaling would rescale what the caller put in.
// CHECK-LABEL: func.func @accumulates_into_argument
// CHECK:         linalg_ext.softmax dimension(1) ins(%{{.*}} : tensor<12x16xf32>)
// CHECK:         scf.for
func.func @accumulates_into_argument(%s: tensor<12x16xf32>, %v: tensor<16x6xf32>, %o0: tensor<12x6xf32>, %m0: tensor<12xf32>, %a0: tensor<12xf32>) -> tensor<12x6xf32> {
  %e0 = tensor.empty() : tensor<12x16xf32>
  %e2 = tensor.empty() : tensor<12xf32>
  // expected-warning@below {{must accumulate into zeros}}
  %p:4 = linalg_ext.softmax dimension(1) ins(%s : tensor<12x16xf32>) outs(%e0, %m0, %a0, %e2 : tensor<12x16xf32>, tensor<12xf32>, tensor<12xf32>, tensor<12xf32>)
  // expected-remark@below {{tiled into 2 loops, fused with nothing}}
  %o = linalg.matmul {__root__} ins(%p#0, %v : tensor<12x16xf32>, tensor<16x6xf32>) outs(%o0 : tensor<12x6xf32>) -> tensor<12x6xf32>
  return %o : tensor<12x6xf32>
}

// -----

// Softmax over the rows: the loop over rows cuts the dimension that it reduces.
// CHECK-LABEL: func.func @other_dimension
// CHECK:         linalg_ext.softmax dimension(0) ins(%{{.*}} : tensor<12x16xf32>)
// CHECK:         scf.for
func.func @other_dimension(%s: tensor<12x16xf32>, %v: tensor<16x6xf32>, %m0: tensor<16xf32>, %a0: tensor<16xf32>) -> tensor<12x6xf32> {
  %zero = arith.constant 0.0 : f32
  %e0 = tensor.empty() : tensor<12x16xf32>
  %e1 = tensor.empty() : tensor<12x6xf32>
  %e2 = tensor.empty() : tensor<16xf32>
  %o0 = linalg.fill ins(%zero : f32) outs(%e1 : tensor<12x6xf32>) -> tensor<12x6xf32>
  // expected-warning@below {{stays outside the loops}}
  %p:4 = linalg_ext.softmax dimension(0) ins(%s : tensor<12x16xf32>) outs(%e0, %m0, %a0, %e2 : tensor<12x16xf32>, tensor<16xf32>, tensor<16xf32>, tensor<16xf32>)
  // expected-remark@below {{tiled into 2 loops, fused with nothing}}
  %o = linalg.matmul {__root__} ins(%p#0, %v : tensor<12x16xf32>, tensor<16x6xf32>) outs(%o0 : tensor<12x6xf32>) -> tensor<12x6xf32>
  return %o : tensor<12x6xf32>
}

// -----

// The exponential between softmax and the matmul is not linear.
// CHECK-LABEL: func.func @not_linear
// CHECK:         linalg_ext.softmax dimension(1) ins(%{{.*}} : tensor<12x16xf32>)
// CHECK:         scf.for
func.func @not_linear(%s: tensor<12x16xf32>, %v: tensor<16x6xf32>, %m0: tensor<12xf32>, %a0: tensor<12xf32>) -> tensor<12x6xf32> {
  %zero = arith.constant 0.0 : f32
  %e0 = tensor.empty() : tensor<12x16xf32>
  %e1 = tensor.empty() : tensor<12x6xf32>
  %e2 = tensor.empty() : tensor<12xf32>
  %o0 = linalg.fill ins(%zero : f32) outs(%e1 : tensor<12x6xf32>) -> tensor<12x6xf32>
  // expected-warning@below {{'linalg.exp' stands between it and the matmul, and is not linear in it}}
  %p:4 = linalg_ext.softmax dimension(1) ins(%s : tensor<12x16xf32>) outs(%e0, %m0, %a0, %e2 : tensor<12x16xf32>, tensor<12xf32>, tensor<12xf32>, tensor<12xf32>)
  %x = linalg.exp ins(%p#0 : tensor<12x16xf32>) outs(%e0 : tensor<12x16xf32>) -> tensor<12x16xf32>
  // expected-remark@below {{tiled into 2 loops, fused with linalg.exp}}
  %o = linalg.matmul {__root__} ins(%x, %v : tensor<12x16xf32>, tensor<16x6xf32>) outs(%o0 : tensor<12x6xf32>) -> tensor<12x6xf32>
  return %o : tensor<12x6xf32>
}

// -----

// Of a tensor without elements there is no slice.
func.func @empty_root(%a: tensor<20x0xf32>, %b: tensor<0x16xf32>, %c: tensor<20x16xf32>) -> tensor<20x16xf32> {
  // expected-error @below {{a tensor of 'linalg.matmul' has no elements: there is nothing to tile}}
  %r = linalg.matmul {__root__} ins(%a, %b : tensor<20x0xf32>, tensor<0x16xf32>) outs(%c : tensor<20x16xf32>) -> tensor<20x16xf32>
  return %r : tensor<20x16xf32>
}

// -----

// CHECK-LABEL: func.func @empty_producer
// CHECK:         %[[P:.*]] = linalg.matmul ins(%{{.*}}, %{{.*}} : tensor<20x0xf32>, tensor<0x12xf32>)
// CHECK:         scf.for
// CHECK:           tensor.extract_slice %[[P]]
func.func @empty_producer(%x: tensor<20x0xf32>, %w: tensor<0x12xf32>, %y: tensor<12x16xf32>, %e: tensor<20x12xf32>, %f: tensor<20x16xf32>) -> tensor<20x16xf32> {
  // expected-remark @below {{'linalg.matmul' stays outside the loops: one of its tensors has no elements}}
  %p = linalg.matmul ins(%x, %w : tensor<20x0xf32>, tensor<0x12xf32>) outs(%e : tensor<20x12xf32>) -> tensor<20x12xf32>
  // expected-remark @below {{tiled into 2 loops}}
  %r = linalg.matmul {__root__} ins(%p, %y : tensor<20x12xf32>, tensor<12x16xf32>) outs(%f : tensor<20x16xf32>) -> tensor<20x16xf32>
  return %r : tensor<20x16xf32>
}

// -----

// A stop that the root does not depend on is told of, one that it depends on by way of a loop around it is not.
// CHECK-LABEL: func.func @idle_stop
func.func @idle_stop(%a: tensor<12x8xf32>, %b: tensor<8x16xf32>, %n: index) -> (tensor<12x16xf32>, tensor<12x16xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<12x16xf32>
  %o0 = linalg.fill ins(%zero : f32) outs(%e : tensor<12x16xf32>) -> tensor<12x16xf32>
  %x = linalg.exp {__stop__} ins(%a : tensor<12x8xf32>) outs(%a : tensor<12x8xf32>) -> tensor<12x8xf32>
  %l = scf.for %i = %c0 to %n step %c1 iter_args(%acc = %o0) -> (tensor<12x16xf32>) {
    // expected-remark@below {{tiled into 2 loops}}
    %o = linalg.matmul {__root__} ins(%x, %b : tensor<12x8xf32>, tensor<8x16xf32>) outs(%acc : tensor<12x16xf32>) -> tensor<12x16xf32>
    scf.yield %o : tensor<12x16xf32>
  }
  // expected-warning@below {{'linalg.exp' is marked as a stop, but stops nothing: it is no producer of the op to tile ('linalg.matmul'); mark an op on the way to it, or no stop}}
  %y = linalg.exp {__stop__} ins(%l : tensor<12x16xf32>) outs(%o0 : tensor<12x16xf32>) -> tensor<12x16xf32>
  return %l, %y : tensor<12x16xf32>, tensor<12x16xf32>
}
