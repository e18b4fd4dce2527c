// RUN: attn-opt %s --mlir-print-debuginfo --mlir-print-local-scope | FileCheck %s
// RUN: attn-opt %s --mlir-print-debuginfo | attn-opt --mlir-print-debuginfo --mlir-print-local-scope | FileCheck %s

// CHECK-LABEL: func.func @f
// CHECK-SAME: loc("{{[^"]*}}locations.mlir":8:14)
// CHECK-SAME: loc("{{[^"]*}}locations.mlir":9:3)
module {
func.func @f(%x: tensor<5xf32>,
  %o: tensor<5x5xf32>) {
  // CHECK-NEXT: linalg_ext.diag {{.*}} loc("{{[^"]*}}locations.mlir":12:8)
  // CHECK-NEXT: linalg_ext.diag {{.*}} loc("{{[^"]*}}locations.mlir":12:86)
  %a = linalg_ext.diag ins(%x : tensor<5xf32>) outs(%o : tensor<5x5xf32>) {k}   %b = linalg_ext.diag ins(%x : tensor<5xf32>)
    // CHECK-NEXT: arith.constant 1 : i32 loc("{{[^"]*}}locations.mlir":14:57)
    outs(%o : tensor<5x5xf32>) : tensor<5x5xf32>   %c = arith.constant 1 : i32
  // CHECK-NEXT: linalg_ext.diag {{.*}} : tensor<5x5xf32> loc(fused<"x{">["model.py":1:2, callsite("f" at "g":3:4)])
  %d = linalg_ext.diag ins(%x : tensor<5xf32>) outs(%o : tensor<5x5xf32>) loc(fused<"x{">["model.py":1:2, callsite("f" at "g":3:4)])
  // CHECK-NEXT: linalg_ext.diag {{.*}} : tensor<5x5xf32> loc("named"("model.py":7:8))
  %e = linalg_ext.diag ins(%x : tensor<5xf32>) outs(%o : tensor<5x5xf32>) : tensor<5x5xf32> loc(#alias)
  return
}
}
#alias = loc("named"("model.py":7:8))
