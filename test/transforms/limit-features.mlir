// RUN: attn-opt %s --limit-features="vector-bytes=16" | FileCheck %s --check-prefix=NARROW
// RUN: attn-opt %s --limit-features="vector-bytes=64" | FileCheck %s --check-prefix=WIDE

// What the host does not have is not taken away; every x86 with AVX has these.
// NARROW: llvm.func @f() attributes {passthrough = ["cold", {{\[}}"target-features", "-avx"]]}
// WIDE: llvm.func @f() attributes {passthrough = ["cold"]}
llvm.func @f() attributes {passthrough = ["cold"]} {
  llvm.return
}
