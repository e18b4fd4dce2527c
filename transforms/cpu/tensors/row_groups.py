"""Which ops of a graph run over the same rows, so that one loop over rows can compute them all."""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping
from typing import TypeAlias

from ....dialects.mlir import ir
from ....dialects.tiling.structured import (
    dim_position,
    indexing_maps,
    is_direct,
    iterator_types,
    operand_loops,
    reduces,
)
from ...extents import MIDDLING, static_extents
from ...graph import operands_with_captures, users_of
from ...reshapes import RESHAPES, source_dims
from ...rewriting import defining_op
from ...tile_and_fuse import MADE_AGAIN

Rows: TypeAlias = tuple[int, ...]  # loops of an op, or dimensions of a tensor: those along which rows are counted


class RowGroup:
    """A reduction of each row, what is computed from it row by row, and what they are computed from.

    `order`: ops of a block, which no other group has, and the number of each. `rows`: the loops of each op of the group
    that run over rows, or the dimensions of a reshape's result. `root`: the last op computed from the reduction.
    """

    def __init__(self, reduction: ir.Operation, rows: Rows, order: Mapping[ir.Operation, int]):
        self.rows = {reduction: rows}
        self._order = order
        self._first = order[reduction]
        self._add_readers(reduction)
        self.root = max((op for op in self.rows if op.name == "linalg.generic"), key=order.__getitem__)
        self._add_producers()

    def stops(self) -> list[ir.Operation]:
        """What stays before the loop over rows."""
        producers = {p for op in self.rows for v in op.operands if (p := defining_op(v)) is not None}
        return [p for p in producers if p not in self.rows and (p.name in RESHAPES or p.name not in MADE_AGAIN)]

    def sizes(self) -> list[int | None]:
        """How many rows there are, along each of their dimensions; None where that is dynamic."""
        extents = static_extents(self.root)
        return [extents[loop] for loop in self.rows[self.root]]

    def lengths(self) -> list[int]:
        """How many elements of a row an op computes or adds up, for each that has several."""
        found = []
        for op, rows in self.rows.items():
            if op.name == "linalg.generic":
                along = [size for loop, size in enumerate(static_extents(op)) if loop not in rows and size != 1]
                found += [math.prod(size or MIDDLING for size in along)] if along else []
        return found

    def has_columns(self) -> bool:
        """Whether neighbours in memory are of different rows."""
        last = self.rows[self.root][-1]
        maps = [m for m in indexing_maps(self.root) if len(m.results) > len(self.rows[self.root])]
        return any(dim_position(m.results[-1]) == last for m in maps)

    def _add_readers(self, reduction: ir.Operation) -> None:
        """What reads results of the group row by row, and depends on it in no other way."""
        pending = [(self._first, reduction)]
        while pending:
            _, op = heapq.heappop(pending)
            if op not in self.rows:
                rows = self._of_reader(op)
                if rows is None or self._depends_otherwise(op):
                    continue
                self.rows[op] = rows
            for user in users_of(op):
                at = (self._order.get(user, -1), user)
                if user in self._order and at not in pending:
                    heapq.heappush(pending, at)

    def _of_reader(self, op: ir.Operation) -> Rows | None:
        """The loops over rows of what reads results of the group; None if it does not take them row by row."""
        found = set()
        for place, value in _read_by(op):
            producer = defining_op(value)
            if producer in self.rows:
                dims = _dims_at(producer, _place_of_result(producer, value), self.rows[producer])
                found.add(_rows_at(op, place, dims))
        return found.pop() if len(found) == 1 else None

    def _depends_otherwise(self, op: ir.Operation) -> bool:
        """Whether something that is not of the group depends on it, and leads to `op`."""
        pending, seen = [op], {op}
        while pending:
            outside = pending.pop()
            for value in operands_with_captures(outside):
                producer = defining_op(value)
                if producer in self.rows and outside != op:
                    return True
                if producer not in self.rows and producer not in seen and self._order.get(producer, -1) > self._first:
                    seen.add(producer)
                    pending.append(producer)
        return False

    def _add_producers(self) -> None:
        """What the group reads row by row; `tile_and_fuse` leaves it where it leads there in other ways as well. Not a
        sum that an op reads in two ways, as one that compares all elements of a row: each would have its own, added up
        in another order, and none be equal to itself."""
        pending = list(self.rows)
        while pending:
            op = pending.pop()
            for place, value in _read_by(op):
                producer = defining_op(value)
                if producer in self.rows or producer not in self._order:
                    continue
                rows = self._of_producer(op, place)
                ways = {self._of_producer(op, i) for i, v in _read_by(op) if defining_op(v) == producer}
                if rows is not None and (len(ways) == 1 or producer.name in RESHAPES or not reduces(producer)):
                    self.rows[producer] = rows
                    pending.append(producer)

    def _of_producer(self, op: ir.Operation, place: int) -> Rows | None:
        """The loops over rows of what an op of the group reads at a place."""
        value = op.operands[place]
        producer = defining_op(value)
        return _rows_at(producer, _place_of_result(producer, value), _dims_at(op, place, self.rows[op]))


