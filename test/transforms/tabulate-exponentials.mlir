// RUN: attn-opt %s --tabulate-exponentials | FileCheck %s
// RUN: sed 's/ {linalg_ext.not_positive}//' %s | attn-opt --tabulate-exponentials | FileCheck %s --check-prefix=ANY
// RUN: sed 's/f32/f64/g' %s | attn-opt --tabulate-exponentials | FileCheck %s --check-prefix=WIDE

// The table is for numbers of f32: others are left.

// WIDE-NOT: tile.exp2
// WIDE:     math.exp2 {{.*}} : f64
// WIDE-NOT: tile.exp2

// So are those that may be infinite, as a sigmoid's.

// ANY-LABEL: gpu.func @d32
// ANY-NOT:     tile.exp2
// ANY:         math.exp2
// ANY-LABEL: gpu.func @softcap
// ANY:         tile.exp2 ({{.*}}) {bound = 44 : i64, share = 8 : i64}
// ANY-LABEL: gpu.func @wide_softcap
// ANY-NOT:     tile.exp2
// ANY-LABEL: gpu.func @limited_softcap

// At head dimension 32 exponentials take twice as long as the matmuls: three of eight come from a table.

// CHECK-LABEL: gpu.func @d32
// CHECK:         %[[TABLE:.*]] = memref.alloc() : memref<8192xi32, #gpu.address_space<workgroup>>
// CHECK-NEXT:    tile.fill_exp2 %[[TABLE]]
// CHECK:         scf.for
// CHECK:           %[[X:.*]] = arith.subf
// CHECK-NEXT:      tile.exp2 (%[[X]], %[[TABLE]]) {bound = -1 : i64, share = 3 : i64}
// CHECK-NOT:     math.exp2

// At 64 they take as long.

// CHECK-LABEL: gpu.func @d64
// CHECK-NOT:     tile.fill_exp2
// CHECK:         math.exp2

// With a function of the special unit besides, all of them, where what is behind it is bounded; else six. A cap that leaves the
// rows less than it takes is a bound where their numbers are known to be kept within that.

// CHECK-LABEL: gpu.func @softcap
// CHECK:         math.tanh
// CHECK:         tile.exp2 ({{.*}}) {bound = 44 : i64, share = 8 : i64}
// CHECK-LABEL: gpu.func @wide_softcap
// CHECK:         math.tanh
// CHECK:         tile.exp2 ({{.*}}) {bound = -1 : i64, share = 6 : i64}
// CHECK-LABEL: gpu.func @limited_softcap
// CHECK:         tile.exp2 ({{.*}}) {bound = 73 : i64, share = 8 : i64}
// CHECK-LABEL: gpu.func @masked_softcap
// CHECK:         math.tanh
// CHECK:         tile.exp2 ({{.*}}) {bound = -1 : i64, share = 6 : i64}

// At 128 two warpgroups have time for some.

// CHECK-LABEL: gpu.func @d128
// CHECK:         math.tanh
// CHECK:         tile.exp2 ({{.*}}) {bound = -1 : i64, share = 3 : i64}

