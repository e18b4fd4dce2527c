// RUN: attn-opt %s --shift-divisions | FileCheck %s

// Powers of 2 are shifts, which round towards −∞ as affine divisions do. Other divisors are left to lower-affine, with
// what needs no division.
// CHECK-LABEL: func.func @bounds
// CHECK-SAME:    %[[I:.*]]: index, %[[N:.*]]: index
// CHECK:         %[[A:.*]] = arith.addi %[[I]], %c-62
// CHECK:         %[[B:.*]] = arith.addi %[[A]], %c63
// CHECK:         %[[C:.*]] = arith.shrsi %[[B]], %c6
// CHECK:         %[[D:.*]] = arith.muli %[[C]], %c64
// CHECK:         arith.maxsi %[[D]], %c0
// CHECK:         %[[E:.*]] = arith.shrsi %[[I]], %c4
// CHECK:         %[[F:.*]] = arith.andi %[[N]], %c7
// CHECK:         arith.minsi %[[E]], %[[F]]
// CHECK:         affine.apply
// CHECK:         affine.min
func.func @bounds(%i: index, %n: index) -> (index, index, index, index) {
  %0 = affine.max affine_map<(i) -> (((i - 62) ceildiv 64) * 64, 0)>(%i)
  %1 = affine.min affine_map<(i)[n] -> (i floordiv 16, n mod 8)>(%i)[%n]
  %2 = affine.apply affine_map<(i) -> (i floordiv 24)>(%i)
  %3 = affine.min affine_map<(i)[n] -> (i, n)>(%i)[%n]
  return %0, %1, %2, %3 : index, index, index, index
}
