// RUN: attn-opt %s --raise-attention --fuse-attention="machine=sm_90a" --lower-to=nvidia --print-ir-after=specialize-warps -o /dev/null 2>&1 | FileCheck %s
// RUN: attn-opt %s --raise-attention --fuse-attention="machine=sm_90a" --lower-to=nvidia --remarks -o /dev/null 2>&1 | FileCheck %s --check-prefix=REMARK

// REMARK: 4 warpgroups compute, each with the keys of its own rows, a warp beside them copies by the copy engine

// Under a window of 100 keys the 64 rows of a warpgroup have fewer tiles of 64 keys than the 256 of the block.
// CHECK-LABEL: (specialize-warps) //-----
// CHECK:      %[[WARP:.*]] = tile.warp
// CHECK:      scf.if
// CHECK-NOT:    tile.take_turn

// What the bounds would be of a tile that begins with the warpgroup's rows, and of one that ends with them: its own are the
// larger lower bound and the smaller upper one, of one tile at least.
// CHECK:        %[[START:.*]] = arith.muli %{{.*}}, %c256
// CHECK:        %[[LOWER:.*]] = affine.min #{{.*}}()[%{{.*}}]
// CHECK:        %[[ANY:.*]] = arith.cmpi slt, %{{.*}}, %{{.*}}
// CHECK:        %[[WARPGROUP:.*]] = arith.divui %[[WARP]], %c4
// CHECK:        %[[ROW:.*]] = arith.muli %[[WARPGROUP]], %c64
// CHECK:        %[[BEGINS:.*]] = arith.addi %[[START]], %[[ROW]]
// CHECK:        %[[ENDS:.*]] = arith.subi %[[BEGINS]], %c192
// CHECK:        affine.max #{{.*}}()[%[[BEGINS]]]
// CHECK:        affine.max #{{.*}}()[%[[ENDS]]]
// CHECK:        arith.maxsi
// CHECK:        arith.minsi

// Tiles before its own it waits for, and leaves; those behind as well.
// CHECK:        scf.for %[[I:.*]] = %{{.*}} to %[[BEFORE:.*]] step
// CHECK-NEXT:     %[[USE:.*]] = arith.addi %[[COUNT:.*]], %[[I]]
// CHECK-NEXT:     tile.wait_barrier %[[READY:.*]] [%[[USE]]] {behind = 0 : i64}
// CHECK-NEXT:     tile.arrive %[[FREE:.*]] [%[[USE]]]
// CHECK:          tile.wait_barrier
// CHECK-NEXT:     tile.arrive
// CHECK-NEXT:   }
// CHECK-NEXT:   %[[FIRST:.*]] = arith.addi %[[COUNT]], %[[BEFORE]]
// CHECK:        scf.if %[[ANY]]
// CHECK:          tile.wait_barrier %[[READY]] [%[[FIRST]]]
// CHECK:          scf.for {{.*}} -> (tensor<256x64xf32, "fragment">

