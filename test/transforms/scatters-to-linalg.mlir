// RUN: attn-opt %s --split-input-file --scatters-to-linalg | FileCheck %s

// Rows that are added to others, where they fit, one after the other.
// CHECK-DAG:   #[[UPDATES:.*]] = affine_map<(d0, d1, d2) -> (d2)>
// CHECK-DAG:   #[[ALL:.*]] = affine_map<(d0, d1, d2) -> (d0, d1)>
// CHECK-LABEL: func.func @rows
// CHECK-SAME:    (%[[A:.*]]: tensor<8x16xf32>, %[[AT:.*]]: tensor<3xi32>, %[[U:.*]]: tensor<3x16xf32>)
// CHECK:         %[[EMPTY:.*]] = tensor.empty() : tensor<3xi1>
// CHECK:         %[[THREE:.*]] = linalg.fill ins(%{{.*}} : i1) outs(%[[EMPTY]] : tensor<3xi1>)
// CHECK:         %[[R:.*]] = linalg.generic {indexing_maps = [#[[UPDATES]], #[[ALL]]],
// CHECK-SAME:        iterator_types = ["parallel", "parallel", "reduction"]} ins(%[[THREE]] : tensor<3xi1>) outs(%[[A]]
// CHECK-NEXT:    ^bb0(%{{.*}}: i1, %[[OUT:.*]]: f32):
// CHECK-DAG:       %[[I:.*]] = linalg.index 0
// CHECK-DAG:       %[[J:.*]] = linalg.index 1
// CHECK-DAG:       %[[N:.*]] = linalg.index 2
// CHECK:           %[[X:.*]] = tensor.extract %[[AT]][%[[N]]]
// CHECK:           %[[PLACE:.*]] = arith.index_cast %[[X]]
// CHECK:           %[[FITS:.*]] = arith.andi
// CHECK:           %[[W:.*]] = scf.if %[[FITS]] -> (f32) {
// CHECK:             %[[ROW:.*]] = arith.subi %[[I]], %[[PLACE]]
// CHECK:             arith.cmpi ult, %[[ROW]]
// CHECK:             %[[NEW:.*]] = scf.if {{.*}} -> (f32) {
// CHECK:               %[[UPDATE:.*]] = tensor.extract %[[U]][%{{.*}}, %{{.*}}]
// CHECK:               %[[SUM:.*]] = arith.addf %[[OUT]], %[[UPDATE]]
// CHECK:               scf.yield %[[SUM]]
// CHECK:             } else {
// CHECK:               scf.yield %[[OUT]]
// CHECK:             scf.yield %[[NEW]]
// CHECK:           } else {
// CHECK:             scf.yield %[[OUT]]
// CHECK:           linalg.yield %[[W]]
// CHECK-NOT:     scf.for
// CHECK:         return %[[R]]
#id = affine_map<(i) -> (i)>
func.func @rows(%a: tensor<8x16xf32>, %at: tensor<3xi32>, %u: tensor<3x16xf32>) -> tensor<8x16xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c3 = arith.constant 3 : index
  %c7 = arith.constant 7 : index
  %r = scf.for %n = %c0 to %c3 step %c1 iter_args(%out = %a) -> (tensor<8x16xf32>) {
    %x = tensor.extract %at[%n] : tensor<3xi32>
    %i = arith.index_cast %x : i32 to index
    %low = arith.cmpi sge, %i, %c0 : index
    %high = arith.cmpi sle, %i, %c7 : index
    %fits = arith.andi %low, %high : i1
    %w = scf.if %fits -> (tensor<8x16xf32>) {
      %new = tensor.extract_slice %u[%n, 0] [1, 16] [1, 1] : tensor<3x16xf32> to tensor<16xf32>
      %old = tensor.extract_slice %out[%i, 0] [1, 16] [1, 1] : tensor<8x16xf32> to tensor<16xf32>
      %e = tensor.empty() : tensor<16xf32>
      %s = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel"]}
          ins(%old, %new : tensor<16xf32>, tensor<16xf32>) outs(%e : tensor<16xf32>) {
      ^bb0(%p: f32, %q: f32, %_: f32):
        %y = arith.addf %p, %q : f32
        linalg.yield %y : f32
      } -> tensor<16xf32>
      %o = tensor.insert_slice %s into %out[%i, 0] [1, 16] [1, 1] : tensor<16xf32> into tensor<8x16xf32>
      scf.yield %o : tensor<8x16xf32>
    } else {
      scf.yield %out : tensor<8x16xf32>
    }
    scf.yield %w : tensor<8x16xf32>
  }
  return %r : tensor<8x16xf32>
}

