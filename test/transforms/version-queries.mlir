// RUN: attn-opt %s --version-queries --split-input-file | FileCheck %s
// RUN: attn-opt %s --version-queries=few=3 --fuse-attention --split-input-file --remarks 2>&1 | FileCheck %s --check-prefix=FUSED

// The scale of the scores, and what is made of the output element by element, come along; the projection of the queries does not.
// FUSED-DAG: remark: up to 3 queries have loops of their own
// FUSED-DAG: remark: up to 1 queries have loops of their own
// CHECK-LABEL: func.func @grouped
// CHECK-SAME:  (%[[Q:.*]]: tensor<2x4x?x64xf32>, %[[K:.*]]: tensor<2x?x64xf32>, %[[V:.*]]: tensor<2x?x64xf32>, %[[N:.*]]: index, %[[M:.*]]: index)
// CHECK:       %[[PROJECTED:.*]] = linalg.generic
// CHECK:       %[[MANY:.*]] = arith.cmpi ugt, %[[N]], %c48
// CHECK:       %[[O:.*]] = scf.if %[[MANY]] -> (tensor<2x4x?x64xbf16>) {
// CHECK:         linalg.generic {{.*}} ins(%[[PROJECTED]], %[[K]] :
// CHECK:         linalg_ext.softmax
// CHECK-NOT:     few_queries
// CHECK:         arith.truncf
// CHECK:         scf.yield
// CHECK:       } else {
// CHECK:         %[[SOME:.*]] = arith.cmpi ugt, %[[N]], %c1
// CHECK:         %[[FEW:.*]] = scf.if %[[SOME]] -> (tensor<2x4x?x64xbf16>) {
// CHECK:           linalg.generic {{.*}} ins(%[[PROJECTED]], %[[K]] :
// CHECK:           linalg_ext.softmax
// CHECK:           linalg.generic {{.*}} {few_queries = 16 : i64}
// CHECK:           arith.truncf
// CHECK:           scf.yield
// CHECK:         } else {
// CHECK:           linalg.generic {{.*}} ins(%[[PROJECTED]], %[[K]] :
// CHECK:           linalg_ext.softmax
// CHECK:           linalg.generic {{.*}} {few_queries = 4 : i64}
// CHECK:           arith.truncf
// CHECK:           scf.yield
// CHECK:         }
// CHECK-NEXT:    scf.yield %[[FEW]]
// CHECK-NEXT:  }
// CHECK-NEXT:  return %[[O]]

