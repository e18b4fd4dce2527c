// RUN: attn-opt %s --cse --canonicalize --print-ir-after=cse -o /dev/null 2>&1 | FileCheck %s --check-prefix=AFTER
// AFTER: // -----// IR Dump After CSEPass (cse) //----- //
// AFTER: linalg_ext.diag ins(
// AFTER-NOT: IR Dump

// RUN: attn-opt %s --cse --canonicalize --mlir-print-ir-before=canonicalize -o /dev/null 2>&1 | FileCheck %s --check-prefix=BEFORE
// BEFORE: // -----// IR Dump Before CanonicalizerPass (canonicalize) //----- //
// BEFORE-NOT: IR Dump

// RUN: attn-opt %s --cse --canonicalize --mlir-print-ir-before-all --print-ir-after-all -o /dev/null 2>&1 | FileCheck %s --check-prefix=ALL
// ALL: IR Dump Before CSEPass
// ALL: IR Dump After CSEPass
// ALL: IR Dump Before CanonicalizerPass
// ALL: IR Dump After CanonicalizerPass

// RUN: attn-opt %s --symbol-dce --print-ir-after-change --print-ir-after-all -o /dev/null 2>&1 | FileCheck %s --check-prefix=CHANGE --allow-empty
// CHANGE-NOT: IR Dump

// IR goes to standard output alone, timing and dumps to standard error.
// RUN: attn-opt %s --cse --timing --print-ir-after-all 2>/dev/null | FileCheck %s --check-prefix=OUT
// OUT-NOT: Dump
// OUT: module {
// OUT-NOT: timing

// RUN: attn-opt %s --cse --timing -o /dev/null 2>&1 | FileCheck %s --check-prefix=TIMING
// TIMING: {{[0-9.]+}} ms {{[0-9.]+}}%  cse
// TIMING-NEXT: {{[0-9.]+}} ms 100.0%  total

// RUN: rm -rf %t && attn-opt %s --cse --canonicalize --dump-stages %t -o /dev/null
// RUN: cat %t/000-input.mlir %t/001-cse.mlir %t/002-canonicalize.mlir | FileCheck %s --check-prefix=STAGES
// STAGES-COUNT-3: linalg_ext.diag ins(

// RUN: attn-opt %s --mlir-print-op-generic | FileCheck %s --check-prefix=GENERIC
// GENERIC: "builtin.module"() ({
// GENERIC: "linalg_ext.diag"(%{{.*}}, %{{.*}}) : (tensor<3xf32>, tensor<3x3xf32>) -> tensor<3x3xf32>

// RUN: attn-opt %s --mlir-elide-elementsattrs-if-larger=2 | FileCheck %s --check-prefix=ELIDE
// ELIDE: dense_resource<__elided__>

// RUN: attn-opt %s --decompose-linalg-ext --print-ir-after=decompose-linalg-ext 2>&1 -o /dev/null | FileCheck %s --check-prefix=OURS
// OURS: // -----// IR Dump After DecomposeLinalgExt (decompose-linalg-ext) //----- //

// RUN: attn-opt --list-passes | FileCheck %s --check-prefix=LIST
// LIST: Passes of attn-opt:
// LIST: --transform-interpreter
// LIST: --fuse-attention
// LIST-NEXT: tile-sizes=4,0,8 {{.*}}one size per loop of the root
// LIST: Passes and pipelines of upstream MLIR
// LIST: --canonicalize

// RUN: attn-opt --help | FileCheck %s --check-prefix=HELP
// HELP: usage: attn-opt
// HELP: --pass-pipeline

// RUN: attn-opt --version | FileCheck %s --check-prefix=VERSION
// VERSION: torch-mlir {{[0-9]+}}
module {
  func.func @f(%x: tensor<3xf32>, %o: tensor<3x3xf32>) -> (tensor<3x3xf32>, tensor<3xf32>) {
    %0 = linalg_ext.diag ins(%x : tensor<3xf32>) outs(%o : tensor<3x3xf32>)
    %1 = arith.constant dense<[1.0, 2.0, 3.0]> : tensor<3xf32>
    return %0, %1 : tensor<3x3xf32>, tensor<3xf32>
  }
}
