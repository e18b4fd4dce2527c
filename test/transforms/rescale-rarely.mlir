// RUN: attn-opt %s --rescale-rarely | FileCheck %s

// The maximum of a row stays while scores exceed it by less than 2^8 (here exp2(0.5 · x): by less than 16), and the
// output is rescaled only by warps that have a row whose maximum has changed.

// CHECK-LABEL: gpu.func @loop
// CHECK:         scf.for {{.*}} iter_args(%[[O:[a-z0-9_]+]] = %{{.*}}, %[[M:[a-z0-9_]+]] = %{{.*}}, %{{.*}} = %{{.*}})
// CHECK:           %[[U:.*]]:3 = linalg.generic {{.*}} ins(%{{.*}} : tensor<64xf32, "row">) outs(%[[M]],
// CHECK-NEXT:      ^bb0(%[[T:[a-z0-9_]+]]: f32, %[[OLD:[a-z0-9_]+]]: f32,
// CHECK-NOT:         arith.maxnumf
// CHECK:             %[[LIMIT:.*]] = arith.addf %[[OLD]], %{{.*}} : f32
// CHECK:             %[[MORE:.*]] = arith.cmpf ogt, %[[T]], %[[LIMIT]] : f32
// CHECK:             %[[NEW:.*]] = arith.select %[[MORE]], %[[T]], %[[OLD]] : f32
// CHECK:             arith.subf %[[OLD]], %[[NEW]] : f32
// CHECK:           %[[CHANGED:.*]] = linalg.generic {{.*}} ins(%[[U]]#2 : tensor<64xf32, "row">) {{.*}}xi1, "row">)
// CHECK:             arith.cmpf une
// CHECK:           %[[SOME:.*]] = tile.any_of_warp %[[CHANGED]]
// CHECK:           %[[RESCALED:.*]] = scf.if %[[SOME]]
// CHECK:             arith.mulf
// CHECK:           } else {
// CHECK-NEXT:        scf.yield %[[O]]
// CHECK:           scf.yield %[[RESCALED]], %[[U]]#0, %[[U]]#1

// The log-sum-exp is the same for every maximum. Where the maximum is read itself, or the sum without it, it is the
// true one.

// CHECK-LABEL: gpu.func @read
// CHECK:         arith.maxnumf
// CHECK-NOT:     tile.any_of_warp
// CHECK-LABEL: gpu.func @sum
// CHECK-NOT:     tile.any_of_warp
// CHECK:         gpu.return

