// RUN: attn-opt %s --fuse-siblings --split-input-file | FileCheck %s
// RUN: attn-opt %s --fuse-siblings="most-columns=100" --split-input-file | FileCheck %s --check-prefix=NARROW
// RUN: attn-opt %s --fuse-siblings="sums=1" --split-input-file | FileCheck %s --check-prefix=SUMS

// Two sums over tiles of x · yᵀ, in parallel loops over the same rows, with an op between them that reads the first sum.
// NARROW-LABEL: func.func @siblings
// NARROW-COUNT-2: scf.forall
// SUMS-LABEL: func.func @siblings
// SUMS:           scf.forall
// SUMS-NOT:       = scf.forall
// CHECK-LABEL: func.func @siblings
// CHECK:      %[[R:.*]]:2 = scf.forall (%[[I:.*]]) = (0) to (64) step (16) shared_outs(%[[A:.*]] = %arg2, %[[B:.*]] = %arg3)
// CHECK:        %[[HALF:.*]] = affine.apply
// CHECK-NOT:    affine.apply
// CHECK:        %[[FIRST:.*]]:2 = scf.for %{{.*}} = %{{.*}} to %[[HALF]] step %{{.*}} iter_args(%[[SA:.*]] = %{{.*}}, %[[SB:.*]] = %{{.*}})
// CHECK:          %[[S:.*]] = linalg.matmul {{.*}} -> tensor<16x8xf32>
// CHECK:          %[[NA:.*]] = linalg.matmul ins(%[[S]], %{{.*}} : {{.*}}) outs(%[[SA]]
// CHECK-NOT:      -> tensor<16x8xf32>
// CHECK:          %[[T:.*]] = linalg.exp ins(%[[S]]
// CHECK:          %[[NB:.*]] = linalg.matmul ins(%[[T]], %{{.*}} : {{.*}}) outs(%[[SB]]
// CHECK:          scf.yield %[[NA]], %[[NB]]
// CHECK:        %[[SECOND:.*]]:2 = scf.for %{{.*}} = %[[HALF]] to %{{.*}} iter_args(%{{.*}} = %[[FIRST]]#0, %{{.*}} = %[[FIRST]]#1)
// CHECK:        scf.forall.in_parallel
// CHECK-DAG:      tensor.parallel_insert_slice %[[SECOND]]#0 into %[[A]]
// CHECK-DAG:      tensor.parallel_insert_slice %[[SECOND]]#1 into %[[B]]
// CHECK:      linalg.exp ins(%[[R]]#0
// CHECK:      return
func.func @siblings(%x: tensor<64x24xf32>, %y: tensor<24x32xf32>, %a: tensor<64x48xf32>, %b: tensor<64x48xf32>, %v: tensor<32x48xf32>)
    -> (tensor<64x48xf32>, tensor<64x48xf32>) {
  %c0 = arith.constant 0 : index
  %c8 = arith.constant 8 : index
  %c32 = arith.constant 32 : index
  %zero = arith.constant dense<0.0> : tensor<16x8xf32>
  %r = scf.forall (%i) = (0) to (64) step (16) shared_outs(%o = %a) -> tensor<64x48xf32> {
    %init = tensor.extract_slice %o[%i, 0] [16, 48] [1, 1] : tensor<64x48xf32> to tensor<16x48xf32>
    %half = affine.apply affine_map<(d0) -> (d0 floordiv 2)>(%i)
    %1 = scf.for %j = %c0 to %half step %c8 iter_args(%acc = %init) -> tensor<16x48xf32> {
      %xt = tensor.extract_slice %x[%i, 0] [16, 24] [1, 1] : tensor<64x24xf32> to tensor<16x24xf32>
      %yt = tensor.extract_slice %y[0, %j] [24, 8] [1, 1] : tensor<24x32xf32> to tensor<24x8xf32>
      %s = linalg.matmul ins(%xt, %yt : tensor<16x24xf32>, tensor<24x8xf32>) outs(%zero : tensor<16x8xf32>) -> tensor<16x8xf32>
      %vt = tensor.extract_slice %v[%j, 0] [8, 48] [1, 1] : tensor<32x48xf32> to tensor<8x48xf32>
      %n = linalg.matmul ins(%s, %vt : tensor<16x8xf32>, tensor<8x48xf32>) outs(%acc : tensor<16x48xf32>) -> tensor<16x48xf32>
      scf.yield %n : tensor<16x48xf32>
    }
    %2 = scf.for %j = %half to %c32 step %c8 iter_args(%acc = %1) -> tensor<16x48xf32> {
      %xt = tensor.extract_slice %x[%i, 0] [16, 24] [1, 1] : tensor<64x24xf32> to tensor<16x24xf32>
      %yt = tensor.extract_slice %y[0, %j] [24, 8] [1, 1] : tensor<24x32xf32> to tensor<24x8xf32>
      %s = linalg.matmul ins(%xt, %yt : tensor<16x24xf32>, tensor<24x8xf32>) outs(%zero : tensor<16x8xf32>) -> tensor<16x8xf32>
      %vt = tensor.extract_slice %v[%j, 0] [8, 48] [1, 1] : tensor<32x48xf32> to tensor<8x48xf32>
      %n = linalg.matmul ins(%s, %vt : tensor<16x8xf32>, tensor<8x48xf32>) outs(%acc : tensor<16x48xf32>) -> tensor<16x48xf32>
      scf.yield %n : tensor<16x48xf32>
    }
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %2 into %o[%i, 0] [16, 48] [1, 1] : tensor<16x48xf32> into tensor<64x48xf32>
    }
  }
  %e = linalg.exp ins(%r : tensor<64x48xf32>) outs(%a : tensor<64x48xf32>) -> tensor<64x48xf32>
  %t = scf.forall (%i) = (0) to (64) step (16) shared_outs(%o = %b) -> tensor<64x48xf32> {
    %init = tensor.extract_slice %o[%i, 0] [16, 48] [1, 1] : tensor<64x48xf32> to tensor<16x48xf32>
    %half = affine.apply affine_map<(d0) -> (d0 floordiv 2)>(%i)
    %1 = scf.for %j = %c0 to %half step %c8 iter_args(%acc = %init) -> tensor<16x48xf32> {
      %yt = tensor.extract_slice %y[0, %j] [24, 8] [1, 1] : tensor<24x32xf32> to tensor<24x8xf32>
      %xt = tensor.extract_slice %x[%i, 0] [16, 24] [1, 1] : tensor<64x24xf32> to tensor<16x24xf32>
      %s = linalg.matmul ins(%xt, %yt : tensor<16x24xf32>, tensor<24x8xf32>) outs(%zero : tensor<16x8xf32>) -> tensor<16x8xf32>
      %p = linalg.exp ins(%s : tensor<16x8xf32>) outs(%zero : tensor<16x8xf32>) -> tensor<16x8xf32>
      %vt = tensor.extract_slice %v[%j, 0] [8, 48] [1, 1] : tensor<32x48xf32> to tensor<8x48xf32>
      %n = linalg.matmul ins(%p, %vt : tensor<16x8xf32>, tensor<8x48xf32>) outs(%acc : tensor<16x48xf32>) -> tensor<16x48xf32>
      scf.yield %n : tensor<16x48xf32>
    }
    %2 = scf.for %j = %half to %c32 step %c8 iter_args(%acc = %1) -> tensor<16x48xf32> {
      %xt = tensor.extract_slice %x[%i, 0] [16, 24] [1, 1] : tensor<64x24xf32> to tensor<16x24xf32>
      %yt = tensor.extract_slice %y[0, %j] [24, 8] [1, 1] : tensor<24x32xf32> to tensor<24x8xf32>
      %s = linalg.matmul ins(%xt, %yt : tensor<16x24xf32>, tensor<24x8xf32>) outs(%zero : tensor<16x8xf32>) -> tensor<16x8xf32>
      %p = linalg.exp ins(%s : tensor<16x8xf32>) outs(%zero : tensor<16x8xf32>) -> tensor<16x8xf32>
      %vt = tensor.extract_slice %v[%j, 0] [8, 48] [1, 1] : tensor<32x48xf32> to tensor<8x48xf32>
      %n = linalg.matmul ins(%p, %vt : tensor<16x8xf32>, tensor<8x48xf32>) outs(%acc : tensor<16x48xf32>) -> tensor<16x48xf32>
      scf.yield %n : tensor<16x48xf32>
    }
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %2 into %o[%i, 0] [16, 48] [1, 1] : tensor<16x48xf32> into tensor<64x48xf32>
    }
  }
  return %e, %t : tensor<64x48xf32>, tensor<64x48xf32>
}

