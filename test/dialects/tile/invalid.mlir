// RUN: attn-opt %s --split-input-file --verify-diagnostics

func.func @indices(%m: memref<4x8xf16>, %i: index) {
  // expected-error @below {{expects 4 indices (0 before 2 offsets and 2 sizes), but found 3}}
  %t = tile.load (%m, %i, %i, %i) {dims = [0, 1]} : (memref<4x8xf16>, index, index, index) -> (tensor<4x8xf16>)
  return
}

// -----

func.func @dims(%m: memref<4x8xf16>, %i: index) {
  // expected-error @below {{expects dims to give a dimension of the memref (or -1) for each of the tile's 2, but found [0]}}
  %t = tile.load (%m, %i, %i, %i, %i) {dims = [0]} : (memref<4x8xf16>, index, index, index, index) -> (tensor<4x8xf16>)
  return
}

// -----

func.func @element(%m: memref<4x8xf16>, %i: index) {
  // expected-error @below {{expects memref and tile to have one element type, but found f16 and f32}}
  %t = tile.load (%m, %i, %i, %i, %i) {dims = [0, 1]} : (memref<4x8xf16>, index, index, index, index) -> (tensor<4x8xf32>)
  return
}

// -----

func.func @layout(%t: tensor<4x8xf16>) {
  // expected-error @below {{expects the layout of the result to be one of fragment, operand_a, paired_a, row, row_part, column, spread, shared, skewed, paired, but found "frgment"}}
  %r = tile.convert_layout %t : (tensor<4x8xf16>) -> (tensor<4x8xf16, "frgment">)
  return
}

// -----

func.func @first_row(%t: tensor<8x64xf32, "shared">) {
  // expected-error @below {{expects value and result to differ in their layout alone, but found tensor<8x64xf32, "shared"> and tensor<8xf32, "column">}}
  %r = tile.convert_layout %t : (tensor<8x64xf32, "shared">) -> (tensor<8xf32, "column">)
  return
}

// -----

func.func @scale(%t: tensor<128x64xf16, "fragment">) {
  // expected-error @below {{expects a left operand of a matmul of 16 bits, but found tensor<128x64xf16, "fragment">}}
  %r = tile.scale %t {exponent = -3 : i64} : (tensor<128x64xf16, "fragment">) -> (tensor<128x64xf16, "fragment">)
  return
}

// -----

func.func @scale_type(%t: tensor<128x64xf16, "shared">) {
  // expected-error @below {{expects a result of type tensor<128x64xf16, "shared">, but found tensor<128x64xf16, "operand_a">}}
  %r = tile.scale %t {exponent = -3 : i64} : (tensor<128x64xf16, "shared">) -> (tensor<128x64xf16, "operand_a">)
  return
}

// -----

func.func @view(%b: memref<2x128x64xf16>, %i: index) {
  // expected-error @below {{expects the type of one stage, tensor<128x64xf16, "shared">, but found tensor<64x64xf16, "shared">}}
  %v = tile.view %b [%i] : (memref<2x128x64xf16>, index) -> (tensor<64x64xf16, "shared">)
  return
}

// -----

func.func @store_shared(%b: memref<2x128x64xf16>, %i: index, %t: tensor<64x64xf16, "spread">) {
  // expected-error @below {{expects the shape and element type of one stage, tensor<128x64xf16, "shared">, but found tensor<64x64xf16, "spread">}}
  tile.store_shared %t, %b [%i] : (tensor<64x64xf16, "spread">, memref<2x128x64xf16>, index) -> ()
  return
}

// -----

func.func @store_layout(%b: memref<2x128x64xf16>, %i: index, %t: tensor<128x64xf16, "fragment">) {
  // expected-error @below {{expects a tile that is spread over the threads, but found tensor<128x64xf16, "fragment">}}
  tile.store_shared %t, %b [%i] : (tensor<128x64xf16, "fragment">, memref<2x128x64xf16>, index) -> ()
  return
}

