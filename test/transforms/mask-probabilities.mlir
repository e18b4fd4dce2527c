// RUN: attn-opt %s --mask-probabilities | FileCheck %s
// RUN: attn-opt %s --mask-probabilities --tabulate-exponentials | FileCheck %s --check-prefix=TABLE

// Behind a softcap, masks in a branch make probabilities 0, and what is summed are these.

// CHECK-LABEL: gpu.func @branch
// CHECK:         %[[CAPPED:.*]] = linalg.generic {{.*}}iterator_types = ["parallel", "parallel"]}
// CHECK:           math.tanh
// CHECK-NOT:     scf.if
// CHECK:         %[[E:.*]] = linalg.generic {{.*}}iterator_types = ["parallel", "parallel"]} ins(%{{.*}} : tensor<64xf32, "row">) outs(%[[CAPPED]] :
// CHECK:           math.exp2
// CHECK:         %[[ZERO:.*]] = arith.constant 0.000000e+00 : f32
// CHECK-NEXT:    %[[P:.*]] = scf.if %{{.*}} -> (tensor<64x64xf32, "fragment">) {
// CHECK:           %[[MASKED:.*]] = linalg.generic {{.*}} ins(%[[E]] :
// CHECK-NEXT:      ^bb0(%[[IN:.*]]: f32, %{{.*}}: f32):
// CHECK:             %[[ALONE:.*]] = arith.cmpi sgt
// CHECK:             %[[R:.*]] = arith.select %[[ALONE]], %[[ZERO]], %[[IN]] : f32
// CHECK:           scf.yield %[[MASKED]]
// CHECK:         } else {
// CHECK-NEXT:      scf.yield %[[E]]
// CHECK:         %[[L:.*]] = linalg.generic {{.*}}iterator_types = ["parallel", "reduction"]} ins(%[[P]] : {{.*}}) outs(%{{.*}} : tensor<64xf32, "row">)
// CHECK:         arith.truncf %[[P]]
// CHECK:         scf.yield %{{.*}}, %[[L]]

// So all exponentials come from the table, in the short way.

// TABLE-LABEL: gpu.func @branch
// TABLE:         tile.exp2 ({{.*}}) {bound = 44 : i64, share = 8 : i64}

// Nothing changes where the masked scores have another reader, such as a maximum, or are not bounded without masks.

// CHECK-LABEL: gpu.func @maximum
// CHECK:         scf.if
// CHECK:         math.exp2
// CHECK-NOT:     scf.if
// TABLE-LABEL: gpu.func @maximum
// TABLE:         tile.exp2 ({{.*}}) {bound = -1 : i64, share = 6 : i64}
// CHECK-LABEL: gpu.func @unbounded
// CHECK:         scf.if
// CHECK:         math.exp2
// CHECK-NOT:     scf.if