// -----

// What both carry alike, as the maximum of a row, is carried once, and all that follows from it is the same; what starts
// alike and becomes another is not.
// SUMS-LABEL: func.func @carried
// SUMS-COUNT-2: scf.for
// CHECK-LABEL: func.func @carried
// CHECK:      %[[R:.*]]:3 = scf.for {{.*}} iter_args(%[[M:.*]] = %arg2, %[[A:.*]] = %arg3, %[[B:.*]] = %arg3)
// CHECK:        %[[S:.*]] = linalg.matmul
// CHECK:        %[[N:.*]] = linalg.max ins(%[[S]], %[[M]]
// CHECK-NOT:    linalg.max
// CHECK:        %[[NA:.*]] = linalg.add ins(%[[A]], %[[N]]
// CHECK:        %[[NB:.*]] = linalg.mul ins(%[[B]], %[[N]]
// CHECK:        scf.yield %[[N]], %[[NA]], %[[NB]]
// CHECK:      return %[[R]]#0, %[[R]]#1, %[[R]]#0, %[[R]]#2
func.func @carried(%x: tensor<16x64xf32>, %y: tensor<64x16xf32>, %m: tensor<16x16xf32>, %a: tensor<16x16xf32>)
    -> (tensor<16x16xf32>, tensor<16x16xf32>, tensor<16x16xf32>, tensor<16x16xf32>) {
  %c0 = arith.constant 0 : index
  %c8 = arith.constant 8 : index
  %c64 = arith.constant 64 : index
  %r:2 = scf.for %j = %c0 to %c64 step %c8 iter_args(%mx = %m, %acc = %a) -> (tensor<16x16xf32>, tensor<16x16xf32>) {
    %xt = tensor.extract_slice %x[0, %j] [16, 8] [1, 1] : tensor<16x64xf32> to tensor<16x8xf32>
    %yt = tensor.extract_slice %y[%j, 0] [8, 16] [1, 1] : tensor<64x16xf32> to tensor<8x16xf32>
    %s = linalg.matmul ins(%xt, %yt : tensor<16x8xf32>, tensor<8x16xf32>) outs(%m : tensor<16x16xf32>) -> tensor<16x16xf32>
    %n = linalg.max ins(%s, %mx : tensor<16x16xf32>, tensor<16x16xf32>) outs(%m : tensor<16x16xf32>) -> tensor<16x16xf32>
    %w = linalg.add ins(%acc, %n : tensor<16x16xf32>, tensor<16x16xf32>) outs(%m : tensor<16x16xf32>) -> tensor<16x16xf32>
    scf.yield %n, %w : tensor<16x16xf32>, tensor<16x16xf32>
  }
  %t:2 = scf.for %j = %c0 to %c64 step %c8 iter_args(%mx = %m, %acc = %a) -> (tensor<16x16xf32>, tensor<16x16xf32>) {
    %xt = tensor.extract_slice %x[0, %j] [16, 8] [1, 1] : tensor<16x64xf32> to tensor<16x8xf32>
    %yt = tensor.extract_slice %y[%j, 0] [8, 16] [1, 1] : tensor<64x16xf32> to tensor<8x16xf32>
    %s = linalg.matmul ins(%xt, %yt : tensor<16x8xf32>, tensor<8x16xf32>) outs(%m : tensor<16x16xf32>) -> tensor<16x16xf32>
    %n = linalg.max ins(%s, %mx : tensor<16x16xf32>, tensor<16x16xf32>) outs(%m : tensor<16x16xf32>) -> tensor<16x16xf32>
    %w = linalg.mul ins(%acc, %n : tensor<16x16xf32>, tensor<16x16xf32>) outs(%m : tensor<16x16xf32>) -> tensor<16x16xf32>
    scf.yield %n, %w : tensor<16x16xf32>, tensor<16x16xf32>
  }
  return %r#0, %r#1, %t#0, %t#1 : tensor<16x16xf32>, tensor<16x16xf32>, tensor<16x16xf32>, tensor<16x16xf32>
}

