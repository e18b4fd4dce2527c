// RUN: attn-opt %s --expand-math="portable=true" | FileCheck %s

// CHECK-LABEL: func.func @exp2
// CHECK-NOT: math.exp2
// CHECK: arith.shli
// CHECK-COUNT-6: math.fma
func.func @exp2(%x: vector<16xf32>) -> vector<16xf32> {
  %y = math.exp2 %x : vector<16xf32>
  return %y : vector<16xf32>
}

// Of what is at most 0 there is no overflow, and no half of a power.
// CHECK-LABEL: func.func @exp2_of_not_positive
// CHECK-NOT:   arith.cmpf ogt
// CHECK:       arith.shli
// CHECK-COUNT-6: math.fma
// CHECK-NEXT:  arith.mulf
// CHECK-NOT:   arith.mulf
// CHECK:       arith.cmpf olt
func.func @exp2_of_not_positive(%x: vector<8xf32>) -> vector<8xf32> {
  %y = math.exp2 %x {linalg_ext.not_positive} : vector<8xf32>
  return %y : vector<8xf32>
}

// CHECK-LABEL: func.func @half
// CHECK: arith.extf %arg0 : f16 to f32
// CHECK-NOT: math.exp
// CHECK: arith.truncf %{{.*}} : f32 to f16
func.func @half(%x: f16) -> f16 {
  %y = math.exp %x : f16
  return %y : f16
}

// CHECK-LABEL: func.func @others
// CHECK: math.cbrt
func.func @others(%x: f32) -> f32 {
  %y = math.cbrt %x : f32
  return %y : f32
}

// Whole powers are products; others are powf, of any exponent.
// CHECK-LABEL: func.func @powers
// CHECK-SAME:  %[[X:.*]]: vector<8xf32>, %[[N:.*]]: vector<8xi64>
// CHECK:       %[[SQUARE:.*]] = arith.mulf %[[X]], %[[X]] : vector<8xf32>
// CHECK:       %[[CUBE:.*]] = arith.mulf %[[X]], %[[SQUARE]] : vector<8xf32>
// CHECK:       arith.divf %{{.*}}, %[[CUBE]] : vector<8xf32>
// CHECK:       %[[F:.*]] = arith.sitofp %[[N]] : vector<8xi64> to vector<8xf32>
// CHECK:       math.powf %[[X]], %[[F]] : vector<8xf32>
// CHECK-NOT:   math.fpowi
func.func @powers(%x: vector<8xf32>, %n: vector<8xi64>) -> (vector<8xf32>, vector<8xf32>) {
  %c = arith.constant dense<-3> : vector<8xi64>
  %a = math.fpowi %x, %c : vector<8xf32>, vector<8xi64>
  %b = math.fpowi %x, %n : vector<8xf32>, vector<8xi64>
  return %a, %b : vector<8xf32>, vector<8xf32>
}

// Angles are reduced in f64; a vector with one that is too large, or is no number, goes to libm, which nothing expands.
// CHECK-LABEL: func.func @angles
// CHECK:         %[[SMALL:.*]] = arith.cmpf ole, %{{.*}}, %{{.*}} : vector<16xf32>
// CHECK:         %[[ALL:.*]] = vector.reduction <and>, %[[SMALL]] : vector<16xi1> into i1
// CHECK:         %[[Y:.*]] = scf.if %[[ALL]] -> (vector<16xf32>) {
// CHECK:           arith.extf %arg0 : vector<16xf32> to vector<16xf64>
// CHECK-NOT:       math.sin
// CHECK:         } else {
// CHECK-NEXT:      %[[EXACT:.*]] = math.sin %arg0 {libm} : vector<16xf32>
// CHECK-NEXT:      scf.yield %[[EXACT]]
// CHECK:         return %[[Y]]
func.func @angles(%x: vector<16xf32>) -> vector<16xf32> {
  %y = math.sin %x : vector<16xf32>
  return %y : vector<16xf32>
}
