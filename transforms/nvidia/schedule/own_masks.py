"""Whether a mask by position changes any of the scores of a warpgroup's rows, by intervals of what it compares.

Of a tile of keys from %k on, the warpgroup has the rows from %y to %y + 63::

    scf.if %cut {                                         %i is in [%y, %y + 63]
      %m = linalg.generic … {                             %j in [%k, %k + 63]
        %d = arith.subi %j, %i                            %d in [%k − %y − 63, %k + 63 − %y]
        %dead = arith.cmpi sgt, %d, %c0                   true of some element if %k + 63 − %y > 0
        %masked = arith.select %dead, %minus_inf, %score
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

from ....dialects.build import constant_value, index
from ....dialects.mlir import arith, ir
from ...linear import CASTS
from ...rewriting import defining_op, is_made_inside, ops_of
from ..masking import modifies_first, yielded

IS = arith.CmpIPredicate
SMALLER, LARGER = (IS.slt, IS.sle), (IS.sgt, IS.sge)


@dataclass(frozen=True)
class Interval:
    low: ir.Value
    high: ir.Value


@dataclass(frozen=True)
class OwnMask:
    """Of the op `generic` on a tile of scores, at the insertion point. `rows`: the own ones in the tile; `value`: what
    others are there."""

    generic: ir.Operation
    rows: Interval
    value: Callable[[ir.Value], ir.Value]

    @staticmethod
    def of(branch: ir.Operation, rows: Interval, value: Callable[[ir.Value], ir.Value]) -> OwnMask | None:
        """None if the branch is not one that masks a tile, and else leaves it as it is."""
        then = ops_of(branch.regions[0].blocks[0])
        if len(then) != 2 or not modifies_first(then[0]) or then[1].operands[0] != then[0].results[0]:
            return None
        other = ops_of(branch.regions[1].blocks[0])
        is_same = len(other) == 1 and other[0].operands[0] == then[0].operands[0]
        return OwnMask(then[0], rows, value) if is_same else None

    def changes(self) -> ir.Value | None:
        """Whether some score may become another one; None if that cannot be told."""
        score, found = yielded(self.generic), []
        while (op := defining_op(score)) is not None and op.name == "arith.select":
            if constant_value(op.operands[1]) is None:
                return None
            found.append(self.happens(op.operands[0]))
            score = op.operands[2]
        if score != self.generic.regions[0].blocks[0].arguments[0]:
            return None
        return _either(*found)

    def happens(self, condition: ir.Value) -> ir.Value | None:
        """Whether a condition may hold for some element."""
        op = defining_op(condition)
        if op is None:
            return None
        if op.name in ("arith.andi", "arith.ori"):
            sides = [self.happens(v) for v in op.operands]
            if op.name == "arith.ori":
                return _either(*sides)
            known = [v for v in sides if v is not None]  # where only one side is, it alone says no
            return arith.andi(*known) if len(known) == 2 else next(iter(known), None)
        if op.name != "arith.cmpi":
            return None
        left, right = (self.interval(v) for v in op.operands)
        predicate = IS(ir.IntegerAttr(op.attributes["predicate"]).value)
        if left is None or right is None or predicate not in (*SMALLER, *LARGER):
            return None
        ends = (left.low, right.high) if predicate in SMALLER else (left.high, right.low)
        return arith.cmpi(predicate, *ends)

    def interval(self, value: ir.Value) -> Interval | None:
        """Of a number at all elements."""
        if not is_made_inside(value, self.generic):
            return Interval(self.value(value), self.value(value))
        op = defining_op(value)
        if op is None:
            return None
        if op.name == "linalg.index":
            columns = self.generic.results[0].type.shape[1]
            is_row = ir.IntegerAttr(op.attributes["dim"]).value == 0
            return self.rows if is_row else Interval(index(0), index(columns - 1))
        if op.name in CASTS:
            inner = self.interval(op.operands[0])
            return None if inner is None else Interval(*(_as(value.type, end) for end in (inner.low, inner.high)))
        if op.name not in ("arith.addi", "arith.subi"):
            return None
        a, b = (self.interval(v) for v in op.operands)
        if a is None or b is None:
            return None
        if op.name == "arith.addi":
            return Interval(arith.addi(a.low, b.low), arith.addi(a.high, b.high))
        return Interval(arith.subi(a.low, b.high), arith.subi(a.high, b.low))


def _as(kind: ir.Type, value: ir.Value) -> ir.Value:
    """An integer of another width, which holds it."""
    if isinstance(kind, ir.IndexType) or isinstance(value.type, ir.IndexType):
        return arith.index_cast(kind, value)
    return arith.extsi(kind, value)


def _either(*conditions: ir.Value | None) -> ir.Value | None:
    """Whether one holds; None, if there is one of which that is not known."""
    known = [v for v in conditions if v is not None]
    return functools.reduce(arith.ori, known) if len(known) == len(conditions) > 0 else None
