"""Copies of tiles to shared memory, run thread by thread without a GPU: what they read, and what is there then."""

import numpy as np
import pytest
from attn_opt.compiler import pass_manager
from attn_opt.dialects.assembly import parse_module
from attn_opt.transforms.rewriting import ops_in
from harness import CONTEXT
from threads import Memory, Threads

KERNEL = """
module attributes {{gpu.container_module}} {{
  gpu.module @kernels {{
    gpu.func @copy(%m: memref<?x{columns}x{element}, strided<[?, 1]>>, %at: index, %rows: index) kernel
        attributes {{tile.threads = 128 : i64}} {{
      %zero = arith.constant 0 : index
      %columns = arith.constant {columns} : index
      %b = memref.alloc() : memref<1x{tile}x{element}, #gpu.address_space<workgroup>>
      tile.copy_async (%m, %b, %zero, %at, %zero, %rows, %columns) {{dims = [0, 1]}}
          : (memref<?x{columns}x{element}, strided<[?, 1]>>, memref<1x{tile}x{element}, #gpu.address_space<workgroup>>,
             index, index, index, index, index) -> ()
      gpu.return
    }}
  }}
}}
"""
COMPUTED = """
module attributes {{gpu.container_module}} {{
  gpu.module @kernels {{
    gpu.func @compute(%m: memref<{shape}xf32, strided<[?, 1]>>, %bias: memref<?x{columns}xf16, strided<[?, 1]>>,
        %at: index, %rows: index, %valid: index) kernel attributes {{tile.threads = 128 : i64}} {{
      %zero = arith.constant 0 : index
      %one = arith.constant 1 : index
      %columns = arith.constant {columns} : index
      %b = memref.alloc() : memref<1x{rows}x{columns}xf16, #gpu.address_space<workgroup>>
      %t = tile.load (%m, {places}) {{dims = {dims}}}
          : (memref<{shape}xf32, strided<[?, 1]>>, index, index, index, index)
          -> (tensor<{rows}x{columns}xf32, "spread">)
      %c = tile.load (%bias, %one, %zero, %columns) {{dims = [1]}}
          : (memref<?x{columns}xf16, strided<[?, 1]>>, index, index, index) -> (tensor<{columns}xf16, "spread">)
      %e = tensor.empty() : tensor<{rows}x{columns}xf16, "spread">
      %n = linalg.generic {{indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (j)>,
          affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]}}
          ins(%t, %c : tensor<{rows}x{columns}xf32, "spread">, tensor<{columns}xf16, "spread">)
          outs(%e : tensor<{rows}x{columns}xf16, "spread">) {{
      ^bb0(%x: f32, %y: f16, %old: f16):
        %w = arith.extf %y : f16 to f32
        %s = arith.addf %x, %w : f32
        %z = arith.truncf %s : f32 to f16
        linalg.yield %z : f16
      }} -> tensor<{rows}x{columns}xf16, "spread">
      tile.store_shared %n, %b [%zero]
          : (tensor<{rows}x{columns}xf16, "spread">, memref<1x{rows}x{columns}xf16, #gpu.address_space<workgroup>>,
             index) -> ()
      gpu.return
    }}
  }}
}}
"""
BYTES = {"f16": 2, "f32": 4}
THREADS, LENGTH = 128, 100
SOURCE, SHARED = 1 << 30, 1 << 20  # bytes: where the array is, how many shared memory has


def address(row, byte, rows):
    """Of a byte of a tile in shared memory, as `nvidia/code/thread.py` says for elements of 2 and 4 bytes."""
    return byte // 128 * rows * 128 + row * 128 + (byte % 128 // 16 ^ row % 8) * 16 + byte % 16


