// RUN: attn-opt %s --fuse-consumers=narrow=1 | FileCheck %s

#id = affine_map<(d0) -> (d0)>

// A comparison on the way to floats is computed on the tiles, and not stored: the loop writes what is returned alone.
// CHECK-LABEL: func.func @on_the_way
//       CHECK:   %[[R:.*]] = scf.forall {{.*}} -> (tensor<96xf32>)
//       CHECK:     arith.cmpf
//       CHECK:     arith.select
//       CHECK:   return %[[R]]
func.func @on_the_way(%x: f32, %b0: tensor<96xf32>) -> tensor<96xf32> {
  %zero = arith.constant 0.0 : f32
  %r = scf.forall (%i) = (0) to (96) step (32) shared_outs(%b = %b0) -> (tensor<96xf32>) {
    %bt = tensor.extract_slice %b[%i] [32] [1] : tensor<96xf32> to tensor<32xf32>
    %b1 = linalg.fill ins(%x : f32) outs(%bt : tensor<32xf32>) -> tensor<32xf32>
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %b1 into %b[%i] [32] [1] : tensor<32xf32> into tensor<96xf32>
    }
  }
  %e1 = tensor.empty() : tensor<96xi1>
  %c = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%r : tensor<96xf32>) outs(%e1 : tensor<96xi1>) {
  ^bb0(%u: f32, %w: i1):
    %d = arith.cmpf oeq, %u, %zero : f32
    linalg.yield %d : i1
  } -> tensor<96xi1>
  %e2 = tensor.empty() : tensor<96xf32>
  %s = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel"]} ins(%r, %c : tensor<96xf32>, tensor<96xi1>) outs(%e2 : tensor<96xf32>) {
  ^bb0(%u: f32, %t: i1, %w: f32):
    %d = arith.select %t, %zero, %u : f32
    linalg.yield %d : f32
  } -> tensor<96xf32>
  return %s : tensor<96xf32>
}

// One that is returned is computed after the loop.
// CHECK-LABEL: func.func @returned
//       CHECK:   scf.forall {{.*}} -> (tensor<96xf32>)
//   CHECK-NOT:     arith.cmpf
//       CHECK:   }
//       CHECK:   arith.cmpf
func.func @returned(%x: f32, %b0: tensor<96xf32>) -> tensor<96xi1> {
  %zero = arith.constant 0.0 : f32
  %r = scf.forall (%i) = (0) to (96) step (32) shared_outs(%b = %b0) -> (tensor<96xf32>) {
    %bt = tensor.extract_slice %b[%i] [32] [1] : tensor<96xf32> to tensor<32xf32>
    %b1 = linalg.fill ins(%x : f32) outs(%bt : tensor<32xf32>) -> tensor<32xf32>
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %b1 into %b[%i] [32] [1] : tensor<32xf32> into tensor<96xf32>
    }
  }
  %e1 = tensor.empty() : tensor<96xi1>
  %c = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%r : tensor<96xf32>) outs(%e1 : tensor<96xi1>) {
  ^bb0(%u: f32, %w: i1):
    %d = arith.cmpf oeq, %u, %zero : f32
    linalg.yield %d : i1
  } -> tensor<96xi1>
  return %c : tensor<96xi1>
}