#lhs = affine_map<(i, j, d) -> (i, d)>
#rhs = affine_map<(i, j, d) -> (j, d)>
#values = affine_map<(i, j, d) -> (d, j)>
#out = affine_map<(i, j, d) -> (i, j)>
#id = affine_map<(i, j) -> (i, j)>
#row = affine_map<(i, j) -> (i)>
gpu.module @kernels {
  gpu.func @branch(%k: memref<1024x64xf16, strided<[?, 1]>>, %q: tensor<64x64xf16, "operand_a">, %m: tensor<64xf32, "row">, %from: index) kernel {
    %c0 = arith.constant 0 : index
    %c64 = arith.constant 64 : index
    %c1024 = arith.constant 1024 : index
    %c = arith.constant 43.28 : f32
    %dead = arith.constant 0xFF800000 : f32
    %zero = arith.constant dense<0.0> : tensor<64x64xf32, "fragment">
    %none = arith.constant dense<0.0> : tensor<64xf32, "row">
    %e = tensor.empty() : tensor<64x64xf32, "fragment">
    %o:2 = scf.for %j = %c0 to %c1024 step %c64 iter_args(%old = %zero, %l0 = %none) -> (tensor<64x64xf32, "fragment">, tensor<64xf32, "row">) {
      %kt = tile.load (%k, %j, %c0, %c64, %c64) {dims = [0, 1]} : (memref<1024x64xf16, strided<[?, 1]>>, index, index, index, index) -> (tensor<64x64xf16, "shared">)
      %s = linalg.generic {indexing_maps = [#lhs, #rhs, #out], iterator_types = ["parallel", "parallel", "reduction"]}
          ins(%q, %kt : tensor<64x64xf16, "operand_a">, tensor<64x64xf16, "shared">) outs(%zero : tensor<64x64xf32, "fragment">) {
      ^bb0(%x: f16, %y: f16, %z: f32):
        %xw = arith.extf %x : f16 to f32
        %yw = arith.extf %y : f16 to f32
        %t = arith.mulf %xw, %yw : f32
        %u = arith.addf %z, %t : f32
        linalg.yield %u : f32
      } -> tensor<64x64xf32, "fragment">
      %capped = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
          ins(%s : tensor<64x64xf32, "fragment">) outs(%e : tensor<64x64xf32, "fragment">) {
      ^bb0(%x: f32, %z: f32):
        %h = math.tanh %x : f32
        %r = arith.mulf %h, %c : f32
        linalg.yield %r : f32
      } -> tensor<64x64xf32, "fragment">
      %late = arith.cmpi sge, %j, %from : index
      %masked = scf.if %late -> (tensor<64x64xf32, "fragment">) {
        %t = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
            ins(%capped : tensor<64x64xf32, "fragment">) outs(%e : tensor<64x64xf32, "fragment">) {
        ^bb0(%x: f32, %z: f32):
          %a = linalg.index 0 : index
          %b = linalg.index 1 : index
          %w = arith.addi %b, %j : index
          %is = arith.cmpi sgt, %w, %a : index
          %r = arith.select %is, %dead, %x : f32
          linalg.yield %r : f32
        } -> tensor<64x64xf32, "fragment">
        scf.yield %t : tensor<64x64xf32, "fragment">
      } else {
        scf.yield %capped : tensor<64x64xf32, "fragment">
      }
      %p:2 = linalg.generic {indexing_maps = [#row, #id, #row], iterator_types = ["parallel", "reduction"]}
          ins(%m : tensor<64xf32, "row">) outs(%masked, %none : tensor<64x64xf32, "fragment">, tensor<64xf32, "row">) {
      ^bb0(%x: f32, %z: f32, %sum: f32):
        %t = arith.subf %z, %x : f32
        %u = math.exp2 %t {linalg_ext.not_positive} : f32
        %v = arith.addf %sum, %u : f32
        linalg.yield %u, %v : f32, f32
      } -> (tensor<64x64xf32, "fragment">, tensor<64xf32, "row">)
      %half = arith.truncf %p#0 : tensor<64x64xf32, "fragment"> to tensor<64x64xf16, "fragment">
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
      scf.yield %new, %p#1 : tensor<64x64xf32, "fragment">, tensor<64xf32, "row">
    }
    gpu.return
  }
  gpu.func @maximum(%k: memref<1024x64xf16, strided<[?, 1]>>, %q: tensor<64x64xf16, "operand_a">, %m: tensor<64xf32, "row">, %from: index) kernel {
    %c0 = arith.constant 0 : index
    %c64 = arith.constant 64 : index
    %c1024 = arith.constant 1024 : index
    %c = arith.constant 43.28 : f32
    %dead = arith.constant 0xFF800000 : f32
    %zero = arith.constant dense<0.0> : tensor<64x64xf32, "fragment">
    %none = arith.constant dense<0.0> : tensor<64xf32, "row">
    %e = tensor.empty() : tensor<64x64xf32, "fragment">
    %o:2 = scf.for %j = %c0 to %c1024 step %c64 iter_args(%old = %zero, %l0 = %none) -> (tensor<64x64xf32, "fragment">, tensor<64xf32, "row">) {
      %kt = tile.load (%k, %j, %c0, %c64, %c64) {dims = [0, 1]} : (memref<1024x64xf16, strided<[?, 1]>>, index, index, index, index) -> (tensor<64x64xf16, "shared">)
      %s = linalg.generic {indexing_maps = [#lhs, #rhs, #out], iterator_types = ["parallel", "parallel", "reduction"]}
          ins(%q, %kt : tensor<64x64xf16, "operand_a">, tensor<64x64xf16, "shared">) outs(%zero : tensor<64x64xf32, "fragment">) {
      ^bb0(%x: f16, %y: f16, %z: f32):
        %xw = arith.extf %x : f16 to f32
        %yw = arith.extf %y : f16 to f32
        %t = arith.mulf %xw, %yw : f32
        %u = arith.addf %z, %t : f32
        linalg.yield %u : f32
      } -> tensor<64x64xf32, "fragment">
      %capped = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
          ins(%s : tensor<64x64xf32, "fragment">) outs(%e : tensor<64x64xf32, "fragment">) {
      ^bb0(%x: f32, %z: f32):
        %h = math.tanh %x : f32
        %r = arith.mulf %h, %c : f32
        linalg.yield %r : f32
      } -> tensor<64x64xf32, "fragment">
      %late = arith.cmpi sge, %j, %from : index
      %masked = scf.if %late -> (tensor<64x64xf32, "fragment">) {
        %t = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
            ins(%capped : tensor<64x64xf32, "fragment">) outs(%e : tensor<64x64xf32, "fragment">) {
        ^bb0(%x: f32, %z: f32):
          %a = linalg.index 0 : index
          %b = linalg.index 1 : index
          %w = arith.addi %b, %j : index
          %is = arith.cmpi sgt, %w, %a : index
          %r = arith.select %is, %dead, %x : f32
          linalg.yield %r : f32
        } -> tensor<64x64xf32, "fragment">
        scf.yield %t : tensor<64x64xf32, "fragment">
      } else {
        scf.yield %capped : tensor<64x64xf32, "fragment">
      }
      %top = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]}
          ins(%masked : tensor<64x64xf32, "fragment">) outs(%m : tensor<64xf32, "row">) {
      ^bb0(%x: f32, %z: f32):
        %t = arith.maxnumf %x, %z : f32
        linalg.yield %t : f32
      } -> tensor<64xf32, "row">
      %p:2 = linalg.generic {indexing_maps = [#row, #id, #row], iterator_types = ["parallel", "reduction"]}
          ins(%top : tensor<64xf32, "row">) outs(%masked, %none : tensor<64x64xf32, "fragment">, tensor<64xf32, "row">) {
      ^bb0(%x: f32, %z: f32, %sum: f32):
        %t = arith.subf %z, %x : f32
        %u = math.exp2 %t {linalg_ext.not_positive} : f32
        %v = arith.addf %sum, %u : f32
        linalg.yield %u, %v : f32, f32
      } -> (tensor<64x64xf32, "fragment">, tensor<64xf32, "row">)
      %half = arith.truncf %p#0 : tensor<64x64xf32, "fragment"> to tensor<64x64xf16, "fragment">
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
      scf.yield %new, %p#1 : tensor<64x64xf32, "fragment">, tensor<64xf32, "row">
    }
    gpu.return
  }
  gpu.func @unbounded(%k: memref<1024x64xf16, strided<[?, 1]>>, %q: tensor<64x64xf16, "operand_a">, %m: tensor<64xf32, "row">, %from: index) kernel {
    %c0 = arith.constant 0 : index
    %c64 = arith.constant 64 : index
    %c1024 = arith.constant 1024 : index
    %c = arith.constant 72.13 : f32
    %dead = arith.constant 0xFF800000 : f32
    %zero = arith.constant dense<0.0> : tensor<64x64xf32, "fragment">
    %none = arith.constant dense<0.0> : tensor<64xf32, "row">
    %e = tensor.empty() : tensor<64x64xf32, "fragment">
    %o:2 = scf.for %j = %c0 to %c1024 step %c64 iter_args(%old = %zero, %l0 = %none) -> (tensor<64x64xf32, "fragment">, tensor<64xf32, "row">) {
      %kt = tile.load (%k, %j, %c0, %c64, %c64) {dims = [0, 1]} : (memref<1024x64xf16, strided<[?, 1]>>, index, index, index, index) -> (tensor<64x64xf16, "shared">)
      %s = linalg.generic {indexing_maps = [#lhs, #rhs, #out], iterator_types = ["parallel", "parallel", "reduction"]}
          ins(%q, %kt : tensor<64x64xf16, "operand_a">, tensor<64x64xf16, "shared">) outs(%zero : tensor<64x64xf32, "fragment">) {
      ^bb0(%x: f16, %y: f16, %z: f32):
        %xw = arith.extf %x : f16 to f32
        %yw = arith.extf %y : f16 to f32
        %t = arith.mulf %xw, %yw : f32
        %u = arith.addf %z, %t : f32
        linalg.yield %u : f32
      } -> tensor<64x64xf32, "fragment">
      %capped = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
          ins(%s : tensor<64x64xf32, "fragment">) outs(%e : tensor<64x64xf32, "fragment">) {
      ^bb0(%x: f32, %z: f32):
        %h = math.tanh %x : f32
        %r = arith.mulf %h, %c : f32
        linalg.yield %r : f32
      } -> tensor<64x64xf32, "fragment">
      %late = arith.cmpi sge, %j, %from : index
      %masked = scf.if %late -> (tensor<64x64xf32, "fragment">) {
        %t = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
            ins(%capped : tensor<64x64xf32, "fragment">) outs(%e : tensor<64x64xf32, "fragment">) {
        ^bb0(%x: f32, %z: f32):
          %a = linalg.index 0 : index
          %b = linalg.index 1 : index
          %w = arith.addi %b, %j : index
          %is = arith.cmpi sgt, %w, %a : index
          %r = arith.select %is, %dead, %x : f32
          linalg.yield %r : f32
        } -> tensor<64x64xf32, "fragment">
        scf.yield %t : tensor<64x64xf32, "fragment">
      } else {
        scf.yield %capped : tensor<64x64xf32, "fragment">
      }
      %p:2 = linalg.generic {indexing_maps = [#row, #id, #row], iterator_types = ["parallel", "reduction"]}
          ins(%m : tensor<64xf32, "row">) outs(%masked, %none : tensor<64x64xf32, "fragment">, tensor<64xf32, "row">) {
      ^bb0(%x: f32, %z: f32, %sum: f32):
        %t = arith.subf %z, %x : f32
        %u = math.exp2 %t {linalg_ext.not_positive} : f32
        %v = arith.addf %sum, %u : f32
        linalg.yield %u, %v : f32, f32
      } -> (tensor<64x64xf32, "fragment">, tensor<64xf32, "row">)
      %half = arith.truncf %p#0 : tensor<64x64xf32, "fragment"> to tensor<64x64xf16, "fragment">
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
      scf.yield %new, %p#1 : tensor<64x64xf32, "fragment">, tensor<64xf32, "row">
    }
    gpu.return
  }
}