// FUSED-LABEL: func.func @grouped
// FUSED:       scf.if
// FUSED:         scf.for %{{.*}} step %c64
// FUSED:           tensor.extract_slice %{{.*}} [1, 1, %{{.*}}, 64]
// FUSED:       } else {
// FUSED:         scf.for %{{.*}} step %c4
// FUSED:           tensor.extract_slice %{{.*}} [1, 4, %{{.*}}, 64]
// FUSED:         } else {
// FUSED:           scf.for
// FUSED:             tensor.extract_slice %{{.*}} [1, 4, 1, 64] [1, 1, 1, 1] : tensor<2x4x?x64xf32> to tensor<1x4x1x64xf32>
func.func @grouped(%q: tensor<2x4x?x64xf32>, %k: tensor<2x?x64xf32>, %v: tensor<2x?x64xf32>, %m: index, %n: index) -> tensor<2x4x?x64xbf16> {
  %zero = arith.constant 0.0 : f32
  %minus_inf = arith.constant 0xFF800000 : f32
  %scale = arith.constant 0.125 : f32
  %weights = arith.constant dense<0.5> : tensor<64x64xf32>
  %qe = tensor.empty(%m) : tensor<2x4x?x64xf32>
  %qz = linalg.fill ins(%zero : f32) outs(%qe : tensor<2x4x?x64xf32>) -> tensor<2x4x?x64xf32>
  %qp = linalg.generic {
    indexing_maps = [affine_map<(h, g, m, d, e) -> (h, g, m, e)>, affine_map<(h, g, m, d, e) -> (e, d)>, affine_map<(h, g, m, d, e) -> (h, g, m, d)>],
    iterator_types = ["parallel", "parallel", "parallel", "parallel", "reduction"]
  } ins(%q, %weights : tensor<2x4x?x64xf32>, tensor<64x64xf32>) outs(%qz : tensor<2x4x?x64xf32>) {
  ^bb0(%a: f32, %b: f32, %c: f32):
    %x = arith.mulf %a, %b : f32
    %y = arith.addf %c, %x : f32
    linalg.yield %y : f32
  } -> tensor<2x4x?x64xf32>
  %se = tensor.empty(%m, %n) : tensor<2x4x?x?xf32>
  %sz = linalg.fill ins(%zero : f32) outs(%se : tensor<2x4x?x?xf32>) -> tensor<2x4x?x?xf32>
  %s = linalg.generic {
    indexing_maps = [affine_map<(h, g, m, n, d) -> (h, g, m, d)>, affine_map<(h, g, m, n, d) -> (h, n, d)>, affine_map<(h, g, m, n, d) -> (h, g, m, n)>],
    iterator_types = ["parallel", "parallel", "parallel", "parallel", "reduction"]
  } ins(%qp, %k : tensor<2x4x?x64xf32>, tensor<2x?x64xf32>) outs(%sz : tensor<2x4x?x?xf32>) {
  ^bb0(%a: f32, %b: f32, %c: f32):
    %x = arith.mulf %a, %b : f32
    %y = arith.addf %c, %x : f32
    linalg.yield %y : f32
  } -> tensor<2x4x?x?xf32>
  %t = linalg.generic {
    indexing_maps = [affine_map<(h, g, m, n) -> (h, g, m, n)>, affine_map<(h, g, m, n) -> (h, g, m, n)>],
    iterator_types = ["parallel", "parallel", "parallel", "parallel"]
  } ins(%s : tensor<2x4x?x?xf32>) outs(%se : tensor<2x4x?x?xf32>) {
  ^bb0(%a: f32, %c: f32):
    %x = arith.mulf %a, %scale : f32
    linalg.yield %x : f32
  } -> tensor<2x4x?x?xf32>
  %re = tensor.empty(%m) : tensor<2x4x?xf32>
  %rm = linalg.fill ins(%minus_inf : f32) outs(%re : tensor<2x4x?xf32>) -> tensor<2x4x?xf32>
  %rz = linalg.fill ins(%zero : f32) outs(%re : tensor<2x4x?xf32>) -> tensor<2x4x?xf32>
  %p:4 = linalg_ext.softmax dimension(3) ins(%t : tensor<2x4x?x?xf32>)
    outs(%se, %rm, %rz, %re : tensor<2x4x?x?xf32>, tensor<2x4x?xf32>, tensor<2x4x?xf32>, tensor<2x4x?xf32>)
    : tensor<2x4x?x?xf32>, tensor<2x4x?xf32>, tensor<2x4x?xf32>, tensor<2x4x?xf32>
  %oe = tensor.empty(%m) : tensor<2x4x?x64xf32>
  %oz = linalg.fill ins(%zero : f32) outs(%oe : tensor<2x4x?x64xf32>) -> tensor<2x4x?x64xf32>
  %o = linalg.generic {
    indexing_maps = [affine_map<(h, g, m, d, n) -> (h, g, m, n)>, affine_map<(h, g, m, d, n) -> (h, n, d)>, affine_map<(h, g, m, d, n) -> (h, g, m, d)>],
    iterator_types = ["parallel", "parallel", "parallel", "parallel", "reduction"]
  } ins(%p#0, %v : tensor<2x4x?x?xf32>, tensor<2x?x64xf32>) outs(%oz : tensor<2x4x?x64xf32>) {
  ^bb0(%a: f32, %b: f32, %c: f32):
    %x = arith.mulf %a, %b : f32
    %y = arith.addf %c, %x : f32
    linalg.yield %y : f32
  } -> tensor<2x4x?x64xf32>
  %ne = tensor.empty(%m) : tensor<2x4x?x64xbf16>
  %narrow = linalg.generic {
    indexing_maps = [affine_map<(h, g, m, d) -> (h, g, m, d)>, affine_map<(h, g, m, d) -> (h, g, m, d)>],
    iterator_types = ["parallel", "parallel", "parallel", "parallel"]
  } ins(%o : tensor<2x4x?x64xf32>) outs(%ne : tensor<2x4x?x64xbf16>) {
  ^bb0(%a: f32, %c: bf16):
    %x = arith.truncf %a : f32 to bf16
    linalg.yield %x : bf16
  } -> tensor<2x4x?x64xbf16>
  return %narrow : tensor<2x4x?x64xbf16>
}

