// RUN: attn-opt %s --split-input-file --verify-diagnostics --exp-to-exp2 | FileCheck %s
// RUN: attn-opt %s --split-input-file --exp-to-exp2 --decompose-linalg-ext | FileCheck %s --check-prefix=LINALG

// log2(e) goes into the scale, through the mask; the maximum that others read is multiplied by ln 2.
// CHECK-LABEL: func.func @scaled_and_masked
// CHECK:       %[[SCALE:.*]] = arith.constant 0.180336878 : f32
// CHECK:       arith.mulf %{{.*}}, %[[SCALE]] : f32
// CHECK:       %[[P:.*]]:4 = linalg_ext.softmax {exp2} dimension(1)
// CHECK:       %[[LN2:.*]] = arith.constant 0.693147182 : f32
// CHECK:       %[[M:.*]] = linalg.generic {{.*}} ins(%[[P]]#1 : tensor<4xf32>)
// CHECK:         arith.mulf %{{.*}}, %[[LN2]] : f32
// CHECK:       linalg.generic {{.*}} ins(%[[M]], %[[P]]#2 :
// LINALG-LABEL: func.func @scaled_and_masked
// LINALG-COUNT-2: math.exp2
#row = affine_map<(i) -> (i)>
#id = affine_map<(i, j) -> (i, j)>
func.func @scaled_and_masked(%s: tensor<4x8xf32>) -> (tensor<4x8xf32>, tensor<4xf32>) {
  %zero = arith.constant 0.0 : f32
  %minus_inf = arith.constant 0xFF800000 : f32
  %scale = arith.constant 0.125 : f32
  %e0 = tensor.empty() : tensor<4x8xf32>
  %e1 = tensor.empty() : tensor<4xf32>
  %m = linalg.fill ins(%minus_inf : f32) outs(%e1 : tensor<4xf32>) -> tensor<4xf32>
  %a = linalg.fill ins(%zero : f32) outs(%e1 : tensor<4xf32>) -> tensor<4xf32>
  %x = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%s : tensor<4x8xf32>) outs(%e0 : tensor<4x8xf32>) {
  ^bb0(%in: f32, %out: f32):
    %i = linalg.index 0 : index
    %j = linalg.index 1 : index
    %late = arith.cmpi sgt, %j, %i : index
    %y = arith.mulf %in, %scale : f32
    %z = arith.select %late, %minus_inf, %y : f32
    linalg.yield %z : f32
  } -> tensor<4x8xf32>
  // expected-remark @+1 {{computes exp2, with log2(e) in the constants before it}}
  %p:4 = linalg_ext.softmax dimension(1) ins(%x : tensor<4x8xf32>) outs(%e0, %m, %a, %e1 : tensor<4x8xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) : tensor<4x8xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
  %lse = linalg.generic {indexing_maps = [#row, #row, #row], iterator_types = ["parallel"]} ins(%p#1, %p#2 : tensor<4xf32>, tensor<4xf32>) outs(%e1 : tensor<4xf32>) {
  ^bb0(%top: f32, %sum: f32, %out: f32):
    %l = math.log %sum : f32
    %y = arith.addf %top, %l : f32
    linalg.yield %y : f32
  } -> tensor<4xf32>
  return %p#0, %lse : tensor<4x8xf32>, tensor<4xf32>
}

// -----

// A maximum that is returned is one of the scores.
// CHECK-LABEL: func.func @returned
// CHECK:       %[[P:.*]]:4 = linalg_ext.softmax dimension(1)
// CHECK:       return %[[P]]#1, %[[P]]#2
// LINALG-LABEL: func.func @returned
#id = affine_map<(i, j) -> (i, j)>
func.func @returned(%s: tensor<4x8xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  %zero = arith.constant 0.0 : f32
  %minus_inf = arith.constant 0xFF800000 : f32
  %scale = arith.constant 0.125 : f32
  %e0 = tensor.empty() : tensor<4x8xf32>
  %e1 = tensor.empty() : tensor<4xf32>
  %m = linalg.fill ins(%minus_inf : f32) outs(%e1 : tensor<4xf32>) -> tensor<4xf32>
  %a = linalg.fill ins(%zero : f32) outs(%e1 : tensor<4xf32>) -> tensor<4xf32>
  %x = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%s : tensor<4x8xf32>) outs(%e0 : tensor<4x8xf32>) {
  ^bb0(%in: f32, %out: f32):
    %y = arith.mulf %in, %scale : f32
    linalg.yield %y : f32
  } -> tensor<4x8xf32>
  // expected-remark @+1 {{'linalg_ext.softmax' stays with exp: its maximum is a result, which others may make exponentials relative to}}
  %p:4 = linalg_ext.softmax dimension(1) ins(%x : tensor<4x8xf32>) outs(%e0, %m, %a, %e1 : tensor<4x8xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) : tensor<4x8xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
  return %p#1, %p#2 : tensor<4xf32>, tensor<4xf32>
}

// -----

