// RUN: attn-opt %s --share-elements --split-input-file | FileCheck %s

#id = affine_map<(i, j) -> (i, j)>
#row = affine_map<(i, j) -> (i)>
#column = affine_map<(i, j) -> (j)>

// The second op reads what the first one gives: with the same mask, which leaves nothing of what it hides. It reads no
// more of what that is made of.
// CHECK-LABEL: func.func @result
// CHECK:      %[[P:.*]] = linalg.generic {{.*}} ins(%arg0, %arg1 :
// CHECK:        math.exp2
// CHECK:      %[[D:.*]] = linalg.generic {{.*}} ins(%arg2, %[[P]] :
// CHECK-NOT:    math.exp2
// CHECK:        arith.select
// CHECK:      scf.yield %[[P]], %[[D]]
func.func @result(%s: tensor<8x16xf32>, %n: tensor<8xf32>, %g: tensor<8x16xf32>) -> (tensor<8x16xf32>, tensor<8x16xf32>) {
  %inside:2 = scf.execute_region -> (tensor<8x16xf32>, tensor<8x16xf32>) {
    %zero = arith.constant 0.0 : f32
    %e = tensor.empty() : tensor<8x16xf32>
    %p = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]}
        ins(%s, %n : tensor<8x16xf32>, tensor<8xf32>) outs(%e : tensor<8x16xf32>) {
    ^bb0(%x: f32, %y: f32, %o: f32):
      %i = linalg.index 0 : index
      %j = linalg.index 1 : index
      %c = arith.cmpi sle, %j, %i : index
      %d = arith.subf %x, %y : f32
      %f = math.exp2 %d : f32
      %r = arith.select %c, %f, %zero : f32
      linalg.yield %r : f32
    } -> tensor<8x16xf32>
    %q = linalg.generic {indexing_maps = [#row, #id, #id, #id], iterator_types = ["parallel", "parallel"]}
        ins(%n, %g, %s : tensor<8xf32>, tensor<8x16xf32>, tensor<8x16xf32>) outs(%e : tensor<8x16xf32>) {
    ^bb0(%y: f32, %w: f32, %x: f32, %o: f32):
      %i = linalg.index 0 : index
      %j = linalg.index 1 : index
      %c = arith.cmpi sle, %j, %i : index
      %d = arith.subf %x, %y : f32
      %f = math.exp2 %d : f32
      %t = arith.mulf %f, %w : f32
      %r = arith.select %c, %t, %zero : f32
      linalg.yield %r : f32
    } -> tensor<8x16xf32>
    scf.yield %p, %q : tensor<8x16xf32>, tensor<8x16xf32>
  }
  return %inside#0, %inside#1 : tensor<8x16xf32>, tensor<8x16xf32>
}

// -----

#id = affine_map<(i, j) -> (i, j)>

// What both have in common becomes an op: the first one's result is rounded, or hides what the second one does not.
// CHECK-LABEL: func.func @apart
// CHECK:      %[[T:.*]] = linalg.generic {{.*}} ins(%arg0 :
// CHECK:        arith.mulf
// CHECK:        math.tanh
// CHECK:      } -> tensor<8x?xf32>
// CHECK:      %[[P:.*]] = linalg.generic {{.*}} ins(%[[T]] :
// CHECK-NOT:    math
// CHECK:        arith.truncf
// CHECK:      %[[Q:.*]] = linalg.generic {{.*}} ins(%arg1, %[[T]] :
// CHECK-NOT:    math
// CHECK:        arith.mulf
func.func @apart(%s: tensor<8x?xf32>, %g: tensor<8x?xf32>, %a: tensor<8x?xbf16>) -> (tensor<8x?xbf16>, tensor<8x?xf32>) {
  %inside:2 = scf.execute_region -> (tensor<8x?xbf16>, tensor<8x?xf32>) {
    %two = arith.constant 2.0 : f32
    %p = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
        ins(%s : tensor<8x?xf32>) outs(%a : tensor<8x?xbf16>) {
    ^bb0(%x: f32, %o: bf16):
      %d = arith.mulf %x, %two : f32
      %f = math.tanh %d : f32
      %r = arith.truncf %f : f32 to bf16
      linalg.yield %r : bf16
    } -> tensor<8x?xbf16>
    %q = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
        ins(%s, %g : tensor<8x?xf32>, tensor<8x?xf32>) outs(%g : tensor<8x?xf32>) {
    ^bb0(%x: f32, %w: f32, %o: f32):
      %d = arith.mulf %x, %two : f32
      %f = math.tanh %d : f32
      %r = arith.mulf %f, %w : f32
      linalg.yield %r : f32
    } -> tensor<8x?xf32>
    scf.yield %p, %q : tensor<8x?xbf16>, tensor<8x?xf32>
  }
  return %inside#0, %inside#1 : tensor<8x?xbf16>, tensor<8x?xf32>
}

// -----

#id = affine_map<(i, j) -> (i, j)>

