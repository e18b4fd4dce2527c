// RUN: attn-opt %s --raise-attention --fuse-attention="machine=sm_90a" --lower-to=nvidia --print-ir-after=persistent-blocks -o /dev/null 2>&1 | FileCheck %s
// RUN: attn-opt %s --raise-attention --fuse-attention="machine=sm_90a tile-sizes=1,1,128,0,128" --lower-to=nvidia --print-ir-after=specialize-warps -o /dev/null 2>&1 | FileCheck %s --check-prefix=TURNS
// RUN: attn-opt %s --raise-attention --fuse-attention="machine=sm_90a tile-sizes=1,1,256,0,64" --lower-to=nvidia --print-ir-after=specialize-warps -o /dev/null 2>&1 | FileCheck %s --check-prefix=MANY

// A bias that all 64 heads share: they are the innermost dimension of the grid, so that it comes from memory once, and
// the tiles of queries are the outermost, of which no remainder is taken. A block takes the tiles i and 3 - i of a head.
// CHECK-LABEL: (persistent-blocks) //-----
// CHECK:      %[[BLOCK:.*]] = gpu.block_id x
// CHECK:      %[[HEADS:.*]] = arith.muli %{{.*}}, %c4
// CHECK:      %[[COUNT:.*]] = arith.divui %[[TILES:.*]], %[[HEADS]]
// CHECK:      %[[HALF:.*]] = arith.divui
// CHECK:      scf.for %[[PAIR:.*]] = %[[BLOCK]] to
// CHECK:        %[[HEAD:.*]] = arith.remui %[[PAIR]], %[[HEADS]]
// CHECK:        %[[OF_HEAD:.*]] = arith.divui %[[PAIR]], %[[HEADS]]
// CHECK:        %[[FIRST:.*]] = arith.remui %[[OF_HEAD]], %[[HALF]]
// CHECK:        %[[LAST:.*]] = arith.subi %[[COUNT]], %
// CHECK:        %[[SECOND:.*]] = arith.subi %[[LAST]], %[[FIRST]]
// CHECK:        scf.for
// CHECK:          arith.select %{{.*}}, %[[FIRST]], %[[SECOND]]

// With a bias and a head dimension of 64, a turn lasts until scores are there.
// TURNS:      tile.take_turn {warpgroups = 2 : i64}
// TURNS-NOT:  tile.pass_turn
// TURNS:      tile.convert_layout {{.*}} "shared">) -> (tensor<128x128xf16, "fragment">)
// TURNS-NOT:  tile.pass_turn
// TURNS:      tile.wait_matmuls {{.*}} {pending = 1 : i64}
// TURNS-NEXT: tile.pass_turn

// Where four warpgroups compute, matmuls start with the bias: it is read before them, to registers that scores had, and its
// stage is free at once. (Each has keys of its own, and they take no turns.)
// MANY-NOT:   tile.take_turn
// MANY:       %[[Q:.*]] = tile.view
// MANY-NEXT:  tile.scale %[[Q]] {exponent = -3 : i64}
// MANY:       scf.for {{.*}} -> (tensor<256x64xf32, "fragment">, tensor<256xf32, "row_part">, tensor<256x64xf16, "operand_a">, index) {
// MANY:       %[[B:.*]] = tile.convert_layout {{.*}} "shared">) -> (tensor<256x64xf16, "fragment">)
// MANY-NEXT:  tile.settle %[[B]]
// MANY-NEXT:  tile.arrive
// MANY:       %[[START:.*]] = linalg.generic {{.*}} ins(%[[B]] :
// MANY:       linalg.generic {{.*}} outs(%[[START]] : tensor<256x64xf32, "fragment">)
// MANY:       tile.wait_matmuls {{.*}} {pending = 1 : i64}

// The mask stands next to the matmul.
// MANY-NEXT:  tile.arrive
// MANY-NEXT:  %[[CUT:.*]] = arith.cmpi sge
// MANY:       %[[MASKS:.*]] = arith.andi %[[CUT]]
// MANY-NEXT:  scf.if %[[MASKS]]
// MANY:       math.exp2
// MANY:       scf.yield {{.*}} : tensor<256x64xf32, "fragment">, tensor<256xf32, "row_part">, tensor<256x64xf16, "operand_a">, index{{$}}

