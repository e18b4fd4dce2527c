// RUN: attn-opt %s --transform-interpreter | FileCheck %s

// The script may be in a module of its own, as upstream's tests have it; that module is gone afterwards.
// CHECK-LABEL: func.func @product
// CHECK:         scf.for
// CHECK:           linalg.matmul {__root__}
// CHECK-NOT:     transform
// CHECK-NOT:   module
func.func @product(%a: tensor<20x12xf32>, %b: tensor<12x16xf32>, %c: tensor<20x16xf32>) -> tensor<20x16xf32> {
  %r = linalg.matmul {__root__} ins(%a, %b : tensor<20x12xf32>, tensor<12x16xf32>)
                                outs(%c : tensor<20x16xf32>) -> tensor<20x16xf32>
  return %r : tensor<20x16xf32>
}

module attributes {transform.with_named_sequence} {
  transform.named_sequence @__transform_main(%m: !transform.any_op) {
    %root = transform.structured.match attributes {__root__} in %m : (!transform.any_op) -> !transform.any_op
    %t, %loop = transform.structured.fuse_ext %root {tile_sizes = [5]}
    transform.yield
  }
}
