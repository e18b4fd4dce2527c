// RUN: attn-opt %s --outline-kernels --canonicalize --cse | FileCheck %s

#m = affine_map<(i, j) -> (i, j)>
#r = affine_map<(i, j) -> (i)>

// What a loop over parts has made is put together by one kernel with a thread for each element, loop and all, though no
// loop over tiles stands around it: with the division and the rounding, through a view without a dimension of one
// element. What reads other elements of the result is no part of it.

// CHECK-LABEL: gpu.module @merge_kernels
// CHECK:         gpu.func @merge_0
// CHECK:         gpu.func @merge_1({{.*}}) kernel attributes {tile.threads = 64 : i64}
// CHECK:           scf.for
// CHECK:             arith.maxnumf
// CHECK:           arith.divf
// CHECK:           arith.truncf
// CHECK:           memref.store
// CHECK-LABEL: func.func @merge
// CHECK:         gpu.launch_func @merge_kernels::@merge_0 blocks in (%c64
// CHECK:         gpu.launch_func @merge_kernels::@merge_1 blocks in (%c1,
// CHECK-NOT:     scf.for
// CHECK:         linalg.generic
// CHECK:           tensor.extract
func.func @merge(%x: tensor<64x24xf32>) -> tensor<12xf16> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c64 = arith.constant 64 : index
  %low = arith.constant 0xFF800000 : f32
  %two = arith.constant 2.0 : f32
  %pe = tensor.empty() : tensor<64x24xf32>
  %p = scf.forall (%i) in (64) shared_outs(%o = %pe) -> (tensor<64x24xf32>) {
    %in = tensor.extract_slice %x[%i, 0] [1, 24] [1, 1] : tensor<64x24xf32> to tensor<1x24xf32>
    %out = tensor.extract_slice %o[%i, 0] [1, 24] [1, 1] : tensor<64x24xf32> to tensor<1x24xf32>
    %y = linalg.generic {indexing_maps = [#m, #m], iterator_types = ["parallel", "parallel"]}
        ins(%in : tensor<1x24xf32>) outs(%out : tensor<1x24xf32>) {
    ^bb0(%a: f32, %b: f32):
      %c = arith.mulf %a, %two : f32
      linalg.yield %c : f32
    } -> tensor<1x24xf32>
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %y into %o[%i, 0] [1, 24] [1, 1] : tensor<1x24xf32> into tensor<64x24xf32>
    }
  }
  %e = tensor.empty() : tensor<1x24xf32>
  %init = linalg.fill ins(%low : f32) outs(%e : tensor<1x24xf32>) -> tensor<1x24xf32>
  %max = scf.for %k = %c0 to %c64 step %c1 iter_args(%acc = %init) -> (tensor<1x24xf32>) {
    %part = tensor.extract_slice %p[%k, 0] [1, 24] [1, 1] : tensor<64x24xf32> to tensor<1x24xf32>
    %new = linalg.generic {indexing_maps = [#m, #m], iterator_types = ["parallel", "parallel"]}
        ins(%part : tensor<1x24xf32>) outs(%acc : tensor<1x24xf32>) {
    ^bb0(%a: f32, %b: f32):
      %c = arith.maxnumf %a, %b : f32
      linalg.yield %c : f32
    } -> tensor<1x24xf32>
    scf.yield %new : tensor<1x24xf32>
  }
  %half = linalg.generic {indexing_maps = [#m, #m], iterator_types = ["parallel", "parallel"]}
      ins(%max : tensor<1x24xf32>) outs(%e : tensor<1x24xf32>) {
  ^bb0(%a: f32, %b: f32):
    %c = arith.divf %a, %two : f32
    linalg.yield %c : f32
  } -> tensor<1x24xf32>
  %row = tensor.collapse_shape %half [[0, 1]] : tensor<1x24xf32> into tensor<24xf32>
  %ne = tensor.empty() : tensor<24xf16>
  %narrow = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>], iterator_types = ["parallel"]}
      ins(%row : tensor<24xf32>) outs(%ne : tensor<24xf16>) {
  ^bb0(%a: f32, %b: f16):
    %c = arith.truncf %a : f32 to f16
    linalg.yield %c : f16
  } -> tensor<24xf16>
  %se = tensor.empty() : tensor<12xf16>
  %s = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>], iterator_types = ["parallel"]} outs(%se : tensor<12xf16>) {
  ^bb0(%b: f16):
    %i = linalg.index 0 : index
    %j = arith.addi %i, %i : index
    %c = tensor.extract %narrow[%j] : tensor<24xf16>
    linalg.yield %c : f16
  } -> tensor<12xf16>
  return %s : tensor<12xf16>
}

