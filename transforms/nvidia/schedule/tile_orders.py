"""The order in which the blocks of a GPU go through the tiles of a kernel: ``persistent-blocks``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from ....dialects import build
from ....dialects.mlir import arith, ir
from ...copying import copy_needed
from ...rewriting import Values, make_for, make_while, ops_of
from ..launching import grid_size
from ..marks import IS_THERE
from .keep_maximum import KEPT, RETRY

# What is done with a tile, of its number, and that among those of its block.
Body = Callable[[ir.Value, ir.Value], None]


@dataclass
class Digit:
    """A tile's number along a dimension of the grid.

    `values` that are it, if the kernel asks for it; `count`: how many there are, None along the outermost dimension,
    which has what the others leave; `inner`: the sizes of those that run faster.
    """

    values: list[ir.Value]
    count: ir.Value | None
    inner: list[ir.Value]


class TileOrder(Protocol):
    def loop(self, body: Body, again: bool) -> None:
        """Emits `body` for all tiles of a block; `again`: for the same ones as before."""


@dataclass
class InTurn:
    """A block takes every n-th tile, of n blocks."""

    number: ir.Value  # of the block
    tiles: ir.Value

    def loop(self, body: Body, again: bool) -> None:
        blocks = grid_size()
        _, block = make_for([self.number, self.tiles, blocks])
        with ir.InsertionPoint(block):
            tile = block.arguments[0]
            body(tile, arith.divui(arith.subi(tile, self.number), blocks))
            ir.Operation.create("scf.yield", [], [])


@dataclass
class InPairs:
    """A block takes the tiles i and n − 1 − i of `rows`, one after the other: where the work rises or falls with i,
    each pair is the same."""

    number: ir.Value
    tiles: ir.Value
    rows: Digit

    def loop(self, body: Body, again: bool) -> None:
        blocks = grid_size()
        inner, count = extents(self.rows, self.tiles, self.number)
        half = arith.divui(arith.addi(count, build.index(1)), build.index(2))
        pairs = arith.muli(arith.divui(self.tiles, count), half)
        _, outer = make_for([self.number, pairs, blocks])
        with ir.InsertionPoint(outer):
            pair = outer.arguments[0]
            place, pair_of_place = arith.remui(pair, inner), arith.divui(pair, inner)
            first = arith.remui(pair_of_place, half)
            start = arith.muli(arith.divui(pair_of_place, half), count)
            second = arith.subi(arith.subi(count, build.index(1)), first)
            single = arith.cmpi(arith.CmpIPredicate.eq, first, second)
            members = arith.select(single, build.index(1), build.index(2))
            round_ = arith.divui(arith.subi(pair, self.number), blocks)
            _, both = make_for([build.index(0), members, build.index(1)])
            with ir.InsertionPoint(both):
                is_first = arith.cmpi(arith.CmpIPredicate.eq, both.arguments[0], build.index(0))
                row = arith.addi(start, arith.select(is_first, first, second))
                tile = arith.addi(arith.muli(row, inner), place)
                body(tile, arith.addi(arith.muli(round_, build.index(2)), both.arguments[0]))
                ir.Operation.create("scf.yield", [], [])
            ir.Operation.create("scf.yield", [], [])


def from_tile_to_tile(first: ir.Value, tiles: ir.Value, following: Callable[[ir.Value, ir.Value], ir.Value]) -> None:
    """A loop over tiles from the first one on, to a number that is none of `tiles`. `following` emits what is done with
    a tile, of its number and that among those of its block, and gives the next one's."""
    _, condition, block = make_while([first, build.index(0)])
    with ir.InsertionPoint(condition):
        more = arith.cmpi(arith.CmpIPredicate.ult, condition.arguments[0], tiles)
        ir.Operation.create("scf.condition", [], [more, *condition.arguments])
    with ir.InsertionPoint(block):
        tile, count = block.arguments
        ir.Operation.create("scf.yield", [], [following(tile, count), arith.addi(count, build.index(1))])


def load_number(memory: ir.Value, place: ir.Value) -> ir.Value:
    """An index of memory that has one at every place that is asked for."""
    word = memory.type.element_type
    found = ir.Operation.create("memref.load", [word], [memory, place], {IS_THERE: ir.UnitAttr.get()})
    return arith.index_cast(ir.IndexType.get(), found.result)


def block_of(value: ir.Value) -> ir.Block:
    """That of the op whose result `value` is."""
    return value.owner.operation.block


def extents(rows: Digit, tiles: ir.Value, number: ir.Value) -> tuple[ir.Value, ir.Value]:
    """How many tiles there are for each of `rows`, and how many of these, before the loop over tiles."""
    values: Values = {}

    def known(value: ir.Value) -> ir.Value:
        return copy_needed(value, values, lambda op: op.block == block_of(number) and op.name not in KEPT)

    inner = build.index(1)
    for size in rows.inner:
        inner = arith.muli(inner, known(size))
    return inner, arith.divui(tiles, inner) if rows.count is None else known(rows.count)


def rows_of(number: ir.Value) -> Digit | None:
    """The dimension of the grid along which the bounds of a tile's loops differ, if it is one. (Not that of the batch,
    the outermost one, whose sequences have their lengths in memory.)"""
    block = block_of(number)
    found = [d for d in digits(number) if reaches_bounds(reached(d.values, d.count is not None), block)]
    found = [d for d in found if d.count is not None] or found
    return found[0] if len(found) == 1 else None


def digits(number: ir.Value) -> list[Digit]:
    """What a tile's number is taken apart into, dimension by dimension of the grid, from the innermost on."""
    found: list[Digit] = []
    inner: list[ir.Value] = []
    left = [number]
    while left:
        users = [u.owner.operation for value in left for u in value.uses]
        users = [o for o in users if o.block == block_of(number) and o.operands[0] in left]
        parts = [o for o in users if o.name in ("arith.remui", "arith.divui")]
        sizes = {o.operands[1] for o in parts}
        if len(sizes) != 1:
            break
        (size,) = sizes
        found.append(Digit([o.results[0] for o in parts if o.name == "arith.remui"], size, list(inner)))
        inner.append(size)
        left = [o.results[0] for o in parts if o.name == "arith.divui"]
    return [*found, Digit(left, None, inner)]


def loops_of(block: ir.Block) -> list[ir.Operation]:
    """Those of a tile, but for what is computed again."""
    found = []
    for op in ops_of(block):
        if op.name == "scf.for":
            found.append(op)
        elif op.name == "scf.if" and RETRY not in op.attributes:
            found += [loop for region in op.regions for inner in region.blocks for loop in loops_of(inner)]
    return found


def reached(values: list[ir.Value], through_memory: bool = True) -> set[ir.Value]:
    """What is computed from values, in their block."""
    found = set(values)
    for op in ops_of(block_of(values[0])) if values else []:
        if (through_memory or op.name != "memref.load") and any(v in found for v in op.operands):
            found.update(op.results)
    return found


def reaches_bounds(values: set[ir.Value], block: ir.Block) -> bool:
    ops = [o for o in ops_of(block) if o.name in ("scf.for", "scf.if") and RETRY not in o.attributes]
    return any(v in values for o in ops for v in list(o.operands)[: 3 if o.name == "scf.for" else 1])
