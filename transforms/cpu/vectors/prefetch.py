"""Prefetching: while a tile is computed with, the tiles that the next iteration streams in come to the L2 cache.

A tile is streamed in if it is a part of memory from outside of the task that moves on with the loop around: keys,
values, a loaded bias. Their contractions read it in a pattern that hardware prefetchers do not see through: single
elements of four rows at a time; the rows of a bias are far apart. Each contraction of the loop brings in a share of the
lines per register tile, so that they do not get in the way of its own loads::

    scf.for %k = … step %c64 {
      %v = memref.subview %values[%k, 0] [64, 128] [1, 1]
      linalg.generic {O[d, m] += P[k, m]·V[k, d]} ins(%p, %v) …       # per 4 rows of O: 2 rows of the next %v

A core drops requests that come in a row, beyond some 20 (docs/cpu.md, "Decoding"), so that the sum of a register tile
pauses for a few of them at a time (`BURST`).

What a task reads before that loop, its queries, comes likewise, for the task after it, and what it writes after the
loop, its output. Either is asked for in halves, by one iteration and the next: there may be few of them.
"""

import dataclasses
import math
from dataclasses import dataclass

from ....dialects import build
from ....dialects.mlir import arith, ir, memref
from ....dialects.tiling.structured import iterator_types
from ...graph import ancestor_in
from ...linear import upper_bound
from ...rewriting import ancestors, defining_op, is_inside, ops_in
from ...slices import slice_parts
from ..initial_values import is_arithmetic, origin_of
from ..memory import FRAMES, VIEWS, element_bytes
from ..target import LINE
from .read_ahead import L2

BURST = 8  # lines that are asked for in a row, where they can be spread
APART = 8  # iterations of a sum between them, at least: to enter a loop for fewer takes longer
MOST_LINES = 512  # that a register tile asks for at once: more, of heads of thousands, is more code than it is worth
TURNS = 2  # iterations that it takes to bring in what comes once in a task


