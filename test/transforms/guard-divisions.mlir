// RUN: attn-opt %s --guard-divisions | FileCheck %s

// CHECK-LABEL: func.func @vectors
// CHECK-SAME:    %[[A:.*]]: vector<8xi64>, %[[B:.*]]: vector<8xi64>
// CHECK-DAG:     %[[ZERO:.*]] = arith.cmpi eq, %[[B]], %cst{{.*}} : vector<8xi64>
// CHECK-DAG:     %[[LEAST:.*]] = arith.cmpi eq, %[[A]], %{{.*}} : vector<8xi64>
// CHECK:         %[[OVER:.*]] = arith.andi %[[LEAST]], %{{.*}} : vector<8xi1>
// CHECK:         %[[BAD:.*]] = arith.ori %[[ZERO]], %[[OVER]] : vector<8xi1>
// CHECK:         %[[C:.*]] = arith.select %[[BAD]], %{{.*}}, %[[B]] : vector<8xi1>, vector<8xi64>
// CHECK:         arith.divsi %[[A]], %[[C]] : vector<8xi64>
func.func @vectors(%a: vector<8xi64>, %b: vector<8xi64>) -> vector<8xi64> {
  %0 = arith.divsi %a, %b : vector<8xi64>
  return %0 : vector<8xi64>
}

// Numbers without a sign cannot overflow.
// CHECK-LABEL: func.func @unsigned
// CHECK-COUNT-1: arith.cmpi eq
// CHECK-NOT:     arith.cmpi
// CHECK:         arith.remui
func.func @unsigned(%a: i8, %b: i8) -> i8 {
  %0 = arith.remui %a, %b : i8
  return %0 : i8
}

// Divisors that are known need no guard, and offsets have none.
// CHECK-LABEL: func.func @left
// CHECK-NOT:     arith.cmpi
func.func @left(%a: vector<8xi32>, %i: index, %n: index) -> (vector<8xi32>, index) {
  %c = arith.constant dense<[1, 2, 3, 4, 5, 6, 7, 8]> : vector<8xi32>
  %0 = arith.floordivsi %a, %c : vector<8xi32>
  %1 = arith.divsi %i, %n : index
  return %0, %1 : vector<8xi32>, index
}

// CHECK-LABEL: func.func @minus_one
// CHECK:         arith.select
func.func @minus_one(%a: i32) -> i32 {
  %c = arith.constant -1 : i32
  %0 = arith.divsi %a, %c : i32
  return %0 : i32
}
