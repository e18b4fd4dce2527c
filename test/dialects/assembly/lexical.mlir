// RUN: attn-opt %s | FileCheck %s
// RUN: attn-opt %s --mlir-print-debuginfo | attn-opt | FileCheck %s

// Custom forms are found by the rules of MLIR's lexer: not in comments, strings or names of attributes.
// linalg_ext.diag ins( "

#map = affine_map<(d0, d1) -> (d0, d1 mod 3)>
#positive = affine_set<(d0) : (d0 - 1 >= 0, d0 == 4)>
!row = tensor<3xf64>

// CHECK: module attributes {linalg_ext.diag, linalg_ext.note = "linalg_ext.diag ins(%x"} {
module attributes {linalg_ext.note = "linalg_ext.diag ins(%x", "linalg_ext.diag"} {
  // CHECK-LABEL: func.func @values_of_attributes
  // CHECK-SAME: {linalg_ext.diag = 1 : i32}
  func.func @values_of_attributes(%x: !row, %o: tensor<3x3xf64> {linalg_ext.diag = 1 : i32}) -> tensor<3x3xf64> {
    // CHECK-NEXT: linalg_ext.diag {"1" = 2 : i64, array = [1, {b, c = "]"}], function = (i32, f32) -> f32, map = #map, "quoted \22 key", set = #set, string = "}>{\22->", tensor = dense<[1, 2]> : tensor<2xi64>, type = tensor<4x?xf32>} ins(
    %0 = linalg_ext.diag {string = "}>{\"->", map = #map, set = #positive, "quoted \22 key", // linalg_ext.diag
                          array = [1, {b, c = "]"}], function = (i32, f32) -> f32, "1" = 2,
                          type = tensor<4x?xf32>, tensor = dense<[1, 2]> : tensor<2xi64>}
           ins(%x : !row) /// not the end: outs(
           outs(%o :
                tensor<3x3xf64>)
    return %0 : tensor<3x3xf64>
  }

  // CHECK-LABEL: func.func @without_blanks
  func.func @without_blanks(%x: !row, %o: tensor<3x3xf64>) -> tensor<3x3xf64> {
    // CHECK-NEXT: %[[A:.*]] = linalg_ext.diag ins(
    // CHECK-NEXT: %[[B:.*]] = linalg_ext.diag {k} ins({{.*}}) outs(%[[A]]
    // CHECK-NEXT: return %[[B]]
    %a=linalg_ext.diag ins(%x:!row)outs(%o:tensor<3x3xf64>) %b = linalg_ext.diag{k}ins(%x:!row)outs(%a:tensor<3x3xf64>) return %b : tensor<3x3xf64>
  }

  // CHECK-LABEL: func.func @in_regions
  func.func @in_regions(%x: !row, %o: tensor<3x3xf64>, %c: i1, %lb: index) -> tensor<3x3xf64> {
    // CHECK: scf.for
    %r = scf.for %i = %lb to %lb step %lb iter_args(%t = %o) -> tensor<3x3xf64> {
      // CHECK: scf.if
      %s = scf.if %c -> tensor<3x3xf64> {
        // CHECK-NEXT: linalg_ext.diag ins(
        %0 = linalg_ext.diag ins(%x : !row) outs(%t : tensor<3x3xf64>) loc("inner")
        scf.yield %0 : tensor<3x3xf64>
      } else { scf.yield %t : tensor<3x3xf64> }
      scf.yield %s : tensor<3x3xf64>
    }
    return %r : tensor<3x3xf64>
  }

  // CHECK-LABEL: func.func @encodings
  func.func @encodings(%x: tensor<3xf64, "a>b">, %o: tensor<3x3xf64, {k = #map}>) -> tensor<3x3xf64, {k = #map}> {
    // CHECK-NEXT: linalg_ext.diag ins(%{{.*}} : tensor<3xf64, "a>b">) outs(%{{.*}} : tensor<3x3xf64, {k = #map}>) : tensor<3x3xf64, {k = #map}>
    %0 = linalg_ext.diag ins(%x : tensor<3xf64, "a>b">) outs(%o : tensor<3x3xf64, {k = affine_map<(d0, d1) -> (d0, d1 mod 3)>}>)
    return %0 : tensor<3x3xf64, {k = #map}>
  }
}

// CHECK-LABEL: func.func @first_in_a_block
func.func @first_in_a_block(%x: tensor<3xf64>, %o: tensor<3x3xf64>) {
  cf.br ^bb1
// CHECK: ^bb1:
// CHECK-NEXT: linalg_ext.diag ins(
^bb1: // a comment
  linalg_ext.diag ins(%x : tensor<3xf64>) outs(%o : tensor<3x3xf64>)
  cf.br ^bb2
^bb2: linalg_ext.diag ins(%x : tensor<3xf64>) outs(%o : tensor<3x3xf64>) return
}