// -----

// Apart stay loops that need one another, that have other bounds, and that have no product in common.
// CHECK-LABEL: func.func @apart
// CHECK-COUNT-4: = scf.for
func.func @apart(%x: tensor<16x64xf32>, %y: tensor<64x16xf32>, %a: tensor<16x16xf32>)
    -> (tensor<16x16xf32>, tensor<16x16xf32>, tensor<16x16xf32>) {
  %c0 = arith.constant 0 : index
  %c8 = arith.constant 8 : index
  %c32 = arith.constant 32 : index
  %c64 = arith.constant 64 : index
  %r = scf.for %j = %c0 to %c64 step %c8 iter_args(%acc = %a) -> tensor<16x16xf32> {
    %xt = tensor.extract_slice %x[0, %j] [16, 8] [1, 1] : tensor<16x64xf32> to tensor<16x8xf32>
    %yt = tensor.extract_slice %y[%j, 0] [8, 16] [1, 1] : tensor<64x16xf32> to tensor<8x16xf32>
    %s = linalg.matmul ins(%xt, %yt : tensor<16x8xf32>, tensor<8x16xf32>) outs(%a : tensor<16x16xf32>) -> tensor<16x16xf32>
    %w = linalg.add ins(%acc, %s : tensor<16x16xf32>, tensor<16x16xf32>) outs(%a : tensor<16x16xf32>) -> tensor<16x16xf32>
    scf.yield %w : tensor<16x16xf32>
  }
  %needs = scf.for %j = %c0 to %c64 step %c8 iter_args(%acc = %r) -> tensor<16x16xf32> {
    %xt = tensor.extract_slice %x[0, %j] [16, 8] [1, 1] : tensor<16x64xf32> to tensor<16x8xf32>
    %yt = tensor.extract_slice %y[%j, 0] [8, 16] [1, 1] : tensor<64x16xf32> to tensor<8x16xf32>
    %s = linalg.matmul ins(%xt, %yt : tensor<16x8xf32>, tensor<8x16xf32>) outs(%a : tensor<16x16xf32>) -> tensor<16x16xf32>
    %w = linalg.mul ins(%acc, %s : tensor<16x16xf32>, tensor<16x16xf32>) outs(%a : tensor<16x16xf32>) -> tensor<16x16xf32>
    scf.yield %w : tensor<16x16xf32>
  }
  %shorter = scf.for %j = %c0 to %c32 step %c8 iter_args(%acc = %a) -> tensor<16x16xf32> {
    %xt = tensor.extract_slice %x[0, %j] [16, 8] [1, 1] : tensor<16x64xf32> to tensor<16x8xf32>
    %yt = tensor.extract_slice %y[%j, 0] [8, 16] [1, 1] : tensor<64x16xf32> to tensor<8x16xf32>
    %s = linalg.matmul ins(%xt, %yt : tensor<16x8xf32>, tensor<8x16xf32>) outs(%a : tensor<16x16xf32>) -> tensor<16x16xf32>
    %w = linalg.sub ins(%acc, %s : tensor<16x16xf32>, tensor<16x16xf32>) outs(%a : tensor<16x16xf32>) -> tensor<16x16xf32>
    scf.yield %w : tensor<16x16xf32>
  }
  %others = scf.for %j = %c0 to %c64 step %c8 iter_args(%acc = %a) -> tensor<16x16xf32> {
    %xt = tensor.extract_slice %x[0, %j] [16, 8] [1, 1] : tensor<16x64xf32> to tensor<16x8xf32>
    %yt = tensor.extract_slice %y[%j, 0] [8, 16] [1, 1] : tensor<64x16xf32> to tensor<8x16xf32>
    %s = linalg.matmul ins(%xt, %yt : tensor<16x8xf32>, tensor<8x16xf32>) outs(%acc : tensor<16x16xf32>) -> tensor<16x16xf32>
    scf.yield %s : tensor<16x16xf32>
  }
  return %needs, %shorter, %others : tensor<16x16xf32>, tensor<16x16xf32>, tensor<16x16xf32>
}

