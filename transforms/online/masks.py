"""What a mask does to whole tiles of scores, read off the IR that computes the mask.

The score at a position is followed backwards through the element-wise ops of the loop body (and before the loop), with
the position as linear forms: of `Local` d, the element's index in the tile along dimension d, and of SSA values, the
offsets of the tile. There, comparisons of integers become linear forms e ≤ 0, whose extremes over the tile,
0 ≤ Local(d) < size, are conditions on the loop's induction variable: sets of tiles (tile_sets.py). They go through and,
or, not and select to what makes a score −∞::

    %i = linalg.index 0 + %q                         j − i ≤ 0, with i = Local(0) + %q, j = Local(1) + %k
    %j = linalg.index 1 + %k                         always: %k + 31 − %q ≤ 0     (tile of 32 keys)
    %visible = arith.cmpi sle, %j, %i                never:  1 − %k + %q + 15 ≤ 0 (tile of 16 queries)
    %x = arith.select %visible, %s, %minus_inf       dead:   where never
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ...dialects.build import constant_value
from ...dialects.mlir import arith, ir
from ...dialects.tiling import Index
from ...dialects.tiling.structured import indexing_maps
from ..extents import extent
from ..linear import linear, minima
from ..rewriting import defining_op, is_inside
from .loaded_masks import loaded_mask, tiles_without
from .positions import VIEWS, Greatest, Loaded, Local, Quotient, Scalar, element, follow, of_source, operand_of
from .tile_sets import Tiles, TileSets


@dataclass(frozen=True)
class Truth:
    """Tiles in all elements of which a condition holds, and in none."""

    always: Tiles
    never: Tiles


@dataclass(frozen=True)
class Decided:
    """Operand `number` of `user` is `value` in all of `tiles`."""

    user: ir.Operation
    number: int
    value: bool
    tiles: Tiles


class TileMasks:
    """What the masks of the scores `x` do to the tiles of the loop of `sets`."""

    def __init__(self, sets: TileSets, x: ir.Value, loads: bool = True):
        self.sets = sets
        self._loads = loads  # whether numbers may be loaded before the loop
        self._sizes = [self._extents(x, d) for d in range(x.type.rank)]
        self._x = x
        self._loaded: dict[tuple[ir.Value, tuple[Index, ...]], ir.Value] = {}
        self._extremes_of: dict[tuple[Loaded, int], ir.Value] = {}
        self._conditions: list[Decided] = []
        self.unknown: list[ir.Operation] = []  # selects of −∞ by a condition that is not understood
        self._seen: set[Scalar] = set()

    @property
    def scores(self) -> Scalar | None:
        position = [
            Index(0) if size == [Index(1)] else Index(0, frozenset({(Local(d), 1)}))
            for d, size in enumerate(self._sizes)
        ]
        return element(self._x, position)

    # Sizes of the tile.

    def _extents(self, x: ir.Value, d: int) -> list[Index]:
        """Forms that the extent never exceeds: of values from before the loop exactly one, the extent itself."""
        form = extent(x, d)
        if form is None:
            return []
        if all(self.sets.visible(v) for v, _ in form.terms):
            return [form]
        value = next(iter(form.terms))[0]
        return minima(value) if form.is_value else []

    def _extremes(self, form: Index, sign: int) -> list[Index]:
        """The maximum (sign 1) of `form` over the tile, or its negated minimum (−1): each of the forms bounds it."""
        found = [Index(form.const * sign)]
        for atom, c in form.terms:
            if isinstance(atom, Local):
                steps = [(s - 1).scaled(c * sign) for s in self._sizes[atom.dim]] if c * sign > 0 else [Index(0)]
            elif isinstance(atom, Quotient):
                way = 1 if c * sign > 0 else -1
                inner = [self.sets.quotient(e.scaled(way), atom.divisor) for e in self._extremes(atom.form, way)]
                steps = [q.scaled(c * sign) for q in inner if q is not None]
            elif isinstance(atom, Loaded):
                steps = [Index.of(self._extreme(atom, 1 if c * sign > 0 else -1)).scaled(c * sign)]
            else:
                steps = [Index(0, frozenset({(atom, c * sign)}))]
            found = [f + s for f in found for s in steps]
        return found

    # Integers.

    def _form(self, scalar: Scalar) -> Index:
        def leaf(value: ir.Value) -> Index | None:
            at = Scalar(value, scalar.loops)
            op = defining_op(value)
            if op is None:
                followed = follow(at)
                form = self._form(followed) if followed is not None else None
                return form if form is not None and self._is_known(form) else self._load(at) or form
            if op.name == "linalg.index":
                return scalar.loops[ir.IntegerAttr(op.attributes["dim"]).value]
            if op.name == "math.absi":
                inner = self._form(at.operand(0))
                return _greatest(inner, inner.scaled(-1))
            if op.name in ("arith.maxsi", "arith.minsi"):
                sign = 1 if op.name == "arith.maxsi" else -1
                return _greatest(*(self._form(at.operand(i)).scaled(sign) for i in (0, 1))).scaled(sign)
            if op.name in _DIVISIONS:
                return self._quotient(op, at)
            return None

        return linear(scalar.value, leaf)

    def _quotient(self, op: ir.Operation, scalar: Scalar) -> Index | None:
        """By a positive constant. What truncates does as ⌊⌋ only where nothing is negative."""
        divisor = constant_value(op.operands[1])
        if divisor is None or divisor <= 0:
            return None
        divisor = 1 << divisor if op.name in ("arith.shrui", "arith.shrsi") else divisor
        form = self._form(scalar.operand(0))
        floors = op.name in ("arith.floordivsi", "arith.shrsi") or self._is_never_negative(form)
        return Index(0, frozenset({(Quotient(form, divisor), 1)})) if floors else None

    def _is_never_negative(self, form: Index) -> bool:
        return form.const >= 0 and all(
            c >= 0 and (isinstance(atom, Local) or (isinstance(atom, ir.Value) and _is_count(atom)))
            for atom, c in form.terms
        )

    def _is_known(self, form: Index) -> bool:
        """Whether the extremes of `form` can be computed before the loop, for each of its tiles."""
        for atom, _ in form.terms:
            if isinstance(atom, Greatest):
                known = all(self._is_known(f) for f in atom.forms)
            elif isinstance(atom, Quotient):
                known = self._is_known(atom.form)
            elif isinstance(atom, ir.Value):
                known = atom == self.sets.variable or self.sets.visible(atom)
            else:
                known = True
            if not known:
                return False
        return True

    def _load(self, scalar: Scalar) -> Index | None:
        """A number that is loaded before the loop: one for all of the tile, or one for each index along a dimension."""
        place = operand_of(scalar)
        while place is not None and (op := defining_op(place[0])) is not None and op.name in VIEWS:
            source = of_source(op, place[1])
            place = (op.operands[0], source) if source is not None else None
        if place is None or not self._loads or not self.sets.visible(place[0]):
            return None
        tensor, position = place[0], tuple(place[1])
        atoms = [(d, atom, c) for d, at in enumerate(position) for atom, c in at.terms]
        local = [(d, atom) for d, atom, c in atoms if isinstance(atom, Local) and c == 1]
        rest = [atom for _, atom, _ in atoms if not isinstance(atom, Local)]
        if not all(isinstance(v, ir.Value) and self.sets.visible(v) for v in rest):
            return None
        if len(local) == 1 and len(rest) + 1 == len(atoms):
            (along, atom) = local[0]
            size = self._sizes[atom.dim]
            if len(size) != 1 or not all(isinstance(v, ir.Value) and self.sets.visible(v) for v, _ in size[0].terms):
                return None
            start = (*position[:along], position[along].without(atom), *position[along + 1 :])
            return Index(0, frozenset({(Loaded(tensor, start, along, atom.dim), 1)}))
        if local or len(rest) < len(atoms):
            return None
        key = tensor, position
        if key not in self._loaded:
            self._loaded[key] = self.sets.extract(tensor, position)
        return Index.of(self._loaded[key])

    def _extreme(self, atom: Loaded, sign: int) -> ir.Value:
        """The largest of the loaded numbers of a tile, or the least."""
        key = atom, sign
        if key not in self._extremes_of:
            (size,) = self._sizes[atom.dim]
            self._extremes_of[key] = self.sets.extreme(atom.tensor, atom.position, atom.along, size, sign)
        return self._extremes_of[key]

    # Conditions.

    def truth(self, scalar: Scalar) -> Truth:
        sets = self.sets
        unknown = Truth(sets.none, sets.none)
        number = constant_value(scalar.value)
        if number is not None:
            return Truth(sets.all, sets.none) if number else Truth(sets.none, sets.all)
        op = defining_op(scalar.value)
        if op is None:
            followed = follow(scalar)
            return self.truth(followed) if followed is not None else unknown
        if op.name == "arith.cmpi":
            return self._compare(op, scalar)
        parts = [self.truth(scalar.operand(i)) for i in range(len(op.operands))] if op.name in _LOGIC else []
        if op.name in ("arith.andi", "arith.ori"):
            return self._both(*parts) if op.name == "arith.andi" else self._either(*parts)
        if op.name == "arith.xori":
            a, b = parts
            return self._either(self._both(a, _not(b)), self._both(_not(a), b))
        if op.name == "arith.select":
            c, a, b = parts
            return self._either(self._both(c, a), self._both(_not(c), b))
        return unknown

    def _both(self, a: Truth, b: Truth) -> Truth:
        return Truth(self.sets.intersection(a.always, b.always), self.sets.union(a.never, b.never))

    def _either(self, a: Truth, b: Truth) -> Truth:
        return _not(self._both(_not(a), _not(b)))

    def _compare(self, op: ir.Operation, scalar: Scalar) -> Truth:
        if op.operands[0].type == ir.IntegerType.get_signless(1):
            return Truth(self.sets.none, self.sets.none)
        predicate = arith.CmpIPredicate(ir.IntegerAttr(op.attributes["predicate"]).value)
        sides = [self._form(scalar.operand(i)) for i in (0, 1)]
        if all(self._is_never_negative(side) for side in sides):
            predicate = _SIGNED.get(predicate, predicate)
        difference = sides[0] - sides[1]
        at_most = functools.partial(self._not_positive, difference)
        at_least = functools.partial(self._not_positive, difference.scaled(-1))
        compare: dict[Any, Callable[[], Truth]] = {
            arith.CmpIPredicate.sle: at_most,
            arith.CmpIPredicate.sge: at_least,
            arith.CmpIPredicate.slt: lambda: _not(at_least()),
            arith.CmpIPredicate.sgt: lambda: _not(at_most()),
            arith.CmpIPredicate.eq: lambda: self._both(at_most(), at_least()),
            arith.CmpIPredicate.ne: lambda: _not(self._both(at_most(), at_least())),
        }
        return compare[predicate]() if predicate in compare else Truth(self.sets.none, self.sets.none)

    def _not_positive(self, form: Index) -> Truth:
        """`form` ≤ 0. Of a maximum all forms must be, of a negated one any."""
        for atom, c in form.terms:
            if isinstance(atom, Greatest):
                rest = form.without(atom)
                parts = [self._not_positive(rest + f.scaled(c)) for f in atom.forms]
                combine = self._both if c > 0 else self._either
                return combine(*parts)
        quotients = [a for a, c in form.terms if isinstance(a, Quotient) and c in (1, -1)]
        if quotients:  # ⌊f/d⌋ ≤ r if and only if f ≤ d·r + d − 1, and r ≤ ⌊f/d⌋ if and only if d·r ≤ f
            atom = max(quotients, key=lambda a: abs(a.form.coefficient(self.sets.variable)))
            rest = form.without(atom).scaled(atom.divisor)
            if form.coefficient(atom) > 0:
                return self._not_positive(rest + atom.form - (atom.divisor - 1))
            return self._not_positive(rest - atom.form)
        always, never = self.sets.none, self.sets.none
        for extreme in self._extremes(form, 1):
            always = self.sets.union(always, self.sets.where_not_positive(extreme))
        for extreme in self._extremes(form, -1):
            never = self.sets.union(never, self.sets.where_not_positive(extreme + 1))
        return Truth(always, never)

    def _uniform(self, scalar: Scalar, value: bool) -> Tiles:
        """Tiles in which a mask that is loaded has that value everywhere, at both ends of the loop."""
        mask = loaded_mask(scalar, self.sets, self._sizes) if self._loads else None
        return tiles_without(mask, not value, self.sets) if mask is not None else self.sets.none

    # Scores.

    def dead(self, scalar: Scalar | None, bound: float = -math.inf) -> Tiles:
        """Tiles in which the float `scalar` is `bound` at most in all elements. (Adding to −∞ is taken to give −∞.)"""
        sets = self.sets
        scalar = scalar and follow(scalar)
        if scalar is None:
            return sets.none
        if (number := constant_value(scalar.value)) is not None:
            return sets.all if number <= bound else sets.none
        op = defining_op(scalar.value)
        if op is None:
            return sets.none
        infinite = bound == -math.inf
        if op.name in ("arith.minnumf", "arith.minimumf") or (infinite and op.name == "arith.addf"):
            return sets.union(*(self.dead(scalar.operand(i), bound) for i in (0, 1)))
        if op.name in ("arith.maxnumf", "arith.maximumf"):
            return sets.intersection(*(self.dead(scalar.operand(i), bound) for i in (0, 1)))
        if op.name == "arith.extf" or (infinite and op.name in ("arith.truncf", "arith.subf")):
            return self.dead(scalar.operand(0), bound)
        if (scaled := _scaled(op)) is not None:
            return self.dead(scalar.operand(scaled[0]), bound / scaled[1])
        if op.name == "arith.select":
            condition = self.truth(scalar.operand(0))
            a, b = (self.dead(scalar.operand(i), bound) for i in (1, 2))
            if a == sets.all:  # whatever the condition is where the other side is dead too
                return sets.union(sets.union(condition.always, self._uniform(scalar.operand(0), True)), b)
            if b == sets.all:
                return sets.union(sets.union(condition.never, self._uniform(scalar.operand(0), False)), a)
            chosen = sets.union(sets.intersection(condition.always, a), sets.intersection(condition.never, b))
            return sets.union(chosen, sets.intersection(a, b))
        return sets.none

    def lowest(self, scalar: Scalar | None) -> float | None:
        """The largest of the finite numbers that selects on the way to `scalar` put where a mask would put −∞."""
        scalar = scalar and follow(scalar)
        op = defining_op(scalar.value) if scalar is not None else None
        if scalar is None or op is None:
            return None
        if op.name == "arith.select" or op.name in _BOUNDS:
            values = [constant_value(v) for v in op.operands]
            found = [self.lowest(scalar.operand(i)) for i, n in enumerate(values) if n is None]
            found += [n for n in values if isinstance(n, float) and math.isfinite(n)]
        elif op.name == "arith.extf":
            return self.lowest(scalar.operand(0))
        elif (scaled := _scaled(op)) is not None:
            inner = self.lowest(scalar.operand(scaled[0]))
            found = [inner * scaled[1] if inner is not None else None]
        else:
            return None
        return max((n for n in found if n is not None and n < 0), default=None)

    def conditions(self, scalar: Scalar | None) -> list[Decided]:
        """The masks on the way to `scalar`, selects in the loop with a constant on one side: where it is not taken."""
        self._visit(scalar)
        return self._conditions

    def _visit(self, scalar: Scalar | None) -> None:
        scalar = scalar and follow(scalar)
        op = defining_op(scalar.value) if scalar is not None else None
        if scalar is None or op is None or scalar in self._seen or not is_inside(op, self.sets.loop):
            return
        self._seen.add(scalar)
        if op.name == "arith.select":
            constants = [constant_value(op.operands[i]) for i in (1, 2)]
            if constants[0] == -math.inf or constants[1] is None:
                wanted = False if constants[0] is not None else None
            else:
                wanted = True
            if wanted is not None and not self._decide(op, 0, wanted, scalar) and -math.inf in constants:
                self.unknown.append(op)
        for i, operand in enumerate(op.operands):
            if isinstance(operand.type, ir.FloatType):
                self._visit(scalar.operand(i))

    def _is_of_whole_tile(self, user: ir.Operation, loops: Sequence[Index]) -> bool:
        """Whether all that the op around `user` computes are elements of the tile, so that what holds there holds."""
        op = user.parent.operation
        used = [next(iter(at.terms))[0] if at.is_value else None for at in loops]
        output = indexing_maps(op)[-1]
        for d, e in enumerate(output.results):
            size, atom = extent(op.results[-1], d), used[e.position]
            if loops[e.position] == Index(0):
                whole = size == Index(1)
            else:
                whole = isinstance(atom, Local) and size is not None and size == extent(self._x, atom.dim)
            if not whole:
                return False
        locals_ = [atom for atom in used if atom is not None]
        return len(set(locals_)) == len(locals_)

    def _decide(self, user: ir.Operation, number: int, wanted: bool, scalar: Scalar) -> bool:
        """Notes where the operand is `wanted`; of a condition of which that is unknown, where its known parts are."""
        at = scalar.operand(number)
        truth = self.truth(at)
        tiles = truth.always if wanted else truth.never
        if tiles and self._is_of_whole_tile(user, scalar.loops):
            self._conditions.append(Decided(user, number, wanted, tiles))
            return True
        followed = follow(at)
        op = defining_op(followed.value) if followed is not None else None
        if followed is None or op is None or not is_inside(op, self.sets.loop):
            return False
        if op.name in ("arith.andi", "arith.ori"):
            left, right = (self._decide(op, i, wanted, followed) for i in (0, 1))
            return left or right
        if op.name == "arith.xori" and (flip := constant_value(op.operands[1])) is not None:
            return self._decide(op, 0, wanted != bool(flip), followed)
        return False


_DIVISIONS = ("arith.floordivsi", "arith.divsi", "arith.divui", "arith.shrui", "arith.shrsi")
_SIGNED = {
    arith.CmpIPredicate.ult: arith.CmpIPredicate.slt,
    arith.CmpIPredicate.ule: arith.CmpIPredicate.sle,
    arith.CmpIPredicate.ugt: arith.CmpIPredicate.sgt,
    arith.CmpIPredicate.uge: arith.CmpIPredicate.sge,
}
_BOUNDS = ("arith.minnumf", "arith.minimumf", "arith.maxnumf", "arith.maximumf")
_LOGIC = ("arith.andi", "arith.ori", "arith.xori", "arith.select")


def _is_count(value: ir.Value) -> bool:
    """Whether an index is a size, or a loop's induction variable that counts from 0 or more."""
    op = defining_op(value)
    if op is not None:
        return op.name == "tensor.dim"
    loop = value.owner.owner.operation
    if loop.name == "scf.for" and value.arg_number == 0:
        low = constant_value(loop.operands[0])
        return low is not None and low >= 0
    if loop.name != "scf.forall" or value.arg_number >= len(value.owner.arguments) - len(loop.results):
        return False
    return list(loop.attributes["staticLowerBound"])[value.arg_number] >= 0  # a dynamic one is a negative number


def _scaled(op: ir.Operation) -> tuple[int, float] | None:
    """(0 or 1, c) if `op` is that operand times a positive constant c."""
    if op.name not in ("arith.mulf", "arith.divf"):
        return None
    for number in (1, 0) if op.name == "arith.mulf" else (1,):
        factor = constant_value(op.operands[number])
        if factor is not None and 0 < factor < math.inf:
            return 1 - number, factor if op.name == "arith.mulf" else 1 / factor
    return None


def _not(a: Truth) -> Truth:
    return Truth(a.never, a.always)


def _greatest(*forms: Index) -> Index:
    if all(f.static is not None for f in forms):
        return Index(max(f.const for f in forms))
    return Index(0, frozenset({(Greatest(forms), 1)}))