// One whose reader stays behind, as it reads what is made of the loop's results, too, is stored as a number.
// CHECK-LABEL: func.func @reader_stays
//       CHECK:   %[[R:.*]]:2 = scf.forall {{.*}} -> (tensor<96xf32>, tensor<96xf32>)
//       CHECK:     %[[BIT:.*]] = linalg.generic {{.*}} outs(%{{.*}} : tensor<32xi1>)
//       CHECK:       arith.cmpf oeq
//       CHECK:     linalg.generic {{.*}} ins(%[[BIT]] :
//  CHECK-NEXT:     ^bb0
//  CHECK-NEXT:       arith.uitofp %{{.*}} : i1 to f32
//       CHECK:   %[[AGAIN:.*]] = linalg.generic {{.*}} ins(%[[R]]#1 :
//       CHECK:     arith.cmpf une
//       CHECK:   linalg.generic {{.*}} ins(%[[AGAIN]], %{{.*}} :
func.func @reader_stays(%x: f32, %b0: tensor<96xf32>) -> tensor<96xf32> {
  %zero = arith.constant 0.0 : f32
  %r = scf.forall (%i) = (0) to (96) step (32) shared_outs(%b = %b0) -> (tensor<96xf32>) {
    %bt = tensor.extract_slice %b[%i] [32] [1] : tensor<96xf32> to tensor<32xf32>
    %b1 = linalg.fill ins(%x : f32) outs(%bt : tensor<32xf32>) -> tensor<32xf32>
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %b1 into %b[%i] [32] [1] : tensor<32xf32> into tensor<96xf32>
    }
  }
  %e1 = tensor.empty() : tensor<96xi1>
  %c = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%r : tensor<96xf32>) outs(%e1 : tensor<96xi1>) {
  ^bb0(%u: f32, %w: i1):
    %d = arith.cmpf oeq, %u, %zero : f32
    linalg.yield %d : i1
  } -> tensor<96xi1>
  %e0 = tensor.empty() : tensor<f32>
  %total = linalg.generic {indexing_maps = [#id, affine_map<(d0) -> ()>], iterator_types = ["reduction"]} ins(%r : tensor<96xf32>) outs(%e0 : tensor<f32>) {
  ^bb0(%u: f32, %w: f32):
    %d = arith.addf %u, %w : f32
    linalg.yield %d : f32
  } -> tensor<f32>
  %e2 = tensor.empty() : tensor<96xf32>
  %s = linalg.generic {indexing_maps = [#id, affine_map<(d0) -> ()>, #id], iterator_types = ["parallel"]} ins(%c, %total : tensor<96xi1>, tensor<f32>) outs(%e2 : tensor<96xf32>) {
  ^bb0(%t: i1, %u: f32, %w: f32):
    %d = arith.select %t, %zero, %u : f32
    linalg.yield %d : f32
  } -> tensor<96xf32>
  return %s : tensor<96xf32>
}

// What sums read is stored as the loop has it, in 16 bits; that as f32, times a number of each column, is computed by
// what reads it: the sums' own product, and the squares.
// CHECK-LABEL: func.func @read_by_sums
//       CHECK:   scf.forall {{.*}} -> (tensor<96x64xf16>)
//   CHECK-NOT:     arith.mulf
//       CHECK:   }
//       CHECK:   linalg.generic {{.*}} outs(%{{.*}} : tensor<96x64xf32>)
#two = affine_map<(i, j) -> (i, j)>
#column = affine_map<(i, j) -> (j)>
func.func @read_by_sums(%x: f16, %b0: tensor<96x64xf16>, %w: tensor<64xf16>, %zeros: tensor<64xf32>)
    -> (tensor<64xf32>, tensor<64xf32>) {
  %r = scf.forall (%i) = (0) to (96) step (32) shared_outs(%b = %b0) -> (tensor<96x64xf16>) {
    %bt = tensor.extract_slice %b[%i, 0] [32, 64] [1, 1] : tensor<96x64xf16> to tensor<32x64xf16>
    %b1 = linalg.fill ins(%x : f16) outs(%bt : tensor<32x64xf16>) -> tensor<32x64xf16>
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %b1 into %b[%i, 0] [32, 64] [1, 1] : tensor<32x64xf16> into tensor<96x64xf16>
    }
  }
  %e = tensor.empty() : tensor<96x64xf32>
  %p = linalg.generic {indexing_maps = [#two, #column, #two], iterator_types = ["parallel", "parallel"]}
      ins(%r, %w : tensor<96x64xf16>, tensor<64xf16>) outs(%e : tensor<96x64xf32>) {
  ^bb0(%u: f16, %v: f16, %o: f32):
    %a = arith.extf %u : f16 to f32
    %c = arith.extf %v : f16 to f32
    %d = arith.mulf %a, %c : f32
    linalg.yield %d : f32
  } -> tensor<96x64xf32>
  %s = linalg.generic {indexing_maps = [#two, #column], iterator_types = ["reduction", "parallel"]}
      ins(%r : tensor<96x64xf16>) outs(%zeros : tensor<64xf32>) {
  ^bb0(%u: f16, %o: f32):
    %a = arith.extf %u : f16 to f32
    %d = arith.addf %a, %o : f32
    linalg.yield %d : f32
  } -> tensor<64xf32>
  %t = linalg.generic {indexing_maps = [#two, #column], iterator_types = ["reduction", "parallel"]}
      ins(%p : tensor<96x64xf32>) outs(%zeros : tensor<64xf32>) {
  ^bb0(%u: f32, %o: f32):
    %d = arith.mulf %u, %u : f32
    %f = arith.addf %d, %o : f32
    linalg.yield %f : f32
  } -> tensor<64xf32>
  return %s, %t : tensor<64xf32>, tensor<64xf32>
}