@pytest.mark.sampled(4)
@pytest.mark.parametrize("element", BYTES)
@pytest.mark.parametrize("columns", [544, 64, 48, 40, 36, 33, 16])  # the first in f32: more pieces than threads
@pytest.mark.parametrize(("at", "rows"), [(0, 64), (36, 64), (64, 36), (99, 1), (100, 0), (128, -28), (192, -92)])
def test_nothing_outside_of_the_array_is_read(at, rows, columns, element):
    """A tile that the array's end cuts, or that is behind it."""
    width, padded = BYTES[element], -(-columns // 16) * 16
    rng = np.random.default_rng(0)
    data = rng.integers(1, 255, (LENGTH, columns * width), np.uint8)
    expected = np.zeros((64, padded * width), np.uint8)
    expected[: max(rows, 0), : columns * width] = data[at : at + max(rows, 0)]
    shared = Memory(np.full(SHARED, 0xAA, np.uint8))
    with CONTEXT:
        text = KERNEL.format(columns=columns, element=element, tile=f"64x{padded}")
        module = parse_module(text, "test.mlir", CONTEXT)
        pass_manager.run(["tiles-to-nvvm", "canonicalize", "cse"], module)
        (function,) = ops_in(module.operation, "llvm.func")
        threads = Threads(THREADS, [shared, Memory(data.reshape(-1), SOURCE)])
        threads.call(function, [SOURCE, LENGTH, columns, at, rows])
    row, byte = np.indices(expected.shape)
    places = address(row, byte, 64)
    np.testing.assert_array_equal(shared.bytes[places], expected)
    assert np.all(shared.written[places] == 1) and shared.written.sum() == expected.size


@pytest.mark.parametrize("columns", [64, 32])
@pytest.mark.parametrize(("rows", "valid"), [(64, 64), (37, 64), (64, 19), (37, 19), (0, 64)])
@pytest.mark.parametrize("is_transposed", [False, True], ids=["rows", "columns"])
def test_computed_tiles(is_transposed, rows, valid, columns):
    """A tile plus a row: 0 plus the row where nothing is valid. Its rows, or its columns, are dense in memory."""
    valid = min(valid, columns)
    shape = (64, 100) if is_transposed else (100, columns)
    rng = np.random.default_rng(0)
    data, bias = (rng.integers(1, 100, n).astype(t) for n, t in ((shape, np.float32), ((3, columns), np.float16)))
    values = data.T if is_transposed else data
    at = 36 if rows else 100
    expected = np.zeros((64, columns), np.float16)
    expected[:rows, :valid] = values[at : at + rows, :valid]
    expected += bias[1]
    valid_columns = "%columns" if valid == columns and not is_transposed else "%valid"
    text = COMPUTED.format(
        shape="?x100" if is_transposed else f"?x{columns}",
        rows=64,
        columns=columns,
        dims="[1, 0]" if is_transposed else "[0, 1]",
        places=f"%zero, %at, %rows, {valid_columns}" if is_transposed else f"%at, %zero, %rows, {valid_columns}",
    )
    shared = Memory(np.full(SHARED, 0xAA, np.uint8))
    sources = [(data, SOURCE), (bias, 2 * SOURCE)]
    with CONTEXT:
        module = parse_module(text, "test.mlir", CONTEXT)
        pass_manager.run(["tiles-to-nvvm", "canonicalize", "cse"], module)
        (function,) = ops_in(module.operation, "llvm.func")
        threads = Threads(THREADS, [shared, *(Memory(x.view(np.uint8).reshape(-1), start) for x, start in sources)])
        threads.call(function, [SOURCE, len(data), data.shape[1], 2 * SOURCE, len(bias), columns, at, rows, valid])
    expected = np.ascontiguousarray(expected.T if is_transposed else expected)  # dense as it was in memory
    row, byte = np.indices((len(expected), 2 * expected.shape[1]))
    places = address(row, byte, len(expected))
    np.testing.assert_array_equal(shared.bytes[places], expected.view(np.uint8))
    assert np.all(shared.written[places] == 1)


@pytest.mark.parametrize("element", BYTES)
@pytest.mark.parametrize("column", [0, 3, 5])
def test_columns_beyond_a_single_one_are_0(column, element):
    """A head of one element in rows of several: the tile's columns are no dimension of the memory, and one is valid."""
    width = BYTES[element]
    data = np.random.default_rng(0).integers(1, 255, (LENGTH, 6 * width), np.uint8)
    expected = np.zeros((64, 16 * width), np.uint8)
    expected[:, :width] = data[20:84, column * width : (column + 1) * width]
    shared = Memory(np.full(SHARED, 0xAA, np.uint8))
    with CONTEXT:
        text = KERNEL.format(columns=6, element=element, tile="64x16").replace("dims = [0, 1]", "dims = [0, -1]")
        text = text.replace("%at, %zero, %rows, %columns)", "%at, %column, %rows, %one)")
        text = text.replace("%columns = arith.constant 6", "%one = arith.constant 1")
        text = text.replace("%zero =", f"%column = arith.constant {column} : index\n      %zero =")
        module = parse_module(text, "test.mlir", CONTEXT)
        pass_manager.run(["tiles-to-nvvm", "canonicalize", "cse"], module)
        (function,) = ops_in(module.operation, "llvm.func")
        Threads(THREADS, [shared, Memory(data.reshape(-1), SOURCE)]).call(function, [SOURCE, LENGTH, 6, 20, 64])
    row, byte = np.indices(expected.shape)
    np.testing.assert_array_equal(shared.bytes[address(row, byte, 64)], expected)