// Two results of a loop whose elements have nothing to do with each other, as gradients by values and, turned, by keys:
// a thread for each element of both would be 40 · 24 · 24 · 40 of them. They are left to ``outline-elements``.

// CHECK-LABEL: gpu.module @turned_kernels
// CHECK:         gpu.func @turned_0
// CHECK-NOT:     gpu.func
// CHECK-LABEL: func.func @turned
// CHECK:         gpu.launch_func @turned_kernels::@turned_0
// CHECK-NOT:     gpu.launch_func
// CHECK-COUNT-2: arith.truncf
func.func @turned(%x: tensor<40x24xf32>) -> (tensor<40x24xf16>, tensor<24x40xf16>) {
  %two = arith.constant 2.0 : f32
  %ae = tensor.empty() : tensor<40x24xf32>
  %be = tensor.empty() : tensor<24x40xf32>
  %p:2 = scf.forall (%i) in (40) shared_outs(%o = %ae, %t = %be) -> (tensor<40x24xf32>, tensor<24x40xf32>) {
    %in = tensor.extract_slice %x[%i, 0] [1, 24] [1, 1] : tensor<40x24xf32> to tensor<1x24xf32>
    %e = tensor.empty() : tensor<1x24xf32>
    %y = linalg.generic {indexing_maps = [#m, #m], iterator_types = ["parallel", "parallel"]}
        ins(%in : tensor<1x24xf32>) outs(%e : tensor<1x24xf32>) {
    ^bb0(%a: f32, %b: f32):
      %c = arith.mulf %a, %two : f32
      linalg.yield %c : f32
    } -> tensor<1x24xf32>
    %te = tensor.empty() : tensor<24x1xf32>
    %z = linalg.generic {indexing_maps = [affine_map<(i, j) -> (j, i)>, #m], iterator_types = ["parallel", "parallel"]}
        ins(%in : tensor<1x24xf32>) outs(%te : tensor<24x1xf32>) {
    ^bb0(%a: f32, %b: f32):
      %c = arith.mulf %a, %two : f32
      linalg.yield %c : f32
    } -> tensor<24x1xf32>
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %y into %o[%i, 0] [1, 24] [1, 1] : tensor<1x24xf32> into tensor<40x24xf32>
      tensor.parallel_insert_slice %z into %t[0, %i] [24, 1] [1, 1] : tensor<24x1xf32> into tensor<24x40xf32>
    }
  }
  %ne = tensor.empty() : tensor<40x24xf16>
  %n = linalg.generic {indexing_maps = [#m, #m], iterator_types = ["parallel", "parallel"]}
      ins(%p#0 : tensor<40x24xf32>) outs(%ne : tensor<40x24xf16>) {
  ^bb0(%a: f32, %b: f16):
    %c = arith.truncf %a : f32 to f16
    linalg.yield %c : f16
  } -> tensor<40x24xf16>
  %we = tensor.empty() : tensor<24x40xf16>
  %w = linalg.generic {indexing_maps = [#m, #m], iterator_types = ["parallel", "parallel"]}
      ins(%p#1 : tensor<24x40xf32>) outs(%we : tensor<24x40xf16>) {
  ^bb0(%a: f32, %b: f16):
    %c = arith.truncf %a : f32 to f16
    linalg.yield %c : f16
  } -> tensor<24x40xf16>
  return %n, %w : tensor<40x24xf16>, tensor<24x40xf16>
}