// -----

// Branches that ask the same, as whether a tile is dead.
// CHECK-LABEL: func.func @branches
// CHECK:      %[[R:.*]]:2 = scf.for {{.*}} iter_args(%[[A:.*]] = %arg3, %[[B:.*]] = %arg4)
// CHECK:        %[[I:.*]]:2 = scf.if %[[C:.*]] -> (tensor<16x16xf32>, tensor<16x16xf32>) {
// CHECK:          scf.yield %[[A]], %[[B]]
// CHECK:        } else {
// CHECK:          %[[S:.*]] = linalg.matmul
// CHECK-NOT:      linalg.matmul
// CHECK:          %[[NA:.*]] = linalg.add ins(%[[A]], %[[S]]
// CHECK:          %[[NB:.*]] = linalg.mul ins(%[[B]], %[[S]]
// CHECK:          scf.yield %[[NA]], %[[NB]]
// CHECK:        scf.yield %[[I]]#0, %[[I]]#1
// CHECK:      return %[[R]]#0, %[[R]]#1
func.func @branches(%x: tensor<16x64xf32>, %y: tensor<64x16xf32>, %dead: tensor<64xi1>, %a: tensor<16x16xf32>, %b: tensor<16x16xf32>)
    -> (tensor<16x16xf32>, tensor<16x16xf32>) {
  %c0 = arith.constant 0 : index
  %c8 = arith.constant 8 : index
  %c64 = arith.constant 64 : index
  %r = scf.for %j = %c0 to %c64 step %c8 iter_args(%acc = %a) -> tensor<16x16xf32> {
    %c = tensor.extract %dead[%j] : tensor<64xi1>
    %n = scf.if %c -> tensor<16x16xf32> {
      scf.yield %acc : tensor<16x16xf32>
    } else {
      %xt = tensor.extract_slice %x[0, %j] [16, 8] [1, 1] : tensor<16x64xf32> to tensor<16x8xf32>
      %yt = tensor.extract_slice %y[%j, 0] [8, 16] [1, 1] : tensor<64x16xf32> to tensor<8x16xf32>
      %s = linalg.matmul ins(%xt, %yt : tensor<16x8xf32>, tensor<8x16xf32>) outs(%a : tensor<16x16xf32>) -> tensor<16x16xf32>
      %w = linalg.add ins(%acc, %s : tensor<16x16xf32>, tensor<16x16xf32>) outs(%a : tensor<16x16xf32>) -> tensor<16x16xf32>
      scf.yield %w : tensor<16x16xf32>
    }
    scf.yield %n : tensor<16x16xf32>
  }
  %t = scf.for %j = %c0 to %c64 step %c8 iter_args(%acc = %b) -> tensor<16x16xf32> {
    %c = tensor.extract %dead[%j] : tensor<64xi1>
    %n = scf.if %c -> tensor<16x16xf32> {
      scf.yield %acc : tensor<16x16xf32>
    } else {
      %xt = tensor.extract_slice %x[0, %j] [16, 8] [1, 1] : tensor<16x64xf32> to tensor<16x8xf32>
      %yt = tensor.extract_slice %y[%j, 0] [8, 16] [1, 1] : tensor<64x16xf32> to tensor<8x16xf32>
      %s = linalg.matmul ins(%xt, %yt : tensor<16x8xf32>, tensor<8x16xf32>) outs(%a : tensor<16x16xf32>) -> tensor<16x16xf32>
      %w = linalg.mul ins(%acc, %s : tensor<16x16xf32>, tensor<16x16xf32>) outs(%a : tensor<16x16xf32>) -> tensor<16x16xf32>
      scf.yield %w : tensor<16x16xf32>
    }
    scf.yield %n : tensor<16x16xf32>
  }
  return %r, %t : tensor<16x16xf32>, tensor<16x16xf32>
}

