// RUN: attn-opt %s --align-rows | FileCheck %s

// A mask that all heads share is copied to rows of 304 bytes; the bias that each head has its own of is not: 2 bytes an
// element, and one head that reads them.
// CHECK-LABEL: func.func @masked
// CHECK-SAME:      %[[MASK:[a-z0-9]+]]: tensor<200x301xi1>, %[[BIAS:[a-z0-9]+]]: tensor<8x200x301xbf16>
// CHECK:         %[[COPY:.*]] = tensor.pad %[[MASK]] low[0, 0] high[0, 3]
// CHECK:           tensor.yield %false
// CHECK:         } {tile.copy} : tensor<200x301xi1> to tensor<200x304xi1>
// CHECK-NOT:     tensor.pad
// CHECK:         scf.forall
// CHECK:           tensor.extract_slice %[[COPY]][{{.*}}] [96, 43] [1, 1] : tensor<200x304xi1> to tensor<96x43xi1>
// CHECK:           tensor.extract_slice %[[BIAS]]
// CHECK-NOT:     %[[MASK]]

#lhs = affine_map<(i, j, d) -> (i, d)>
#rhs = affine_map<(i, j, d) -> (j, d)>
#out = affine_map<(i, j, d) -> (i, j)>
#id = affine_map<(i, j) -> (i, j)>
#values = affine_map<(i, j, d) -> (d, j)>
func.func @masked(%mask: tensor<200x301xi1>, %bias: tensor<8x200x301xbf16>, %q: tensor<8x192x64xf16>, %k: tensor<8x301x64xf16>,
                  %e: tensor<8x192x43xf32>, %z: tensor<96x43xf32>) -> tensor<8x192x43xf32> {
  %r = scf.forall (%h, %i) = (0, 0) to (8, 192) step (1, 96) shared_outs(%o = %e) -> (tensor<8x192x43xf32>) {
    %qt = tensor.extract_slice %q[%h, %i, 0] [1, 96, 64] [1, 1, 1] : tensor<8x192x64xf16> to tensor<96x64xf16>
    %kt = tensor.extract_slice %k[%h, 256, 0] [1, 43, 64] [1, 1, 1] : tensor<8x301x64xf16> to tensor<43x64xf16>
    %s = linalg.generic {indexing_maps = [#lhs, #rhs, #out], iterator_types = ["parallel", "parallel", "reduction"]}
        ins(%qt, %kt : tensor<96x64xf16>, tensor<43x64xf16>) outs(%z : tensor<96x43xf32>) {
    ^bb0(%x: f16, %y: f16, %a: f32):
      %xw = arith.extf %x : f16 to f32
      %yw = arith.extf %y : f16 to f32
      %t = arith.mulf %xw, %yw : f32
      %u = arith.addf %a, %t : f32
      linalg.yield %u : f32
    } -> tensor<96x43xf32>
    %m = tensor.extract_slice %mask[%i, 256] [96, 43] [1, 1] : tensor<200x301xi1> to tensor<96x43xi1>
    %b = tensor.extract_slice %bias[%h, %i, 256] [1, 96, 43] [1, 1, 1] : tensor<8x200x301xbf16> to tensor<96x43xbf16>
    %t = linalg.generic {indexing_maps = [#id, #id, #id, #id], iterator_types = ["parallel", "parallel"]}
        ins(%s, %m, %b : tensor<96x43xf32>, tensor<96x43xi1>, tensor<96x43xbf16>) outs(%z : tensor<96x43xf32>) {
    ^bb0(%x: f32, %live: i1, %y: bf16, %a: f32):
      %yw = arith.extf %y : bf16 to f32
      %u = arith.addf %x, %yw : f32
      %v = arith.select %live, %u, %a : f32
      linalg.yield %v : f32
    } -> tensor<96x43xf32>
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %t into %o[%h, %i, 0] [1, 96, 43] [1, 1, 1] : tensor<96x43xf32> into tensor<8x192x43xf32>
    }
  }
  return %r : tensor<8x192x43xf32>
}

// Queries and keys of 33 elements are copied to rows of 80 bytes; keys are a slice of a cache, as long as an argument says. Values have aligned rows.
// CHECK-LABEL: func.func @heads
// CHECK-SAME:      %[[Q:[a-z0-9]+]]: tensor<8x192x33xf16>, %[[CACHE:[a-z0-9]+]]: tensor<8x512x33xf16>, %[[V:[a-z0-9]+]]: tensor<8x?x64xf16>, %[[N:[a-z0-9]+]]: index
// CHECK:         %[[KEYS:.*]] = tensor.extract_slice %[[CACHE]][0, 7, 0] [8, %[[N]], 33]
// CHECK:         %[[QP:.*]] = tensor.pad %[[Q]] low[0, 0, 0] high[0, 0, 7]
// CHECK:         } {tile.copy} : tensor<8x192x33xf16> to tensor<8x192x40xf16>
// CHECK:         %[[KP:.*]] = tensor.pad %[[KEYS]] low[0, 0, 0] high[0, 0, 7]
// CHECK:         } {tile.copy} : tensor<8x?x33xf16> to tensor<8x?x40xf16>
// CHECK-NOT:     tensor.pad
// CHECK:         scf.forall
// CHECK:           tensor.extract_slice %[[QP]][{{.*}}] [1, 96, 33] [1, 1, 1] : tensor<8x192x40xf16> to tensor<96x33xf16>
// CHECK:           tensor.extract_slice %[[KP]][{{.*}}] [1, 48, 33] [1, 1, 1] : tensor<8x?x40xf16> to tensor<48x33xf16>
// CHECK:           tensor.extract_slice %[[V]]
func.func @heads(%q: tensor<8x192x33xf16>, %cache: tensor<8x512x33xf16>, %v: tensor<8x?x64xf16>, %n: index, %e: tensor<8x192x64xf32>,
                 %z: tensor<96x48xf32>, %y: tensor<96x64xf32>) -> tensor<8x192x64xf32> {
  %k = tensor.extract_slice %cache[0, 7, 0] [8, %n, 33] [1, 1, 1] : tensor<8x512x33xf16> to tensor<8x?x33xf16>
  %r = scf.forall (%h, %i) = (0, 0) to (8, 192) step (1, 96) shared_outs(%o = %e) -> (tensor<8x192x64xf32>) {
    %qt = tensor.extract_slice %q[%h, %i, 0] [1, 96, 33] [1, 1, 1] : tensor<8x192x33xf16> to tensor<96x33xf16>
    %kt = tensor.extract_slice %k[%h, 0, 0] [1, 48, 33] [1, 1, 1] : tensor<8x?x33xf16> to tensor<48x33xf16>
    %vt = tensor.extract_slice %v[%h, 0, 0] [1, 48, 64] [1, 1, 1] : tensor<8x?x64xf16> to tensor<48x64xf16>
    %s = linalg.generic {indexing_maps = [#lhs, #rhs, #out], iterator_types = ["parallel", "parallel", "reduction"]}
        ins(%qt, %kt : tensor<96x33xf16>, tensor<48x33xf16>) outs(%z : tensor<96x48xf32>) {
    ^bb0(%x: f16, %w: f16, %a: f32):
      %xw = arith.extf %x : f16 to f32
      %ww = arith.extf %w : f16 to f32
      %t = arith.mulf %xw, %ww : f32
      %u = arith.addf %a, %t : f32
      linalg.yield %u : f32
    } -> tensor<96x48xf32>
    %pe = tensor.empty() : tensor<96x48xf16>
    %p = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
        ins(%s : tensor<96x48xf32>) outs(%pe : tensor<96x48xf16>) {
    ^bb0(%x: f32, %old: f16):
      %h16 = arith.truncf %x : f32 to f16
      linalg.yield %h16 : f16
    } -> tensor<96x48xf16>
    %t = linalg.generic {indexing_maps = [#lhs, #values, #out], iterator_types = ["parallel", "parallel", "reduction"]}
        ins(%p, %vt : tensor<96x48xf16>, tensor<48x64xf16>) outs(%y : tensor<96x64xf32>) {
    ^bb0(%x: f16, %w: f16, %a: f32):
      %xw = arith.extf %x : f16 to f32
      %ww = arith.extf %w : f16 to f32
      %m = arith.mulf %xw, %ww : f32
      %u = arith.addf %a, %m : f32
      linalg.yield %u : f32
    } -> tensor<96x64xf32>
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %t into %o[%h, %i, 0] [1, 96, 64] [1, 1, 1] : tensor<96x64xf32> into tensor<8x192x64xf32>
    }
  }
  return %r : tensor<8x192x64xf32>
}

// Nothing is copied where the engine could not bring all right operands even so: keys that are computed from several
// tensors (and with them the mask of all heads); keys whose number comes from data, which the host does not know; keys
// that only 64 queries read.
// CHECK-LABEL: func.func @computed
// CHECK-NOT:     tensor.pad
// CHECK-LABEL: func.func @unknown
// CHECK-NOT:     tensor.pad
// CHECK-LABEL: func.func @few
// CHECK-NOT:     tensor.pad
func.func @computed(%q: tensor<8x192x64xf16>, %k: tensor<8x48x64xf16>, %scale: tensor<8x48xf16>, %mask: tensor<192x51xi1>,
                    %e: tensor<8x192x48xf32>, %z: tensor<96x48xf32>) -> tensor<8x192x48xf32> {
  %r = scf.forall (%h, %i) = (0, 0) to (8, 192) step (1, 96) shared_outs(%o = %e) -> (tensor<8x192x48xf32>) {
    %qt = tensor.extract_slice %q[%h, %i, 0] [1, 96, 64] [1, 1, 1] : tensor<8x192x64xf16> to tensor<96x64xf16>
    %kt = tensor.extract_slice %k[%h, 0, 0] [1, 48, 64] [1, 1, 1] : tensor<8x48x64xf16> to tensor<48x64xf16>
    %st = tensor.extract_slice %scale[%h, 0] [1, 48] [1, 1] : tensor<8x48xf16> to tensor<48xf16>
    %ce = tensor.empty() : tensor<48x64xf16>
    %c = linalg.generic {indexing_maps = [#id, affine_map<(i, j) -> (i)>, #id], iterator_types = ["parallel", "parallel"]}
        ins(%kt, %st : tensor<48x64xf16>, tensor<48xf16>) outs(%ce : tensor<48x64xf16>) {
    ^bb0(%x: f16, %w: f16, %old: f16):
      %m = arith.mulf %x, %w : f16
      linalg.yield %m : f16
    } -> tensor<48x64xf16>
    %s = linalg.generic {indexing_maps = [#lhs, #rhs, #out], iterator_types = ["parallel", "parallel", "reduction"]}
        ins(%qt, %c : tensor<96x64xf16>, tensor<48x64xf16>) outs(%z : tensor<96x48xf32>) {
    ^bb0(%x: f16, %w: f16, %a: f32):
      %xw = arith.extf %x : f16 to f32
      %ww = arith.extf %w : f16 to f32
      %t = arith.mulf %xw, %ww : f32
      %u = arith.addf %a, %t : f32
      linalg.yield %u : f32
    } -> tensor<96x48xf32>
    %mt = tensor.extract_slice %mask[%i, 0] [96, 48] [1, 1] : tensor<192x51xi1> to tensor<96x48xi1>
    %t = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
        ins(%s, %mt : tensor<96x48xf32>, tensor<96x48xi1>) outs(%z : tensor<96x48xf32>) {
    ^bb0(%x: f32, %live: i1, %a: f32):
      %u = arith.select %live, %x, %a : f32
      linalg.yield %u : f32
    } -> tensor<96x48xf32>
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %t into %o[%h, %i, 0] [1, 96, 48] [1, 1, 1] : tensor<96x48xf32> into tensor<8x192x48xf32>
    }
  }
  return %r : tensor<8x192x48xf32>
}

func.func @unknown(%q: tensor<8x192x33xf16>, %cache: tensor<8x512x33xf16>, %length: tensor<index>, %e: tensor<8x192x48xf32>,
                   %z: tensor<96x48xf32>) -> tensor<8x192x48xf32> {
  %n = tensor.extract %length[] : tensor<index>
  %k = tensor.extract_slice %cache[0, 0, 0] [8, %n, 33] [1, 1, 1] : tensor<8x512x33xf16> to tensor<8x?x33xf16>
  %r = scf.forall (%h, %i) = (0, 0) to (8, 192) step (1, 96) shared_outs(%o = %e) -> (tensor<8x192x48xf32>) {
    %qt = tensor.extract_slice %q[%h, %i, 0] [1, 96, 33] [1, 1, 1] : tensor<8x192x33xf16> to tensor<96x33xf16>
    %kt = tensor.extract_slice %k[%h, 0, 0] [1, 48, 33] [1, 1, 1] : tensor<8x?x33xf16> to tensor<48x33xf16>
    %s = linalg.generic {indexing_maps = [#lhs, #rhs, #out], iterator_types = ["parallel", "parallel", "reduction"]}
        ins(%qt, %kt : tensor<96x33xf16>, tensor<48x33xf16>) outs(%z : tensor<96x48xf32>) {
    ^bb0(%x: f16, %w: f16, %a: f32):
      %xw = arith.extf %x : f16 to f32
      %ww = arith.extf %w : f16 to f32
      %t = arith.mulf %xw, %ww : f32
      %u = arith.addf %a, %t : f32
      linalg.yield %u : f32
    } -> tensor<96x48xf32>
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %s into %o[%h, %i, 0] [1, 96, 48] [1, 1, 1] : tensor<96x48xf32> into tensor<8x192x48xf32>
    }
  }
  return %r : tensor<8x192x48xf32>
}

func.func @few(%q: tensor<8x64x33xf16>, %k: tensor<8x48x33xf16>, %e: tensor<8x64x48xf32>, %z: tensor<64x48xf32>) -> tensor<8x64x48xf32> {
  %r = scf.forall (%h) = (0) to (8) step (1) shared_outs(%o = %e) -> (tensor<8x64x48xf32>) {
    %qt = tensor.extract_slice %q[%h, 0, 0] [1, 64, 33] [1, 1, 1] : tensor<8x64x33xf16> to tensor<64x33xf16>
    %kt = tensor.extract_slice %k[%h, 0, 0] [1, 48, 33] [1, 1, 1] : tensor<8x48x33xf16> to tensor<48x33xf16>
    %s = linalg.generic {indexing_maps = [#lhs, #rhs, #out], iterator_types = ["parallel", "parallel", "reduction"]}
        ins(%qt, %kt : tensor<64x33xf16>, tensor<48x33xf16>) outs(%z : tensor<64x48xf32>) {
    ^bb0(%x: f16, %w: f16, %a: f32):
      %xw = arith.extf %x : f16 to f32
      %ww = arith.extf %w : f16 to f32
      %t = arith.mulf %xw, %ww : f32
      %u = arith.addf %a, %t : f32
      linalg.yield %u : f32
    } -> tensor<64x48xf32>
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %s into %o[%h, 0, 0] [1, 64, 48] [1, 1, 1] : tensor<64x48xf32> into tensor<8x64x48xf32>
    }
  }
  return %r : tensor<8x64x48xf32>
}
