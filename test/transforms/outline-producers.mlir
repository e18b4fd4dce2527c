// What a loop reads, element by element, is one kernel; a thread computes 16 bytes of a row.
// RUN: attn-opt %s --outline-producers="multiprocessors=1" --canonicalize --cse | FileCheck %s

// A rotated head: its halves change places by a branch that is the same for eight elements.

// CHECK-LABEL: gpu.func @f_producers_0
// CHECK-SAME:    (%[[Q:[a-z0-9]*]]: memref<128x32xf16, strided<[?, 1]>>, %[[OUT:[a-z0-9]*]]: memref<128x32xf16, strided<[?, 1]>>,
// CHECK:         %[[INSIDE:.*]] = arith.cmpi ult, %{{.*}}, %c512
// CHECK:         scf.if %[[INSIDE]] {
// CHECK:           %[[P:.*]] = arith.remui %{{.*}}, %c4
// CHECK:           %[[I:.*]] = arith.divui %{{.*}}, %c4
// CHECK:           %[[J:.*]] = arith.muli %[[P]], %c8
// CHECK:           %[[LEFT:.*]] = arith.cmpi slt, %[[J]], %c16
// CHECK:           %[[H:.*]]:8 = scf.if %[[LEFT]]
// CHECK:             vector.load %[[Q]][%[[I]], %{{.*}}] : memref<128x32xf16, strided<[?, 1]>>, vector<8xf16>
// CHECK-COUNT-8:     arith.negf
// CHECK:           } else {
// CHECK:             vector.load %[[Q]]
// CHECK:           vector.load %[[Q]][%[[I]], %[[J]]]
// CHECK-COUNT-8:   arith.addf
// CHECK:           vector.store %{{.*}}, %[[OUT]][%[[I]], %[[J]]]
// CHECK:         }

// Pairs that change places: no branch, one load.
// CHECK:         arith.subi %{{.*}}, %c2
// CHECK:         scf.if
// CHECK:           %[[X:.*]] = vector.load
// CHECK-NOT:       vector.load
// CHECK:           %[[A:.*]] = vector.extract %[[X]][1]
// CHECK:           %[[B:.*]] = vector.extract %[[X]][0]
// CHECK:           vector.from_elements %[[A]], %[[B]],
// CHECK:         gpu.return

// CHECK-LABEL: func.func @f
// CHECK-COUNT-2: memref.alloc
// CHECK:         gpu.launch_func @f_kernels::@f_producers_0 blocks in (%c4,
// CHECK-NOT:     linalg.generic
// CHECK:         scf.forall

// A scalar that is all of a tensor is its only element.

// CHECK-LABEL: gpu.func @scalar_producers_0
// CHECK:         memref.load %{{.*}}[%c0, %c0] : memref<1x1xf16, strided<[?, 1]>>

#id = affine_map<(i, j) -> (i, j)>
#none = affine_map<(i, j) -> ()>
func.func @f(%q: tensor<128x32xf16>, %k: tensor<128x32xf16>) -> tensor<128x32xf16> {
  %a = tensor.extract_slice %q[0, 0] [128, 16] [1, 1] : tensor<128x32xf16> to tensor<128x16xf16>
  %b = tensor.extract_slice %q[0, 16] [128, 16] [1, 1] : tensor<128x32xf16> to tensor<128x16xf16>
  %half = tensor.empty() : tensor<128x16xf16>
  %n = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%b : tensor<128x16xf16>) outs(%half : tensor<128x16xf16>) {
  ^bb0(%x: f16, %old: f16):
    %y = arith.negf %x : f16
    linalg.yield %y : f16
  } -> tensor<128x16xf16>
  %h = tensor.concat dim(1) %n, %a : (tensor<128x16xf16>, tensor<128x16xf16>) -> tensor<128x32xf16>
  %whole = tensor.empty() : tensor<128x32xf16>
  %r = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%h, %q : tensor<128x32xf16>, tensor<128x32xf16>) outs(%whole : tensor<128x32xf16>) {
  ^bb0(%x: f16, %y: f16, %old: f16):
    %z = arith.addf %x, %y : f16
    linalg.yield %z : f16
  } -> tensor<128x32xf16>
  %w = tensor.expand_shape %k [[0], [1, 2]] output_shape [128, 16, 2] : tensor<128x32xf16> into tensor<128x16x2xf16>
  %odd = tensor.extract_slice %w[0, 0, 1] [128, 16, 1] [1, 1, 1] : tensor<128x16x2xf16> to tensor<128x16x1xf16>
  %even = tensor.extract_slice %w[0, 0, 0] [128, 16, 1] [1, 1, 1] : tensor<128x16x2xf16> to tensor<128x16x1xf16>
  %c = tensor.concat dim(2) %odd, %even : (tensor<128x16x1xf16>, tensor<128x16x1xf16>) -> tensor<128x16x2xf16>
  %s = tensor.collapse_shape %c [[0], [1, 2]] : tensor<128x16x2xf16> into tensor<128x32xf16>
  %out = tensor.empty() : tensor<128x32xf16>
  %o = scf.forall (%i) = (0) to (128) step (64) shared_outs(%to = %out) -> (tensor<128x32xf16>) {
    %x = tensor.extract_slice %r[%i, 0] [64, 32] [1, 1] : tensor<128x32xf16> to tensor<64x32xf16>
    %y = tensor.extract_slice %s[%i, 0] [64, 32] [1, 1] : tensor<128x32xf16> to tensor<64x32xf16>
    %e = tensor.empty() : tensor<64x32xf16>
    %z = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
        ins(%x, %y : tensor<64x32xf16>, tensor<64x32xf16>) outs(%e : tensor<64x32xf16>) {
    ^bb0(%p: f16, %v: f16, %old: f16):
      %t = arith.addf %p, %v : f16
      linalg.yield %t : f16
    } -> tensor<64x32xf16>
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %z into %to[%i, 0] [64, 32] [1, 1] : tensor<64x32xf16> into tensor<128x32xf16>
    }
  }
  return %o : tensor<128x32xf16>
}
func.func @scalar(%q: tensor<128x32xf16>, %g: tensor<1x1xf16>) -> tensor<128x32xf16> {
  %s = tensor.collapse_shape %g [] : tensor<1x1xf16> into tensor<f16>
  %e = tensor.empty() : tensor<128x32xf16>
  %r = linalg.generic {indexing_maps = [#id, #none, #id], iterator_types = ["parallel", "parallel"]}
      ins(%q, %s : tensor<128x32xf16>, tensor<f16>) outs(%e : tensor<128x32xf16>) {
  ^bb0(%x: f16, %y: f16, %old: f16):
    %z = arith.mulf %x, %y : f16
    linalg.yield %z : f16
  } -> tensor<128x32xf16>
  %o = scf.forall (%i) = (0) to (128) step (64) shared_outs(%out = %e) -> (tensor<128x32xf16>) {
    %t = tensor.extract_slice %r[%i, 0] [64, 32] [1, 1] : tensor<128x32xf16> to tensor<64x32xf16>
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %t into %out[%i, 0] [64, 32] [1, 1] : tensor<64x32xf16> into tensor<128x32xf16>
    }
  }
  return %o : tensor<128x32xf16>
}
