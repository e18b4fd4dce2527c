// RUN: attn-opt %s --raise-attention --fuse-attention="machine=sm_90a" --lower-to=nvidia --print-ir-after=join-loops,keep-maximum,persistent-blocks,specialize-warps -o /dev/null 2>&1 | FileCheck %s

// Causal attention on Hopper: one loop with a branch around the mask; then the first maximum is kept; then blocks go from
// tile to tile in pairs; then a warp copies and two warpgroups compute.

// CHECK-LABEL: (join-loops) //-----
// CHECK:      scf.for %[[J:.*]] = %{{.*}} to %{{.*}} step
// CHECK:        %[[MASKED:.*]] = arith.cmpi sge, %[[J]],
// CHECK:        scf.if %[[MASKED]]
// CHECK:          arith.select
// CHECK:        } else {
// CHECK-NOT:  scf.for

// The maximum of the first tile is that of all its scores, before the mask; it is finite, and 3 larger (log2).
// CHECK-LABEL: (keep-maximum) //-----
// CHECK:      %[[TILE:.*]] = linalg.generic {{.*}} "reduction"]} {{.*}}operand_a
// CHECK:      %[[X:.*]] = linalg.generic {{.*}} ins(%[[TILE]] :
// CHECK:        arith.mulf
// CHECK:      %[[M:.*]] = linalg.generic {{.*}} "reduction"]} ins(%[[X]] :
// CHECK:        arith.maxnumf
// CHECK:      scf.if
// CHECK:        arith.select
// CHECK:      %{{.*}}:3 = linalg.generic {{.*}} ins(%[[M]] :
// CHECK:        %[[MAX:.*]] = arith.maxnumf
// CHECK:        math.exp2
// CHECK:        %[[NONE:.*]] = arith.cmpf oeq, %[[MAX]], %{{.*}} : f32
// CHECK:        %[[FINITE:.*]] = arith.select %[[NONE]], %{{.*}}, %[[MAX]] : f32
// CHECK:        %[[THREE:.*]] = arith.constant 3.0
// CHECK:        arith.addf %[[FINITE]], %[[THREE]] : f32
// CHECK:      tile.store
// CHECK:      %[[KEYS:.*]] = arith.sitofp
// CHECK:      %[[LEAST:.*]] = arith.mulf %[[KEYS]],
// CHECK:      arith.cmpf oge, %{{.*}}, %[[LEAST]] : f32
// CHECK:      arith.cmpf olt, %{{.*}}, %{{.*}} : f32
// CHECK:      %[[BAD:.*]] = tile.any
// CHECK:      scf.if %[[BAD]] {
// CHECK:        scf.for
// CHECK:        tile.store
// CHECK:      } {tile.retry}

// CHECK-LABEL: (persistent-blocks) //-----
// CHECK:    tile.init_flags
// CHECK:    scf.for
// CHECK:      scf.for
// CHECK:        tile.raise
// CHECK:    tile.meet
// CHECK:    scf.for
// CHECK:      scf.for
// CHECK:        tile.raised

