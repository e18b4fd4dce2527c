// RUN: attn-opt %s --fuse-attention="tile-sizes=64,0,32 tile-interchange=0,1,2" | FileCheck %s

// Who asks for a size of the probabilities, here to round them, is told the one that they were made with, and does not
// keep them as a whole.
// CHECK-LABEL: func.func @rounded
// CHECK-SAME:      %[[Q:[a-z0-9]+]]: tensor<?x64xf16>, %[[K:[a-z0-9]+]]: tensor<?x64xf16>
// CHECK-DAG:     %[[M:.*]] = tensor.dim %[[Q]]
// CHECK-DAG:     %[[N:.*]] = tensor.dim %[[K]]
// CHECK-NOT:     linalg_ext.softmax
// CHECK:         scf.for %{{.*}} to %[[M]] step
// CHECK:           scf.for %{{.*}} to %[[N]] step
// CHECK:             linalg_ext.softmax
// CHECK:             arith.truncf
#lhs = affine_map<(i, j, d) -> (i, d)>
#rhs = affine_map<(i, j, d) -> (j, d)>
#rhs_t = affine_map<(i, j, d) -> (d, j)>
#out = affine_map<(i, j, d) -> (i, j)>
#id = affine_map<(i, j) -> (i, j)>
func.func @rounded(%q: tensor<?x64xf16>, %k: tensor<?x64xf16>, %v: tensor<?x64xf16>) -> tensor<?x64xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %zero = arith.constant 0.0 : f32
  %lowest = arith.constant 0xFF800000 : f32
  %m = tensor.dim %q, %c0 : tensor<?x64xf16>
  %n = tensor.dim %k, %c0 : tensor<?x64xf16>
  %e = tensor.empty(%m, %n) : tensor<?x?xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<?x?xf32>) -> tensor<?x?xf32>
  %s = linalg.generic {indexing_maps = [#lhs, #rhs, #out], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%q, %k : tensor<?x64xf16>, tensor<?x64xf16>) outs(%z : tensor<?x?xf32>) {
  ^bb0(%x: f16, %y: f16, %a: f32):
    %xw = arith.extf %x : f16 to f32
    %yw = arith.extf %y : f16 to f32
    %t = arith.mulf %xw, %yw : f32
    %u = arith.addf %a, %t : f32
    linalg.yield %u : f32
  } -> tensor<?x?xf32>
  %r = tensor.empty(%m) : tensor<?xf32>
  %max = linalg.fill ins(%lowest : f32) outs(%r : tensor<?xf32>) -> tensor<?xf32>
  %sum = linalg.fill ins(%zero : f32) outs(%r : tensor<?xf32>) -> tensor<?xf32>
  %p:4 = linalg_ext.softmax dimension(1) ins(%s : tensor<?x?xf32>) outs(%e, %max, %sum, %r : tensor<?x?xf32>, tensor<?xf32>, tensor<?xf32>, tensor<?xf32>) : tensor<?x?xf32>, tensor<?xf32>, tensor<?xf32>, tensor<?xf32>
  %pm = tensor.dim %p#0, %c0 : tensor<?x?xf32>
  %pn = tensor.dim %p#0, %c1 : tensor<?x?xf32>
  %he = tensor.empty(%pm, %pn) : tensor<?x?xf16>
  %h = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%p#0 : tensor<?x?xf32>) outs(%he : tensor<?x?xf16>) {
  ^bb0(%x: f32, %y: f16):
    %t = arith.truncf %x : f32 to f16
    linalg.yield %t : f16
  } -> tensor<?x?xf16>
  %oe = tensor.empty(%m) : tensor<?x64xf32>
  %o0 = linalg.fill ins(%zero : f32) outs(%oe : tensor<?x64xf32>) -> tensor<?x64xf32>
  %o = linalg.generic {indexing_maps = [#lhs, #rhs_t, #out], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%h, %v : tensor<?x?xf16>, tensor<?x64xf16>) outs(%o0 : tensor<?x64xf32>) {
  ^bb0(%x: f16, %y: f16, %a: f32):
    %xw = arith.extf %x : f16 to f32
    %yw = arith.extf %y : f16 to f32
    %t = arith.mulf %xw, %yw : f32
    %u = arith.addf %a, %t : f32
    linalg.yield %u : f32
  } -> tensor<?x64xf32>
  return %o : tensor<?x64xf32>
}
