// RUN: attn-opt %s --version-functions --split-input-file | FileCheck %s
// RUN: attn-opt %s --version-functions --fuse-attention=machine=sm_90a --split-input-file --remarks 2>&1 | FileCheck %s --check-prefix=FUSED

#q = affine_map<(b, h, g, m, n, d) -> (b, h, g, m, d)>
#k = affine_map<(b, h, g, m, n, d) -> (b, h, n, d)>
#s = affine_map<(b, h, g, m, n, d) -> (b, h, g, m, n)>
#v = affine_map<(b, h, g, m, n, d) -> (b, h, d, n)>

// A version for few queries of four heads that share keys, and one for as many batch entries as leave multiprocessors idle.

// FUSED: remark: up to 64 queries have kernels of their own
// CHECK-LABEL: func.func @open_few_blocks(%{{.*}}: tensor<?x2x4x?x64xf16>, %{{.*}}: tensor<?x2x?x64xf16>
// CHECK:         linalg.generic {{.*}} {few_blocks, few_queries = 64 : i64}
// CHECK-LABEL: func.func @open_few_queries(
// CHECK:         linalg.generic {{.*}} {few_queries = 64 : i64}
// CHECK-LABEL: func.func @open(
// CHECK-SAME:    attributes {versions = {{\[\[}}"open_few_blocks", {{\[\[}}64, [0, 3]], [33, [0, 0]], [528, [0, 0], [0, 3]]]], ["open_few_queries", {{\[\[}}32, [0, 3]]]]]}
// CHECK-NOT:     few_queries

