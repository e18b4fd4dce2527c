// RUN: attn-opt %s | FileCheck %s
// RUN: attn-opt %s | attn-opt | FileCheck %s
// RUN: attn-opt %s --mlir-print-op-generic | attn-opt | FileCheck %s
// RUN: attn-opt %s --mlir-print-debuginfo | attn-opt --mlir-print-local-scope | FileCheck %s

// CHECK-LABEL: func.func @softmax
func.func @softmax(%x: tensor<6x10xf32>, %o: tensor<6x10xf32>, %m: tensor<6xf32>) -> tensor<6x10xf32> {
  // CHECK-NEXT: %[[R:.*]]:4 = linalg_ext.softmax dimension(1) ins(%{{.*}} : tensor<6x10xf32>) outs(%{{.*}}, %{{.*}}, %{{.*}}, %{{.*}} : tensor<6x10xf32>, tensor<6xf32>, tensor<6xf32>, tensor<6xf32>) : tensor<6x10xf32>, tensor<6xf32>, tensor<6xf32>, tensor<6xf32>
  %r:4 = linalg_ext.softmax dimension(1) ins(%x : tensor<6x10xf32>) outs(%o, %m, %m, %m : tensor<6x10xf32>, tensor<6xf32>, tensor<6xf32>, tensor<6xf32>) : tensor<6x10xf32>, tensor<6xf32>, tensor<6xf32>, tensor<6xf32>
  // The types of the results follow from outs; attributes may stand at the end as well.
  // CHECK-NEXT: linalg_ext.softmax {__root__, note = "a > b {"} dimension(1) ins(%[[R]]#0 : tensor<6x10xf32>)
  // CHECK-SAME: : tensor<6x10xf32>, tensor<6xf32>, tensor<6xf32>, tensor<6xf32>
  %s:4 = linalg_ext.softmax dimension(1) ins(%r#0 : tensor<6x10xf32>) outs(%o, %r#1, %r#2, %m : tensor<6x10xf32>, tensor<6xf32>, tensor<6xf32>, tensor<6xf32>) {__root__, note = "a > b {"}
  return %s#0 : tensor<6x10xf32>
}

// CHECK-LABEL: func.func @softmax_narrow_with_f32_statistics
func.func @softmax_narrow_with_f32_statistics(%x: tensor<?x3x?xbf16>, %m: tensor<?x?xf32>) -> (tensor<?x3x?xbf16>, tensor<?x?xf32>) {
  // CHECK: linalg_ext.softmax dimension(1) ins(%{{.*}} : tensor<?x3x?xbf16>) outs({{.*}} : tensor<?x3x?xbf16>, tensor<?x?xf32>, tensor<?x?xf32>, tensor<?x?xf32>) : tensor<?x3x?xbf16>, tensor<?x?xf32>, tensor<?x?xf32>, tensor<?x?xf32>
  %r, %s:3 = linalg_ext.softmax dimension(1) ins(%x : tensor<?x3x?xbf16>) outs(%x, %m, %m, %m : tensor<?x3x?xbf16>, tensor<?x?xf32>, tensor<?x?xf32>, tensor<?x?xf32>)
  return %r, %s#2 : tensor<?x3x?xbf16>, tensor<?x?xf32>
}

// CHECK-LABEL: func.func @unnorm_softmax
func.func @unnorm_softmax(%x: tensor<2x6x10xf64>, %o: tensor<2x6x10xf64>, %m: tensor<2x6xf64>) {
  // Results without names.
  // CHECK-NEXT: linalg_ext.unnorm_softmax {tag = 1 : i32} dimension(2) ins(%{{.*}} : tensor<2x6x10xf64>) outs({{.*}}) : tensor<2x6x10xf64>, tensor<2x6xf64>, tensor<2x6xf64>, tensor<2x6xf64>
  linalg_ext.unnorm_softmax {tag = 1 : i32} dimension(2) ins(%x : tensor<2x6x10xf64>) outs(%o, %m, %m, %m : tensor<2x6x10xf64>, tensor<2x6xf64>, tensor<2x6xf64>, tensor<2x6xf64>)
  return
}

// CHECK-LABEL: func.func @diag
func.func @diag(%x: tensor<3x5xf16>, %o: tensor<3x5x5xf16>) -> tensor<3x5x5xf16> {
  // CHECK-NEXT: linalg_ext.diag ins(%{{.*}} : tensor<3x5xf16>) outs(%{{.*}} : tensor<3x5x5xf16>) : tensor<3x5x5xf16>
  %0 = linalg_ext.diag ins(%x : tensor<3x5xf16>) outs(%o : tensor<3x5x5xf16>) : tensor<3x5x5xf16>
  // CHECK-NEXT: linalg_ext.diag {__stop__} ins(%{{.*}} : tensor<3x5xf16>) outs(%{{.*}} : tensor<3x5x5xf16>) : tensor<3x5x5xf16>
  %1 = linalg_ext.diag {"__stop__"} ins(%x : tensor<3x5xf16>) outs(%0 : tensor<3x5x5xf16>)
  return %1 : tensor<3x5x5xf16>
}

// CHECK-LABEL: func.func @batch_matmul
func.func @batch_matmul(%a: tensor<4x2x9x5xf32>, %b: tensor<4x2x5x7xf32>, %bt: tensor<4x2x7x5xf32>, %c: tensor<4x2x9x7xf32>) -> tensor<4x2x9x7xf32> {
  // CHECK-NEXT: %[[C:.*]] = linalg_ext.batch_matmul ins(%{{.*}}, %{{.*}} : tensor<4x2x9x5xf32>, tensor<4x2x5x7xf32>) outs(%{{.*}} : tensor<4x2x9x7xf32>) layout = "nn"{{$}}
  %0 = linalg_ext.batch_matmul ins(%a, %b : tensor<4x2x9x5xf32>, tensor<4x2x5x7xf32>) outs(%c : tensor<4x2x9x7xf32>) layout = "nn"
  // CHECK-NEXT: linalg_ext.batch_matmul ins(%{{.*}}, %{{.*}} : tensor<4x2x9x5xf32>, tensor<4x2x7x5xf32>) outs(%[[C]] : tensor<4x2x9x7xf32>) layout = "nt"  {__root__}
  %1 = linalg_ext.batch_matmul ins(%a, %bt : tensor<4x2x9x5xf32>, tensor<4x2x7x5xf32>) outs(%0 : tensor<4x2x9x7xf32>) layout = "nt" {__root__} : tensor<4x2x9x7xf32>
  return %1 : tensor<4x2x9x7xf32>
}

// CHECK-LABEL: func.func @batch_matmul_transposed_lhs
func.func @batch_matmul_transposed_lhs(%a: tensor<5x9xbf16>, %b: tensor<5x7xbf16>, %bt: tensor<7x5xbf16>, %c: tensor<9x7xf32>) -> tensor<9x7xf32> {
  // CHECK-NEXT: layout = "tn"
  %0 = linalg_ext.batch_matmul ins(%a, %b : tensor<5x9xbf16>, tensor<5x7xbf16>) outs(%c : tensor<9x7xf32>) layout = "tn"
  // CHECK-NEXT: layout = "tt"
  %1 = linalg_ext.batch_matmul ins(%a, %bt : tensor<5x9xbf16>, tensor<7x5xbf16>) outs(%0 : tensor<9x7xf32>) layout = "tt"
  return %1 : tensor<9x7xf32>
}

// CHECK-LABEL: func.func @generic_form
func.func @generic_form(%x: tensor<5xf32>, %o: tensor<5x5xf32>) -> tensor<5x5xf32> {
  // CHECK-NEXT: linalg_ext.diag {__root__} ins(%{{.*}} : tensor<5xf32>) outs(%{{.*}} : tensor<5x5xf32>) : tensor<5x5xf32>
  %0 = "linalg_ext.diag"(%x, %o) {__root__} : (tensor<5xf32>, tensor<5x5xf32>) -> tensor<5x5xf32>
  return %0 : tensor<5x5xf32>
}

// CHECK-LABEL: func.func @put
func.func @put(%v: tensor<3x?xi8>, %p: tensor<3x?xi64>, %t: tensor<?xi8>) -> tensor<?xi8> {
  // CHECK-NEXT: linalg_ext.put ins(%{{.*}}, %{{.*}} : tensor<3x?xi8>, tensor<3x?xi64>) outs(%{{.*}} : tensor<?xi8>) : tensor<?xi8>
  %r = linalg_ext.put ins(%v, %p : tensor<3x?xi8>, tensor<3x?xi64>) outs(%t : tensor<?xi8>)
  return %r : tensor<?xi8>
}