// CHECK-LABEL: func.func @hidden
// CHECK:      %[[T:.*]] = linalg.generic {{.*}} ins(%arg0 :
// CHECK:        math.exp
// CHECK:      linalg.generic {{.*}} ins(%[[T]] :
// CHECK:        arith.select
// CHECK:      linalg.generic {{.*}} ins(%arg1, %[[T]] :
// CHECK-NOT:    math.exp
func.func @hidden(%s: tensor<8x8xf32>, %g: tensor<8x8xf32>) -> (tensor<8x8xf32>, tensor<8x8xf32>) {
  %inside:2 = scf.execute_region -> (tensor<8x8xf32>, tensor<8x8xf32>) {
    %zero = arith.constant 0.0 : f32
    %p = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
        ins(%s : tensor<8x8xf32>) outs(%g : tensor<8x8xf32>) {
    ^bb0(%x: f32, %o: f32):
      %i = linalg.index 0 : index
      %j = linalg.index 1 : index
      %c = arith.cmpi sle, %j, %i : index
      %f = math.exp %x : f32
      %r = arith.select %c, %f, %zero : f32
      linalg.yield %r : f32
    } -> tensor<8x8xf32>
    %q = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
        ins(%s, %g : tensor<8x8xf32>, tensor<8x8xf32>) outs(%g : tensor<8x8xf32>) {
    ^bb0(%x: f32, %w: f32, %o: f32):
      %f = math.exp %x : f32
      %r = arith.mulf %f, %w : f32
      linalg.yield %r : f32
    } -> tensor<8x8xf32>
    scf.yield %p, %q : tensor<8x8xf32>, tensor<8x8xf32>
  }
  return %inside#0, %inside#1 : tensor<8x8xf32>, tensor<8x8xf32>
}

// -----

#id = affine_map<(i, j) -> (i, j)>
#turned = affine_map<(i, j) -> (j, i)>

// Neither what is cheap is shared, nor functions of other elements, nor what reads the result that it is to make.
// CHECK-LABEL: func.func @others
// CHECK-COUNT-3: math.exp
// CHECK-COUNT-3: arith.addf
func.func @others(%s: tensor<8x8xf32>, %g: tensor<8x8xf32>) -> (tensor<8x8xf32>, tensor<8x8xf32>, tensor<8x8xf32>, tensor<8x8xf32>, tensor<8x8xf32>) {
  %inside:5 = scf.execute_region -> (tensor<8x8xf32>, tensor<8x8xf32>, tensor<8x8xf32>, tensor<8x8xf32>, tensor<8x8xf32>) {
    %e = tensor.empty() : tensor<8x8xf32>
    %a = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
        ins(%s : tensor<8x8xf32>) outs(%e : tensor<8x8xf32>) {
    ^bb0(%x: f32, %o: f32):
      %f = math.exp %x : f32
      linalg.yield %f : f32
    } -> tensor<8x8xf32>
    %b = linalg.generic {indexing_maps = [#turned, #id], iterator_types = ["parallel", "parallel"]}
        ins(%s : tensor<8x8xf32>) outs(%e : tensor<8x8xf32>) {
    ^bb0(%x: f32, %o: f32):
      %f = math.exp %x : f32
      linalg.yield %f : f32
    } -> tensor<8x8xf32>
    %c = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
        ins(%s : tensor<8x8xf32>) outs(%g : tensor<8x8xf32>) {
    ^bb0(%x: f32, %o: f32):
      %f = math.exp %x : f32
      %r = arith.addf %f, %o : f32
      linalg.yield %r : f32
    } -> tensor<8x8xf32>
    %d = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
        ins(%s, %g : tensor<8x8xf32>, tensor<8x8xf32>) outs(%e : tensor<8x8xf32>) {
    ^bb0(%x: f32, %y: f32, %o: f32):
      %r = arith.addf %x, %y : f32
      linalg.yield %r : f32
    } -> tensor<8x8xf32>
    %h = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
        ins(%s, %g : tensor<8x8xf32>, tensor<8x8xf32>) outs(%e : tensor<8x8xf32>) {
    ^bb0(%x: f32, %y: f32, %o: f32):
      %t = arith.addf %x, %y : f32
      %r = arith.mulf %t, %t : f32
      linalg.yield %r : f32
    } -> tensor<8x8xf32>
    scf.yield %a, %b, %c, %d, %h : tensor<8x8xf32>, tensor<8x8xf32>, tensor<8x8xf32>, tensor<8x8xf32>, tensor<8x8xf32>
  }
  return %inside#0, %inside#1, %inside#2, %inside#3, %inside#4 : tensor<8x8xf32>, tensor<8x8xf32>, tensor<8x8xf32>, tensor<8x8xf32>, tensor<8x8xf32>
}

// -----

#id = affine_map<(i, j) -> (i, j)>

// Around loops, where tensors go through memory, each op computes its own.
// CHECK-LABEL: func.func @around
// CHECK-COUNT-2: math.exp
func.func @around(%s: tensor<8x8xf32>) -> (tensor<8x8xf32>, tensor<8x8xf32>) {
  %e = tensor.empty() : tensor<8x8xf32>
  %a = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%s : tensor<8x8xf32>) outs(%e : tensor<8x8xf32>) {
  ^bb0(%x: f32, %o: f32):
    %f = math.exp %x : f32
    linalg.yield %f : f32
  } -> tensor<8x8xf32>
  %b = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%s : tensor<8x8xf32>) outs(%e : tensor<8x8xf32>) {
  ^bb0(%x: f32, %o: f32):
    %f = math.exp %x : f32
    %r = arith.negf %f : f32
    linalg.yield %r : f32
  } -> tensor<8x8xf32>
  return %a, %b : tensor<8x8xf32>, tensor<8x8xf32>
}
