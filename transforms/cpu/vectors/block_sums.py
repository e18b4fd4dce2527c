"""What a unit's code for a block of sums is given: where A, B and C are."""

from collections.abc import Callable
from dataclasses import dataclass

from ....dialects import build
from ....dialects.mlir import arith, ir
from ..matrix_unit import DEPTH
from .prepack import Panel
from .tile_panels import Extent, Matrix, plus

Place = tuple[ir.Value, list[ir.Value], ir.Value]  # a buffer, subscripts, elements from a row to the next one
# Products of parts, so that one factor's tiles stay in registers from one to the next; the product of the lower parts,
# below 2^-16, is left out.
PRODUCTS = {1: [(0, 0)], 2: [(1, 0), (0, 0), (0, 1)]}


class Rows:
    """A, in tiles of 32 elements of consecutive rows."""

    def at(self, row: ir.Value, k_tile: ir.Value, is_rest: bool, part: int) -> Place:
        """Where the tile from `row` on is; `is_rest`: it is the last one along k, which is cut off."""
        raise NotImplementedError


@dataclass(frozen=True)
class PackedRows(Rows):
    """All of it in a panel."""

    panel: ir.Value
    parts: int

    def at(self, row: ir.Value, k_tile: ir.Value, is_rest: bool, part: int) -> Place:
        tile = plus(arith.muli(k_tile, build.index(self.parts)), part)
        return self.panel, [tile, row, build.index(0)], build.index(DEPTH)


@dataclass(frozen=True)
class RowsInPlace(Rows):
    """Whole tiles where they stand, the one cut off by the end of the rows in a panel."""

    source: Matrix
    stride: ir.Value
    rest: ir.Value | None

    def at(self, row: ir.Value, k_tile: ir.Value, is_rest: bool, part: int) -> Place:
        if is_rest:
            assert self.rest is not None
            return self.rest, [build.index(0), row, build.index(0)], build.index(DEPTH)
        return self.source.value, self.source.subscripts(row, arith.muli(k_tile, build.index(DEPTH))), self.stride


@dataclass(frozen=True)
class Block:
    """16·height × 16·width sums from row and column `start` on; `place` tells where the one in row i, column j is."""

    a: Rows
    panel: Panel
    parts: int
    start: tuple[ir.Value, ir.Value]
    height: int
    width: int
    k: Extent
    place: Callable[[Extent, int], Place]
    from_zero: bool
    streamed: bool = False  # no other block reads its part of the panel