// Never through tanh.
// CHECK-LABEL: func.func @capped
// CHECK:       linalg_ext.softmax dimension(1)
// LINALG-LABEL: func.func @capped
// LINALG:       %[[LOG2E:.*]] = arith.constant 1.44269502 : f32
// LINALG:       arith.mulf %{{.*}}, %[[LOG2E]]
// LINALG-NEXT:  math.exp2
#id = affine_map<(i, j) -> (i, j)>
func.func @capped(%s: tensor<4x8xf32>, %a: tensor<4xf32>) -> tensor<4x8xf32> {
  %minus_inf = arith.constant 0xFF800000 : f32
  %scale = arith.constant 0.125 : f32
  %e0 = tensor.empty() : tensor<4x8xf32>
  %m = linalg.fill ins(%minus_inf : f32) outs(%a : tensor<4xf32>) -> tensor<4xf32>
  %x = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%s : tensor<4x8xf32>) outs(%e0 : tensor<4x8xf32>) {
  ^bb0(%in: f32, %out: f32):
    %y = arith.mulf %in, %scale : f32
    %z = math.tanh %y : f32
    linalg.yield %z : f32
  } -> tensor<4x8xf32>
  // expected-remark @+1 {{'linalg_ext.softmax' stays with exp: the result of 'math.tanh' would have to be multiplied by log2(e)}}
  %p:4 = linalg_ext.softmax dimension(1) ins(%x : tensor<4x8xf32>) outs(%e0, %m, %a, %a : tensor<4x8xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) : tensor<4x8xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
  return %p#0 : tensor<4x8xf32>
}

// -----

// A bias that is loaded would need a multiplication of its own.
// CHECK-LABEL: func.func @biased
// CHECK:       linalg_ext.softmax dimension(1)
#id = affine_map<(i, j) -> (i, j)>
func.func @biased(%s: tensor<4x8xf32>, %bias: tensor<4x8xf32>, %a: tensor<4xf32>) -> tensor<4x8xf32> {
  %minus_inf = arith.constant 0xFF800000 : f32
  %scale = arith.constant 0.125 : f32
  %e0 = tensor.empty() : tensor<4x8xf32>
  %m = linalg.fill ins(%minus_inf : f32) outs(%a : tensor<4xf32>) -> tensor<4xf32>
  %x = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]} ins(%s, %bias : tensor<4x8xf32>, tensor<4x8xf32>) outs(%e0 : tensor<4x8xf32>) {
  ^bb0(%in: f32, %b: f32, %out: f32):
    %y = arith.mulf %in, %scale : f32
    %z = arith.addf %y, %b : f32
    linalg.yield %z : f32
  } -> tensor<4x8xf32>
  // expected-remark @+1 {{'linalg_ext.softmax' stays with exp: an argument would have to be multiplied by log2(e)}}
  %p:4 = linalg_ext.softmax dimension(1) ins(%x : tensor<4x8xf32>) outs(%e0, %m, %a, %a : tensor<4x8xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) : tensor<4x8xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
  return %p#0 : tensor<4x8xf32>
}

// -----

// The maximum is subtracted from the same scores once more: they are to be the same numbers.
// CHECK-LABEL: func.func @scores_made_twice
// CHECK:       linalg_ext.softmax dimension(1)
// LINALG-LABEL: func.func @scores_made_twice
#id = affine_map<(i, j) -> (i, j)>
#row = affine_map<(i, j) -> (i)>
func.func @scores_made_twice(%s: tensor<4x8xf32>) -> (tensor<4xf32>, tensor<4x8xf32>) {
  %zero = arith.constant 0.0 : f32
  %minus_inf = arith.constant 0xFF800000 : f32
  %scale = arith.constant 0.125 : f32
  %e0 = tensor.empty() : tensor<4x8xf32>
  %e1 = tensor.empty() : tensor<4xf32>
  %m = linalg.fill ins(%minus_inf : f32) outs(%e1 : tensor<4xf32>) -> tensor<4xf32>
  %a = linalg.fill ins(%zero : f32) outs(%e1 : tensor<4xf32>) -> tensor<4xf32>
  %x = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%s : tensor<4x8xf32>) outs(%e0 : tensor<4x8xf32>) {
  ^bb0(%in: f32, %out: f32):
    %y = arith.mulf %in, %scale : f32
    linalg.yield %y : f32
  } -> tensor<4x8xf32>
  // expected-remark @+1 {{'linalg_ext.softmax' stays with exp: scores are made once more, for their maximum}}
  %p:4 = linalg_ext.softmax dimension(1) ins(%x : tensor<4x8xf32>) outs(%e0, %m, %a, %e1 : tensor<4x8xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) : tensor<4x8xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
  %o = scf.forall (%i) in (4) shared_outs(%all = %e1) -> (tensor<4xf32>) {
    %one = tensor.extract_slice %p#1[%i] [1] [1] : tensor<4xf32> to tensor<1xf32>
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %one into %all[%i] [1] [1] : tensor<1xf32> into tensor<4xf32>
    }
  }
  %w = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]} ins(%s, %o : tensor<4x8xf32>, tensor<4xf32>) outs(%e0 : tensor<4x8xf32>) {
  ^bb0(%in: f32, %top: f32, %out: f32):
    %live = arith.cmpf une, %top, %minus_inf : f32
    %base = arith.select %live, %top, %zero : f32
    %y = arith.mulf %in, %scale : f32
    %d = arith.subf %y, %base : f32
    %e = math.exp %d : f32
    linalg.yield %e : f32
  } -> tensor<4x8xf32>
  return %p#2, %w : tensor<4xf32>, tensor<4x8xf32>
}
