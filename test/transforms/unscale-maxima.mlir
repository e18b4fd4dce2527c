// RUN: attn-opt %s --split-input-file --unscale-maxima --canonicalize | FileCheck %s

#id = affine_map<(j, i) -> (j, i)>
#row = affine_map<(j, i) -> (i)>
#i = affine_map<(i) -> (i)>
#none = affine_map<(i) -> ()>

// A loop carries the maximum of scores; differences are scaled, and what else uses the maximum scales it.
// CHECK-LABEL: func.func @running
// CHECK-DAG:   %[[C:.*]] = arith.constant 1.250000e-01 : f32
// CHECK:       %[[LOOP:.*]]:2 = scf.for {{.*}} iter_args(%[[OLD:.*]] = %{{.*}}, %{{.*}} = %{{.*}})
// CHECK:         %[[N:.*]] = linalg.generic {{.*}} ins(%[[S:.*]] : tensor<4x8xf32>) outs
// CHECK:           arith.maxnumf
// CHECK:         %[[M:.*]]:2 = linalg.generic {{.*}} ins(%[[N]] : tensor<8xf32>) outs(%[[OLD]]
// CHECK-NEXT:    ^bb0(%[[A:.*]]: f32, %[[B:.*]]: f32, %{{.*}}: f32):
// CHECK-NEXT:      %[[MAX:.*]] = arith.maxnumf %[[B]], %[[A]]
// CHECK-NEXT:      %[[DEAD:.*]] = arith.cmpf oeq, %[[MAX]], %{{.*}}
// CHECK-NEXT:      %[[SAFE:.*]] = arith.select %[[DEAD]], %{{.*}}, %[[MAX]]
// CHECK-NEXT:      %[[D:.*]] = arith.subf %[[B]], %[[SAFE]]
// CHECK-NEXT:      %[[X:.*]] = arith.mulf %[[D]], %[[C]]
// CHECK-NEXT:      %[[E:.*]] = math.exp2 %[[X]]
// CHECK-NEXT:      linalg.yield %[[MAX]], %[[E]]
// CHECK:         linalg.generic {{.*}} ins(%[[M]]#0 : tensor<8xf32>) outs(%[[S]] : tensor<4x8xf32>)
// CHECK-NEXT:    ^bb0(%[[M1:.*]]: f32, %[[S1:.*]]: f32):
// CHECK-NEXT:      %[[D1:.*]] = arith.subf %[[S1]], %[[M1]]
// CHECK-NEXT:      %[[X1:.*]] = arith.mulf %[[D1]], %[[C]]
// CHECK-NEXT:      math.exp2 %[[X1]]
// CHECK:         scf.yield %[[M]]#0
// CHECK:       linalg.generic {{.*}} ins(%[[LOOP]]#0 : tensor<8xf32>)
// CHECK-NEXT:  ^bb0(%[[END:.*]]: f32, %[[LOG:.*]]: f32):
// CHECK-NEXT:    %[[SCALED:.*]] = arith.mulf %[[END]], %[[C]]
// CHECK-NEXT:    arith.addf %[[LOG]], %[[SCALED]]
func.func @running(%tiles: tensor<16x8xf32>, %logs: tensor<8xf32>) -> (tensor<8xf32>, tensor<4x8xf32>) {
  %c0 = arith.constant 0 : index
  %c4 = arith.constant 4 : index
  %c16 = arith.constant 16 : index
  %zero = arith.constant 0.0 : f32
  %least = arith.constant 0xFF800000 : f32
  %scale = arith.constant 0.125 : f32
  %r = tensor.empty() : tensor<8xf32>
  %p0 = tensor.empty() : tensor<4x8xf32>
  %start = linalg.generic {indexing_maps = [#none, #i], iterator_types = ["parallel"]} ins(%least : f32) outs(%r : tensor<8xf32>) {
  ^bb0(%in: f32, %out: f32):
    linalg.yield %in : f32
  } -> tensor<8xf32>
  %loop:2 = scf.for %k = %c0 to %c16 step %c4 iter_args(%old = %start, %before = %p0) -> (tensor<8xf32>, tensor<4x8xf32>) {
    %s = tensor.extract_slice %tiles[%k, 0] [4, 8] [1, 1] : tensor<16x8xf32> to tensor<4x8xf32>
    %n = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["reduction", "parallel"]} ins(%s : tensor<4x8xf32>) outs(%start : tensor<8xf32>) {
    ^bb0(%in: f32, %out: f32):
      %x = arith.maxnumf %in, %out : f32
      linalg.yield %x : f32
    } -> tensor<8xf32>
    %t = linalg.generic {indexing_maps = [#i, #i], iterator_types = ["parallel"]} ins(%n : tensor<8xf32>) outs(%r : tensor<8xf32>) {
    ^bb0(%in: f32, %out: f32):
      %x = arith.mulf %in, %scale : f32
      linalg.yield %x : f32
    } -> tensor<8xf32>
    %m:2 = linalg.generic {indexing_maps = [#i, #i, #i], iterator_types = ["parallel"]} ins(%t : tensor<8xf32>) outs(%old, %r : tensor<8xf32>, tensor<8xf32>) {
    ^bb0(%in: f32, %out: f32, %factor: f32):
      %max = arith.maxnumf %out, %in : f32
      %dead = arith.cmpf oeq, %max, %least : f32
      %safe = arith.select %dead, %zero, %max : f32
      %x = arith.subf %out, %safe : f32
      %e = math.exp2 %x : f32
      linalg.yield %max, %e : f32, f32
    } -> (tensor<8xf32>, tensor<8xf32>)
    %p = linalg.generic {indexing_maps = [#row, #id], iterator_types = ["parallel", "parallel"]} ins(%m#0 : tensor<8xf32>) outs(%s : tensor<4x8xf32>) {
    ^bb0(%in: f32, %out: f32):
      %scaled = arith.mulf %out, %scale {linalg_ext.rounded_first} : f32
      %x = arith.subf %scaled, %in : f32
      %e = math.exp2 %x : f32
      linalg.yield %e : f32
    } -> tensor<4x8xf32>
    scf.yield %m#0, %p : tensor<8xf32>, tensor<4x8xf32>
  }
  %lse = linalg.generic {indexing_maps = [#i, #i], iterator_types = ["parallel"]} ins(%loop#0 : tensor<8xf32>) outs(%logs : tensor<8xf32>) {
  ^bb0(%in: f32, %out: f32):
    %x = arith.addf %out, %in : f32
    linalg.yield %x : f32
  } -> tensor<8xf32>
  return %lse, %loop#1 : tensor<8xf32>, tensor<4x8xf32>
}

// -----

#id = affine_map<(j, i) -> (j, i)>
#row = affine_map<(j, i) -> (i)>
#i = affine_map<(i) -> (i)>

// A maximum that is returned stays what it is.
// CHECK-LABEL: func.func @returned
// CHECK:       arith.maxnumf
// CHECK:       arith.mulf
// CHECK:       arith.mulf {{.*}} {linalg_ext.rounded_first}
// CHECK-NEXT:  arith.subf
func.func @returned(%s: tensor<4x8xf32>, %start: tensor<8xf32>) -> (tensor<8xf32>, tensor<4x8xf32>) {
  %scale = arith.constant 0.125 : f32
  %r = tensor.empty() : tensor<8xf32>
  %n = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["reduction", "parallel"]} ins(%s : tensor<4x8xf32>) outs(%start : tensor<8xf32>) {
  ^bb0(%in: f32, %out: f32):
    %x = arith.maxnumf %in, %out : f32
    linalg.yield %x : f32
  } -> tensor<8xf32>
  %t = linalg.generic {indexing_maps = [#i, #i], iterator_types = ["parallel"]} ins(%n : tensor<8xf32>) outs(%r : tensor<8xf32>) {
  ^bb0(%in: f32, %out: f32):
    %x = arith.mulf %in, %scale : f32
    linalg.yield %x : f32
  } -> tensor<8xf32>
  %p = linalg.generic {indexing_maps = [#row, #id], iterator_types = ["parallel", "parallel"]} ins(%t : tensor<8xf32>) outs(%s : tensor<4x8xf32>) {
  ^bb0(%in: f32, %out: f32):
    %scaled = arith.mulf %out, %scale {linalg_ext.rounded_first} : f32
    %x = arith.subf %scaled, %in : f32
    %e = math.exp2 %x : f32
    linalg.yield %e : f32
  } -> tensor<4x8xf32>
  return %t, %p : tensor<8xf32>, tensor<4x8xf32>
}