// CHECK-LABEL: (specialize-warps) //-----
// CHECK:     tile.init_barriers
// CHECK:     gpu.barrier
// CHECK:     tile.warp
// CHECK:     scf.if
// CHECK:       tile.set_registers {count = 240 : i64}
// CHECK:       tile.start_turns
// CHECK:       tile.settle
// CHECK:       tile.take_turn
// CHECK:       tile.pass_turn
// CHECK:       tile.arrive
// CHECK:     } else {
// CHECK:       tile.set_registers {count = 24 : i64}
// CHECK:       tile.copy_bulk
// CHECK:     tile.tensor_map
func.func @attention(%q: tensor<8x16x1024x128xf16>, %k: tensor<8x16x1024x128xf16>, %v: tensor<8x16x1024x128xf16>) -> tensor<8x16x1024x128xf16> {
%zero = arith.constant 0.0 : f32
%minus_inf = arith.constant 0xFF800000 : f32
%s0_e = tensor.empty() : tensor<8x16x1024x1024xf32>
%s0 = linalg.fill ins(%zero : f32) outs(%s0_e : tensor<8x16x1024x1024xf32>) -> tensor<8x16x1024x1024xf32>
%s = linalg.generic {indexing_maps = [affine_map<(b0, b1, m, k, d) -> (b0, b1, m, d)>, affine_map<(b0, b1, m, k, d) -> (b0, b1, k, d)>, affine_map<(b0, b1, m, k, d) -> (b0, b1, m, k)>], iterator_types = ["parallel", "parallel", "parallel", "parallel", "reduction"]} ins(%q, %k : tensor<8x16x1024x128xf16>, tensor<8x16x1024x128xf16>) outs(%s0 : tensor<8x16x1024x1024xf32>) {
  ^bb0(%x0: f16, %x1: f16, %x2: f32):
    %p = arith.extf %x0 : f16 to f32
    %q1 = arith.extf %x1 : f16 to f32
    %r = arith.mulf %p, %q1 : f32
    %t = arith.addf %x2, %r : f32
    linalg.yield %t : f32
  } -> tensor<8x16x1024x1024xf32>
%scale = arith.constant 0.125 : f32
%mod_e = tensor.empty() : tensor<8x16x1024x1024xf32>
%mod = linalg.generic {indexing_maps = [affine_map<(b0, b1, m, k) -> (b0, b1, m, k)>, affine_map<(b0, b1, m, k) -> (b0, b1, m, k)>], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%s : tensor<8x16x1024x1024xf32>) outs(%mod_e : tensor<8x16x1024x1024xf32>) {
  ^bb0(%x0: f32, %x1: f32):
    %scaled = arith.mulf %x0, %scale : f32
    %i = linalg.index 2 : index
    %j = linalg.index 3 : index
    %dead = arith.cmpi sgt, %j, %i : index
    %v0 = arith.select %dead, %minus_inf, %scaled : f32
    linalg.yield %v0 : f32
  } -> tensor<8x16x1024x1024xf32>
%p0 = tensor.empty() : tensor<8x16x1024x1024xf32>
%m0_e = tensor.empty() : tensor<8x16x1024xf32>
%m0 = linalg.fill ins(%minus_inf : f32) outs(%m0_e : tensor<8x16x1024xf32>) -> tensor<8x16x1024xf32>
%a0_e = tensor.empty() : tensor<8x16x1024xf32>
%a0 = linalg.fill ins(%zero : f32) outs(%a0_e : tensor<8x16x1024xf32>) -> tensor<8x16x1024xf32>
%f0 = tensor.empty() : tensor<8x16x1024xf32>
%sm:4 = linalg_ext.softmax dimension(3) ins(%mod : tensor<8x16x1024x1024xf32>) outs(%p0, %m0, %a0, %f0 : tensor<8x16x1024x1024xf32>, tensor<8x16x1024xf32>, tensor<8x16x1024xf32>, tensor<8x16x1024xf32>) : tensor<8x16x1024x1024xf32>, tensor<8x16x1024xf32>, tensor<8x16x1024xf32>, tensor<8x16x1024xf32>
%pn_e = tensor.empty() : tensor<8x16x1024x1024xf16>
%pn = linalg.generic {indexing_maps = [affine_map<(b0, b1, m, k) -> (b0, b1, m, k)>, affine_map<(b0, b1, m, k) -> (b0, b1, m, k)>], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%sm#0 : tensor<8x16x1024x1024xf32>) outs(%pn_e : tensor<8x16x1024x1024xf16>) {
  ^bb0(%x0: f32, %x1: f16):
    %t = arith.truncf %x0 : f32 to f16
    linalg.yield %t : f16
  } -> tensor<8x16x1024x1024xf16>
%o0_e = tensor.empty() : tensor<8x16x1024x128xf32>
%o0 = linalg.fill ins(%zero : f32) outs(%o0_e : tensor<8x16x1024x128xf32>) -> tensor<8x16x1024x128xf32>
%o = linalg.generic {indexing_maps = [affine_map<(b0, b1, m, e, k) -> (b0, b1, m, k)>, affine_map<(b0, b1, m, e, k) -> (b0, b1, k, e)>, affine_map<(b0, b1, m, e, k) -> (b0, b1, m, e)>], iterator_types = ["parallel", "parallel", "parallel", "parallel", "reduction"]} ins(%pn, %v : tensor<8x16x1024x1024xf16>, tensor<8x16x1024x128xf16>) outs(%o0 : tensor<8x16x1024x128xf32>) {
  ^bb0(%x0: f16, %x1: f16, %x2: f32):
    %p = arith.extf %x0 : f16 to f32
    %q1 = arith.extf %x1 : f16 to f32
    %r = arith.mulf %p, %q1 : f32
    %t = arith.addf %x2, %r : f32
    linalg.yield %t : f32
  } -> tensor<8x16x1024x128xf32>
%on_e = tensor.empty() : tensor<8x16x1024x128xf16>
%on = linalg.generic {indexing_maps = [affine_map<(b0, b1, m, e) -> (b0, b1, m, e)>, affine_map<(b0, b1, m, e) -> (b0, b1, m, e)>], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%o : tensor<8x16x1024x128xf32>) outs(%on_e : tensor<8x16x1024x128xf16>) {
  ^bb0(%x0: f32, %x1: f16):
    %t = arith.truncf %x0 : f32 to f16
    linalg.yield %t : f16
  } -> tensor<8x16x1024x128xf16>
return %on : tensor<8x16x1024x128xf16>
}