// -----

// One write, of an open number of columns, where it fits: no loop.
// CHECK-LABEL: func.func @branch
// CHECK-SAME:    (%[[A:.*]]: tensor<8x?xf16>, %[[ROW:.*]]: tensor<?xf16>, %[[FITS:.*]]: i1
// CHECK:         %[[R:.*]] = linalg.generic {{.*}}iterator_types = ["parallel", "parallel"]} outs(%{{.*}} : tensor<8x?xf16>)
// CHECK:           scf.if %[[FITS]] -> (f16)
// CHECK:             scf.if
// CHECK:               tensor.extract %[[ROW]]
// CHECK:               tensor.extract %[[A]]
// CHECK:             tensor.extract %[[A]]
// CHECK:         return %[[R]]
func.func @branch(%a: tensor<8x?xf16>, %row: tensor<?xf16>, %fits: i1, %i: index, %n: index) -> tensor<8x?xf16> {
  %r = scf.if %fits -> (tensor<8x?xf16>) {
    %o = tensor.insert_slice %row into %a[%i, 0] [1, %n] [1, 1] : tensor<?xf16> into tensor<8x?xf16>
    scf.yield %o : tensor<8x?xf16>
  } else {
    scf.yield %a : tensor<8x?xf16>
  }
  return %r : tensor<8x?xf16>
}

// -----

// What is read elsewhere than where it is written depends on the writes before: it stays.
// CHECK-LABEL: func.func @shifted
// CHECK:         scf.for
// CHECK-NOT:     linalg.generic
func.func @shifted(%a: tensor<8x16xf32>) -> tensor<8x16xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c7 = arith.constant 7 : index
  %r = scf.for %n = %c0 to %c7 step %c1 iter_args(%out = %a) -> (tensor<8x16xf32>) {
    %next = arith.addi %n, %c1 : index
    %x = tensor.extract_slice %out[%n, 0] [1, 16] [1, 1] : tensor<8x16xf32> to tensor<1x16xf32>
    %o = tensor.insert_slice %x into %out[%next, 0] [1, 16] [1, 1] : tensor<1x16xf32> into tensor<8x16xf32>
    scf.yield %o : tensor<8x16xf32>
  }
  return %r : tensor<8x16xf32>
}

// -----

// Many rows: the last write of each place is found first.
// CHECK-DAG:   #[[UPDATES:.*]] = affine_map<(d0, d1) -> (d1)>
// CHECK-DAG:   #[[PLACES:.*]] = affine_map<(d0, d1) -> (d0)>
// CHECK-DAG:   #[[ALL:.*]] = affine_map<(d0, d1) -> (d0, d1)>
// CHECK-LABEL: func.func @many
// CHECK-SAME:    (%[[A:.*]]: tensor<4096x128xf16>, %[[AT:.*]]: tensor<512xindex>, %[[U:.*]]: tensor<512x128xf16>)
// CHECK:         %[[NONE:.*]] = linalg.fill ins(%c-1_i64 : i64) {{.*}} -> tensor<4096xi64>
// CHECK:         %[[LAST:.*]] = linalg.generic {indexing_maps = [#[[UPDATES]], #[[PLACES]]],
// CHECK-SAME:        iterator_types = ["parallel", "reduction"]} ins({{.*}} : tensor<512xi1>) outs(%[[NONE]] : tensor<4096xi64>)
// CHECK:           %[[N:.*]] = linalg.index 1
// CHECK:           scf.if
// CHECK:             %[[NUMBER:.*]] = arith.index_cast
// CHECK:             scf.yield %[[NUMBER]] : i64
// CHECK:           arith.maxsi
// CHECK:         linalg.generic {indexing_maps = [#[[PLACES]], #[[ALL]], #[[ALL]]], iterator_types = ["parallel", "parallel"]}
// CHECK-SAME:        ins(%[[LAST]], %[[A]] : tensor<4096xi64>, tensor<4096x128xf16>)
// CHECK-NEXT:    ^bb0(%[[FOUND:.*]]: i64, %[[OLD:.*]]: f16, %{{.*}}: f16):
// CHECK:           %[[WRITTEN:.*]] = arith.cmpi ne, %[[FOUND]]
// CHECK:           scf.if %[[WRITTEN]] -> (f16) {
// CHECK:             tensor.extract %[[U]]
// CHECK:           } else {
// CHECK:             scf.yield %[[OLD]]
func.func @many(%a: tensor<4096x128xf16>, %at: tensor<512xindex>, %u: tensor<512x128xf16>) -> tensor<4096x128xf16> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c512 = arith.constant 512 : index
  %r = scf.for %n = %c0 to %c512 step %c1 iter_args(%out = %a) -> (tensor<4096x128xf16>) {
    %i = tensor.extract %at[%n] : tensor<512xindex>
    %new = tensor.extract_slice %u[%n, 0] [1, 128] [1, 1] : tensor<512x128xf16> to tensor<128xf16>
    %o = tensor.insert_slice %new into %out[%i, 0] [1, 128] [1, 1] : tensor<128xf16> into tensor<4096x128xf16>
    scf.yield %o : tensor<4096x128xf16>
  }
  return %r : tensor<4096x128xf16>
}

