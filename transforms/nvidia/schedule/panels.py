"""Tiles in panels, so that those that run at once read the same of both operands: ``persistent-blocks``."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ....dialects import build
from ....dialects.mlir import arith, ir
from ...graph import operands_with_captures
from ...rewriting import ancestors, defining_op, make_for
from ..elements import byte_width
from ..launching import grid_size
from .bulk_copies import Copy
from .tile_orders import Body, Digit, digits, extents

STAYS = 16 << 20  # bytes that the L2 keeps beside what else goes through it (50 MB, half of it nearby)


@dataclass
class InPanels:
    """A block takes every n-th tile, of n blocks, in an order that goes through `width` columns, row by row, before the
    next ones::

        in turn    0  1  2  3  4  5      in panels of two    0  1 |  6  7 | 12 13
                   6  7  8  9 10 11                          2  3 |  8  9 | 14 15
                  12 13 14 15 16 17                          4  5 | 10 11 | 16 17

    In a matmul the tiles of a row read the same left operand, those of a column the same right one. In turn, 132 tiles
    at once of 16 × 86 are of two rows, and of all columns; in panels of 17 they are of eight rows.
    """

    number: ir.Value  # of the block
    tiles: ir.Value
    rows: Digit
    width: int

    @staticmethod
    def of(
        number: ir.Value, tiles: ir.Value, total: int | None, copies: dict[ir.Operation, Copy], blocks: int
    ) -> InPanels | None:
        """`total`: how many `tiles` there are, if that is known; `copies`: what they read. None: none of that is of
        columns, or of rows, alone; or what all columns read stays in the L2 anyway."""
        columns, *others = digits(number)
        if not others:
            return None
        of_columns, of_rows = _read_by_one(copies, columns, others[0])
        count = build.constant_value(columns.count)
        if not of_columns or not of_rows or (total is not None and total <= blocks):
            return None
        width = max(1, round(math.sqrt(blocks * of_rows / of_columns)))  # so many tiles at once read least
        if count is not None:
            if count * of_columns <= STAYS:
                return None
            width = -(-count // max(1, round(count / width)))  # panels of one width
            if width == count:
                return None
        return InPanels(number, tiles, others[0], width)

    def loop(self, body: Body, again: bool) -> None:
        blocks = grid_size()
        columns, rows = extents(self.rows, self.tiles, self.number)
        _, block = make_for([self.number, self.tiles, blocks])
        with ir.InsertionPoint(block):
            turn = block.arguments[0]
            body(self._tile(turn, columns, rows), arith.divui(arith.subi(turn, self.number), blocks))
            ir.Operation.create("scf.yield", [], [])

    def _tile(self, turn: ir.Value, columns: ir.Value, rows: ir.Value) -> ir.Value:
        """The number of the tile that is taken at a turn."""
        first, place = build.index(0), turn  # of an entry of a batch
        if self.rows.count is not None:
            of_entry = arith.muli(columns, rows)
            first = arith.muli(arith.divui(turn, of_entry), of_entry)
            place = arith.subi(turn, first)
        of_panel = arith.muli(build.index(self.width), rows)
        panel = arith.divui(place, of_panel)
        start = arith.muli(panel, build.index(self.width))
        width = arith.minui(build.index(self.width), arith.subi(columns, start))
        inside = arith.subi(place, arith.muli(panel, of_panel))
        row = arith.divui(inside, width)
        column = arith.addi(start, arith.subi(inside, arith.muli(row, width)))
        return arith.addi(first, arith.addi(arith.muli(row, columns), column))


def _read_by_one(copies: dict[ir.Operation, Copy], columns: Digit, rows: Digit) -> tuple[int, int]:
    """The bytes that a tile reads that others of its column, but not those of its row, read, too; and the other way
    round. Where a loop is of open length, of one iteration each."""
    counts = [_iterations(load) for load in copies]
    times = [1] * len(counts) if None in counts else counts
    of_columns = of_rows = 0
    for (load, copy), count in zip(copies.items(), times, strict=True):
        size = math.prod(copy.kind.shape) * byte_width(copy.kind.element_type) * count
        by_column, by_row = (_is_of(load, digit.values) for digit in (columns, rows))
        of_columns += size * (by_column and not by_row)
        of_rows += size * (by_row and not by_column)
    return of_columns, of_rows


def _iterations(op: ir.Operation) -> int | None:
    """How often the loops of a tile have it run, if that is known."""
    found = 1
    for loop in ancestors(op):
        if loop.name == "scf.for":
            lower, upper, step = map(build.constant_value, list(loop.operands)[:3])
            if None in (lower, upper, step):
                return None
            found *= max(0, -(-(upper - lower) // step))
    return found


def _is_of(op: ir.Operation, values: list[ir.Value]) -> bool:
    """Whether an op is computed from one of the values."""
    pending, seen = [op], {op}
    while pending:
        for operand in operands_with_captures(pending.pop()):
            if operand in values:
                return True
            maker = defining_op(operand)
            if maker is not None and maker not in seen:
                seen.add(maker)
                pending.append(maker)
    return False
