// RUN: attn-opt %s --raise-attention --fuse-attention="machine=sm_90a" --lower-to=nvidia --print-ir-after=join-loops -o /dev/null 2>&1 | FileCheck %s --check-prefix=JOIN
// RUN: attn-opt %s --raise-attention --fuse-attention="machine=sm_90a" --lower-to=nvidia --print-ir-after=keep-maximum -o /dev/null 2>&1 | FileCheck %s --check-prefix=KEEP
// RUN: attn-opt %s --raise-attention --fuse-attention="machine=sm_90a" --lower-to=nvidia --print-ir-after=persistent-blocks -o /dev/null 2>&1 | FileCheck %s --check-prefix=BLOCKS
// RUN: attn-opt %s --raise-attention --fuse-attention="machine=sm_90a" --lower-to=nvidia --print-ir-after=specialize-warps -o /dev/null 2>&1 | FileCheck %s --check-prefix=ROLES

// Causal attention on Hopper: one loop with a branch around the mask; then the first maximum is kept; then blocks go from
// tile to tile in pairs; then a warp copies and two warpgroups compute.

// JOIN:      scf.for %[[J:.*]] = %{{.*}} to %{{.*}} step
// JOIN:        %[[MASKED:.*]] = arith.cmpi sge, %[[J]],
// JOIN:        scf.if %[[MASKED]]
// JOIN:          arith.select
// JOIN:        } else {
// JOIN-NOT:  scf.for

// The maximum of the first tile is that of all its scores, before the mask; it is finite, and 3 larger (log2).
// KEEP:      %[[TILE:.*]] = linalg.generic {{.*}} "reduction"]} {{.*}}operand_a
// KEEP:      %[[X:.*]] = linalg.generic {{.*}} ins(%[[TILE]] :
// KEEP:        arith.mulf
// KEEP:      %[[M:.*]] = linalg.generic {{.*}} "reduction"]} ins(%[[X]] :
// KEEP:        arith.maxnumf
// KEEP:      scf.if
// KEEP:        arith.select
// KEEP:      %{{.*}}:3 = linalg.generic {{.*}} ins(%[[M]] :
// KEEP:        %[[MAX:.*]] = arith.maxnumf
// KEEP:        math.exp2
// KEEP:        %[[NONE:.*]] = arith.cmpf oeq, %[[MAX]], %{{.*}} : f32
// KEEP:        %[[FINITE:.*]] = arith.select %[[NONE]], %{{.*}}, %[[MAX]] : f32
// KEEP:        %[[THREE:.*]] = arith.constant 3.0
// KEEP:        arith.addf %[[FINITE]], %[[THREE]] : f32
// KEEP:      tile.store
// KEEP:      %[[KEYS:.*]] = arith.sitofp
// KEEP:      %[[LEAST:.*]] = arith.mulf %[[KEYS]],
// KEEP:      arith.cmpf oge, %{{.*}}, %[[LEAST]] : f32
// KEEP:      arith.cmpf olt, %{{.*}}, %{{.*}} : f32
// KEEP:      %[[BAD:.*]] = tile.any
// KEEP:      scf.if %[[BAD]] {
// KEEP:        scf.for
// KEEP:        tile.store
// KEEP:      } {tile.retry}

// BLOCKS:    tile.init_flags
// BLOCKS:    scf.for
// BLOCKS:      scf.for
// BLOCKS:        tile.raise
// BLOCKS:    tile.meet
// BLOCKS:    scf.for
// BLOCKS:      scf.for
// BLOCKS:        tile.raised

// ROLES:     tile.init_barriers
// ROLES:     gpu.barrier
// ROLES:     tile.warp
// ROLES:     scf.if
// ROLES:       tile.set_registers {count = 240 : i64}
// ROLES:       tile.start_turns
// ROLES:       tile.settle
// ROLES:       tile.take_turn
// ROLES:       tile.pass_turn
// ROLES:       tile.arrive
// ROLES:     } else {
// ROLES:       tile.set_registers {count = 24 : i64}
// ROLES:       tile.copy_bulk
// ROLES:     tile.tensor_map
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