// FUSED-LABEL: func.func @open_few_blocks(
// FUSED:         tensor.extract_slice %{{.*}} [1, 1, 4, %{{.*}}, 64] [1, 1, 1, 1, 1] : tensor<?x2x4x?x64xf16>
// FUSED-LABEL: func.func @open_few_queries(
// FUSED:         scf.for %{{.*}} step %c16
// FUSED-LABEL: func.func @open(
// FUSED:         scf.for %{{.*}} step %c128
func.func @open(%q: tensor<?x2x4x?x64xf16>, %k: tensor<?x2x?x64xf16>, %v: tensor<?x2x?x64xf16>) -> tensor<?x2x4x?x64xf32> {
  %c0 = arith.constant 0 : index
  %c2 = arith.constant 2 : index
  %c3 = arith.constant 3 : index
  %zero = arith.constant 0.0 : f32
  %minus_inf = arith.constant 0xFF800000 : f32
  %b = tensor.dim %q, %c0 : tensor<?x2x4x?x64xf16>
  %m = tensor.dim %q, %c3 : tensor<?x2x4x?x64xf16>
  %n = tensor.dim %k, %c2 : tensor<?x2x?x64xf16>
  %se = tensor.empty(%b, %m, %n) : tensor<?x2x4x?x?xf32>
  %sz = linalg.fill ins(%zero : f32) outs(%se : tensor<?x2x4x?x?xf32>) -> tensor<?x2x4x?x?xf32>
  %s = linalg.generic {indexing_maps = [#q, #k, #s], iterator_types = ["parallel", "parallel", "parallel", "parallel", "parallel", "reduction"]} ins(%q, %k : tensor<?x2x4x?x64xf16>, tensor<?x2x?x64xf16>) outs(%sz : tensor<?x2x4x?x?xf32>) {
  ^bb0(%a: f16, %c: f16, %o: f32):
    %x = arith.extf %a : f16 to f32
    %y = arith.extf %c : f16 to f32
    %xy = arith.mulf %x, %y : f32
    %sum = arith.addf %o, %xy : f32
    linalg.yield %sum : f32
  } -> tensor<?x2x4x?x?xf32>
  %re = tensor.empty(%b, %m) : tensor<?x2x4x?xf32>
  %m0 = linalg.fill ins(%minus_inf : f32) outs(%re : tensor<?x2x4x?xf32>) -> tensor<?x2x4x?xf32>
  %a0 = linalg.fill ins(%zero : f32) outs(%re : tensor<?x2x4x?xf32>) -> tensor<?x2x4x?xf32>
  %p:4 = linalg_ext.softmax dimension(4) ins(%s : tensor<?x2x4x?x?xf32>) outs(%se, %m0, %a0, %re : tensor<?x2x4x?x?xf32>, tensor<?x2x4x?xf32>, tensor<?x2x4x?xf32>, tensor<?x2x4x?xf32>) : tensor<?x2x4x?x?xf32>, tensor<?x2x4x?xf32>, tensor<?x2x4x?xf32>, tensor<?x2x4x?xf32>
  %oe = tensor.empty(%b, %m) : tensor<?x2x4x?x64xf32>
  %oz = linalg.fill ins(%zero : f32) outs(%oe : tensor<?x2x4x?x64xf32>) -> tensor<?x2x4x?x64xf32>
  %o = linalg.generic {indexing_maps = [#q, #v, #s], iterator_types = ["parallel", "parallel", "parallel", "parallel", "parallel", "reduction"]} ins(%p#0, %v : tensor<?x2x4x?x?xf32>, tensor<?x2x?x64xf16>) outs(%oz : tensor<?x2x4x?x64xf32>) {
  ^bb0(%a: f32, %c: f16, %out: f32):
    %y = arith.extf %c : f16 to f32
    %xy = arith.mulf %a, %y : f32
    %sum = arith.addf %out, %xy : f32
    linalg.yield %sum : f32
  } -> tensor<?x2x4x?x64xf32>
  return %o : tensor<?x2x4x?x64xf32>
}

// -----

#q = affine_map<(m, n, d) -> (m, d)>
#k = affine_map<(m, n, d) -> (n, d)>
#s = affine_map<(m, n, d) -> (m, n)>
#v = affine_map<(m, n, d) -> (d, n)>

// Of as many queries as keys, few have few keys.

// CHECK-LABEL: func.func @of_itself(
// CHECK-NOT:   func.func
// CHECK-NOT:   few_queries
func.func @of_itself(%x: tensor<?x64xf16>) -> tensor<?x64xf32> {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : f32
  %minus_inf = arith.constant 0xFF800000 : f32
  %m = tensor.dim %x, %c0 : tensor<?x64xf16>
  %se = tensor.empty(%m, %m) : tensor<?x?xf32>
  %sz = linalg.fill ins(%zero : f32) outs(%se : tensor<?x?xf32>) -> tensor<?x?xf32>
  %s = linalg.generic {indexing_maps = [#q, #k, #s], iterator_types = ["parallel", "parallel", "reduction"]} ins(%x, %x : tensor<?x64xf16>, tensor<?x64xf16>) outs(%sz : tensor<?x?xf32>) {
  ^bb0(%a: f16, %c: f16, %o: f32):
    %y = arith.extf %a : f16 to f32
    %z = arith.extf %c : f16 to f32
    %xy = arith.mulf %y, %z : f32
    %sum = arith.addf %o, %xy : f32
    linalg.yield %sum : f32
  } -> tensor<?x?xf32>
  %re = tensor.empty(%m) : tensor<?xf32>
  %m0 = linalg.fill ins(%minus_inf : f32) outs(%re : tensor<?xf32>) -> tensor<?xf32>
  %a0 = linalg.fill ins(%zero : f32) outs(%re : tensor<?xf32>) -> tensor<?xf32>
  %p:4 = linalg_ext.softmax dimension(1) ins(%s : tensor<?x?xf32>) outs(%se, %m0, %a0, %re : tensor<?x?xf32>, tensor<?xf32>, tensor<?xf32>, tensor<?xf32>) : tensor<?x?xf32>, tensor<?xf32>, tensor<?xf32>, tensor<?xf32>
  %oe = tensor.empty(%m) : tensor<?x64xf32>
  %oz = linalg.fill ins(%zero : f32) outs(%oe : tensor<?x64xf32>) -> tensor<?x64xf32>
  %o = linalg.generic {indexing_maps = [#q, #v, #s], iterator_types = ["parallel", "parallel", "reduction"]} ins(%p#0, %x : tensor<?x?xf32>, tensor<?x64xf16>) outs(%oz : tensor<?x64xf32>) {
  ^bb0(%a: f32, %c: f16, %out: f32):
    %y = arith.extf %c : f16 to f32
    %xy = arith.mulf %a, %y : f32
    %sum = arith.addf %out, %xy : f32
    linalg.yield %sum : f32
  } -> tensor<?x64xf32>
  return %o : tensor<?x64xf32>
}