#of_row = affine_map<(i) -> (i)>
#lhs = affine_map<(i, j, d) -> (i, d)>
#rhs = affine_map<(i, j, d) -> (j, d)>
#values = affine_map<(i, j, d) -> (d, j)>
#out = affine_map<(i, j, d) -> (i, j)>
#id = affine_map<(i, j) -> (i, j)>
#row = affine_map<(i, j) -> (i)>
gpu.module @kernels {
  gpu.func @d32(%k: memref<1024x32xf16, strided<[?, 1]>>, %q: tensor<64x32xf16, "operand_a">, %m: tensor<64xf32, "row">) kernel {
    %c0 = arith.constant 0 : index
    %c64 = arith.constant 64 : index
    %c1024 = arith.constant 1024 : index
    %cd = arith.constant 32 : index
    %c = arith.constant 43.28 : f32
    %wide = arith.constant 72.13 : f32
    %dead = arith.constant 0xFF800000 : f32
    %zero = arith.constant dense<0.0> : tensor<64x64xf32, "fragment">
    %o0 = arith.constant dense<0.0> : tensor<64x32xf32, "fragment">
    %o = scf.for %j = %c0 to %c1024 step %c64 iter_args(%old = %o0) -> (tensor<64x32xf32, "fragment">) {
      %kt = tile.load (%k, %j, %c0, %c64, %cd) {dims = [0, 1]} : (memref<1024x32xf16, strided<[?, 1]>>, index, index, index, index) -> (tensor<64x32xf16, "shared">)
      %s = linalg.generic {indexing_maps = [#lhs, #rhs, #out], iterator_types = ["parallel", "parallel", "reduction"]}
          ins(%q, %kt : tensor<64x32xf16, "operand_a">, tensor<64x32xf16, "shared">) outs(%zero : tensor<64x64xf32, "fragment">) {
      ^bb0(%x: f16, %y: f16, %z: f32):
        %xw = arith.extf %x : f16 to f32
        %yw = arith.extf %y : f16 to f32
        %t = arith.mulf %xw, %yw : f32
        %u = arith.addf %z, %t : f32
        linalg.yield %u : f32
      } -> tensor<64x64xf32, "fragment">
      %e = tensor.empty() : tensor<64x64xf32, "fragment">
      %capped = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
          ins(%s : tensor<64x64xf32, "fragment">) outs(%e : tensor<64x64xf32, "fragment">) {
      ^bb0(%x: f32, %z: f32):
        %r = arith.mulf %x, %c : f32
        linalg.yield %r : f32
      } -> tensor<64x64xf32, "fragment">
      %p = linalg.generic {indexing_maps = [#row, #id], iterator_types = ["parallel", "parallel"]}
          ins(%m : tensor<64xf32, "row">) outs(%capped : tensor<64x64xf32, "fragment">) {
      ^bb0(%x: f32, %z: f32):
        %t = arith.subf %z, %x : f32
        %u = math.exp2 %t {linalg_ext.not_positive} : f32
        linalg.yield %u : f32
      } -> tensor<64x64xf32, "fragment">
      %half = arith.truncf %p : tensor<64x64xf32, "fragment"> to tensor<64x64xf16, "fragment">
      %a = tile.convert_layout %half : (tensor<64x64xf16, "fragment">) -> (tensor<64x64xf16, "operand_a">)
      %new = linalg.generic {indexing_maps = [#lhs, #values, #out], iterator_types = ["parallel", "parallel", "reduction"]}
          ins(%a, %kt : tensor<64x64xf16, "operand_a">, tensor<64x32xf16, "shared">) outs(%old : tensor<64x32xf32, "fragment">) {
      ^bb0(%x: f16, %y: f16, %z: f32):
        %xw = arith.extf %x : f16 to f32
        %yw = arith.extf %y : f16 to f32
        %t = arith.mulf %xw, %yw : f32
        %u = arith.addf %z, %t : f32
        linalg.yield %u : f32
      } -> tensor<64x32xf32, "fragment">
      scf.yield %new : tensor<64x32xf32, "fragment">
    }
    gpu.return
  }
  gpu.func @d64(%k: memref<1024x64xf16, strided<[?, 1]>>, %q: tensor<64x64xf16, "operand_a">, %m: tensor<64xf32, "row">) kernel {
    %c0 = arith.constant 0 : index
    %c64 = arith.constant 64 : index
    %c1024 = arith.constant 1024 : index
    %cd = arith.constant 64 : index
    %c = arith.constant 43.28 : f32
    %wide = arith.constant 72.13 : f32
    %dead = arith.constant 0xFF800000 : f32
    %zero = arith.constant dense<0.0> : tensor<64x64xf32, "fragment">
    %o0 = arith.constant dense<0.0> : tensor<64x64xf32, "fragment">
    %o = scf.for %j = %c0 to %c1024 step %c64 iter_args(%old = %o0) -> (tensor<64x64xf32, "fragment">) {
      %kt = tile.load (%k, %j, %c0, %c64, %cd) {dims = [0, 1]} : (memref<1024x64xf16, strided<[?, 1]>>, index, index, index, index) -> (tensor<64x64xf16, "shared">)
      %s = linalg.generic {indexing_maps = [#lhs, #rhs, #out], iterator_types = ["parallel", "parallel", "reduction"]}
          ins(%q, %kt : tensor<64x64xf16, "operand_a">, tensor<64x64xf16, "shared">) outs(%zero : tensor<64x64xf32, "fragment">) {
      ^bb0(%x: f16, %y: f16, %z: f32):
        %xw = arith.extf %x : f16 to f32
        %yw = arith.extf %y : f16 to f32
        %t = arith.mulf %xw, %yw : f32
        %u = arith.addf %z, %t : f32
        linalg.yield %u : f32
      } -> tensor<64x64xf32, "fragment">
      %e = tensor.empty() : tensor<64x64xf32, "fragment">
      %capped = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
          ins(%s : tensor<64x64xf32, "fragment">) outs(%e : tensor<64x64xf32, "fragment">) {
      ^bb0(%x: f32, %z: f32):
        %r = arith.mulf %x, %c : f32
        linalg.yield %r : f32
      } -> tensor<64x64xf32, "fragment">
      %p = linalg.generic {indexing_maps = [#row, #id], iterator_types = ["parallel", "parallel"]}
          ins(%m : tensor<64xf32, "row">) outs(%capped : tensor<64x64xf32, "fragment">) {
      ^bb0(%x: f32, %z: f32):
        %t = arith.subf %z, %x : f32
        %u = math.exp2 %t {linalg_ext.not_positive} : f32
        linalg.yield %u : f32
      } -> tensor<64x64xf32, "fragment">
      %half = arith.truncf %p : tensor<64x64xf32, "fragment"> to tensor<64x64xf16, "fragment">
      %a = tile.convert_layout %half : (tensor<64x64xf16, "fragment">) -> (tensor<64x64xf16, "operand_a">)
      %new = linalg.generic {indexing_maps = [#lhs, #values, #out], iterator_types = ["parallel", "parallel", "reduction"]}
          ins(%a, %kt : tensor<64x64xf16, "operand_a">, tensor<64x64xf16, "shared">) outs(%old : tensor<64x64xf32, "fragment">) {
      ^bb0(%x: f16, %y: f16, %z: f32):
        %xw = arith.extf %x : f16 to f32
        %yw = arith.extf %y : f16 to f32
        %t = arith.mulf %xw, %yw : f32
        %u = arith.addf %z, %t : f32
        linalg.yield %u : f32
      } -> tensor<64x64xf32, "fragment">
      scf.yield %new : tensor<64x64xf32, "fragment">
    }
    gpu.return
  }
  gpu.func @softcap(%k: memref<1024x64xf16, strided<[?, 1]>>, %q: tensor<64x64xf16, "operand_a">, %m: tensor<64xf32, "row">) kernel {
    %c0 = arith.constant 0 : index
    %c64 = arith.constant 64 : index
    %c1024 = arith.constant 1024 : index
    %cd = arith.constant 64 : index
    %c = arith.constant 43.28 : f32
    %wide = arith.constant 72.13 : f32
    %dead = arith.constant 0xFF800000 : f32
    %zero = arith.constant dense<0.0> : tensor<64x64xf32, "fragment">
    %o0 = arith.constant dense<0.0> : tensor<64x64xf32, "fragment">
    %o = scf.for %j = %c0 to %c1024 step %c64 iter_args(%old = %o0) -> (tensor<64x64xf32, "fragment">) {
      %kt = tile.load (%k, %j, %c0, %c64, %cd) {dims = [0, 1]} : (memref<1024x64xf16, strided<[?, 1]>>, index, index, index, index) -> (tensor<64x64xf16, "shared">)
      %s = linalg.generic {indexing_maps = [#lhs, #rhs, #out], iterator_types = ["parallel", "parallel", "reduction"]}
          ins(%q, %kt : tensor<64x64xf16, "operand_a">, tensor<64x64xf16, "shared">) outs(%zero : tensor<64x64xf32, "fragment">) {
      ^bb0(%x: f16, %y: f16, %z: f32):
        %xw = arith.extf %x : f16 to f32
        %yw = arith.extf %y : f16 to f32
        %t = arith.mulf %xw, %yw : f32
        %u = arith.addf %z, %t : f32
        linalg.yield %u : f32
      } -> tensor<64x64xf32, "fragment">
      %e = tensor.empty() : tensor<64x64xf32, "fragment">
      %capped = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
          ins(%s : tensor<64x64xf32, "fragment">) outs(%e : tensor<64x64xf32, "fragment">) {
      ^bb0(%x: f32, %z: f32):
        %h = math.tanh %x : f32
        %r = arith.mulf %h, %c : f32
        linalg.yield %r : f32
      } -> tensor<64x64xf32, "fragment">
      %p = linalg.generic {indexing_maps = [#row, #id], iterator_types = ["parallel", "parallel"]}
          ins(%m : tensor<64xf32, "row">) outs(%capped : tensor<64x64xf32, "fragment">) {
      ^bb0(%x: f32, %z: f32):
        %t = arith.subf %z, %x : f32
        %u = math.exp2 %t {linalg_ext.not_positive} : f32
        linalg.yield %u : f32
      } -> tensor<64x64xf32, "fragment">
      %half = arith.truncf %p : tensor<64x64xf32, "fragment"> to tensor<64x64xf16, "fragment">
      %a = tile.convert_layout %half : (tensor<64x64xf16, "fragment">) -> (tensor<64x64xf16, "operand_a">)
      %new = linalg.generic {indexing_maps = [#lhs, #values, #out], iterator_types = ["parallel", "parallel", "reduction"]}
          ins(%a, %kt : tensor<64x64xf16, "operand_a">, tensor<64x64xf16, "shared">) outs(%old : tensor<64x64xf32, "fragment">) {
      ^bb0(%x: f16, %y: f16, %z: f32):
        %xw = arith.extf %x : f16 to f32
        %yw = arith.extf %y : f16 to f32
        %t = arith.mulf %xw, %yw : f32
        %u = arith.addf %z, %t : f32
        linalg.yield %u : f32
      } -> tensor<64x64xf32, "fragment">
      scf.yield %new : tensor<64x64xf32, "fragment">
    }
    gpu.return
  }
  gpu.func @wide_softcap(%k: memref<1024x64xf16, strided<[?, 1]>>, %q: tensor<64x64xf16, "operand_a">, %m: tensor<64xf32, "row">) kernel {
    %c0 = arith.constant 0 : index
    %c64 = arith.constant 64 : index
    %c1024 = arith.constant 1024 : index
    %cd = arith.constant 64 : index
    %c = arith.constant 43.28 : f32
    %wide = arith.constant 72.13 : f32
    %dead = arith.constant 0xFF800000 : f32
    %zero = arith.constant dense<0.0> : tensor<64x64xf32, "fragment">
    %o0 = arith.constant dense<0.0> : tensor<64x64xf32, "fragment">
    %o = scf.for %j = %c0 to %c1024 step %c64 iter_args(%old = %o0) -> (tensor<64x64xf32, "fragment">) {
      %kt = tile.load (%k, %j, %c0, %c64, %cd) {dims = [0, 1]} : (memref<1024x64xf16, strided<[?, 1]>>, index, index, index, index) -> (tensor<64x64xf16, "shared">)
      %s = linalg.generic {indexing_maps = [#lhs, #rhs, #out], iterator_types = ["parallel", "parallel", "reduction"]}
          ins(%q, %kt : tensor<64x64xf16, "operand_a">, tensor<64x64xf16, "shared">) outs(%zero : tensor<64x64xf32, "fragment">) {
      ^bb0(%x: f16, %y: f16, %z: f32):
        %xw = arith.extf %x : f16 to f32
        %yw = arith.extf %y : f16 to f32
        %t = arith.mulf %xw, %yw : f32
        %u = arith.addf %z, %t : f32
        linalg.yield %u : f32
      } -> tensor<64x64xf32, "fragment">
      %e = tensor.empty() : tensor<64x64xf32, "fragment">
      %capped = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
          ins(%s : tensor<64x64xf32, "fragment">) outs(%e : tensor<64x64xf32, "fragment">) {
      ^bb0(%x: f32, %z: f32):
        %h = math.tanh %x : f32
        %r = arith.mulf %h, %wide : f32
        linalg.yield %r : f32
      } -> tensor<64x64xf32, "fragment">
      %p = linalg.generic {indexing_maps = [#row, #id], iterator_types = ["parallel", "parallel"]}
          ins(%m : tensor<64xf32, "row">) outs(%capped : tensor<64x64xf32, "fragment">) {
      ^bb0(%x: f32, %z: f32):
        %t = arith.subf %z, %x : f32
        %u = math.exp2 %t {linalg_ext.not_positive} : f32
        linalg.yield %u : f32
      } -> tensor<64x64xf32, "fragment">
      %half = arith.truncf %p : tensor<64x64xf32, "fragment"> to tensor<64x64xf16, "fragment">
      %a = tile.convert_layout %half : (tensor<64x64xf16, "fragment">) -> (tensor<64x64xf16, "operand_a">)
      %new = linalg.generic {indexing_maps = [#lhs, #values, #out], iterator_types = ["parallel", "parallel", "reduction"]}
          ins(%a, %kt : tensor<64x64xf16, "operand_a">, tensor<64x64xf16, "shared">) outs(%old : tensor<64x64xf32, "fragment">) {
      ^bb0(%x: f16, %y: f16, %z: f32):
        %xw = arith.extf %x : f16 to f32
        %yw = arith.extf %y : f16 to f32
        %t = arith.mulf %xw, %yw : f32
        %u = arith.addf %z, %t : f32
        linalg.yield %u : f32
      } -> tensor<64x64xf32, "fragment">
      scf.yield %new : tensor<64x64xf32, "fragment">
    }
    gpu.return
  }
  gpu.func @limited_softcap(%k: memref<1024x64xf16, strided<[?, 1]>>, %q: tensor<64x64xf16, "operand_a">, %m: tensor<64xf32, "row">) kernel {
    %c0 = arith.constant 0 : index
    %c64 = arith.constant 64 : index
    %c1024 = arith.constant 1024 : index
    %cd = arith.constant 64 : index
    %c = arith.constant 43.28 : f32
    %wide = arith.constant 72.13 : f32
    %dead = arith.constant 0xFF800000 : f32
    %zero = arith.constant dense<0.0> : tensor<64x64xf32, "fragment">
    %o0 = arith.constant dense<0.0> : tensor<64x64xf32, "fragment">
    %low = arith.constant -53.0 : f32
    %high = arith.constant 53.0 : f32
    %rows = tensor.empty() : tensor<64xf32, "row">
    %kept = linalg.generic {indexing_maps = [#of_row, #of_row], iterator_types = ["parallel"]}
        ins(%m : tensor<64xf32, "row">) outs(%rows : tensor<64xf32, "row">) {
    ^bb0(%x: f32, %z: f32):
      %r = math.clampf %x to [%low, %high] : f32
      linalg.yield %r : f32
    } -> tensor<64xf32, "row">
    %o = scf.for %j = %c0 to %c1024 step %c64 iter_args(%old = %o0) -> (tensor<64x64xf32, "fragment">) {
      %kt = tile.load (%k, %j, %c0, %c64, %cd) {dims = [0, 1]} : (memref<1024x64xf16, strided<[?, 1]>>, index, index, index, index) -> (tensor<64x64xf16, "shared">)
      %s = linalg.generic {indexing_maps = [#lhs, #rhs, #out], iterator_types = ["parallel", "parallel", "reduction"]}
          ins(%q, %kt : tensor<64x64xf16, "operand_a">, tensor<64x64xf16, "shared">) outs(%zero : tensor<64x64xf32, "fragment">) {
      ^bb0(%x: f16, %y: f16, %z: f32):
        %xw = arith.extf %x : f16 to f32
        %yw = arith.extf %y : f16 to f32
        %t = arith.mulf %xw, %yw : f32
        %u = arith.addf %z, %t : f32
        linalg.yield %u : f32
      } -> tensor<64x64xf32, "fragment">
      %e = tensor.empty() : tensor<64x64xf32, "fragment">
      %capped = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
          ins(%s : tensor<64x64xf32, "fragment">) outs(%e : tensor<64x64xf32, "fragment">) {
      ^bb0(%x: f32, %z: f32):
        %h = math.tanh %x : f32
        %r = arith.mulf %h, %wide : f32
        linalg.yield %r : f32
      } -> tensor<64x64xf32, "fragment">
      %p = linalg.generic {indexing_maps = [#row, #id], iterator_types = ["parallel", "parallel"]}
          ins(%kept : tensor<64xf32, "row">) outs(%capped : tensor<64x64xf32, "fragment">) {
      ^bb0(%x: f32, %z: f32):
        %t = arith.subf %z, %x : f32
        %u = math.exp2 %t {linalg_ext.not_positive} : f32
        linalg.yield %u : f32
      } -> tensor<64x64xf32, "fragment">
      %half = arith.truncf %p : tensor<64x64xf32, "fragment"> to tensor<64x64xf16, "fragment">
      %a = tile.convert_layout %half : (tensor<64x64xf16, "fragment">) -> (tensor<64x64xf16, "operand_a">)
      %new = linalg.generic {indexing_maps = [#lhs, #values, #out], iterator_types = ["parallel", "parallel", "reduction"]}
          ins(%a, %kt : tensor<64x64xf16, "operand_a">, tensor<64x64xf16, "shared">) outs(%old : tensor<64x64xf32, "fragment">) {
      ^bb0(%x: f16, %y: f16, %z: f32):
        %xw = arith.extf %x : f16 to f32
        %yw = arith.extf %y : f16 to f32
        %t = arith.mulf %xw, %yw : f32
        %u = arith.addf %z, %t : f32
        linalg.yield %u : f32
      } -> tensor<64x64xf32, "fragment">
      scf.yield %new : tensor<64x64xf32, "fragment">
    }
    gpu.return
  }
  gpu.func @masked_softcap(%k: memref<1024x64xf16, strided<[?, 1]>>, %q: tensor<64x64xf16, "operand_a">, %m: tensor<64xf32, "row">) kernel {
    %c0 = arith.constant 0 : index
    %c64 = arith.constant 64 : index
    %c1024 = arith.constant 1024 : index
    %cd = arith.constant 64 : index
    %c = arith.constant 43.28 : f32
    %wide = arith.constant 72.13 : f32
    %dead = arith.constant 0xFF800000 : f32
    %zero = arith.constant dense<0.0> : tensor<64x64xf32, "fragment">
    %o0 = arith.constant dense<0.0> : tensor<64x64xf32, "fragment">
    %o = scf.for %j = %c0 to %c1024 step %c64 iter_args(%old = %o0) -> (tensor<64x64xf32, "fragment">) {
      %kt = tile.load (%k, %j, %c0, %c64, %cd) {dims = [0, 1]} : (memref<1024x64xf16, strided<[?, 1]>>, index, index, index, index) -> (tensor<64x64xf16, "shared">)
      %s = linalg.generic {indexing_maps = [#lhs, #rhs, #out], iterator_types = ["parallel", "parallel", "reduction"]}
          ins(%q, %kt : tensor<64x64xf16, "operand_a">, tensor<64x64xf16, "shared">) outs(%zero : tensor<64x64xf32, "fragment">) {
      ^bb0(%x: f16, %y: f16, %z: f32):
        %xw = arith.extf %x : f16 to f32
        %yw = arith.extf %y : f16 to f32
        %t = arith.mulf %xw, %yw : f32
        %u = arith.addf %z, %t : f32
        linalg.yield %u : f32
      } -> tensor<64x64xf32, "fragment">
      %e = tensor.empty() : tensor<64x64xf32, "fragment">
      %capped = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
          ins(%s : tensor<64x64xf32, "fragment">) outs(%e : tensor<64x64xf32, "fragment">) {
      ^bb0(%x: f32, %z: f32):
        %h = math.tanh %x : f32
        %g = arith.mulf %h, %c : f32
        %is = arith.cmpf ogt, %x, %c : f32
        %r = arith.select %is, %dead, %g : f32
        linalg.yield %r : f32
      } -> tensor<64x64xf32, "fragment">
      %p = linalg.generic {indexing_maps = [#row, #id], iterator_types = ["parallel", "parallel"]}
          ins(%m : tensor<64xf32, "row">) outs(%capped : tensor<64x64xf32, "fragment">) {
      ^bb0(%x: f32, %z: f32):
        %t = arith.subf %z, %x : f32
        %u = math.exp2 %t {linalg_ext.not_positive} : f32
        linalg.yield %u : f32
      } -> tensor<64x64xf32, "fragment">
      %half = arith.truncf %p : tensor<64x64xf32, "fragment"> to tensor<64x64xf16, "fragment">
      %a = tile.convert_layout %half : (tensor<64x64xf16, "fragment">) -> (tensor<64x64xf16, "operand_a">)
      %new = linalg.generic {indexing_maps = [#lhs, #values, #out], iterator_types = ["parallel", "parallel", "reduction"]}
          ins(%a, %kt : tensor<64x64xf16, "operand_a">, tensor<64x64xf16, "shared">) outs(%old : tensor<64x64xf32, "fragment">) {
      ^bb0(%x: f16, %y: f16, %z: f32):
        %xw = arith.extf %x : f16 to f32
        %yw = arith.extf %y : f16 to f32
        %t = arith.mulf %xw, %yw : f32
        %u = arith.addf %z, %t : f32
        linalg.yield %u : f32
      } -> tensor<64x64xf32, "fragment">
      scf.yield %new : tensor<64x64xf32, "fragment">
    }
    gpu.return
  }
  gpu.func @d128(%k: memref<1024x128xf16, strided<[?, 1]>>, %q: tensor<64x128xf16, "operand_a">, %m: tensor<64xf32, "row">) kernel {
    %c0 = arith.constant 0 : index
    %c64 = arith.constant 64 : index
    %c1024 = arith.constant 1024 : index
    %cd = arith.constant 128 : index
    %c = arith.constant 43.28 : f32
    %wide = arith.constant 72.13 : f32
    %dead = arith.constant 0xFF800000 : f32
    %zero = arith.constant dense<0.0> : tensor<64x64xf32, "fragment">
    %o0 = arith.constant dense<0.0> : tensor<64x128xf32, "fragment">
    %o = scf.for %j = %c0 to %c1024 step %c64 iter_args(%old = %o0) -> (tensor<64x128xf32, "fragment">) {
      %kt = tile.load (%k, %j, %c0, %c64, %cd) {dims = [0, 1]} : (memref<1024x128xf16, strided<[?, 1]>>, index, index, index, index) -> (tensor<64x128xf16, "shared">)
      %s = linalg.generic {indexing_maps = [#lhs, #rhs, #out], iterator_types = ["parallel", "parallel", "reduction"]}
          ins(%q, %kt : tensor<64x128xf16, "operand_a">, tensor<64x128xf16, "shared">) outs(%zero : tensor<64x64xf32, "fragment">) {
      ^bb0(%x: f16, %y: f16, %z: f32):
        %xw = arith.extf %x : f16 to f32
        %yw = arith.extf %y : f16 to f32
        %t = arith.mulf %xw, %yw : f32
        %u = arith.addf %z, %t : f32
        linalg.yield %u : f32
      } -> tensor<64x64xf32, "fragment">
      %e = tensor.empty() : tensor<64x64xf32, "fragment">
      %capped = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
          ins(%s : tensor<64x64xf32, "fragment">) outs(%e : tensor<64x64xf32, "fragment">) {
      ^bb0(%x: f32, %z: f32):
        %h = math.tanh %x : f32
        %g = arith.mulf %h, %c : f32
        %is = arith.cmpf ogt, %x, %c : f32
        %r = arith.select %is, %dead, %g : f32
        linalg.yield %r : f32
      } -> tensor<64x64xf32, "fragment">
      %p = linalg.generic {indexing_maps = [#row, #id], iterator_types = ["parallel", "parallel"]}
          ins(%m : tensor<64xf32, "row">) outs(%capped : tensor<64x64xf32, "fragment">) {
      ^bb0(%x: f32, %z: f32):
        %t = arith.subf %z, %x : f32
        %u = math.exp2 %t {linalg_ext.not_positive} : f32
        linalg.yield %u : f32
      } -> tensor<64x64xf32, "fragment">
      %half = arith.truncf %p : tensor<64x64xf32, "fragment"> to tensor<64x64xf16, "fragment">
      %a = tile.convert_layout %half : (tensor<64x64xf16, "fragment">) -> (tensor<64x64xf16, "operand_a">)
      %new = linalg.generic {indexing_maps = [#lhs, #values, #out], iterator_types = ["parallel", "parallel", "reduction"]}
          ins(%a, %kt : tensor<64x64xf16, "operand_a">, tensor<64x128xf16, "shared">) outs(%old : tensor<64x128xf32, "fragment">) {
      ^bb0(%x: f16, %y: f16, %z: f32):
        %xw = arith.extf %x : f16 to f32
        %yw = arith.extf %y : f16 to f32
        %t = arith.mulf %xw, %yw : f32
        %u = arith.addf %z, %t : f32
        linalg.yield %u : f32
      } -> tensor<64x128xf32, "fragment">
      scf.yield %new : tensor<64x128xf32, "fragment">
    }
    gpu.return
  }
}
