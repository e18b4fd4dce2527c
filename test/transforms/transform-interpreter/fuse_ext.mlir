// RUN: attn-opt %s --split-input-file --transform-interpreter | FileCheck %s

// A stop keeps its op, and what only it needs, before the loops; what is fused is computed tile by tile.
// CHECK-LABEL: func.func @stop
// CHECK:         linalg.matmul {__stop__}
// CHECK:         scf.for
// CHECK:           linalg.exp
// CHECK-NOT:       __stop__
// CHECK:           linalg.matmul {__root__}
// CHECK-NOT:     transform.
func.func @stop(%x: tensor<20x12xf32>, %w: tensor<12x8xf32>, %y: tensor<8x16xf32>) -> tensor<20x16xf32> {
  %zero = arith.constant 0.0 : f32
  %e0 = tensor.empty() : tensor<20x8xf32>
  %e1 = tensor.empty() : tensor<20x16xf32>
  %p0 = linalg.fill ins(%zero : f32) outs(%e0 : tensor<20x8xf32>) -> tensor<20x8xf32>
  %r0 = linalg.fill ins(%zero : f32) outs(%e1 : tensor<20x16xf32>) -> tensor<20x16xf32>
  %p = linalg.matmul {__stop__} ins(%x, %w : tensor<20x12xf32>, tensor<12x8xf32>) outs(%p0 : tensor<20x8xf32>) -> tensor<20x8xf32>
  %e = linalg.exp ins(%p : tensor<20x8xf32>) outs(%e0 : tensor<20x8xf32>) -> tensor<20x8xf32>
  %r = linalg.matmul {__root__} ins(%e, %y : tensor<20x8xf32>, tensor<8x16xf32>) outs(%r0 : tensor<20x16xf32>) -> tensor<20x16xf32>
  return %r : tensor<20x16xf32>
}

transform.sequence failures(propagate) {
^bb0(%m: !pdl.operation):
  %root = transform.structured.match attributes {__root__} in %m : (!pdl.operation) -> !pdl.operation
  %stop = transform.structured.match attributes {__stop__} in %m : (!pdl.operation) -> !pdl.operation
  %t, %loops:2 = transform.structured.fuse_ext %root, %stop {tile_sizes = [5, 8], tile_interchange = [1, 0, 2]}
  transform.structured.tile_loop_hint %t
  cleanup
}

// -----

// In a named sequence, with !transform.any_op. All loops are parallel: the init is made in the loops.
// CHECK-LABEL: func.func @named
// CHECK-SAME:    %[[A:[^:]*]]: tensor<20x12xf32>, %[[B:[^:]*]]: tensor<12x16xf32>
// CHECK:         %[[E:.*]] = tensor.empty() : tensor<20x16xf32>
// CHECK:         scf.for %[[J:.*]] = %{{.*}} to %c16 step %c8 iter_args(%[[R1:.*]] = %[[E]])
// CHECK:           scf.for %[[I:.*]] = %{{.*}} to %c20 step %c5 iter_args(%[[R:.*]] = %[[R1]])
// CHECK-DAG:         %[[AT:.*]] = tensor.extract_slice %[[A]][%[[I]], 0] [5, 12] [1, 1]
// CHECK-DAG:         %[[BT:.*]] = tensor.extract_slice %[[B]][0, %[[J]]] [12, 8] [1, 1]
// CHECK:             %[[Z:.*]] = linalg.fill {{.*}} -> tensor<5x8xf32>
// CHECK:             %[[T:.*]] = linalg.matmul {__root__} ins(%[[AT]], %[[BT]] : {{.*}}) outs(%[[Z]]
// CHECK:             tensor.insert_slice %[[T]] into %[[R]][%[[I]], %[[J]]] [5, 8] [1, 1]
// CHECK:           } {marked}
module attributes {transform.with_named_sequence} {
  func.func @named(%a: tensor<20x12xf32>, %b: tensor<12x16xf32>) -> tensor<20x16xf32> {
    %zero = arith.constant 0.0 : f32
    %e = tensor.empty() : tensor<20x16xf32>
    %r0 = linalg.fill ins(%zero : f32) outs(%e : tensor<20x16xf32>) -> tensor<20x16xf32>
    %r = linalg.matmul {__root__} ins(%a, %b : tensor<20x12xf32>, tensor<12x16xf32>) outs(%r0 : tensor<20x16xf32>) -> tensor<20x16xf32>
    return %r : tensor<20x16xf32>
  }
  transform.named_sequence @__transform_main(%m: !transform.any_op) {
    %root = transform.structured.match ops{["linalg.matmul"]} in %m : (!transform.any_op) -> !transform.any_op
    %t, %loops:2 = transform.structured.fuse_ext %root {tile_sizes = [5, 8], tile_interchange = [1, 0, 2]}
    transform.annotate %loops#1 "marked" : !transform.any_op
    transform.yield
  }
}

