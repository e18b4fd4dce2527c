"""A block of sums as products of AMX tiles.

A block of 32 × 32 sums is four tiles in registers; per 32 elements of k two tiles of A and two of B make four products
(TDPBF16PS, TDPFP16PS). Loops cannot carry tiles: the sum is unrolled, in parts of at most 256 elements, between which
the sums are in memory.
"""

from collections.abc import Callable

from ....dialects import build
from ....dialects.mlir import arith, ir, x86
from ..matrix_unit import DEPTH, PAIRS, ROWS
from .block_sums import PRODUCTS, Block
from .stream_tiles import STREAMED
from .tile_panels import for_each, if_else, plus

STEPS = 8  # tiles of k, of all parts, that are unrolled
Sums = dict[tuple[int, int], ir.Value]


class Tiles:
    """Emits blocks whose factors are of the type `kind`."""

    def __init__(self, kind: ir.Type):
        self.sums = ir.Type.parse(f"!x86.amx.tile<{ROWS}x{ROWS}xf32>")
        self.rows = ir.Type.parse(f"!x86.amx.tile<{ROWS}x{DEPTH}x{kind}>")
        self.pairs = ir.Type.parse(f"!x86.amx.tile<{PAIRS}x{DEPTH}x{kind}>")

    def emit(self, block: Block) -> None:
        """Adds the product to the block."""
        k = block.k
        if isinstance(k, int):
            count, steps = -(-k // DEPTH), STEPS // block.parts
            for first in range(0, count, steps):
                sums = self._load(block, block.from_zero and first == 0)
                for kt in range(first, min(first + steps, count)):
                    self._multiply(block, sums, build.index(kt), (kt + 1) * DEPTH > k)
                self._store(block, sums)
            return
        if block.from_zero:
            self._store(block, self._load(block, True))

        def step(kt: ir.Value, is_rest: bool) -> None:
            sums = self._load(block, False)
            self._multiply(block, sums, kt, is_rest)
            self._store(block, sums)

        whole = arith.divui(k, build.index(DEPTH))
        for_each(whole, lambda kt: step(kt, False))
        is_cut = arith.cmpi(arith.CmpIPredicate.ne, arith.muli(whole, build.index(DEPTH)), k)
        if_else(is_cut, lambda: step(whole, True))

    def _load(self, block: Block, zero: bool) -> Sums:
        def one(i: int, j: int) -> ir.Value:
            if zero:
                return x86.amx_tile_zero(self.sums)
            value, at, stride = block.place(ROWS * i, ROWS * j)
            return x86.amx_tile_load(self.sums, value, at, stride=stride)

        return {(i, j): one(i, j) for i in range(block.height) for j in range(block.width)}

    def _store(self, block: Block, sums: Sums) -> None:
        for (i, j), tile in sums.items():
            value, at, stride = block.place(ROWS * i, ROWS * j)
            x86.amx_tile_store(value, at, tile, stride=stride)

    def _multiply(self, block: Block, sums: Sums, k_tile: ir.Value, is_rest: bool) -> None:
        m0, n0 = block.start
        n_tile = arith.divui(n0, build.index(ROWS))

        def row(i: int, part: int) -> ir.Value:
            value, at, stride = block.a.at(plus(m0, ROWS * i), k_tile, is_rest, part)
            return x86.amx_tile_load(self.rows, value, at, stride=stride)

        def column(j: int, part: int) -> ir.Value:
            at = block.panel.subscripts(plus(n_tile, j), k_tile, part)
            tile = x86.amx_tile_load(self.pairs, block.panel.value, at, stride=build.index(DEPTH))
            if block.streamed:
                tile.owner.attributes[STREAMED] = ir.UnitAttr.get()
            return tile

        def loaded(make: Callable[[int, int], ir.Value], count: int, part: int) -> list[ir.Value]:
            return [make(i, part) for i in range(count)]

        of_a = of_b = -1
        for a_part, b_part in PRODUCTS[block.parts]:
            if a_part != of_a:
                rows = loaded(row, block.height, a_part)
            if b_part != of_b:
                columns = loaded(column, block.width, b_part)
            of_a, of_b = a_part, b_part
            for i, j in sums:
                sums[i, j] = x86.amx_tile_mulf(rows[i], columns[j], sums[i, j])