// -----

// The statistics come out of the branches too; they have users before the output is computed.
// CHECK-LABEL: func.func @statistics
// CHECK:       %[[R:.*]]:2 = scf.if %{{.*}} -> (tensor<?xf32>, tensor<?x8xf32>)
// CHECK:       return %[[R]]#1, %[[R]]#0

// As many keys as queries: nothing to gain. A number of queries that is known: nor.
// CHECK-LABEL: func.func @as_many_keys
// CHECK-NOT:   scf.if
// CHECK-LABEL: func.func @known
// CHECK-NOT:   scf.if
func.func @statistics(%q: tensor<?x8xf32>, %kt: tensor<8x?xf32>, %v: tensor<?x8xf32>) -> (tensor<?x8xf32>, tensor<?xf32>) {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : f32
  %minus_inf = arith.constant 0xFF800000 : f32
  %m = tensor.dim %q, %c0 : tensor<?x8xf32>
  %n = tensor.dim %v, %c0 : tensor<?x8xf32>
  %se = tensor.empty(%m, %n) : tensor<?x?xf32>
  %sz = linalg.fill ins(%zero : f32) outs(%se : tensor<?x?xf32>) -> tensor<?x?xf32>
  %s = linalg.matmul ins(%q, %kt : tensor<?x8xf32>, tensor<8x?xf32>) outs(%sz : tensor<?x?xf32>) -> tensor<?x?xf32>
  %re = tensor.empty(%m) : tensor<?xf32>
  %rm = linalg.fill ins(%minus_inf : f32) outs(%re : tensor<?xf32>) -> tensor<?xf32>
  %rz = linalg.fill ins(%zero : f32) outs(%re : tensor<?xf32>) -> tensor<?xf32>
  %p:4 = linalg_ext.softmax dimension(1) ins(%s : tensor<?x?xf32>) outs(%se, %rm, %rz, %re : tensor<?x?xf32>, tensor<?xf32>, tensor<?xf32>, tensor<?xf32>)
    : tensor<?x?xf32>, tensor<?xf32>, tensor<?xf32>, tensor<?xf32>
  %log = linalg.log ins(%p#2 : tensor<?xf32>) outs(%re : tensor<?xf32>) -> tensor<?xf32>
  %lse = linalg.add ins(%log, %p#1 : tensor<?xf32>, tensor<?xf32>) outs(%re : tensor<?xf32>) -> tensor<?xf32>
  %oe = tensor.empty(%m) : tensor<?x8xf32>
  %oz = linalg.fill ins(%zero : f32) outs(%oe : tensor<?x8xf32>) -> tensor<?x8xf32>
  %o = linalg.matmul ins(%p#0, %v : tensor<?x?xf32>, tensor<?x8xf32>) outs(%oz : tensor<?x8xf32>) -> tensor<?x8xf32>
  return %o, %lse : tensor<?x8xf32>, tensor<?xf32>
}

func.func @as_many_keys(%q: tensor<?x8xf32>, %kt: tensor<8x?xf32>) -> tensor<?x8xf32> {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : f32
  %minus_inf = arith.constant 0xFF800000 : f32
  %m = tensor.dim %q, %c0 : tensor<?x8xf32>
  %ve = tensor.empty(%m) : tensor<?x8xf32>
  %v = linalg.exp ins(%q : tensor<?x8xf32>) outs(%ve : tensor<?x8xf32>) -> tensor<?x8xf32>
  %se = tensor.empty(%m, %m) : tensor<?x?xf32>
  %sz = linalg.fill ins(%zero : f32) outs(%se : tensor<?x?xf32>) -> tensor<?x?xf32>
  %s = linalg.matmul ins(%q, %kt : tensor<?x8xf32>, tensor<8x?xf32>) outs(%sz : tensor<?x?xf32>) -> tensor<?x?xf32>
  %re = tensor.empty(%m) : tensor<?xf32>
  %rm = linalg.fill ins(%minus_inf : f32) outs(%re : tensor<?xf32>) -> tensor<?xf32>
  %rz = linalg.fill ins(%zero : f32) outs(%re : tensor<?xf32>) -> tensor<?xf32>
  %p:4 = linalg_ext.softmax dimension(1) ins(%s : tensor<?x?xf32>) outs(%se, %rm, %rz, %re : tensor<?x?xf32>, tensor<?xf32>, tensor<?xf32>, tensor<?xf32>)
    : tensor<?x?xf32>, tensor<?xf32>, tensor<?xf32>, tensor<?xf32>
  %oz = linalg.fill ins(%zero : f32) outs(%ve : tensor<?x8xf32>) -> tensor<?x8xf32>
  %o = linalg.matmul ins(%p#0, %v : tensor<?x?xf32>, tensor<?x8xf32>) outs(%oz : tensor<?x8xf32>) -> tensor<?x8xf32>
  return %o : tensor<?x8xf32>
}

func.func @known(%q: tensor<5x8xf32>, %kt: tensor<8x?xf32>, %v: tensor<?x8xf32>) -> tensor<5x8xf32> {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : f32
  %minus_inf = arith.constant 0xFF800000 : f32
  %n = tensor.dim %v, %c0 : tensor<?x8xf32>
  %se = tensor.empty(%n) : tensor<5x?xf32>
  %sz = linalg.fill ins(%zero : f32) outs(%se : tensor<5x?xf32>) -> tensor<5x?xf32>
  %s = linalg.matmul ins(%q, %kt : tensor<5x8xf32>, tensor<8x?xf32>) outs(%sz : tensor<5x?xf32>) -> tensor<5x?xf32>
  %re = tensor.empty() : tensor<5xf32>
  %rm = linalg.fill ins(%minus_inf : f32) outs(%re : tensor<5xf32>) -> tensor<5xf32>
  %rz = linalg.fill ins(%zero : f32) outs(%re : tensor<5xf32>) -> tensor<5xf32>
  %p:4 = linalg_ext.softmax dimension(1) ins(%s : tensor<5x?xf32>) outs(%se, %rm, %rz, %re : tensor<5x?xf32>, tensor<5xf32>, tensor<5xf32>, tensor<5xf32>)
    : tensor<5x?xf32>, tensor<5xf32>, tensor<5xf32>, tensor<5xf32>
  %oe = tensor.empty() : tensor<5x8xf32>
  %oz = linalg.fill ins(%zero : f32) outs(%oe : tensor<5x8xf32>) -> tensor<5x8xf32>
  %o = linalg.matmul ins(%p#0, %v : tensor<5x?xf32>, tensor<?x8xf32>) outs(%oz : tensor<5x8xf32>) -> tensor<5x8xf32>
  return %o : tensor<5x8xf32>
}

// -----

// The sum of the scores is computed before the loops, and needed in them: there is nothing to choose between.
// CHECK-LABEL: func.func @sum_between
// CHECK-NOT:   scf.if
func.func @sum_between(%q: tensor<?x8xf32>, %kt: tensor<8x?xf32>, %v: tensor<?x8xf32>) -> tensor<?x8xf32> {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : f32
  %minus_inf = arith.constant 0xFF800000 : f32
  %m = tensor.dim %q, %c0 : tensor<?x8xf32>
  %n = tensor.dim %v, %c0 : tensor<?x8xf32>
  %se = tensor.empty(%m, %n) : tensor<?x?xf32>
  %sz = linalg.fill ins(%zero : f32) outs(%se : tensor<?x?xf32>) -> tensor<?x?xf32>
  %s = linalg.matmul ins(%q, %kt : tensor<?x8xf32>, tensor<8x?xf32>) outs(%sz : tensor<?x?xf32>) -> tensor<?x?xf32>
  %re = tensor.empty(%m) : tensor<?xf32>
  %rm = linalg.fill ins(%minus_inf : f32) outs(%re : tensor<?xf32>) -> tensor<?xf32>
  %rz = linalg.fill ins(%zero : f32) outs(%re : tensor<?xf32>) -> tensor<?xf32>
  %sum = linalg.reduce { arith.addf } ins(%s : tensor<?x?xf32>) outs(%rz : tensor<?xf32>) dimensions = [1]
  %x = linalg.generic {
    indexing_maps = [affine_map<(m, n) -> (m, n)>, affine_map<(m, n) -> (m)>, affine_map<(m, n) -> (m, n)>],
    iterator_types = ["parallel", "parallel"]
  } ins(%s, %sum : tensor<?x?xf32>, tensor<?xf32>) outs(%se : tensor<?x?xf32>) {
  ^bb0(%a: f32, %b: f32, %c: f32):
    %y = arith.divf %a, %b : f32
    linalg.yield %y : f32
  } -> tensor<?x?xf32>
  %p:4 = linalg_ext.softmax dimension(1) ins(%x : tensor<?x?xf32>) outs(%se, %rm, %rz, %re : tensor<?x?xf32>, tensor<?xf32>, tensor<?xf32>, tensor<?xf32>)
    : tensor<?x?xf32>, tensor<?xf32>, tensor<?xf32>, tensor<?xf32>
  %oe = tensor.empty(%m) : tensor<?x8xf32>
  %oz = linalg.fill ins(%zero : f32) outs(%oe : tensor<?x8xf32>) -> tensor<?x8xf32>
  %o = linalg.matmul ins(%p#0, %v : tensor<?x?xf32>, tensor<?x8xf32>) outs(%oz : tensor<?x8xf32>) -> tensor<?x8xf32>
  return %o : tensor<?x8xf32>
}

// -----

// A reshape to computed sizes has no tiles: it, and what it alone needs, stays before the choice.
// CHECK-LABEL: func.func @reshaped
// CHECK:         linalg.generic
// CHECK:         tensor.reshape
// CHECK:         scf.if
// CHECK-NOT:     tensor.reshape
// CHECK-NOT:     math.tanh
func.func @reshaped(%q0: tensor<?xf32>, %shape: tensor<2xi64>, %kt: tensor<8x?xf32>, %v: tensor<?x8xf32>) -> tensor<?x8xf32> {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : f32
  %minus_inf = arith.constant 0xFF800000 : f32
  %all = tensor.dim %q0, %c0 : tensor<?xf32>
  %qe = tensor.empty(%all) : tensor<?xf32>
  %q1 = linalg.generic {indexing_maps = [affine_map<(m) -> (m)>, affine_map<(m) -> (m)>], iterator_types = ["parallel"]} ins(%q0 : tensor<?xf32>) outs(%qe : tensor<?xf32>) {
  ^bb0(%a: f32, %b: f32):
    %y = math.tanh %a : f32
    linalg.yield %y : f32
  } -> tensor<?xf32>
  %q = tensor.reshape %q1(%shape) : (tensor<?xf32>, tensor<2xi64>) -> tensor<?x8xf32>
  %m = tensor.dim %q, %c0 : tensor<?x8xf32>
  %n = tensor.dim %v, %c0 : tensor<?x8xf32>
  %se = tensor.empty(%m, %n) : tensor<?x?xf32>
  %sz = linalg.fill ins(%zero : f32) outs(%se : tensor<?x?xf32>) -> tensor<?x?xf32>
  %s = linalg.matmul ins(%q, %kt : tensor<?x8xf32>, tensor<8x?xf32>) outs(%sz : tensor<?x?xf32>) -> tensor<?x?xf32>
  %re = tensor.empty(%m) : tensor<?xf32>
  %rm = linalg.fill ins(%minus_inf : f32) outs(%re : tensor<?xf32>) -> tensor<?xf32>
  %rz = linalg.fill ins(%zero : f32) outs(%re : tensor<?xf32>) -> tensor<?xf32>
  %p:4 = linalg_ext.softmax dimension(1) ins(%s : tensor<?x?xf32>) outs(%se, %rm, %rz, %re : tensor<?x?xf32>, tensor<?xf32>, tensor<?xf32>, tensor<?xf32>)
    : tensor<?x?xf32>, tensor<?xf32>, tensor<?xf32>, tensor<?xf32>
  %oe = tensor.empty(%m) : tensor<?x8xf32>
  %oz = linalg.fill ins(%zero : f32) outs(%oe : tensor<?x8xf32>) -> tensor<?x8xf32>
  %o = linalg.matmul ins(%p#0, %v : tensor<?x?xf32>, tensor<?x8xf32>) outs(%oz : tensor<?x8xf32>) -> tensor<?x8xf32>
  return %o : tensor<?x8xf32>
}

// -----

// What is computed of the scores' sum, which stands after the choice, stands there too.
// CHECK-LABEL: func.func @sum_besides
// CHECK:         %[[CHOSEN:.*]]:2 = scf.if
// CHECK:         %[[SUM:.*]] = linalg.reduce { arith.addf } ins(%[[CHOSEN]]#0
// CHECK:         %[[X:.*]] = linalg.generic {{.*}} ins(%[[CHOSEN]]#0, %[[SUM]]
// CHECK:         return %[[CHOSEN]]#1, %[[X]]
func.func @sum_besides(%q: tensor<?x8xf32>, %kt: tensor<8x?xf32>, %v: tensor<?x8xf32>) -> (tensor<?x8xf32>, tensor<?x?xf32>) {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : f32
  %minus_inf = arith.constant 0xFF800000 : f32
  %m = tensor.dim %q, %c0 : tensor<?x8xf32>
  %n = tensor.dim %v, %c0 : tensor<?x8xf32>
  %se = tensor.empty(%m, %n) : tensor<?x?xf32>
  %sz = linalg.fill ins(%zero : f32) outs(%se : tensor<?x?xf32>) -> tensor<?x?xf32>
  %s = linalg.matmul ins(%q, %kt : tensor<?x8xf32>, tensor<8x?xf32>) outs(%sz : tensor<?x?xf32>) -> tensor<?x?xf32>
  %re = tensor.empty(%m) : tensor<?xf32>
  %rm = linalg.fill ins(%minus_inf : f32) outs(%re : tensor<?xf32>) -> tensor<?xf32>
  %rz = linalg.fill ins(%zero : f32) outs(%re : tensor<?xf32>) -> tensor<?xf32>
  %sum = linalg.reduce { arith.addf } ins(%s : tensor<?x?xf32>) outs(%rz : tensor<?xf32>) dimensions = [1]
  %x = linalg.generic {
    indexing_maps = [affine_map<(m, n) -> (m, n)>, affine_map<(m, n) -> (m)>, affine_map<(m, n) -> (m, n)>],
    iterator_types = ["parallel", "parallel"]
  } ins(%s, %sum : tensor<?x?xf32>, tensor<?xf32>) outs(%se : tensor<?x?xf32>) {
  ^bb0(%a: f32, %b: f32, %c: f32):
    %y = arith.divf %a, %b : f32
    linalg.yield %y : f32
  } -> tensor<?x?xf32>
  %p:4 = linalg_ext.softmax dimension(1) ins(%s : tensor<?x?xf32>) outs(%se, %rm, %rz, %re : tensor<?x?xf32>, tensor<?xf32>, tensor<?xf32>, tensor<?xf32>)
    : tensor<?x?xf32>, tensor<?xf32>, tensor<?xf32>, tensor<?xf32>
  %oe = tensor.empty(%m) : tensor<?x8xf32>
  %oz = linalg.fill ins(%zero : f32) outs(%oe : tensor<?x8xf32>) -> tensor<?x8xf32>
  %o = linalg.matmul ins(%p#0, %v : tensor<?x?xf32>, tensor<?x8xf32>) outs(%oz : tensor<?x8xf32>) -> tensor<?x8xf32>
  return %o, %x : tensor<?x8xf32>, tensor<?x?xf32>
}