// -----

// Many rows that are added to others: the first one is found for each place, and for each the next one at its place.
// CHECK-LABEL: func.func @many_rows
// CHECK-SAME:    (%[[A:.*]]: tensor<4096x64xf32>, %[[AT:.*]]: tensor<1024xi64>, %[[U:.*]]: tensor<1024x64xf32>)
// CHECK:         %[[FIRST:.*]] = linalg.generic {{.*}} iterator_types = ["parallel", "reduction"]} {{.*}} outs(%{{.*}} : tensor<4096xi64>)
// CHECK:           tensor.extract %[[AT]]
// CHECK:           arith.minsi
// CHECK:         %[[NEXT:.*]] = linalg.generic {{.*}} iterator_types = ["parallel", "reduction"]} {{.*}} outs(%{{.*}} : tensor<1024xi64>)
// CHECK:           arith.cmpi sgt
// CHECK:         %[[R:.*]] = linalg.generic {{.*}} iterator_types = ["parallel", "parallel"]} ins(%[[FIRST]], %[[A]] :
// CHECK:           %[[W:.*]]:2 = scf.while (%{{.*}} = %{{.*}}, %[[N:.*]] = %{{.*}}) : (f32, i64) -> (f32, i64) {
// CHECK:             arith.cmpi ne, %[[N]]
// CHECK:           ^bb0(%[[SUM:.*]]: f32, %{{.*}}: i64):
// CHECK:             %[[UPDATE:.*]] = tensor.extract %[[U]]
// CHECK:             %[[NEW:.*]] = arith.addf %[[SUM]], %[[UPDATE]]
// CHECK:             %[[AFTER:.*]] = tensor.extract %[[NEXT]]
// CHECK:             scf.yield %[[NEW]], %[[AFTER]]
// CHECK:           linalg.yield %[[W]]#0
// CHECK:         return %[[R]]
func.func @many_rows(%a: tensor<4096x64xf32>, %at: tensor<1024xi64>, %u: tensor<1024x64xf32>) -> tensor<4096x64xf32> {
  %zero = arith.constant 0 : index
  %one = arith.constant 1 : index
  %count = arith.constant 1024 : index
  %r = scf.for %n = %zero to %count step %one iter_args(%out = %a) -> (tensor<4096x64xf32>) {
    %p = tensor.extract %at[%n] : tensor<1024xi64>
    %i = arith.index_cast %p : i64 to index
    %new = tensor.extract_slice %u[%n, 0] [1, 64] [1, 1] : tensor<1024x64xf32> to tensor<64xf32>
    %old = tensor.extract_slice %out[%i, 0] [1, 64] [1, 1] : tensor<4096x64xf32> to tensor<64xf32>
    %e = tensor.empty() : tensor<64xf32>
    %s = linalg.generic {indexing_maps = [affine_map<(d) -> (d)>, affine_map<(d) -> (d)>, affine_map<(d) -> (d)>],
        iterator_types = ["parallel"]} ins(%old, %new : tensor<64xf32>, tensor<64xf32>) outs(%e : tensor<64xf32>) {
    ^bb0(%x: f32, %y: f32, %z: f32):
      %t = arith.addf %x, %y : f32
      linalg.yield %t : f32
    } -> tensor<64xf32>
    %w = tensor.insert_slice %s into %out[%i, 0] [1, 64] [1, 1] : tensor<64xf32> into tensor<4096x64xf32>
    scf.yield %w : tensor<4096x64xf32>
  }
  return %r : tensor<4096x64xf32>
}
