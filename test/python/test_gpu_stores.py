"""Stores of tiles, run thread by thread without a GPU: a kernel that copies a tile, of whose code each op is evaluated
for all threads at once, with arrays of a number per thread."""

import re

import numpy as np
import pytest
from attn_opt.compiler import pass_manager
from attn_opt.dialects import make_context
from attn_opt.dialects.assembly import parse_module
from attn_opt.dialects.mlir import ir
from attn_opt.transforms.rewriting import ops_in

POISON = 0xFFFF
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
INTEGERS = {
    "arith.addi": np.add,
    "arith.muli": np.multiply,
    "arith.divui": np.floor_divide,
    "arith.remui": np.remainder,
    "arith.andi": np.bitwise_and,
    "arith.shrui": np.right_shift,
}
COMPARISONS = {0: np.equal, 2: np.less}
COPIED = ("arith.extsi", "arith.extui", "arith.extf", "arith.bitcast", "arith.trunci", "nvvm.read.ptx.sreg.tid.x")


class Threads:
    """All threads of a block. Floats of 16 bits are their bits everywhere, since they are only moved."""

    def __init__(self, count: int, source: np.ndarray, target: np.ndarray):
        self.numbers, self.source, self.target = np.arange(count), source, target
        self.values: dict[ir.Value, np.ndarray] = {}
        self.stored = np.zeros(target.size, int)

    def run(self, op: ir.Operation) -> None:
        if op.name == "llvm.return":
            return
        inputs = [self.values[v] for v in op.operands]
        if op.name == "llvm.inline_asm":
            result = self.assembly(ir.StringAttr(op.attributes["asm_string"]).value, inputs)
        else:
            result = self.plain(op, inputs)
        if op.results:
            self.values[op.results[0]] = result

    def plain(self, op: ir.Operation, inputs: list[np.ndarray]) -> np.ndarray:
        if op.name == "arith.constant":
            return np.full(self.numbers.shape, ir.IntegerAttr(op.attributes["value"]).value)
        if op.name in INTEGERS:
            return INTEGERS[op.name](*inputs)
        if op.name == "arith.cmpi":
            return COMPARISONS[ir.IntegerAttr(op.attributes["predicate"]).value](*inputs)
        if op.name == "arith.select":
            return np.where(*inputs)
        if op.name == "nvvm.shfl.sync":
            lane = self.numbers % 32
            other = lane ^ inputs[2] if "bfly" in str(op.attributes["kind"]) else inputs[2]
            return inputs[1][self.numbers - lane + other]
        if op.name == "llvm.getelementptr":
            return sum(inputs)
        assert op.name in COPIED, op.name
        return inputs[0] if inputs else self.numbers

    def assembly(self, text: str, inputs: list[np.ndarray]) -> np.ndarray | None:
        load = re.search(r"@p ld\.global\.nc\.b16 v, \[\$1\+(\d+)\]", text)
        if load:
            address, valid = inputs
            return np.where(valid, self.source[np.where(valid, address + int(load[1]) // 2, 0)], 0)
        if text.startswith("cvt.rn.f16x2"):
            return inputs[0] | inputs[1] << 16
        if text.startswith("cvt.rn.f16.f32"):
            return inputs[0]
        store = re.search(r"@p st\.global\.(?:v4\.)?b(16|32) \[\$0\]", text)
        assert store, text
        address, valid, *words = inputs
        halves = [part for w in words for part in ((w & 0xFFFF, w >> 16) if store[1] == "32" else (w,))]
        on = valid.astype(bool)
        for number, half in enumerate(halves):
            assert np.all(address[on] % len(halves) == 0), "aligned"
            self.target[address[on] + number] = half[on]
            np.add.at(self.stored, address[on] + number, 1)
        return None


@pytest.mark.parametrize("queries", [64, 192])
@pytest.mark.parametrize("rows", [0, 1, 57, 100])
@pytest.mark.parametrize(
    ("row", "start", "columns"),
    [
        *((n, 0, n) for n in (8, 16, 33, 40, 42, 48, 64, 80, 128, 256)),
        *((256, 128, 96), (96, 4, 48), (72, 0, 66)),  # parts of rows
    ],
)
def test_what_is_valid_is_stored_once_and_nothing_else(row, start, columns, rows, queries):
    padded = -(-columns // 16) * 16
    memory = f"memref<?x{row}xf16, strided<[?, 1]>>"
    text = KERNEL.format(
        memory=memory, tile=f'tensor<{queries}x{padded}xf16, "fragment">', start=start, columns=columns
    )
    rows, stride = min(rows, queries), row + 16
    source = np.random.default_rng(0).integers(0, POISON, 200 * stride)
    target = np.full_like(source, POISON)
    context = make_context()
    with context:
        module = parse_module(text, "test.mlir", context)
        pass_manager.run(["tiles-to-nvvm"], module)
        (function,) = ops_in(module.operation, "llvm.func")
        block = function.regions[0].blocks[0]
        threads = Threads(2 * queries, source, target)
        # Of each array: its place, the number of its rows, their stride.
        numbers = [0, rows, stride, 0, rows, stride, rows]
        threads.values = {a: np.full(2 * queries, n) for a, n in zip(block.arguments, numbers, strict=True)}
        for op in block.operations:
            threads.run(op.operation)
    expected = np.full_like(source, POISON).reshape(200, stride)
    expected[:rows, start : start + columns] = source.reshape(200, stride)[:rows, start : start + columns]
    assert np.array_equal(target, expected.reshape(-1))
    assert np.array_equal(threads.stored, (expected != POISON).reshape(-1))