def reduced_rows(op: ir.Operation) -> Rows:
    """The loops over rows of an op that reduces each row of an operand; none of any other op."""
    if op.name != "linalg.generic" or not reduces(op):
        return ()
    kinds = zip(iterator_types(op), static_extents(op), strict=True)
    rows = tuple(loop for loop, (kind, size) in enumerate(kinds) if kind == "parallel" and size != 1)
    return rows if _is_by_rows(op, rows) else ()


def _is_by_rows(op: ir.Operation, rows: Rows) -> bool:
    """Whether an op computes each row once, and by itself: no contraction, whose rows share what they read, and whose
    elements are not computed one by one."""
    if op.name in RESHAPES:
        return True
    kinds, extents = iterator_types(op), static_extents(op)
    others = [loop for loop, kind in enumerate(kinds) if kind == "parallel" and loop not in rows and extents[loop] != 1]
    if any(kinds[loop] != "parallel" for loop in rows):
        return False
    inputs = range(len(op.operands) - len(op.results))
    if reduces(op) and (others or all(_dims_at(op, place, rows) is None for place in inputs)):
        return False
    has_rows = all(_dims_at(op, _place_of_result(op, value), rows) is not None for value in op.results)
    return has_rows and all(is_direct(e) for m in indexing_maps(op) for e in m.results)


def _places(op: ir.Operation) -> list[list[int | None]]:
    """For each tensor that an op reads or writes the loops that its dimensions are along. Those of a reshape that adds
    or drops dimensions of one element run over its result; of other ops nothing is known."""
    if op.name == "linalg.generic":
        return operand_loops(op)
    dims = source_dims(op) if op.name in RESHAPES else None
    if dims is None:
        return []
    sources = range(op.operands[0].type.rank)
    return [[dims.index(d) if d in dims else None for d in sources], list(range(len(dims)))]


def _read_by(op: ir.Operation) -> list[tuple[int, ir.Value]]:
    """The places of an op that are its operands, with these; not the sizes of a reshape."""
    return list(enumerate(op.operands[:1] if op.name in RESHAPES else op.operands))


def _place_of_result(op: ir.Operation, value: ir.Value) -> int:
    """Where a result stands among the places of an op, of which the last ones are its results'."""
    return list(op.results).index(value) - len(op.results)


def _dims_at(op: ir.Operation, place: int, rows: Rows) -> Rows | None:
    """The dimensions that rows of an op are along in the tensor at a place; None if it has not all of them."""
    loops = _places(op)[place]
    return tuple(loops.index(row) for row in rows) if set(rows) <= set(loops) else None


def _rows_at(op: ir.Operation, place: int, dims: Rows | None) -> Rows | None:
    """The loops of an op over rows, which are along `dims` of the tensor at a place; None if it does not compute them
    by themselves."""
    places = _places(op)
    if dims is None or place >= len(places) or not places:
        return None
    rows = tuple(row for d in dims if (row := places[place][d]) is not None)
    return rows if len(set(rows)) == len(dims) and _is_by_rows(op, rows) else None