// -----

// The first and the third become one, which the second one needs: that stands behind it now, and is no sibling.
// CHECK-LABEL: func.func @needed
// CHECK:      %[[R:.*]]:2 = scf.for {{.*}} iter_args(%{{.*}} = %arg2, %{{.*}} = %arg2)
// CHECK:      %[[T:.*]] = scf.for {{.*}} iter_args(%{{.*}} = %[[R]]#0)
// CHECK:      return %[[T]], %[[R]]#1
func.func @needed(%x: tensor<16x64xf32>, %y: tensor<64x16xf32>, %a: tensor<16x16xf32>) -> (tensor<16x16xf32>, tensor<16x16xf32>) {
  %c0 = arith.constant 0 : index
  %c8 = arith.constant 8 : index
  %c64 = arith.constant 64 : index
  %zeros = arith.constant dense<0.0> : tensor<16x16xf32>
  %first = scf.for %j = %c0 to %c64 step %c8 iter_args(%acc = %a) -> tensor<16x16xf32> {
    %xt = tensor.extract_slice %x[0, %j] [16, 8] [1, 1] : tensor<16x64xf32> to tensor<16x8xf32>
    %yt = tensor.extract_slice %y[%j, 0] [8, 16] [1, 1] : tensor<64x16xf32> to tensor<8x16xf32>
    %s = linalg.matmul ins(%xt, %yt : tensor<16x8xf32>, tensor<8x16xf32>) outs(%zeros : tensor<16x16xf32>) -> tensor<16x16xf32>
    %w = linalg.add ins(%acc, %s : tensor<16x16xf32>, tensor<16x16xf32>) outs(%a : tensor<16x16xf32>) -> tensor<16x16xf32>
    scf.yield %w : tensor<16x16xf32>
  }
  %second = scf.for %j = %c0 to %c64 step %c8 iter_args(%acc = %first) -> tensor<16x16xf32> {
    %xt = tensor.extract_slice %x[0, %j] [16, 8] [1, 1] : tensor<16x64xf32> to tensor<16x8xf32>
    %yt = tensor.extract_slice %y[%j, 0] [8, 16] [1, 1] : tensor<64x16xf32> to tensor<8x16xf32>
    %s = linalg.matmul ins(%xt, %yt : tensor<16x8xf32>, tensor<8x16xf32>) outs(%zeros : tensor<16x16xf32>) -> tensor<16x16xf32>
    %w = linalg.sub ins(%acc, %s : tensor<16x16xf32>, tensor<16x16xf32>) outs(%a : tensor<16x16xf32>) -> tensor<16x16xf32>
    scf.yield %w : tensor<16x16xf32>
  }
  %third = scf.for %j = %c0 to %c64 step %c8 iter_args(%acc = %a) -> tensor<16x16xf32> {
    %xt = tensor.extract_slice %x[0, %j] [16, 8] [1, 1] : tensor<16x64xf32> to tensor<16x8xf32>
    %yt = tensor.extract_slice %y[%j, 0] [8, 16] [1, 1] : tensor<64x16xf32> to tensor<8x16xf32>
    %s = linalg.matmul ins(%xt, %yt : tensor<16x8xf32>, tensor<8x16xf32>) outs(%zeros : tensor<16x16xf32>) -> tensor<16x16xf32>
    %w = linalg.mul ins(%acc, %s : tensor<16x16xf32>, tensor<16x16xf32>) outs(%a : tensor<16x16xf32>) -> tensor<16x16xf32>
    scf.yield %w : tensor<16x16xf32>
  }
  return %second, %third : tensor<16x16xf32>, tensor<16x16xf32>
}
