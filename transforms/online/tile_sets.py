"""Sets of the tiles of one loop, as intervals of its induction variable with bounds that are computed before it.

A condition c·%k + … ≤ 0 holds up to some tile, or from some tile on. Such prefixes and suffixes, and what can be made
of them by union, intersection and complement, are lists of intervals [low, high): sorted and disjoint, whatever values
the bounds have at run time; an interval may be empty. Where that would need to know the order of two bounds, union and
intersection leave tiles out: a set is of tiles for which something surely holds, so a smaller one is right too.

For a loop from 0 to %n by 32, the tiles with %k + 31 ≤ %q are the interval from 0 to

    %0 = affine.max affine_map<(q) -> (((q - 30) ceildiv 32) * 32, 0)>(%q)
    %1 = affine.min affine_map<(a, b) -> (a, b)>(%0, %n)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias

from ...dialects import build
from ...dialects.mlir import arith, ir, scf
from ...dialects.tiling import Index
from ...dialects.tiling.index import affine_expression
from ..rewriting import ancestors, defining_op
from ..slices import known_index
from .far_numbers import alone, extreme, first, width_of

Bound: TypeAlias = int | Any  # an SSA value of type index, where it is no number
Tiles = list[tuple[Bound, Bound]]


class SetsOfTiles(Protocol):
    """What masks need of sets of tiles. A set of tiles for which something surely holds may be too small."""

    none: Tiles
    counter: Any  # what forms that differ from tile to tile are of

    @property
    def all(self) -> Tiles: ...

    def visible(self, value: ir.Value) -> bool:
        """Whether `value` is one for all tiles."""

    def where_not_positive(self, form: Index) -> Tiles:
        """The tiles for which `form` ≤ 0."""

    def quotient(self, form: Index, divisor: int) -> Index | None:
        """⌊form / divisor⌋; None if it is not one for all tiles."""

    def union(self, a: Tiles, b: Tiles) -> Tiles: ...

    def intersection(self, a: Tiles, b: Tiles) -> Tiles: ...


class TileSets(SetsOfTiles):
    """Builds sets of the iterations of `loop`, an scf.for with a constant step.

    Conditions are on `counter`: the loop's variable, or a multiple of it that is known at run time only (`split-keys`).
    """

    def __init__(self, loop: ir.Operation):
        self.loop = loop
        self.variable = loop.regions[0].blocks[0].arguments[0]
        lower, upper, step = list(loop.operands)[:3]
        self.step = build.constant_value(step)
        self.low, self.high = (known_index(value) for value in (lower, upper))
        self.none: Tiles = []
        self._built: list[ir.Operation] = []
        self._deferred: list[tuple[int, Callable[[], None]]] = []
        self._held: list[ir.Value] = []
        self._clamped: set[ir.Value] = set()  # bounds known to lie between the loop's
        self._extrema: dict[tuple[str, frozenset[Bound]], ir.Value] = {}
        self._below: dict[Bound, set[Bound]] = {}  # of an extremum, bounds known to be no more than it
        self._above: dict[Bound, set[Bound]] = {}  # and no less
        self._holders = [a.block for a in (loop, *ancestors(loop)) if a.parent is not None]
        self.counter, self._multiple = self._counted()

    def _counted(self) -> tuple[ir.Value, ir.Value | None]:
        """What is computed of the variable, and how many times that is, where all else is computed of it."""
        users = [use.owner.operation for use in self.variable.uses]
        if len(users) == 1 and users[0].name == "arith.muli" and self.low == 0:
            for multiple in users[0].operands:
                if _is_positive(multiple) and self.visible(multiple):
                    return users[0].results[0], multiple
        return self.variable, None

    @property
    def supported(self) -> bool:
        """Whether the loop starts at a number. Of others sets are right too, but so far only asked for of one tile."""
        return isinstance(self.low, int) and isinstance(self.step, int) and self.step > 0

    @property
    def all(self) -> Tiles:
        return [(self.low, self.high)]

    def end_of_whole(self) -> Bound:
        """Where the last tile ends that the loop's end does not cut."""
        if isinstance(self.high, int) and isinstance(self.low, int):
            return self.low + max(0, self.high - self.low) // self.step * self.step
        with self.loop.context, ir.InsertionPoint(self.loop), self.loop.location:
            operands: list[ir.Value] = []
            high, low = self._term(self.high, operands), self._term(self.low, operands)
            whole = ir.AffineExpr.get_floor_div(high - low, self.step) * self.step + low
            found = self._affine("affine.max", operands, [whole, low])
        self._clamped.add(found)
        return found

    def _term(self, bound: Bound, operands: list[ir.Value]) -> ir.AffineExpr:
        """A bound as an affine expression; one that is no number becomes one more of the operands."""
        if isinstance(bound, int):
            return ir.AffineExpr.get_constant(bound)
        operands.append(bound)
        return ir.AffineExpr.get_dim(len(operands) - 1)

    def visible(self, value: ir.Value) -> bool:
        """Whether `value` may be used right before the loop."""
        block = value.owner if isinstance(value.owner, ir.Block) else value.owner.operation.block
        return block in self._holders

    # Conditions.

    def where_not_positive(self, form: Index) -> Tiles:
        """The tiles for which `form` ≤ 0."""
        if form.static is not None:
            return self.all if form.static <= 0 else self.none
        factor, rest = form.coefficient(self.counter), form.without(self.counter)
        if not all(isinstance(v, ir.Value) and self.visible(v) for v, _ in rest.terms):
            return self.none
        if factor == 0:
            return self._all_if_not_positive(rest)
        if factor > 0:
            return self.interval(self.low, self._tile_at(rest.scaled(-1), factor, exclusive=True))
        return self.interval(self._tile_at(rest, -factor, exclusive=False), self.high)

    def _all_if_not_positive(self, form: Index) -> Tiles:
        with ir.InsertionPoint(self.loop), self.loop.location:
            value, zero = self._apply(form, lambda e: [e]), self._value(0)
            holds = self.keep(arith.cmpi(arith.CmpIPredicate.sle, value, zero))
            high = self.keep(arith.select(holds, self._value(self.high), self._value(self.low)))
        self._clamped.add(high)
        return self.interval(self.low, high)

    def _tile_at(self, form: Index, divisor: int, exclusive: bool) -> Bound:
        """The first tile at or after form / divisor; with `exclusive`, the first one after it."""

        def start(e: ir.AffineExpr) -> ir.AffineExpr:
            if exclusive:
                return ir.AffineExpr.get_floor_div(e, divisor) + 1 if divisor > 1 else e + 1
            return ir.AffineExpr.get_ceil_div(e, divisor) if divisor > 1 else e

        def first(at: ir.AffineExpr, low: ir.AffineExpr) -> list[ir.AffineExpr]:
            return [ir.AffineExpr.get_ceil_div(at - low, self.step) * self.step + low, low]

        if form.static is not None and isinstance(self.low, int) and self._multiple is None:
            at = form.static // divisor + 1 if exclusive else -(-form.static // divisor)
            at = max(self.low, -(-(at - self.low) // self.step) * self.step + self.low)
            return self.minimum(at, self.high)
        with self.loop.context, ir.InsertionPoint(self.loop), self.loop.location:
            if self._multiple is None:
                at = self._apply(form, lambda e, low: first(start(e), low), self.low)
            else:  # of 0, 1, 2, … times the multiple the first one that is as large; affine ops divide by numbers only
                counted = self._apply(form, lambda e: [start(e), ir.AffineExpr.get_constant(0)])
                above = self.keep(arith.subi(self._multiple, self._value(1)))
                turn = self.keep(arith.divui(self.keep(arith.addi(counted, above)), self._multiple))
                at = self._apply(Index.of(turn), first, self.low)
        return self.minimum(at, self.high)

    def start_of(self, tile: ir.Value) -> Bound:
        """Where the tile of this number, counted from 0, starts; or where the loop ends, if it has not so many."""
        with self.loop.context, ir.InsertionPoint(self.loop), self.loop.location:
            start = ir.AffineExpr.get_dim(0) * self.step + self.low
            found = self._affine("affine.apply", [tile], [start])
        return self.minimum(found, self.high)

    def _apply(self, form: Index, results: Callable[..., list[ir.AffineExpr]], *bounds: Bound) -> ir.Value:
        """The one result for the expressions of `form` and of the bounds, or the maximum of several."""
        atoms = [v for v, _ in form.terms]
        values = [v if v.type == ir.IndexType.get() else self.keep(as_index(v)) for v in atoms]
        found = results(affine_expression(form, atoms), *[self._term(bound, values) for bound in bounds])
        return self._affine("affine.apply" if len(found) == 1 else "affine.max", values, found)

    def _affine(self, name: str, operands: Sequence[ir.Value], results: Sequence[ir.AffineExpr]) -> ir.Value:
        map_ = ir.AffineMapAttr.get(ir.AffineMap.get(len(operands), 0, list(results)))
        return self.keep(ir.Operation.create(name, [ir.IndexType.get()], list(operands), {"map": map_}).result)

    def keep(self, value: ir.Value) -> ir.Value:
        """Notes the op that made `value`, to be erased again if nothing uses it."""
        self._built.append(value.owner.operation)
        return value

    # Algebra.

    def minimum(self, a: Bound, b: Bound) -> Bound:
        return self._extremum("affine.min", min, self.high, self.low, a, b)

    def maximum(self, a: Bound, b: Bound) -> Bound:
        return self._extremum("affine.max", max, self.low, self.high, a, b)

    def _extremum(self, name: str, fold, neutral: Bound, absorbing: Bound, a: Bound, b: Bound) -> Bound:
        """The neutral bound drops out beside one that lies between the loop's; the absorbing one is what remains. Of
        bounds whose order is known, as of one and a maximum that it is among, it is one of them."""
        if _same(a, b):
            return a
        if isinstance(a, int) and isinstance(b, int):
            return fold(a, b)
        for one, other in ((a, b), (b, a)):
            if _same(one, absorbing):
                return one
            if _same(one, neutral) and other in self._clamped:
                return other
            if one in self._below.get(other, ()) or other in self._above.get(one, ()):
                return other if fold is max else one
        key = name, frozenset((a, b))
        if key not in self._extrema:
            self._extrema[key] = self._new_extremum(name, fold, a, b)
        return self._extrema[key]

    def _new_extremum(self, name: str, fold, a: Bound, b: Bound) -> ir.Value:
        with self.loop.context, ir.InsertionPoint(self.loop), self.loop.location:
            operands: list[ir.Value] = []
            results = [self._term(bound, operands) for bound in (a, b)]
            found = self._affine(name, operands, results)
        self._clamped.add(found)
        beyond, within = (self._below, self._above) if fold is max else (self._above, self._below)
        beyond[found] = {a, b} | beyond.get(a, set()) | beyond.get(b, set())
        within[found] = within.get(a, set()) & within.get(b, set())
        return found

    def interval(self, low: Bound, high: Bound) -> Tiles:
        """[low, high), with `high` no less than `low`; none where that is empty for sure."""
        high = self.maximum(low, high)
        return [] if _same(low, high) else [(low, high)]

    def union(self, a: Tiles, b: Tiles) -> Tiles:
        """Prefixes and suffixes become one; of intervals between them those of one side are kept."""
        end, start = self.low, self.high
        middle: Tiles = []
        for side in (a, b):
            inner = []
            for low, high in side:
                if _same(low, self.low):
                    end = self.maximum(end, high)
                elif _same(high, self.high):
                    start = self.minimum(start, low)
                else:
                    inner.append((low, high))
            middle = middle or inner
        start = self.maximum(end, start)
        between = self.intersection(middle, self.interval(end, start))
        return self.interval(self.low, end) + between + self.interval(start, self.high)

    def intersection(self, a: Tiles, b: Tiles) -> Tiles:
        """Of two sets of several intervals only the first with the first and the last with the last."""
        if len(a) > 1 and len(b) > 1:
            return self.clip([b[0]], a[0]) + self.clip([b[-1]], a[-1])
        return (
            [t for window in b for t in self.clip(a, window)]
            if len(b) == 1
            else [t for window in a for t in self.clip(b, window)]
        )

    def clip(self, tiles: Tiles, window: tuple[Bound, Bound]) -> Tiles:
        """What of `tiles` lies in `window`; moving each bound into it keeps their order, also that of empty ones."""
        low, high = window
        bounds = [[self.minimum(self.maximum(bound, low), high) for bound in t] for t in tiles]
        return [t for start, end in bounds for t in self.interval(start, end)]

    def complement(self, a: Tiles) -> Tiles:
        found, at = [], self.low
        for low, high in a:
            found += self.interval(at, low)
            at = high
        return found + self.interval(at, self.high)

    # What was built.

    def _value(self, bound: Bound) -> ir.Value:
        return self.keep(build.index(bound)) if isinstance(bound, int) else bound

    def value(self, bound: Bound) -> ir.Value:
        """An SSA value for `bound`, before the loop."""
        with self.loop.context, ir.InsertionPoint(self.loop), self.loop.location:
            return self._value(bound)

    def quotient(self, form: Index, divisor: int) -> Index | None:
        """⌊form / divisor⌋, computed before the loop; None if it changes in the loop."""
        if form.static is not None:
            return Index(form.static // divisor)
        if not all(isinstance(v, ir.Value) and self.visible(v) for v, _ in form.terms):
            return None
        with self.loop.context, ir.InsertionPoint(self.loop), self.loop.location:
            return Index.of(self._apply(form, lambda e: [ir.AffineExpr.get_floor_div(e, divisor)]))

    def extract(self, tensor: ir.Value, position: Sequence[Index]) -> ir.Value:
        """The element of an integer tensor, loaded before the loop."""
        with self.loop.context, ir.InsertionPoint(self.loop), self.loop.location:
            return self.keep(self._extract(tensor, [self.of_form(at) for at in position]))

    def number(self, tensor: ir.Value, position: Sequence[Index]) -> ir.Value:
        """The same, as it counts by itself."""
        found = self.extract(tensor, position)
        with ir.InsertionPoint(self.loop), self.loop.location:
            return alone(found, self.keep)

    def extreme(self, tensor: ir.Value, position: Sequence[Index], along: int, size: Index, sign: int) -> ir.Value:
        """The largest (sign 1) or the least of `size` elements of an integer tensor, looked for before the loop."""
        element = tensor.type.element_type
        with self.loop.context, ir.InsertionPoint(self.loop), self.loop.location:
            start = [self.of_form(at) for at in position]
            bounds = [self._value(0), self.of_form(size), self._value(1)]
            scan = scf.ForOp(*bounds, [self.keep(first(element, sign))])
            with ir.InsertionPoint(scan.body):
                start[along] = arith.addi(start[along], scan.induction_variable)
                found = extreme(self._extract(tensor, start), sign, width_of(element))
                scf.YieldOp([extremum(element, sign)(scan.inner_iter_args[0], found)])
            return self.keep(scan.results[0])

    def of_form(self, form: Index) -> ir.Value:
        """The value of a form of values that are visible before the loop; at the insertion point."""
        return self._value(form.const) if form.static is not None else self._apply(form, lambda e: [e])

    def _extract(self, tensor: ir.Value, indices: Sequence[ir.Value]) -> ir.Value:
        return ir.Operation.create("tensor.extract", [tensor.type.element_type], [tensor, *indices]).result

    def at_the_end(self, emit: Callable[[], None], behind: int = 0) -> None:
        """Lets `emit` run once it is known what is used: `behind` all of a lower number."""
        self._deferred.append((behind, emit))

    def hold(self, values: Sequence[ir.Value]) -> None:
        """Keeps what is not used yet, until `release`."""
        self._held += values

    def release(self, values: Sequence[ir.Value]) -> None:
        for value in values:
            self._held.remove(value)

    def finish(self) -> None:
        """Erases what nothing uses, and has the rest computed. The loop, and what is in its place, is still there."""
        self._erase_unused()
        for _, emit in sorted(self._deferred, key=lambda one: one[0]):
            emit()
            self._erase_unused()
        self._deferred = []

    def _erase_unused(self) -> None:
        kept = []
        for op in reversed(self._built):
            if any(True for r in op.results for _ in r.uses) or any(r in self._held for r in op.results):
                kept.append(op)
            else:
                op.erase()
        self._built = kept[::-1]
        self._extrema, self._below, self._above = {}, {}, {}  # some of which are gone


def extremum(element: ir.Type, sign: int) -> Callable[[ir.Value, ir.Value], ir.Value]:
    """Emits the larger of two integers (sign 1), or the lesser; of bits as 0 and 1."""
    if element == ir.IntegerType.get_signless(1):
        return arith.maxui if sign > 0 else arith.minui
    return arith.maxsi if sign > 0 else arith.minsi


def as_index(value: ir.Value) -> ir.Value:
    """A number that was loaded as an index; of a bit 0 or 1."""
    if isinstance(value.type, ir.IndexType):
        return value
    is_bit = value.type == ir.IntegerType.get_signless(1)
    return (arith.index_castui if is_bit else arith.index_cast)(ir.IndexType.get(), value)


def _is_positive(value: ir.Value) -> bool:
    """Whether a value is known at run time only, but made to be 1 at least."""
    op = defining_op(value)
    least = [build.constant_value(v) for v in op.operands] if op is not None and op.name == "arith.maxsi" else []
    return any(n is not None and n > 0 for n in least)


def _same(a: Bound, b: Bound) -> bool:
    return isinstance(a, int) == isinstance(b, int) and a == b