// Scores are masked where the window cuts its own rows: j − i is at most 0, and not below −99.
// CHECK:            %[[CUT:.*]] = arith.ori
// CHECK:            %[[ABOVE:.*]] = arith.cmpi sgt, %{{.*}}, %c0
// CHECK:            %[[BELOW:.*]] = arith.cmpi slt, %{{.*}}, %c-99
// CHECK-NEXT:       %[[EITHER:.*]] = arith.ori %[[ABOVE]], %[[BELOW]]
// CHECK-NEXT:       %[[MASKED:.*]] = arith.andi %[[CUT]], %[[EITHER]]
// CHECK-NEXT:       scf.if %[[MASKED]]
// CHECK:        scf.for
// CHECK-NEXT:     arith.addi
// CHECK-NEXT:     tile.wait_barrier %[[READY]]
// CHECK-NEXT:     tile.arrive %[[FREE]]
func.func @attention(%q: tensor<4x32x1024x64xf16>, %k: tensor<4x32x1024x64xf16>, %v: tensor<4x32x1024x64xf16>) -> (tensor<4x32x1024x64xf16>) {
  %zero = arith.constant 0.0 : f32
  %minus_inf = arith.constant 0xFF800000 : f32
  %s_init_empty = tensor.empty() : tensor<4x32x1024x1024xf32>
  %s_init = linalg.fill ins(%zero : f32) outs(%s_init_empty : tensor<4x32x1024x1024xf32>) -> tensor<4x32x1024x1024xf32>
  %s = linalg.generic {indexing_maps = [affine_map<(b, h, m, n, d) -> (b, h, m, d)>, affine_map<(b, h, m, n, d) -> (b, h, n, d)>, affine_map<(b, h, m, n, d) -> (b, h, m, n)>], iterator_types = ["parallel", "parallel", "parallel", "parallel", "reduction"]} ins(%q, %k : tensor<4x32x1024x64xf16>, tensor<4x32x1024x64xf16>) outs(%s_init : tensor<4x32x1024x1024xf32>) {
  ^bb0(%in0: f16, %in1: f16, %out: f32):
    %wide0 = arith.extf %in0 : f16 to f32
    %wide1 = arith.extf %in1 : f16 to f32
    %product = arith.mulf %wide0, %wide1 : f32
    %sum = arith.addf %out, %product : f32
    linalg.yield %sum : f32
  } -> tensor<4x32x1024x1024xf32>
  %factor = arith.constant 1.25000000000000000e-01 : f32
  %late = arith.constant 0 : index
  %lower = arith.constant -99 : index
  %upper = arith.constant 0 : index
  %modified_empty = tensor.empty() : tensor<4x32x1024x1024xf32>
  %modified = linalg.generic {indexing_maps = [affine_map<(b, h, m, n) -> (b, h, m, n)>, affine_map<(b, h, m, n) -> (b, h, m, n)>], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%s : tensor<4x32x1024x1024xf32>) outs(%modified_empty : tensor<4x32x1024x1024xf32>) {
  ^bb0(%in0: f32, %out: f32):
    %scaled = arith.mulf %in0, %factor : f32
    %i = linalg.index 2 : index
    %j = linalg.index 3 : index
    %straight = arith.subi %j, %i : index
    %distance = arith.subi %straight, %late : index
    %dead_lower = arith.cmpi slt, %distance, %lower : index
    %in_lower = arith.select %dead_lower, %minus_inf, %scaled : f32
    %dead_upper = arith.cmpi sgt, %distance, %upper : index
    %in_upper = arith.select %dead_upper, %minus_inf, %in_lower : f32
    linalg.yield %in_upper : f32
  } -> tensor<4x32x1024x1024xf32>
  %p_empty = tensor.empty() : tensor<4x32x1024x1024xf32>
  %scale_empty = tensor.empty() : tensor<4x32x1024xf32>
  %max_init_empty = tensor.empty() : tensor<4x32x1024xf32>
  %max_init = linalg.fill ins(%minus_inf : f32) outs(%max_init_empty : tensor<4x32x1024xf32>) -> tensor<4x32x1024xf32>
  %sum_init_empty = tensor.empty() : tensor<4x32x1024xf32>
  %sum_init = linalg.fill ins(%zero : f32) outs(%sum_init_empty : tensor<4x32x1024xf32>) -> tensor<4x32x1024xf32>
  %p:4 = linalg_ext.softmax dimension(3) ins(%modified : tensor<4x32x1024x1024xf32>)
    outs(%p_empty, %max_init, %sum_init, %scale_empty : tensor<4x32x1024x1024xf32>, tensor<4x32x1024xf32>, tensor<4x32x1024xf32>, tensor<4x32x1024xf32>)
    : tensor<4x32x1024x1024xf32>, tensor<4x32x1024xf32>, tensor<4x32x1024xf32>, tensor<4x32x1024xf32>
  %p_cast_empty = tensor.empty() : tensor<4x32x1024x1024xf16>
  %p_cast = linalg.generic {indexing_maps = [affine_map<(b, h, m, n) -> (b, h, m, n)>, affine_map<(b, h, m, n) -> (b, h, m, n)>], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%p#0 : tensor<4x32x1024x1024xf32>) outs(%p_cast_empty : tensor<4x32x1024x1024xf16>) {
  ^bb0(%in0: f32, %out: f16):
    %rounded = arith.truncf %in0 : f32 to f16
    linalg.yield %rounded : f16
  } -> tensor<4x32x1024x1024xf16>
  %o_init_empty = tensor.empty() : tensor<4x32x1024x64xf32>
  %o_init = linalg.fill ins(%zero : f32) outs(%o_init_empty : tensor<4x32x1024x64xf32>) -> tensor<4x32x1024x64xf32>
  %o = linalg.generic {indexing_maps = [affine_map<(b, h, m, e, n) -> (b, h, m, n)>, affine_map<(b, h, m, e, n) -> (b, h, n, e)>, affine_map<(b, h, m, e, n) -> (b, h, m, e)>], iterator_types = ["parallel", "parallel", "parallel", "parallel", "reduction"]} ins(%p_cast, %v : tensor<4x32x1024x1024xf16>, tensor<4x32x1024x64xf16>) outs(%o_init : tensor<4x32x1024x64xf32>) {
  ^bb0(%in0: f16, %in1: f16, %out: f32):
    %wide0 = arith.extf %in0 : f16 to f32
    %wide1 = arith.extf %in1 : f16 to f32
    %product = arith.mulf %wide0, %wide1 : f32
    %sum = arith.addf %out, %product : f32
    linalg.yield %sum : f32
  } -> tensor<4x32x1024x64xf32>
  %o_cast_empty = tensor.empty() : tensor<4x32x1024x64xf16>
  %o_cast = linalg.generic {indexing_maps = [affine_map<(b, h, m, e) -> (b, h, m, e)>, affine_map<(b, h, m, e) -> (b, h, m, e)>], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%o : tensor<4x32x1024x64xf32>) outs(%o_cast_empty : tensor<4x32x1024x64xf16>) {
  ^bb0(%in0: f32, %out: f16):
    %rounded = arith.truncf %in0 : f32 to f16
    linalg.yield %rounded : f16
  } -> tensor<4x32x1024x64xf16>
  return %o_cast : tensor<4x32x1024x64xf16>
}