// -----

func.func @arrange(%b: memref<2x128x64xf16>, %i: index, %t: tensor<128x64xf16, "shared">) {
  // expected-error @below {{expects elements of 8 bits, but found tensor<128x64xf16, "shared">}}
  tile.arrange %t, %b [%i] {inner = 0 : i64} : (tensor<128x64xf16, "shared">, memref<2x128x64xf16>, index) -> ()
  return
}

// -----

func.func @barriers(%b: memref<2xi32, #gpu.address_space<workgroup>>) {
  // expected-error @below {{expects the operand to be a memref of 64-bit barriers, but found memref<2xi32}}
  tile.init_barriers %b {arrivals = 1 : i64} : (memref<2xi32, #gpu.address_space<workgroup>>) -> ()
  return
}

// -----

func.func @registers() {
  // expected-error @below {{expects a multiple of 8 from 24 to 256, but found 100}}
  tile.set_registers {count = 100 : i64}
  return
}

// -----

func.func @any_of_warp(%t: tensor<64xf32, "row">) -> i1 {
  // expected-error @below {{expects a tile of i1, but found tensor<64xf32, "row">}}
  %r = tile.any_of_warp %t : (tensor<64xf32, "row">) -> (i1)
  return %r : i1
}

// -----

func.func @any(%t: tensor<64xf32, "row">) -> i1 {
  // expected-error @below {{expects a tile of i1, but found tensor<64xf32, "row">}}
  %r = tile.any %t : (tensor<64xf32, "row">) -> (i1)
  return %r : i1
}

// -----

func.func @box(%m: memref<4x8xf16>, %n: index) -> !nvgpu.tensormap.descriptor<tensor = memref<4x64xf16, 3>, swizzle = swizzle_128b, l2promo = l2promo_128b, oob = zero, interleave = none> {
  // expected-error @below {{expects 2 sizes and box sizes, but found 2 and 1}}
  %r = tile.tensor_map (%m, %n, %n) {box = [64]} : (memref<4x8xf16>, index, index) -> (!nvgpu.tensormap.descriptor<tensor = memref<4x64xf16, 3>, swizzle = swizzle_128b, l2promo = l2promo_128b, oob = zero, interleave = none>)
  return %r : !nvgpu.tensormap.descriptor<tensor = memref<4x64xf16, 3>, swizzle = swizzle_128b, l2promo = l2promo_128b, oob = zero, interleave = none>
}

// -----

func.func @piece_places(%m: memref<4x33xf16>, %p: memref<4x40xf16>, %i: index) {
  // expected-error @below {{expects 5 indices (two places, how many are valid), but found 4}}
  tile.copy_piece (%m, %p, %i, %i, %i, %i) {aligned = 2 : i64} : (memref<4x33xf16>, memref<4x40xf16>, index, index, index, index) -> ()
  return
}

// -----

func.func @dims(%m: memref<4x33xf16>, %i: index) {
  // expected-error @below {{expects dims to be integers, or arrays of pairs [dimension, elements], but found [0, 1.000000e+00]}}
  %t = tile.load(%m, %i, %i, %i, %i) {dims = [0, 1.0 : f64]} : (memref<4x33xf16>, index, index, index, index) -> tensor<16x16xf16>
  return
}

// -----

func.func @piece_index(%m: memref<4x33xf16>, %p: memref<4x40xf16>, %i: i64) {
  // expected-error @below {{expects indices of type index, but found i64}}
  tile.copy_piece (%m, %p, %i, %i, %i, %i, %i) {aligned = 2 : i64} : (memref<4x33xf16>, memref<4x40xf16>, i64, i64, i64, i64, i64) -> ()
  return
}

// -----

func.func @piece_of_indices(%m: memref<4x33xindex>, %p: memref<4x40xindex>, %i: index) {
  // expected-error @below {{expects elements that are floats or integers, but found index}}
  tile.copy_piece (%m, %p, %i, %i, %i, %i, %i) {aligned = 8 : i64} : (memref<4x33xindex>, memref<4x40xindex>, index, index, index, index, index) -> ()
  return
}

// -----

func.func @piece_element(%m: memref<4x33xf16>, %p: memref<4x40xbf16>, %i: index) {
  // expected-error @below {{expects source and target to have one element type, but found f16 and bf16}}
  tile.copy_piece (%m, %p, %i, %i, %i, %i, %i) {aligned = 2 : i64} : (memref<4x33xf16>, memref<4x40xbf16>, index, index, index, index, index) -> ()
  return
}

// -----

func.func @piece_alignment(%m: memref<4x33xf16>, %p: memref<4x40xf16>, %i: index) {
  // expected-error @below {{expects an alignment of 1, 2, 4, 8 or 16 bytes, at least those of f16, but found 1}}
  tile.copy_piece (%m, %p, %i, %i, %i, %i, %i) {aligned = 1 : i64} : (memref<4x33xf16>, memref<4x40xf16>, index, index, index, index, index) -> ()
  return
}

// -----

func.func @table(%t: memref<256xi32>) {
  // expected-error @below {{expects the table to be a memref of 8192 words of 32 bits, but found memref<256xi32>}}
  tile.fill_exp2 %t : (memref<256xi32>) -> ()
  return
}

// -----

func.func @share(%x: f32, %t: memref<8192xi32>) -> f32 {
  // expected-error @below {{expects a share from 1 to 8, but found 9}}
  %p = tile.exp2 (%x, %t) {bound = -1 : i64, share = 9 : i64} : (f32, memref<8192xi32>) -> (f32)
  return %p : f32
}

// -----

func.func @share_of_quotients(%a: f32) -> f32 {
  // expected-error @below {{expects a share from 1 to 8, but found 0}}
  %r = tile.divide (%a, %a) {share = 0 : i64} : (f32, f32) -> (f32)
  return %r : f32
}

// -----

func.func @wide_quotient(%a: f64) -> f64 {
  // expected-error @below {{expects elements of f32, but found f64, f64, f64}}
  %r = tile.divide (%a, %a) {share = 6 : i64} : (f64, f64) -> (f64)
  return %r : f64
}

// -----

func.func @ones(%n: memref<1x8x64xf16>) {
  // expected-error @below {{expects the ones to be a memref<1x16x64> of f16 or bf16, but found memref<1x8x64xf16>}}
  tile.fill_ones %n : (memref<1x8x64xf16>) -> ()
  return
}

// -----

func.func @append_to(%v: tensor<64x128xf16, "shared">, %n: memref<1x16x64xf16>) {
  // expected-error @below {{expects a tile of 64 columns of f16, but found tensor<64x128xf16, "shared">}}
  %w = tile.append_ones (%v, %n) : (tensor<64x128xf16, "shared">, memref<1x16x64xf16>) -> (tensor<64x136xf16, "shared">)
  return
}

// -----

func.func @append(%v: tensor<64x64xf16, "shared">, %n: memref<1x16x64xf16>) {
  // expected-error @below {{expects a result of type tensor<64x72xf16, "shared">, but found tensor<64x64xf16, "shared">}}
  %w = tile.append_ones (%v, %n) : (tensor<64x64xf16, "shared">, memref<1x16x64xf16>) -> (tensor<64x64xf16, "shared">)
  return
}

// -----

func.func @split(%o: tensor<128x72xf32, "fragment">) {
  // expected-error @below {{expects a first result with 8 columns less than tensor<128x72xf32, "fragment">, but found tensor<128x72xf32, "fragment">}}
  %r, %l = tile.split_sums %o : (tensor<128x72xf32, "fragment">) -> (tensor<128x72xf32, "fragment">, tensor<128xf32, "row">)
  return
}

// -----

func.func @split_rows(%o: tensor<128x72xf32, "fragment">) {
  // expected-error @below {{expects a second result of type tensor<128xf32, "row">, but found tensor<64xf32, "row">}}
  %r, %l = tile.split_sums %o : (tensor<128x72xf32, "fragment">) -> (tensor<128x64xf32, "fragment">, tensor<64xf32, "row">)
  return
}

// -----

func.func @shifts(%t: tensor<64x128xbf16, "skewed">) {
  // expected-error @below {{expects 1 tensors of i32 and layout row, one for each row, but found []}}
  %f = tile.convert_layout %t : (tensor<64x128xbf16, "skewed">) -> (tensor<64x128xbf16, "fragment">)
  return
}

// -----

func.func @shifts_of_columns(%m: memref<100x63xbf16, strided<[?, 1]>>, %i: index) {
  // expected-error @below {{expects dim to be one of 2 dimensions, and not the last, but found 1}}
  %s = tile.row_shifts (%m, %i, %i) {dim = 1 : i64, aligned = 2 : i64} : (memref<100x63xbf16, strided<[?, 1]>>, index, index) -> (tensor<64xi32, "row">)
  return
}

// -----

func.func @copy_rows(%m: memref<100x63xbf16, strided<[?, 1]>>, %b: memref<2x64x64xbf16, #gpu.address_space<workgroup>>, %r: memref<2xi64, #gpu.address_space<workgroup>>, %i: index) {
  // expected-error @below {{expects dims to name one of 2 dimensions, then the last, but found [1, 0]}}
  tile.copy_rows (%m, %b, %r, %i, %i, %i, %i, %i) {dims = [1, 0]} : (memref<100x63xbf16, strided<[?, 1]>>, memref<2x64x64xbf16, #gpu.address_space<workgroup>>, memref<2xi64, #gpu.address_space<workgroup>>, index, index, index, index, index) -> ()
  return
}

// -----

func.func @one_joined(%m: memref<4x33xf16>, %i: index) {
  // expected-error @below {{expects dims to be integers, or arrays of pairs [dimension, elements], but found [[[0, 4]], 1]}}
  %t = tile.load(%m, %i, %i, %i, %i) {dims = [[[0, 4]], 1]} : (memref<4x33xf16>, index, index, index, index) -> tensor<16x16xf16>
  return
}

// -----

func.func @many_joined(%m: memref<4x8x33xf16>, %i: index) {
  // expected-error @below {{expects joined dimensions to have one to 16 elements, as the tile has, but found 32}}
  %t = tile.load (%m, %i, %i, %i, %i, %i) {dims = [[[0, 4], [1, 8]], 2]} : (memref<4x8x33xf16>, index, index, index, index, index) -> (tensor<16x16xf16>)
  return
}

// -----

func.func @joined_beyond(%m: memref<4x8x33xf16>, %i: index) {
  // expected-error @below {{expects dims to give a dimension of the memref (or -1) for each of the tile's 2, but found [((0, 2), (3, 2)), 2]}}
  %t = tile.load (%m, %i, %i, %i, %i, %i) {dims = [[[0, 2], [3, 2]], 2]} : (memref<4x8x33xf16>, index, index, index, index, index) -> (tensor<16x16xf16>)
  return
}

// -----

func.func @taken_of_two_dimensions(%taken: memref<2x4xi32>, %n: index) {
  // expected-error @below {{expects the operand to be a memref of 32-bit numbers of one dimension, but found memref<2x4xi32>}}
  %t = tile.take %taken [%n] : (memref<2x4xi32>, index) -> (index)
  return
}

// -----

func.func @told_of_many(%told: memref<?xi32>, %n: index) {
  // expected-error @below {{expects the numbers to be a memref of 32-bit words, but found memref<?xi32>}}
  %t = tile.told %told [%n] : (memref<?xi32>, index) -> (index)
  return
}