// -----

// tile_ext tiles and fuses nothing: the init stays before the loop and is updated in place.
// CHECK-LABEL: func.func @tile_only
// CHECK:         %[[INIT:.*]] = linalg.fill
// CHECK:         scf.for %{{.*}} iter_args(%[[R1:.*]] = %[[INIT]])
// CHECK:           scf.for %{{.*}} iter_args(%[[R:.*]] = %[[R1]])
// CHECK:             tensor.extract_slice %[[R]]
// CHECK:             linalg.matmul
// CHECK-NOT:     linalg.fill
func.func @tile_only(%a: tensor<20x12xf32>, %b: tensor<12x16xf32>) -> tensor<20x16xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<20x16xf32>
  %r0 = linalg.fill ins(%zero : f32) outs(%e : tensor<20x16xf32>) -> tensor<20x16xf32>
  %r = linalg.matmul {__root__} ins(%a, %b : tensor<20x12xf32>, tensor<12x16xf32>) outs(%r0 : tensor<20x16xf32>) -> tensor<20x16xf32>
  return %r : tensor<20x16xf32>
}
transform.sequence failures(propagate) {
^bb0(%m: !transform.any_op):
  %root = transform.structured.match attributes {__root__} in %m : (!transform.any_op) -> !transform.any_op
  %t, %loops:2 = transform.structured.tile_ext %root {tile_sizes = [5, 0, 4]}
}

// -----

// Users in other blocks are behind the loops already, and read what these assemble.
// CHECK-LABEL: func.func @in_one_of_several_blocks
// CHECK:         %[[L:.*]]:4 = scf.for
// CHECK:           linalg_ext.softmax
// CHECK:         cf.br ^[[END:.*]]
// CHECK:       ^[[END]]:
// CHECK:         return %[[L]]#0, %[[L]]#1, %[[L]]#3
func.func @in_one_of_several_blocks(%q: tensor<20x8xf32>, %k: tensor<8x24xf32>, %v: tensor<24x8xf32>)
    -> (tensor<20x8xf32>, tensor<20xf32>, tensor<20x24xf32>) {
  %zero = arith.constant 0.0 : f32
  %low = arith.constant 0xFF800000 : f32
  %es = tensor.empty() : tensor<20x24xf32>
  %eo = tensor.empty() : tensor<20x8xf32>
  %er = tensor.empty() : tensor<20xf32>
  %m0 = linalg.fill ins(%low : f32) outs(%er : tensor<20xf32>) -> tensor<20xf32>
  %a0 = linalg.fill ins(%zero : f32) outs(%er : tensor<20xf32>) -> tensor<20xf32>
  %s0 = linalg.fill ins(%zero : f32) outs(%es : tensor<20x24xf32>) -> tensor<20x24xf32>
  %o0 = linalg.fill ins(%zero : f32) outs(%eo : tensor<20x8xf32>) -> tensor<20x8xf32>
  %s = linalg.matmul ins(%q, %k : tensor<20x8xf32>, tensor<8x24xf32>) outs(%s0 : tensor<20x24xf32>) -> tensor<20x24xf32>
  %p:4 = linalg_ext.softmax dimension(1) ins(%s : tensor<20x24xf32>) outs(%es, %m0, %a0, %er : tensor<20x24xf32>, tensor<20xf32>, tensor<20xf32>, tensor<20xf32>) : tensor<20x24xf32>, tensor<20xf32>, tensor<20xf32>, tensor<20xf32>
  %o = linalg.matmul {__root__} ins(%p#0, %v : tensor<20x24xf32>, tensor<24x8xf32>) outs(%o0 : tensor<20x8xf32>) -> tensor<20x8xf32>
  cf.br ^end
^end:
  return %o, %p#1, %s : tensor<20x8xf32>, tensor<20xf32>, tensor<20x24xf32>
}
transform.sequence failures(propagate) {
^bb0(%m: !transform.any_op):
  %root = transform.structured.match attributes {__root__} in %m : (!transform.any_op) -> !transform.any_op
  %t, %loops:2 = transform.structured.fuse_ext %root {tile_sizes = [4, 0, 8]}
}
