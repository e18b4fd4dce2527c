"""What iterations of a parallel loop need, computed for all of them before it."""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from ...dialects import build
from ...dialects.mlir import ir, linalg
from ...dialects.tiling import Index
from ..copying import copy_needed
from ..linear import least_divisor
from ..rewriting import ancestors, defining_op
from ..slices import Size, forall_bounds
from .positions import Tiled
from .tile_sets import Bound, TileSets


@dataclass(frozen=True)
class Steps:
    """What an induction variable counts through."""

    variable: ir.Value
    low: int
    high: Bound
    step: int

    @staticmethod
    def of(sets: TileSets) -> Steps:
        """Of the loop over tiles."""
        return Steps(sets.variable, sets.low, sets.high, sets.step)

    @property
    def count(self) -> int | None:
        return -(-(self.high - self.low) // self.step) if isinstance(self.high, int) else None

    def size(self) -> Size:
        """The count; emitted here, if it is not known."""
        if self.count is not None:
            return self.count
        return self._apply(ir.AffineExpr.get_ceil_div(ir.AffineExpr.get_dim(0) - self.low, self.step), self.high)

    def place(self, at: ir.Value) -> ir.Value:
        """The number of the iteration in which the variable is `at`; emitted here."""
        return self._apply(ir.AffineExpr.get_floor_div(ir.AffineExpr.get_dim(0) - self.low, self.step), at)

    def at(self, place: ir.Value) -> ir.Value:
        """The other way round."""
        return self._apply(ir.AffineExpr.get_dim(0) * self.step + self.low, place)

    @staticmethod
    def _apply(expression: ir.AffineExpr, value: ir.Value) -> ir.Value:
        map_ = ir.AffineMapAttr.get(ir.AffineMap.get(1, 0, [expression]))
        return ir.Operation.create("affine.apply", [ir.IndexType.get()], [value], {"map": map_}).result


def counters_at(steps: Sequence[Steps]) -> dict[ir.Value, ir.Value]:
    """What stands in the place of induction variables in the body of a linalg op, the first loops of which count their
    iterations."""
    return {s.variable: s.at(linalg.IndexOp(d).result) for d, s in enumerate(steps)}


class Unknown(Exception):
    """A value cannot be computed before the loops."""


class BeforeLoops:
    """What is computed before the parallel loop around `loop`; or before `loop`, where there is none.

    Each kind of it has a place, from `open` on until the sets are finished, in the order of its use.
    """

    KINDS = ("tables", "scans")

    def __init__(self, loop: ir.Operation):
        self.forall = next((a for a in ancestors(loop) if a.name == "scf.forall"), None)
        self._anchor = self.forall or loop
        self._loop = loop
        self._outside = [a.block for a in ancestors(self._anchor) if a.parent is not None]
        self._places: dict[str, ir.Operation] = {}

    def open(self, sets: TileSets) -> None:
        if self._places:
            return
        sets.at_the_end(self._close, behind=2)
        with ir.InsertionPoint(self._anchor), self._anchor.location:
            for kind in self.KINDS:
                self._places[kind] = build.index(0).owner.operation

    def _close(self) -> None:
        for place in self._places.values():
            place.erase()
        self._places = {}

    @contextlib.contextmanager
    def at(self, kind: str) -> Iterator[None]:
        """What is emitted within the block is of that kind."""
        place = self._places[kind]
        with ir.InsertionPoint(place), place.location:
            yield

    @property
    def counted(self) -> list[Steps] | None:
        """What the parallel loop counts through; None where it starts, or steps, by what is known at run time only."""
        if self.forall is None:
            return []
        lows, highs, steps = forall_bounds(self.forall)
        if not all(isinstance(v, int) for v in (*lows, *steps)):
            return None
        return [Steps(*one) for one in zip(self.forall.opview.induction_variables, lows, highs, steps, strict=False)]

    def tiled(self, sets: TileSets, at: Index, along: int, step: int | None) -> Tiled | None:
        """Those tiles of `step` elements one of which begins `at` that element, in whatever iterations of the loop of
        `sets` and of those around; None if there are none."""
        steps = {s.variable: s.step for s in self._loops(sets) if s.low == 0 and s.step is not None}
        if not step or any(c * least_divisor(v, steps) % step for v, c in at.terms):
            return None
        return Tiled(along, at.const % step, step)

    def gone_through(self, sets: TileSets, at: Index) -> int | None:
        """The number of elements that one of these loops takes `at` through, from the first one on."""
        ends = (s.high for s in self._loops(sets) if at == Index.of(s.variable) and s.low == 0)
        return next((end for end in ends if isinstance(end, int)), None)

    def _loops(self, sets: TileSets) -> list[Steps]:
        return [Steps.of(sets), *self._around, *(self.counted or [])]

    @functools.cached_property
    def _around(self) -> list[Steps]:
        return [Steps.of(TileSets(a)) for a in ancestors(self._loop) if a.name == "scf.for"]

    def sharing(self, used: Collection[ir.Value]) -> int:
        """In how many iterations of the parallel loop what is made of the values `used` is the same; 2 for a number
        that is known at run time only."""
        return math.prod(s.count or 2 for s in self.counted or [] if s.variable not in used)

    def has(self, value: ir.Value) -> bool:
        """Whether `value` is there."""
        op = defining_op(value)
        block = value.owner if op is None else op.block
        if block != self._anchor.block:
            return block in self._outside
        return op is None or op.is_before_in_block(self._places.get(self.KINDS[0], self._anchor))

    def needed(self, values: Iterable[ir.Value]) -> dict[ir.Value, None]:
        """The counters of loops that these numbers are computed of. Raises Unknown where not by scalars alone."""
        found: dict[ir.Value, None] = {}
        seen: set[ir.Value] = set()
        pending = list(values)
        while pending:
            value = pending.pop()
            if value in seen or self.has(value):
                continue
            seen.add(value)
            op = defining_op(value)
            if op is None:
                found[value] = None
            elif op.name.startswith("arith.") or op.name in _SCALAR:
                pending += op.operands
            else:
                raise Unknown
        return found

    def copied(self, value: ir.Value, moved: dict[ir.Value, ir.Value]) -> ir.Value:
        """A number, computed again at the insertion point; `moved`: what stands in the place of counters of loops, and
        of what is here already."""
        return copy_needed(value, moved, lambda op: not self.has(op.results[0]))


SMALL = "small"  # of a structured op: it is of whole tiles, few elements, and may be computed one by one


def mark_small(results: Sequence[ir.Value]) -> list[ir.Value]:
    """The results of one op, which is marked."""
    results[0].owner.attributes[SMALL] = ir.UnitAttr.get()
    return list(results)


_SCALAR = ("affine.apply", "affine.min", "affine.max", "tensor.extract", "tensor.dim", "math.absi")
