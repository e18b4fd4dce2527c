// RUN: attn-opt %s --split-input-file --verify-diagnostics --transform-interpreter

func.func @no_match(%a: tensor<4xf32>) -> tensor<4xf32> {
  return %a : tensor<4xf32>
}
transform.sequence failures(propagate) {
^bb0(%m: !pdl.operation):
  %root = transform.structured.match attributes {__root__} in %m : (!pdl.operation) -> !pdl.operation
  // expected-error@below {{the handle of the op to tile is empty; the match before it found nothing}}
  %t, %loop = transform.structured.fuse_ext %root {tile_sizes = [4]}
}

// -----

func.func @interchange(%a: tensor<20x12xf32>, %b: tensor<12x16xf32>, %c: tensor<20x16xf32>) -> tensor<20x16xf32> {
  // expected-error@below {{tile_interchange must be a permutation of 0…2, the loops of 'linalg.matmul', but got [0, 0, 1]}}
  %r = linalg.matmul {__root__} ins(%a, %b : tensor<20x12xf32>, tensor<12x16xf32>) outs(%c : tensor<20x16xf32>) -> tensor<20x16xf32>
  return %r : tensor<20x16xf32>
}
transform.sequence failures(propagate) {
^bb0(%m: !pdl.operation):
  %root = transform.structured.match attributes {__root__} in %m : (!pdl.operation) -> !pdl.operation
  %t, %loop = transform.structured.fuse_ext %root {tile_sizes = [4], tile_interchange = [0, 0, 1]}
}

// -----

func.func @too_many(%a: tensor<20x12xf32>, %b: tensor<12x16xf32>, %c: tensor<20x16xf32>) -> tensor<20x16xf32> {
  // expected-error@below {{4 tile sizes given, but 'linalg.matmul' has 3 loops}}
  %r = linalg.matmul {__root__} ins(%a, %b : tensor<20x12xf32>, tensor<12x16xf32>) outs(%c : tensor<20x16xf32>) -> tensor<20x16xf32>
  return %r : tensor<20x16xf32>
}
transform.sequence failures(propagate) {
^bb0(%m: !pdl.operation):
  %root = transform.structured.match attributes {__root__} in %m : (!pdl.operation) -> !pdl.operation
  %t, %loop:2 = transform.structured.fuse_ext %root {tile_sizes = [4, 0, 0, 2]}
}

// -----

func.func @not_tileable(%a: tensor<4xf32>) -> tensor<4xf32> {
  return %a : tensor<4xf32>
}
transform.sequence failures(propagate) {
^bb0(%m: !pdl.operation):
  %root = transform.structured.match ops{["func.return"]} in %m : (!pdl.operation) -> !pdl.operation
  // expected-error@-5 {{'func.return' cannot be tiled: it is no structured op on tensors}}
  %t, %loop = transform.structured.fuse_ext %root {tile_sizes = [4]}
}

// -----

func.func @loops(%a: tensor<4xf32>) -> tensor<4xf32> {
  return %a : tensor<4xf32>
}
transform.sequence failures(propagate) {
^bb0(%m: !pdl.operation):
  %root = transform.structured.match attributes {__root__} in %m : (!pdl.operation) -> !pdl.operation
  // expected-error@below {{expects a loop handle for each of the 1 nonzero tile sizes, but found 2}}
  %t, %loop:2 = transform.structured.fuse_ext %root {tile_sizes = [4]}
}

// -----

// expected-error@below {{the module holds no transform script}}
module {
}

// -----

func.func @upstream(%a: tensor<8x8xf32>, %b: tensor<8x8xf32>, %c: tensor<8x8xf32>) -> tensor<8x8xf32> {
  %r = linalg.matmul {__root__} ins(%a, %b : tensor<8x8xf32>, tensor<8x8xf32>) outs(%c : tensor<8x8xf32>) -> tensor<8x8xf32>
  return %r : tensor<8x8xf32>
}
transform.sequence failures(propagate) {
^bb0(%m: !transform.any_op):
  %root = transform.structured.match attributes {__root__} in %m : (!transform.any_op) -> !transform.any_op
  // expected-error@below {{failed to unroll, incorrect type of payload}}
  transform.loop.unroll %root {factor = 2} : !transform.any_op
}

// -----

func.func @no_outs(%a: tensor<*xf32>) -> tensor<4x4xf32> {
  // expected-error@below {{'tensor.cast' cannot be tiled: it is no structured op on tensors}}
  %r = tensor.cast %a {__root__} : tensor<*xf32> to tensor<4x4xf32>
  return %r : tensor<4x4xf32>
}
transform.sequence failures(propagate) {
^bb0(%m: !pdl.operation):
  %root = transform.structured.match attributes {__root__} in %m : (!pdl.operation) -> !pdl.operation
  %t, %loop = transform.structured.fuse_ext %root {tile_sizes = [2]}
}

// -----

// Stops that stop nothing are told of: an op that the root does not depend on, no op at all.
func.func @idle_stops(%a: tensor<20x12xf32>, %b: tensor<12x16xf32>, %c: tensor<20x16xf32>) -> (tensor<20x16xf32>, tensor<20x12xf32>) {
  // expected-warning@below {{'linalg.exp' is marked as a stop, but stops nothing: it is no producer of the op to tile ('linalg.matmul')}}
  %e = linalg.exp {__stop__} ins(%a : tensor<20x12xf32>) outs(%a : tensor<20x12xf32>) -> tensor<20x12xf32>
  // expected-remark@below {{tiled into 1 loops, fused with nothing}}
  %r = linalg.matmul {__root__} ins(%a, %b : tensor<20x12xf32>, tensor<12x16xf32>) outs(%c : tensor<20x16xf32>) -> tensor<20x16xf32>
  return %r, %e : tensor<20x16xf32>, tensor<20x12xf32>
}
transform.sequence failures(propagate) {
^bb0(%m: !pdl.operation):
  %root = transform.structured.match attributes {__root__} in %m : (!pdl.operation) -> !pdl.operation
  %stop = transform.structured.match attributes {__stop__} in %m : (!pdl.operation) -> !pdl.operation
  %none = transform.structured.match attributes {__nowhere__} in %m : (!pdl.operation) -> !pdl.operation
  // expected-warning@below {{the handle of a stop is empty, and stops nothing; the match before it found nothing}}
  %t, %loop = transform.structured.fuse_ext %root, %stop, %none {tile_sizes = [4]}
}
