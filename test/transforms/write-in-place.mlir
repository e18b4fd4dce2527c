// RUN: attn-opt %s --write-in-place | FileCheck %s

#id = affine_map<(i, j) -> (i, j)>
#row = affine_map<(i, j) -> (i)>

// CHECK-LABEL: func.func @rescaled
// CHECK:       scf.for {{.*}} iter_args(%[[O:.*]] = %{{.*}})
// CHECK:         linalg.generic {{.*}} ins(%{{.*}} : tensor<4xf32>) outs(%[[O]] : tensor<4x8xf32>)
// CHECK-NEXT:    ^bb0(%[[A:.*]]: f32, %[[B:.*]]: f32):
// CHECK-NEXT:      arith.mulf %[[A]], %[[B]]
func.func @rescaled(%s: tensor<4xf32>, %o: tensor<4x8xf32>, %n: index) -> tensor<4x8xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %r = scf.for %i = %c0 to %n step %c1 iter_args(%c = %o) -> (tensor<4x8xf32>) {
    %e = tensor.empty() : tensor<4x8xf32>
    %x = linalg.generic {indexing_maps = [#row, #id, #id], iterator_types = ["parallel", "parallel"]} ins(%s, %c : tensor<4xf32>, tensor<4x8xf32>) outs(%e : tensor<4x8xf32>) {
    ^bb0(%a: f32, %b: f32, %out: f32):
      %y = arith.mulf %a, %b : f32
      linalg.yield %y : f32
    } -> tensor<4x8xf32>
    scf.yield %x : tensor<4x8xf32>
  }
  return %r : tensor<4x8xf32>
}

// Arguments are the caller's; the first of two users leaves the tile to the second.
// CHECK-LABEL: func.func @needed
// CHECK:       linalg.generic {{.*}} ins(%arg0 : tensor<4x8xf32>)
// CHECK:       linalg.generic {{.*}} ins(%{{.*}} : tensor<4x8xf32>)
// CHECK:       linalg.generic {{.*}} ins(%{{.*}} : tensor<4x8xf32>)
func.func @needed(%a: tensor<4x8xf32>) -> (tensor<4x8xf32>, tensor<4x8xf32>) {
  %e0 = tensor.empty() : tensor<4x8xf32>
  %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%a : tensor<4x8xf32>) outs(%e0 : tensor<4x8xf32>) {
  ^bb0(%in: f32, %out: f32):
    %y = math.exp2 %in : f32
    linalg.yield %y : f32
  } -> tensor<4x8xf32>
  %e1 = tensor.empty() : tensor<4x8xf32>
  %1 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%0 : tensor<4x8xf32>) outs(%e1 : tensor<4x8xf32>) {
  ^bb0(%in: f32, %out: f32):
    %y = math.exp2 %in : f32
    linalg.yield %y : f32
  } -> tensor<4x8xf32>
  %e2 = tensor.empty() : tensor<4x8xf32>
  %2 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%0 : tensor<4x8xf32>) outs(%e2 : tensor<4x8xf32>) {
  ^bb0(%in: f32, %out: f32):
    %y = arith.negf %in : f32
    linalg.yield %y : f32
  } -> tensor<4x8xf32>
  return %1, %2 : tensor<4x8xf32>, tensor<4x8xf32>
}

// What a loop carries is written over in each of two branches, of which one is taken; a third one leaves it as it is.
// CHECK-LABEL: func.func @branches
// CHECK:       scf.for {{.*}} iter_args(%[[C:.*]] = %{{.*}})
// CHECK:         linalg.generic {{.*}} outs(%[[C]] : tensor<4x8xf32>)
// CHECK:         linalg.generic {{.*}} outs(%[[C]] : tensor<4x8xf32>)
func.func @branches(%s: tensor<4xf32>, %o: tensor<4x8xf32>, %n: index, %p: i1, %q: i1) -> tensor<4x8xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %r = scf.for %i = %c0 to %n step %c1 iter_args(%c = %o) -> (tensor<4x8xf32>) {
    %t = scf.if %p -> tensor<4x8xf32> {
      scf.yield %c : tensor<4x8xf32>
    } else {
      %u = scf.if %q -> tensor<4x8xf32> {
        %e = tensor.empty() : tensor<4x8xf32>
        %x = linalg.generic {indexing_maps = [#row, #id, #id], iterator_types = ["parallel", "parallel"]} ins(%s, %c : tensor<4xf32>, tensor<4x8xf32>) outs(%e : tensor<4x8xf32>) {
        ^bb0(%a: f32, %b: f32, %out: f32):
          %y = arith.mulf %a, %b : f32
          linalg.yield %y : f32
        } -> tensor<4x8xf32>
        scf.yield %x : tensor<4x8xf32>
      } else {
        %e = tensor.empty() : tensor<4x8xf32>
        %x = linalg.generic {indexing_maps = [#row, #id, #id], iterator_types = ["parallel", "parallel"]} ins(%s, %c : tensor<4xf32>, tensor<4x8xf32>) outs(%e : tensor<4x8xf32>) {
        ^bb0(%a: f32, %b: f32, %out: f32):
          %y = arith.addf %a, %b : f32
          linalg.yield %y : f32
        } -> tensor<4x8xf32>
        scf.yield %x : tensor<4x8xf32>
      }
      scf.yield %u : tensor<4x8xf32>
    }
    scf.yield %t : tensor<4x8xf32>
  }
  return %r : tensor<4x8xf32>
}

// After a branch it is needed again.
// CHECK-LABEL: func.func @needed_after
// CHECK:       scf.for {{.*}} iter_args(%[[C:.*]] = %{{.*}})
// CHECK:         linalg.generic {{.*}} ins(%[[C]] : tensor<4x8xf32>)
func.func @needed_after(%o: tensor<4x8xf32>, %n: index, %p: i1) -> tensor<4x8xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %r = scf.for %i = %c0 to %n step %c1 iter_args(%c = %o) -> (tensor<4x8xf32>) {
    %t = scf.if %p -> tensor<4x8xf32> {
      scf.yield %c : tensor<4x8xf32>
    } else {
      %e = tensor.empty() : tensor<4x8xf32>
      %x = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%c : tensor<4x8xf32>) outs(%e : tensor<4x8xf32>) {
      ^bb0(%b: f32, %out: f32):
        %y = math.exp2 %b : f32
        linalg.yield %y : f32
      } -> tensor<4x8xf32>
      scf.yield %x : tensor<4x8xf32>
    }
    %u = arith.addf %t, %c : tensor<4x8xf32>
    scf.yield %u : tensor<4x8xf32>
  }
  return %r : tensor<4x8xf32>
}
