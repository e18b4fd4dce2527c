"""Stores of tiles, run thread by thread without a GPU: a kernel that copies a tile."""

import numpy as np
import pytest
from attn_opt.compiler import pass_manager
from attn_opt.dialects.assembly import parse_module
from attn_opt.transforms.nvidia.code.tiles_to_nvvm import ELEMENT_THREADS
from attn_opt.transforms.rewriting import ops_in
from harness import CONTEXT
from threads import Memory, Threads

POISON = 0xFFFF
SOURCE, TARGET = 1 << 20, 1 << 30  # where arrays stand
KERNEL = """
module attributes {{gpu.container_module}} {{
  gpu.module @kernels {{
    gpu.func @copy(%from: {memory}, %to: {memory}, %rows: index) kernel {{
      %zero = arith.constant 0 : index
      %start = arith.constant {start} : index
      %columns = arith.constant {columns} : index
      %t = tile.load (%from, %zero, %start, %rows, %columns) {{dims = [0, 1]}}
          : ({memory}, index, index, index, index) -> ({tile})
      tile.store (%t, %to, %zero, %start, %rows, %columns) {{dims = [0, 1]}}
          : ({tile}, {memory}, index, index, index, index) -> ()
      gpu.return
    }}
  }}
}}
"""


@pytest.mark.sampled(7, 115)
@pytest.mark.parametrize("queries", [64, 192])
@pytest.mark.parametrize("rows", [0, 1, 57, 100])
@pytest.mark.parametrize(
    ("row", "start", "columns"),
    [
        *((n, 0, n) for n in (8, 16, 33, 40, 42, 48, 64, 80, 128, 256)),
        *((256, 128, 96), (96, 4, 48), (72, 0, 66)),  # parts of rows
    ],
)
@pytest.mark.parametrize("layout", ["fragment", "spread"])
def test_what_is_valid_is_stored_once_and_nothing_else(row, start, columns, rows, queries, layout):
    padded = -(-columns // 16) * 16
    memory = f"memref<?x{row}xf16, strided<[?, 1]>>"
    text = KERNEL.format(
        memory=memory, tile=f'tensor<{queries}x{padded}xf16, "{layout}">', start=start, columns=columns
    )
    rows, stride = min(rows, queries), row + 16
    source = np.random.default_rng(0).integers(0, 0x7C00, 200 * stride, np.uint16)  # finite halves
    target = np.full_like(source, POISON)
    memories = [Memory(array.view(np.uint8), start) for array, start in ((source, SOURCE), (target, TARGET))]
    with CONTEXT:
        module = parse_module(text, "test.mlir", CONTEXT)
        pass_manager.run(["tiles-to-nvvm"], module)
        (function,) = ops_in(module.operation, "llvm.func")
        # Of each array: its place, the number of its rows, their stride.
        numbers = [SOURCE, rows, stride, TARGET, rows, stride, rows]
        Threads(2 * queries if layout == "fragment" else ELEMENT_THREADS, memories).call(function, numbers)
    expected = np.full_like(source, POISON).reshape(200, stride)
    expected[:rows, start : start + columns] = source.reshape(200, stride)[:rows, start : start + columns]
    assert np.array_equal(target, expected.reshape(-1))
    assert np.array_equal(memories[1].written, np.repeat(expected != POISON, 2))
