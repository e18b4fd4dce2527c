"""Copies of tiles to shared memory, run thread by thread without a GPU: what they read, and what is there then."""

import numpy as np
import pytest
from attn_opt.compiler import pass_manager
from attn_opt.dialects import make_context
from attn_opt.dialects.assembly import parse_module
from attn_opt.transforms.rewriting import ops_in
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
BYTES = {"f16": 2, "f32": 4}
THREADS, LENGTH = 128, 100
SOURCE, SHARED = 1 << 30, 1 << 20  # bytes: where the array is, how many shared memory has


def address(row, byte, rows):
    """Of a byte of a tile in shared memory, as `transforms/nvidia/thread.py` says for elements of 2 and 4 bytes."""
    return byte // 128 * rows * 128 + row * 128 + (byte % 128 // 16 ^ row % 8) * 16 + byte % 16


@pytest.mark.parametrize("element", BYTES)
@pytest.mark.parametrize("columns", [64, 48, 40, 36, 33, 16])
@pytest.mark.parametrize(("at", "rows"), [(0, 64), (36, 64), (64, 36), (99, 1), (100, 0), (128, -28), (192, -92)])
def test_nothing_outside_of_the_array_is_read(at, rows, columns, element):
    """A tile that the array's end cuts, or that is behind it."""
    width, padded = BYTES[element], -(-columns // 16) * 16
    rng = np.random.default_rng(0)
    data = rng.integers(1, 255, (LENGTH, columns * width), np.uint8)
    expected = np.zeros((64, padded * width), np.uint8)
    expected[: max(rows, 0), : columns * width] = data[at : at + max(rows, 0)]
    shared = Memory(np.full(SHARED, 0xAA, np.uint8))
    with make_context() as context:
        text = KERNEL.format(columns=columns, element=element, tile=f"64x{padded}")
        module = parse_module(text, "test.mlir", context)
        pass_manager.run(["tiles-to-nvvm", "canonicalize", "cse"], module)
        (function,) = ops_in(module.operation, "llvm.func")
        threads = Threads(THREADS, [shared, Memory(data.reshape(-1), SOURCE)])
        threads.call(function, [SOURCE, LENGTH, columns, at, rows])
    row, byte = np.indices(expected.shape)
    places = address(row, byte, 64)
    np.testing.assert_array_equal(shared.bytes[places], expected)
    assert np.all(shared.written[places] == 1) and shared.written.sum() == expected.size


@pytest.mark.parametrize("element", BYTES)
@pytest.mark.parametrize("column", [0, 3, 5])
def test_columns_beyond_a_single_one_are_0(column, element):
    """A head of one element in rows of several: the tile's columns are no dimension of the memory, and one is valid."""
    width = BYTES[element]
    data = np.random.default_rng(0).integers(1, 255, (LENGTH, 6 * width), np.uint8)
    expected = np.zeros((64, 16 * width), np.uint8)
    expected[:, :width] = data[20:84, column * width : (column + 1) * width]
    shared = Memory(np.full(SHARED, 0xAA, np.uint8))
    with make_context() as context:
        text = KERNEL.format(columns=6, element=element, tile="64x16").replace("dims = [0, 1]", "dims = [0, -1]")
        text = text.replace("%at, %zero, %rows, %columns)", "%at, %column, %rows, %one)")
        text = text.replace("%columns = arith.constant 6", "%one = arith.constant 1")
        text = text.replace("%zero =", f"%column = arith.constant {column} : index\n      %zero =")
        module = parse_module(text, "test.mlir", context)
        pass_manager.run(["tiles-to-nvvm", "canonicalize", "cse"], module)
        (function,) = ops_in(module.operation, "llvm.func")
        Threads(THREADS, [shared, Memory(data.reshape(-1), SOURCE)]).call(function, [SOURCE, LENGTH, 6, 20, 64])
    row, byte = np.indices(expected.shape)
    np.testing.assert_array_equal(shared.bytes[address(row, byte, 64)], expected)
