// RUN: attn-opt %s --drop-fills --split-input-file | FileCheck %s

// The last tile is cut; together they are all of the tensor.
// CHECK-LABEL: func.func @covered
// CHECK:         %[[E:.*]] = tensor.empty() : tensor<2x50xf32>
// CHECK-NOT:     linalg.fill
// CHECK:         scf.forall {{.*}} shared_outs(%{{.*}} = %[[E]])
func.func @covered(%x: tensor<16xf32>) -> tensor<2x50xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<2x50xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<2x50xf32>) -> tensor<2x50xf32>
  %r = scf.forall (%b, %i) = (0, 0) to (2, 50) step (1, 16) shared_outs(%o = %f) -> (tensor<2x50xf32>) {
    %n = affine.min affine_map<(i) -> (-i + 50, 16)>(%i)
    %s = tensor.extract_slice %x[0] [%n] [1] : tensor<16xf32> to tensor<?xf32>
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %s into %o[%b, %i] [1, %n] [1, 1] : tensor<?xf32> into tensor<2x50xf32>
    }
  }
  return %r : tensor<2x50xf32>
}

// -----

// CHECK-LABEL: func.func @dynamic
// CHECK-NOT:     linalg.fill
// CHECK:         return
func.func @dynamic(%x: tensor<16xf32>, %y: tensor<?xf32>) -> tensor<?xf32> {
  %zero = arith.constant 0.0 : f32
  %c0 = arith.constant 0 : index
  %d = tensor.dim %y, %c0 : tensor<?xf32>
  %e = tensor.empty(%d) : tensor<?xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<?xf32>) -> tensor<?xf32>
  %r = scf.forall (%i) = (0) to (%d) step (16) shared_outs(%o = %f) -> (tensor<?xf32>) {
    %n = affine.min affine_map<(i)[d] -> (-i + d, 16)>(%i)[%d]
    %s = tensor.extract_slice %x[0] [%n] [1] : tensor<16xf32> to tensor<?xf32>
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %s into %o[%i] [%n] [1] : tensor<?xf32> into tensor<?xf32>
    }
  }
  return %r : tensor<?xf32>
}

// -----

// Gaps between the tiles, a part of the rows, and what an iteration reads: these stay filled.
// CHECK-LABEL: func.func @kept
// CHECK-COUNT-3: linalg.fill
// CHECK:         scf.forall
func.func @kept(%x: tensor<8xf32>) -> (tensor<64xf32>, tensor<64x2xf32>, tensor<64xf32>) {
  %zero = arith.constant 0.0 : f32
  %one = arith.constant 1.0 : f32
  %two = arith.constant 2.0 : f32
  %e = tensor.empty() : tensor<64xf32>
  %g = tensor.empty() : tensor<64x2xf32>
  %0 = linalg.fill ins(%zero : f32) outs(%e : tensor<64xf32>) -> tensor<64xf32>
  %1 = linalg.fill ins(%one : f32) outs(%g : tensor<64x2xf32>) -> tensor<64x2xf32>
  %2 = linalg.fill ins(%two : f32) outs(%e : tensor<64xf32>) -> tensor<64xf32>
  %r:3 = scf.forall (%i) = (0) to (64) step (16) shared_outs(%a = %0, %b = %1, %c = %2)
      -> (tensor<64xf32>, tensor<64x2xf32>, tensor<64xf32>) {
    %t = tensor.extract_slice %c[%i] [16] [1] : tensor<64xf32> to tensor<16xf32>
    %s = tensor.extract_slice %t[0] [16] [1] : tensor<16xf32> to tensor<16xf32>
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %x into %a[%i] [8] [1] : tensor<8xf32> into tensor<64xf32>
      tensor.parallel_insert_slice %s into %b[%i, 0] [16, 1] [1, 1] : tensor<16xf32> into tensor<64x2xf32>
      tensor.parallel_insert_slice %s into %c[%i] [16] [1] : tensor<16xf32> into tensor<64xf32>
    }
  }
  return %r#0, %r#1, %r#2 : tensor<64xf32>, tensor<64x2xf32>, tensor<64xf32>
}

// -----

// So it is with a loop that goes from tile to tile; not with one that leaves some out, or reads what it overwrites.
// CHECK-LABEL: func.func @sequential
// CHECK:         %[[E:.*]] = tensor.empty() : tensor<50xf32>
// CHECK:         %[[F:.*]] = linalg.fill
// CHECK:         scf.for {{.*}} iter_args(%{{.*}} = %[[E]], %{{.*}} = %[[F]])
// CHECK:         scf.for {{.*}} iter_args(%{{.*}} = %[[F]])
// CHECK:         scf.for {{.*}} iter_args(%{{.*}} = %[[F]], %{{.*}} = %{{.*}})
func.func @sequential(%x: tensor<16xf32>) -> (tensor<50xf32>, tensor<50xf32>, tensor<50xf32>, tensor<50xf32>, f32) {
  %zero = arith.constant 0.0 : f32
  %c0 = arith.constant 0 : index
  %c16 = arith.constant 16 : index
  %c48 = arith.constant 48 : index
  %c50 = arith.constant 50 : index
  %e = tensor.empty() : tensor<50xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<50xf32>) -> tensor<50xf32>
  %r:2 = scf.for %i = %c0 to %c50 step %c16 iter_args(%o = %f, %p = %f) -> (tensor<50xf32>, tensor<50xf32>) {
    %n = affine.min affine_map<(i) -> (-i + 50, 16)>(%i)
    %s = tensor.extract_slice %x[0] [%n] [1] : tensor<16xf32> to tensor<?xf32>
    %o1 = tensor.insert_slice %s into %o[%i] [%n] [1] : tensor<?xf32> into tensor<50xf32>
    %t = tensor.extract_slice %p[%i] [%n] [1] : tensor<50xf32> to tensor<?xf32>
    %u = linalg.exp ins(%t : tensor<?xf32>) outs(%t : tensor<?xf32>) -> tensor<?xf32>
    %p1 = tensor.insert_slice %u into %p[%i] [%n] [1] : tensor<?xf32> into tensor<50xf32>
    scf.yield %o1, %p1 : tensor<50xf32>, tensor<50xf32>
  }
  %q = scf.for %i = %c0 to %c48 step %c16 iter_args(%o = %f) -> (tensor<50xf32>) {
    %o1 = tensor.insert_slice %x into %o[%i] [16] [1] : tensor<16xf32> into tensor<50xf32>
    scf.yield %o1 : tensor<50xf32>
  }
  %c49 = arith.constant 49 : index
  %s:2 = scf.for %i = %c0 to %c50 step %c16 iter_args(%o = %f, %last = %zero) -> (tensor<50xf32>, f32) {
    %n = affine.min affine_map<(i) -> (-i + 50, 16)>(%i)
    %t = tensor.extract_slice %x[0] [%n] [1] : tensor<16xf32> to tensor<?xf32>
    %o1 = tensor.insert_slice %t into %o[%i] [%n] [1] : tensor<?xf32> into tensor<50xf32>
    %z = tensor.extract %o1[%c49] : tensor<50xf32>
    %sum = arith.addf %last, %z : f32
    scf.yield %o1, %sum : tensor<50xf32>, f32
  }
  return %r#0, %r#1, %q, %s#0, %s#1 : tensor<50xf32>, tensor<50xf32>, tensor<50xf32>, tensor<50xf32>, f32
}
