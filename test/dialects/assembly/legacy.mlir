// RUN: attn-opt %s | FileCheck %s

// Older spellings of upstream's ops are read.

// CHECK-LABEL: func.func @expand_shape
func.func @expand_shape(%x: tensor<6x20xf32>, %y: tensor<?xf32>, %n: index) -> tensor<6x4x5xf32> {
  // CHECK-NEXT: tensor.expand_shape %{{.*}} {{\[\[}}0], [1, 2]] output_shape [6, 4, 5] : tensor<6x20xf32> into tensor<6x4x5xf32>
  %0 = tensor.expand_shape %x [[0], [1, 2]] : tensor<6x20xf32> into tensor<6x4x5xf32>
  // CHECK-NEXT: tensor.expand_shape %{{.*}} {{\[\[}}0, 1]] output_shape [%{{.*}}, 4] : tensor<?xf32> into tensor<?x4xf32>
  %1 = tensor.expand_shape %y [[0, 1]] output_shape [%n, 4] : tensor<?xf32> into tensor<?x4xf32>
  return %0 : tensor<6x4x5xf32>
}

// CHECK: transform.sequence
// CHECK: transform.structured.match attributes {__root__} in %{{.*}} : (!pdl.operation) -> !pdl.operation
transform.sequence failures(propagate) {
^bb0(%arg0: !pdl.operation):
  %0 = transform.structured.match attributes{"__root__"} in %arg0 : (!pdl.operation) -> !pdl.operation
}