// Behind the loop no matmul reads queries any more, and where there is no tile of keys none does at all: others can come.
// MANY:       tile.arrive %[[FREE:[a-z0-9_]+]] [%[[USE:.*]]] : (memref<2xi64
// MANY:       } else {
// MANY-NEXT:    tile.arrive %[[FREE]] [%[[USE]]]
func.func @attention(%q: tensor<4x16x1024x64xf16>, %k: tensor<4x16x1024x64xf16>, %v: tensor<4x16x1024x64xf16>, %bias: tensor<1x1x1024x1024xf16>) -> (tensor<4x16x1024x64xf16>) {
  %zero = arith.constant 0.0 : f32
  %minus_inf = arith.constant 0xFF800000 : f32
  %s_init_empty = tensor.empty() : tensor<4x16x1024x1024xf32>
  %s_init = linalg.fill ins(%zero : f32) outs(%s_init_empty : tensor<4x16x1024x1024xf32>) -> tensor<4x16x1024x1024xf32>
  %s = linalg.generic {indexing_maps = [affine_map<(b, h, m, n, d) -> (b, h, m, d)>, affine_map<(b, h, m, n, d) -> (b, h, n, d)>, affine_map<(b, h, m, n, d) -> (b, h, m, n)>], iterator_types = ["parallel", "parallel", "parallel", "parallel", "reduction"]} ins(%q, %k : tensor<4x16x1024x64xf16>, tensor<4x16x1024x64xf16>) outs(%s_init : tensor<4x16x1024x1024xf32>) {
  ^bb0(%in0: f16, %in1: f16, %out: f32):
    %wide0 = arith.extf %in0 : f16 to f32
    %wide1 = arith.extf %in1 : f16 to f32
    %product = arith.mulf %wide0, %wide1 : f32
    %sum = arith.addf %out, %product : f32
    linalg.yield %sum : f32
  } -> tensor<4x16x1024x1024xf32>
  %factor = arith.constant 1.25000000000000000e-01 : f32
  %late = arith.constant 0 : index
  %upper = arith.constant 0 : index
  %modified_empty = tensor.empty() : tensor<4x16x1024x1024xf32>
  %modified = linalg.generic {indexing_maps = [affine_map<(b, h, m, n) -> (b, h, m, n)>, affine_map<(b, h, m, n) -> (0, 0, m, n)>, affine_map<(b, h, m, n) -> (b, h, m, n)>], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%s, %bias : tensor<4x16x1024x1024xf32>, tensor<1x1x1024x1024xf16>) outs(%modified_empty : tensor<4x16x1024x1024xf32>) {
  ^bb0(%in0: f32, %in1: f16, %out: f32):
    %scaled = arith.mulf %in0, %factor : f32
    %i = linalg.index 2 : index
    %j = linalg.index 3 : index
    %straight = arith.subi %j, %i : index
    %distance = arith.subi %straight, %late : index
    %wide_bias = arith.extf %in1 : f16 to f32
    %biased = arith.addf %scaled, %wide_bias : f32
    %dead_upper = arith.cmpi sgt, %distance, %upper : index
    %in_upper = arith.select %dead_upper, %minus_inf, %biased : f32
    linalg.yield %in_upper : f32
  } -> tensor<4x16x1024x1024xf32>
  %p_empty = tensor.empty() : tensor<4x16x1024x1024xf32>
  %scale_empty = tensor.empty() : tensor<4x16x1024xf32>
  %max_init_empty = tensor.empty() : tensor<4x16x1024xf32>
  %max_init = linalg.fill ins(%minus_inf : f32) outs(%max_init_empty : tensor<4x16x1024xf32>) -> tensor<4x16x1024xf32>
  %sum_init_empty = tensor.empty() : tensor<4x16x1024xf32>
  %sum_init = linalg.fill ins(%zero : f32) outs(%sum_init_empty : tensor<4x16x1024xf32>) -> tensor<4x16x1024xf32>
  %p:4 = linalg_ext.softmax dimension(3) ins(%modified : tensor<4x16x1024x1024xf32>)
    outs(%p_empty, %max_init, %sum_init, %scale_empty : tensor<4x16x1024x1024xf32>, tensor<4x16x1024xf32>, tensor<4x16x1024xf32>, tensor<4x16x1024xf32>)
    : tensor<4x16x1024x1024xf32>, tensor<4x16x1024xf32>, tensor<4x16x1024xf32>, tensor<4x16x1024xf32>
  %p_cast_empty = tensor.empty() : tensor<4x16x1024x1024xf16>
  %p_cast = linalg.generic {indexing_maps = [affine_map<(b, h, m, n) -> (b, h, m, n)>, affine_map<(b, h, m, n) -> (b, h, m, n)>], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%p#0 : tensor<4x16x1024x1024xf32>) outs(%p_cast_empty : tensor<4x16x1024x1024xf16>) {
  ^bb0(%in0: f32, %out: f16):
    %t = arith.truncf %in0 : f32 to f16
    linalg.yield %t : f16
  } -> tensor<4x16x1024x1024xf16>
  %o_init_empty = tensor.empty() : tensor<4x16x1024x64xf32>
  %o_init = linalg.fill ins(%zero : f32) outs(%o_init_empty : tensor<4x16x1024x64xf32>) -> tensor<4x16x1024x64xf32>
  %o = linalg.generic {indexing_maps = [affine_map<(b, h, m, e, n) -> (b, h, m, n)>, affine_map<(b, h, m, e, n) -> (b, h, n, e)>, affine_map<(b, h, m, e, n) -> (b, h, m, e)>], iterator_types = ["parallel", "parallel", "parallel", "parallel", "reduction"]} ins(%p_cast, %v : tensor<4x16x1024x1024xf16>, tensor<4x16x1024x64xf16>) outs(%o_init : tensor<4x16x1024x64xf32>) {
  ^bb0(%in0: f16, %in1: f16, %out: f32):
    %wide0 = arith.extf %in0 : f16 to f32
    %wide1 = arith.extf %in1 : f16 to f32
    %product = arith.mulf %wide0, %wide1 : f32
    %sum = arith.addf %out, %product : f32
    linalg.yield %sum : f32
  } -> tensor<4x16x1024x64xf32>
  %o_cast_empty = tensor.empty() : tensor<4x16x1024x64xf16>
  %o_cast = linalg.generic {indexing_maps = [affine_map<(b, h, m, e) -> (b, h, m, e)>, affine_map<(b, h, m, e) -> (b, h, m, e)>], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%o : tensor<4x16x1024x64xf32>) outs(%o_cast_empty : tensor<4x16x1024x64xf16>) {
  ^bb0(%in0: f32, %out: f16):
    %t = arith.truncf %in0 : f32 to f16
    linalg.yield %t : f16
  } -> tensor<4x16x1024x64xf16>
  return %o_cast : tensor<4x16x1024x64xf16>
}