@dataclass(frozen=True)
class Stream:
    """A tile of `rows` × `columns` elements of `source`, which starts at `offsets` in this iteration.

    Of the rows of what comes once in a task, iterations of `loop` take turns.
    """

    source: ir.Value
    offsets: tuple[ir.Value | int, ...]
    moves: int  # the dimension along which the tile moves on, by `step`, from a `unit`-th of its offset
    unit: int
    step: int
    along: int  # the dimension of the rows
    rows: int
    columns: int  # of the last dimension
    loop: ir.Operation | None = None

    def emit(self, done: ir.Value, step: int, total: int) -> None:
        """Prefetches as much of the tile as the iterations done, …, done + step − 1 are of `total` ones."""
        rank = len(self.offsets)
        at = [build.as_index(x) for x in self.offsets]
        if self.unit > 1:
            at[self.moves] = arith.divui(at[self.moves], build.index(self.unit))
        at[self.moves] = arith.addi(at[self.moves], build.index(self.step))
        row, column = at[self.along], at[rank - 1]
        if self.loop is not None:
            number = arith.divui(self.loop.regions[0].blocks[0].arguments[0], self.loop.operands[2])
            turn = arith.remui(number, build.index(TURNS))
            row = arith.addi(row, arith.muli(turn, build.index(self._rows_of_turn)))
        per_row, per_line, unit = self._lines_of_row, LINE // self._element_bytes, self._unit(step, total)
        amount = self._rows_of_turn * per_row // unit
        common = math.gcd(amount, total)
        first = arith.divui(arith.muli(done, build.index(amount // common)), build.index(total // common))
        for i in range(self.share(step, total)):
            at_line = arith.addi(first, build.index(i // unit))
            if unit == per_row:
                at_row, at_column = at_line, build.index(i % unit * per_line)
            else:
                at_row = arith.divui(at_line, build.index(per_row))
                at_column = arith.muli(arith.remui(at_line, build.index(per_row)), build.index(per_line))
            at[self.along] = arith.addi(row, at_row)
            at[rank - 1] = arith.addi(column, at_column)
            memref.PrefetchOp(self.source, at, False, L2, True)

    def share(self, step: int, total: int) -> int:
        """How many lines `step` of `total` iterations ask for."""
        unit = self._unit(step, total)
        return -(-step * self._rows_of_turn * self._lines_of_row // (unit * total)) * unit

    def _unit(self, step: int, total: int) -> int:
        """How many lines are asked for together: 1, or a row of them, if it takes a division to find a line in it."""
        per_row = self._lines_of_row
        are_rows = step * self._rows_of_turn % total == 0
        return per_row if are_rows or per_row & (per_row - 1) else 1

    @property
    def _rows_of_turn(self) -> int:
        return self.rows if self.loop is None else -(-self.rows // TURNS)

    @property
    def _element_bytes(self) -> int:
        return element_bytes(self.source.type.element_type) or 1

    @property
    def _lines_of_row(self) -> int:
        return -(-self.columns * self._element_bytes // LINE)


def find_streams(op: ir.Operation) -> dict[ir.Operation, list[Stream]]:
    """What each contraction in a loop over tiles prefetches: its own tile, and the first one also those of other ops.

    Where a branch of the loop is taken, that is the first one in it.
    """
    found: dict[ir.Operation, list[Stream]] = {}
    for loop in ops_in(op, "scf.for"):
        contractions = [o for o in ops_in(loop, "linalg.generic") if _is_contraction(o) and _loop_of(o) == loop]
        for part in ops_in(loop, "memref.subview") if contractions else []:
            stream = _stream(part, loop) if _loop_of(part) == loop else None
            if stream is not None:
                readers = [use.owner.operation for use in part.results[0].uses]
                own = next((o for o in contractions if o in readers), None)
                for reader in [own] if own is not None else _first_ones(contractions, part):
                    _add(found, reader, stream)
        task = _around(loop)
        for reader in _first_of_blocks(contractions) if task.name == "scf.parallel" else []:
            for stream in _of_task(task):
                _add(found, reader, dataclasses.replace(stream, loop=loop))
    return found


def _of_task(task: ir.Operation) -> list[Stream]:
    """What the next task reads, and this one writes, outside of its loops."""
    body = task.regions[0].blocks[0]
    count = len(body.arguments)
    inner, step = body.arguments[count - 1], build.constant_value(task.operands[3 * count - 1]) or 0
    found = []
    for part in [o.operation for o in body.operations if o.operation.name == "memref.subview"]:
        users = [use.owner.operation for value in _aliases(part) for use in value.uses]
        users = [user for user in users if user.name not in VIEWS]
        if not users or any(user.name != "linalg.generic" or user.block != body for user in users):
            continue
        is_read = all(value not in user.opview.outputs for value in _aliases(part) for user in users)
        stream = _moving(part, inner, step if is_read else 0, task)
        found += [stream] if stream is not None else []
    return found


def _aliases(part: ir.Operation) -> list[ir.Value]:
    """The part, and views of it."""
    found = [part.results[0]]
    for value in found:
        found += [r for use in value.uses if use.owner.operation.name in VIEWS for r in use.owner.operation.results]
    return found


def _first_ones(contractions: list[ir.Operation], part: ir.Operation) -> list[ir.Operation]:
    """Of each block with contractions that `part` comes before, or else is a condition for, the first one."""
    around = part
    inside = [o for o in contractions if o.block == part.block]
    while not inside:
        around = next(ancestors(around))
        inside = [o for o in contractions if o.block == around.block or is_inside(o, around.parent.operation)]
    return _first_of_blocks(inside)


def _first_of_blocks(contractions: list[ir.Operation]) -> list[ir.Operation]:
    firsts: list[ir.Operation] = []
    for o in contractions:
        if all(o.block != other.block for other in firsts):
            firsts.append(o)
    return firsts


def _add(found: dict[ir.Operation, list[Stream]], reader: ir.Operation, new: Stream) -> None:
    """Of tiles that start in one place the largest is enough. What the reader comes before the place of is left out."""
    if not all(isinstance(x, int) or _is_there(x, reader) for x in new.offsets):
        return
    streams = found.setdefault(reader, [])
    for i, old in enumerate(streams):
        if (old.source, old.offsets) == (new.source, new.offsets):
            streams[i] = max(old, new, key=lambda s: s.rows * s.columns)
            return
    streams.append(new)


def _is_there(value: ir.Value, reader: ir.Operation) -> bool:
    """Whether a value of a block around `reader` has been computed by then."""
    made = defining_op(value)
    top = None if made is None else ancestor_in(reader, made.block)
    return made is None or (top is not None and made.is_before_in_block(top))


def _loop_of(op: ir.Operation) -> ir.Operation:
    return next(a for a in ancestors(op) if a.name == "scf.for")


def _around(loop: ir.Operation) -> ir.Operation:
    """What the loop is in; of `roll-loops`, what its turns are in."""
    around = loop.parent.operation
    while around.name == "scf.for" and all(
        o.operation.name in ("scf.for", "scf.yield") or is_arithmetic(o.operation)
        for o in around.regions[0].blocks[0].operations
    ):
        around = around.parent.operation
    return around


def _is_contraction(generic: ir.Operation) -> bool:
    return "reduction" in iterator_types(generic) and len(generic.operands) == 3 and len(generic.opview.outputs) == 1


def _stream(part: ir.Operation, loop: ir.Operation) -> Stream | None:
    """The next tile, if `part` is one that moves on through memory from outside of the task with each iteration."""
    step = build.constant_value(loop.operands[2])
    frame = next(a for a in ancestors(loop) if a.name in FRAMES)
    if part.name != "memref.subview" or step is None:
        return None
    return _moving(part, loop.regions[0].blocks[0].arguments[0], step, frame)


def _moving(part: ir.Operation, variable: ir.Value, step: int, frame: ir.Operation) -> Stream | None:
    """The tile that `part`, which starts at `variable` along one dimension, is when it has moved on by `step`."""
    if not _is_from_outside(part.operands[0], frame):
        return None
    source = part.operands[0]
    offsets, sizes, strides = slice_parts(part)
    units = [_unit(x, variable) for x in offsets]
    moving = [d for d, unit in enumerate(units) if unit and step % unit == 0]
    extents = [upper_bound(size) for size in sizes]
    if len(moving) != 1 or None in extents or any(s != 1 for s in strides):
        return None
    *outer, columns = [e or 0 for e in extents]
    rows = [d for d, extent in enumerate(outer) if extent > 1]
    if len(rows) > 1 or not outer or source.type.get_strides_and_offset()[0][-1] != 1:
        return None
    along = rows[0] if rows else len(outer) - 1
    offsets[moving[0]] = variable  # what a part of it is, is computed next to the part
    unit = units[moving[0]]
    return Stream(source, tuple(offsets), moving[0], unit, step // unit, along, outer[along], columns)


def _unit(offset: ir.Value | int, variable: ir.Value) -> int:
    """1 for the variable itself, n for an n-th of it, as of rows that stand in pairs; 0 for anything else."""
    if isinstance(offset, int):
        return 0
    op = defining_op(offset)
    if op is not None and op.name == "arith.divui" and op.operands[0] == variable:
        divisor = build.constant_value(op.operands[1])
        return divisor if isinstance(divisor, int) else 0
    return int(offset == variable)


def _is_from_outside(value: ir.Value, frame: ir.Operation) -> bool:
    """True if the memory was there before the task."""
    origin = origin_of(value)
    made = defining_op(origin)
    if made is None:
        return origin.owner.owner.operation.name == "func.func"
    return not is_inside(made, frame)
