// RUN: attn-opt %s --copies-to-linalg | FileCheck %s

// CHECK-LABEL: func.func @f
// CHECK-NOT: memref.copy
// CHECK: linalg.generic {{.*}} iterator_types = ["parallel", "parallel"]} ins(%arg0 : {{.*}}) outs(%arg1 :
// CHECK-NEXT: ^bb0(%[[X:.*]]: f32, %{{.*}}: f32):
// CHECK-NEXT: linalg.yield %[[X]]
func.func @f(%a: memref<?x8xf32, strided<[16, 1], offset: ?>>, %b: memref<?x8xf32>) {
  memref.copy %a, %b : memref<?x8xf32, strided<[16, 1], offset: ?>> to memref<?x8xf32>
  return
}