#id = affine_map<(i, j) -> (i, j)>
#row = affine_map<(i, j) -> (i)>
#one = affine_map<(i) -> (i)>
#lhs = affine_map<(i, j, d) -> (i, d)>
#rhs = affine_map<(i, j, d) -> (j, d)>
#out = affine_map<(i, j, d) -> (i, j)>
gpu.module @kernels {
  gpu.func @loop(%k: memref<?x64xf16, strided<[?, 1]>>, %out: memref<64xf32, strided<[1]>>, %n: index) kernel {
    %c0 = arith.constant 0 : index
    %c16 = arith.constant 16 : index
    %c64 = arith.constant 64 : index
    %half = arith.constant 0.5 : f32
    %q = arith.constant dense<1.0> : tensor<64x64xf16, "operand_a">
    %zero = arith.constant dense<0.0> : tensor<64x16xf32, "fragment">
    %o_init = arith.constant dense<0.0> : tensor<64x16xf32, "fragment">
    %m_init = arith.constant dense<0xFF800000> : tensor<64xf32, "row">
    %l_init = arith.constant dense<0.0> : tensor<64xf32, "row">
    %r:3 = scf.for %j = %c0 to %n step %c16 iter_args(%o = %o_init, %m = %m_init, %l = %l_init)
        -> (tensor<64x16xf32, "fragment">, tensor<64xf32, "row">, tensor<64xf32, "row">) {
      %kt = tile.load (%k, %j, %c0, %c16, %c64) {dims = [0, 1]} : (memref<?x64xf16, strided<[?, 1]>>, index, index, index, index) -> (tensor<16x64xf16, "shared">)
      %s = linalg.generic {indexing_maps = [#lhs, #rhs, #out], iterator_types = ["parallel", "parallel", "reduction"]}
          ins(%q, %kt : tensor<64x64xf16, "operand_a">, tensor<16x64xf16, "shared">) outs(%zero : tensor<64x16xf32, "fragment">) {
      ^bb0(%x: f16, %y: f16, %z: f32):
        %xw = arith.extf %x : f16 to f32
        %yw = arith.extf %y : f16 to f32
        %xy = arith.mulf %xw, %yw : f32
        %t = arith.addf %z, %xy : f32
        linalg.yield %t : f32
      } -> tensor<64x16xf32, "fragment">
      %low = arith.constant dense<0xFF800000> : tensor<64xf32, "row">
      %top = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]}
          ins(%s : tensor<64x16xf32, "fragment">) outs(%low : tensor<64xf32, "row">) {
      ^bb0(%x: f32, %y: f32):
        %t = arith.maxnumf %x, %y : f32
        linalg.yield %t : f32
      } -> tensor<64xf32, "row">
      %e = tensor.empty() : tensor<64xf32, "row">
      %u:3 = linalg.generic {indexing_maps = [#one, #one, #one, #one], iterator_types = ["parallel"]}
          ins(%top : tensor<64xf32, "row">) outs(%m, %l, %e : tensor<64xf32, "row">, tensor<64xf32, "row">, tensor<64xf32, "row">) {
      ^bb0(%t: f32, %old: f32, %sum: f32, %x: f32):
        %new = arith.maxnumf %old, %t : f32
        %d = arith.subf %old, %new : f32
        %c = arith.mulf %d, %half : f32
        %alpha = math.exp2 %c : f32
        %scaled = arith.mulf %sum, %alpha : f32
        linalg.yield %new, %scaled, %alpha : f32, f32, f32
      } -> (tensor<64xf32, "row">, tensor<64xf32, "row">, tensor<64xf32, "row">)
      %f = tensor.empty() : tensor<64x16xf32, "fragment">
      %o1 = linalg.generic {indexing_maps = [#row, #id, #id], iterator_types = ["parallel", "parallel"]}
          ins(%u#2, %o : tensor<64xf32, "row">, tensor<64x16xf32, "fragment">) outs(%f : tensor<64x16xf32, "fragment">) {
      ^bb0(%a: f32, %x: f32, %y: f32):
        %t = arith.mulf %x, %a : f32
        linalg.yield %t : f32
      } -> tensor<64x16xf32, "fragment">
      scf.yield %o1, %u#0, %u#1 : tensor<64x16xf32, "fragment">, tensor<64xf32, "row">, tensor<64xf32, "row">
    }
    %row_of = tensor.empty() : tensor<64xf32, "row">
    %lse = linalg.generic {indexing_maps = [#one, #one, #one], iterator_types = ["parallel"]}
        ins(%r#1, %r#2 : tensor<64xf32, "row">, tensor<64xf32, "row">) outs(%row_of : tensor<64xf32, "row">) {
    ^bb0(%x: f32, %y: f32, %z: f32):
      %a = arith.mulf %x, %half : f32
      %b = math.log2 %y : f32
      %t = arith.addf %a, %b : f32
      linalg.yield %t : f32
    } -> tensor<64xf32, "row">
    tile.store (%lse, %out, %c0, %c64) {dims = [0]} : (tensor<64xf32, "row">, memref<64xf32, strided<[1]>>, index, index) -> ()
    gpu.return
  }

  gpu.func @read(%k: memref<?x64xf16, strided<[?, 1]>>, %out: memref<64xf32, strided<[1]>>, %n: index) kernel {
    %c0 = arith.constant 0 : index
    %c16 = arith.constant 16 : index
    %c64 = arith.constant 64 : index
    %q = arith.constant dense<1.0> : tensor<64x64xf16, "operand_a">
    %zero = arith.constant dense<0.0> : tensor<64x16xf32, "fragment">
    %m_init = arith.constant dense<0xFF800000> : tensor<64xf32, "row">
    %l_init = arith.constant dense<0.0> : tensor<64xf32, "row">
    %r:2 = scf.for %j = %c0 to %n step %c16 iter_args(%m = %m_init, %l = %l_init) -> (tensor<64xf32, "row">, tensor<64xf32, "row">) {
      %kt = tile.load (%k, %j, %c0, %c16, %c64) {dims = [0, 1]} : (memref<?x64xf16, strided<[?, 1]>>, index, index, index, index) -> (tensor<16x64xf16, "shared">)
      %s = linalg.generic {indexing_maps = [#lhs, #rhs, #out], iterator_types = ["parallel", "parallel", "reduction"]}
          ins(%q, %kt : tensor<64x64xf16, "operand_a">, tensor<16x64xf16, "shared">) outs(%zero : tensor<64x16xf32, "fragment">) {
      ^bb0(%x: f16, %y: f16, %z: f32):
        %xw = arith.extf %x : f16 to f32
        %yw = arith.extf %y : f16 to f32
        %xy = arith.mulf %xw, %yw : f32
        %t = arith.addf %z, %xy : f32
        linalg.yield %t : f32
      } -> tensor<64x16xf32, "fragment">
      %low = arith.constant dense<0xFF800000> : tensor<64xf32, "row">
      %top = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]}
          ins(%s : tensor<64x16xf32, "fragment">) outs(%low : tensor<64xf32, "row">) {
      ^bb0(%x: f32, %y: f32):
        %t = arith.maxnumf %x, %y : f32
        linalg.yield %t : f32
      } -> tensor<64xf32, "row">
      %e = tensor.empty() : tensor<64xf32, "row">
      %u:3 = linalg.generic {indexing_maps = [#one, #one, #one, #one], iterator_types = ["parallel"]}
          ins(%top : tensor<64xf32, "row">) outs(%m, %l, %e : tensor<64xf32, "row">, tensor<64xf32, "row">, tensor<64xf32, "row">) {
      ^bb0(%t: f32, %old: f32, %sum: f32, %x: f32):
        %new = arith.maxnumf %old, %t : f32
        %d = arith.subf %old, %new : f32
        %alpha = math.exp2 %d : f32
        %scaled = arith.mulf %sum, %alpha : f32
        linalg.yield %new, %scaled, %alpha : f32, f32, f32
      } -> (tensor<64xf32, "row">, tensor<64xf32, "row">, tensor<64xf32, "row">)
      scf.yield %u#0, %u#1 : tensor<64xf32, "row">, tensor<64xf32, "row">
    }
    tile.store (%r#0, %out, %c0, %c64) {dims = [0]} : (tensor<64xf32, "row">, memref<64xf32, strided<[1]>>, index, index) -> ()
    gpu.return
  }

  gpu.func @sum(%k: memref<?x64xf16, strided<[?, 1]>>, %out: memref<64xf32, strided<[1]>>, %n: index) kernel {
    %c0 = arith.constant 0 : index
    %c16 = arith.constant 16 : index
    %c64 = arith.constant 64 : index
    %q = arith.constant dense<1.0> : tensor<64x64xf16, "operand_a">
    %zero = arith.constant dense<0.0> : tensor<64x16xf32, "fragment">
    %m_init = arith.constant dense<0xFF800000> : tensor<64xf32, "row">
    %l_init = arith.constant dense<0.0> : tensor<64xf32, "row">
    %r:2 = scf.for %j = %c0 to %n step %c16 iter_args(%m = %m_init, %l = %l_init) -> (tensor<64xf32, "row">, tensor<64xf32, "row">) {
      %kt = tile.load (%k, %j, %c0, %c16, %c64) {dims = [0, 1]} : (memref<?x64xf16, strided<[?, 1]>>, index, index, index, index) -> (tensor<16x64xf16, "shared">)
      %s = linalg.generic {indexing_maps = [#lhs, #rhs, #out], iterator_types = ["parallel", "parallel", "reduction"]}
          ins(%q, %kt : tensor<64x64xf16, "operand_a">, tensor<16x64xf16, "shared">) outs(%zero : tensor<64x16xf32, "fragment">) {
      ^bb0(%x: f16, %y: f16, %z: f32):
        %xw = arith.extf %x : f16 to f32
        %yw = arith.extf %y : f16 to f32
        %xy = arith.mulf %xw, %yw : f32
        %t = arith.addf %z, %xy : f32
        linalg.yield %t : f32
      } -> tensor<64x16xf32, "fragment">
      %low = arith.constant dense<0xFF800000> : tensor<64xf32, "row">
      %top = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]}
          ins(%s : tensor<64x16xf32, "fragment">) outs(%low : tensor<64xf32, "row">) {
      ^bb0(%x: f32, %y: f32):
        %t = arith.maxnumf %x, %y : f32
        linalg.yield %t : f32
      } -> tensor<64xf32, "row">
      %e = tensor.empty() : tensor<64xf32, "row">
      %u:3 = linalg.generic {indexing_maps = [#one, #one, #one, #one], iterator_types = ["parallel"]}
          ins(%top : tensor<64xf32, "row">) outs(%m, %l, %e : tensor<64xf32, "row">, tensor<64xf32, "row">, tensor<64xf32, "row">) {
      ^bb0(%t: f32, %old: f32, %sum: f32, %x: f32):
        %new = arith.maxnumf %old, %t : f32
        %d = arith.subf %old, %new : f32
        %alpha = math.exp2 %d : f32
        %scaled = arith.mulf %sum, %alpha : f32
        linalg.yield %new, %scaled, %alpha : f32, f32, f32
      } -> (tensor<64xf32, "row">, tensor<64xf32, "row">, tensor<64xf32, "row">)
      scf.yield %u#0, %u#1 : tensor<64xf32, "row">, tensor<64xf32, "row">
    }
    tile.store (%r#1, %out, %c0, %c64) {dims = [0]} : (tensor<64xf32, "row">, memref<64xf32, strided<[1]>>, index, index) -> ()
    gpu.return
  }
}
