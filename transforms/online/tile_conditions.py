"""Where conditions hold in all elements of a tile, and where in none, read off the IR that computes them."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from ...dialects.build import constant_value
from ...dialects.mlir import arith, ir
from ...dialects.tiling import Index
from ..rewriting import defining_op
from .forms_before import has_looked_up
from .loaded_masks import Depth, LoadedMask, Test, is_number, is_true, loaded_mask
from .positions import Greatest, Quotient, Scalar, follow, through_views
from .tile_forms import TileForms, is_never_negative
from .tile_scans import TileScans
from .tile_sets import Tiles

Scan: TypeAlias = Callable[[TileScans, Index], Tiles]


@dataclass(frozen=True)
class Where:
    """Tiles for which something surely holds: those of a set, and those of which any of the tests is true."""

    tiles: Tiles
    tests: tuple[Test, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.tiles or self.tests)


@dataclass(frozen=True)
class Truth:
    """Where a condition holds in all elements of a tile, and where in none."""

    always: Where
    never: Where


class TileConditions:
    """Of the tiles of `forms`.

    `tests`: whether each tile of what is loaded may be tested; else there may be `tables` of that. `scan`: which tiles
    count, of those that a look at all of them tells from others.
    """

    def __init__(self, forms: TileForms, tests: bool, scan: Scan, tables: bool = True):
        self.forms = forms
        self.tests = tests
        self.tables = tables
        self._scan = scan
        self.sets = forms.sets
        self.none, self.all = Where(self.sets.none), Where(self.sets.all)
        self._known: dict[Scalar, Truth] = {}

    # Algebra. What is left out is a set that is too small, and that is right too.

    def union(self, *parts: Where) -> Where:
        found = self.none
        for part in parts:
            tests = tuple(dict.fromkeys(found.tests + part.tests))
            found = Where(self.sets.union(found.tiles, part.tiles), tests)
        return found

    def intersection(self, a: Where, b: Where) -> Where:
        """Two tests that have to be true at a time are no test, but for one of both sides; those of one side are where
        the other is everywhere."""
        tests = tuple(test for test in a.tests if test in b.tests)
        for one, other in ((a, b), (b, a)):
            if other.tiles == self.sets.all:
                tests += one.tests
        return Where(self.sets.intersection(a.tiles, b.tiles), tests)

    def both(self, a: Truth, b: Truth) -> Truth:
        return Truth(self.intersection(a.always, b.always), self.union(a.never, b.never))

    def either(self, a: Truth, b: Truth) -> Truth:
        return opposite(self.both(opposite(a), opposite(b)))

    # Conditions.

    @property
    def unknown(self) -> Truth:
        return Truth(self.none, self.none)

    def truth(self, scalar: Scalar) -> Truth:
        """Of a condition that is asked for again, as of a part of one, the same: bounds that were built once."""
        if scalar not in self._known:
            self._known[scalar] = self._truth(scalar)
        return self._known[scalar]

    def _truth(self, scalar: Scalar) -> Truth:
        number = constant_value(scalar.value)
        if number is not None:
            return Truth(self.all, self.none) if number else Truth(self.none, self.all)
        op = defining_op(scalar.value)
        if op is None:
            followed = follow(scalar)
            if followed is not None:
                return self.truth(followed)
            if scalar.value.type != ir.IntegerType.get_signless(1):
                return self.unknown
            mask = self.loaded(scalar)
            known = self.unknown if mask is not None and self.tests else self._positive(self.forms.of(scalar))
            return known if mask is None or known.always or known.never else self._of_test(is_true(mask))
        if op.name in ("arith.cmpi", "arith.cmpf"):
            return self._compare(op, scalar)
        if op.name == "tensor.extract":
            found = self.forms.looked_up(scalar)
            return self._positive(found) if found is not None else self.unknown
        parts = [self.truth(scalar.operand(i)) for i in range(len(op.operands))] if op.name in _LOGIC else []
        if op.name in ("arith.andi", "arith.ori"):
            return self.both(*parts) if op.name == "arith.andi" else self.either(*parts)
        if op.name == "arith.xori":
            a, b = parts
            return self.either(self.both(a, opposite(b)), self.both(opposite(a), b))
        if op.name == "arith.select":
            c, a, b = parts
            return self.either(self.both(c, a), self.both(opposite(c), b))
        return self.unknown

    def loaded(self, scalar: Scalar) -> LoadedMask | None:
        """The mask that `scalar`, no result of an op, is an element of, if it may be looked at."""
        loads = self.forms.loads
        return loaded_mask(scalar, loads, self.forms.sizes) if loads is not None else None

    def _of_test(self, test: Test) -> Truth:
        return Truth(self.holds(test), self.holds(test.opposite()))

    def holds(self, test: Test) -> Where:
        """Where a test surely holds of all of the tile: of each tile when the loop is there, or by a table."""
        if self.tests:
            return Where(self.sets.none, (test,))
        form = self.forms.fails(test) if self.tables else None
        return Where(self._scan(self.forms.scans, form)) if form is not None else self.none

    def low(self, mask: LoadedMask, bound: float | None) -> Where:
        """Where all elements of a mask of floats are −∞. With a `bound` nothing else is a mask: then, by tables, it
        counts, too, where they are that at most, while each of their rows, which reach beyond a tile, has one that is
        more than half of it."""
        found = self.holds(is_number(mask, -math.inf)) if self.tests else self.none
        depths = None
        if self.tables and bound is not None:
            depths = self.forms.depths(Depth(mask, (bound / 2, bound, -math.inf)))
        if depths is None:
            return found
        least, of_rows = depths
        infinite, low, rows = (Where(self._tiles(form)) for form in (_at_least(least, 3), _at_least(least, 2), of_rows))
        return self.union(found, infinite, self.intersection(low, rows))

    def _compare(self, op: ir.Operation, scalar: Scalar) -> Truth:
        predicate = ir.IntegerAttr(op.attributes["predicate"]).value
        if op.name == "arith.cmpi" and op.operands[0].type != ir.IntegerType.get_signless(1):
            known = self._compare_integers(arith.CmpIPredicate(predicate), scalar)
            if known.always or known.never:
                return known
        number, mask = constant_value(op.operands[1]), self._compared(scalar.operand(0))
        if mask is None or number is None or mask.tensor.type.element_type != op.operands[1].type:
            return self.unknown
        return self._of_test(Test(mask, op.name, predicate, number))

    def _compared(self, scalar: Scalar) -> LoadedMask | None:
        if defining_op(scalar.value) is not None:
            return None
        followed = follow(scalar)
        if followed is None:
            return self.loaded(scalar)
        return self._compared(followed) if isinstance(followed.value.owner, ir.Block) else None

    def _compare_integers(self, predicate: arith.CmpIPredicate, scalar: Scalar) -> Truth:
        a, b = (scalar.operand(i) for i in (0, 1))
        is_same = _are_same_element(a, b)  # of documents, at the query's own place
        sides = [Index(0), Index(0)] if is_same else [self.forms.of(a), self.forms.of(b)]
        if all(is_never_negative(side) for side in sides):
            predicate = _SIGNED.get(predicate, predicate)
        difference = sides[0] - sides[1]
        at_most = functools.partial(self._not_positive, difference)
        at_least = functools.partial(self._not_positive, difference.scaled(-1))
        compare: dict[Any, Callable[[], Truth]] = {
            arith.CmpIPredicate.sle: at_most,
            arith.CmpIPredicate.sge: at_least,
            arith.CmpIPredicate.slt: lambda: opposite(at_least()),
            arith.CmpIPredicate.sgt: lambda: opposite(at_most()),
            arith.CmpIPredicate.eq: lambda: self.both(at_most(), at_least()),
            arith.CmpIPredicate.ne: lambda: opposite(self.both(at_most(), at_least())),
        }
        return compare[predicate]() if predicate in compare else self.unknown

    def _positive(self, form: Index) -> Truth:
        return opposite(self._not_positive(form))

    def _not_positive(self, form: Index) -> Truth:
        """`form` ≤ 0. Of a maximum all forms must be, of a negated one any."""
        for atom, c in form.terms:
            if isinstance(atom, Greatest):
                rest = form.without(atom)
                parts = [self._not_positive(rest + f.scaled(c)) for f in atom.forms]
                combine = self.both if c > 0 else self.either
                return combine(*parts)
        quotients = [a for a, c in form.terms if isinstance(a, Quotient) and c in (1, -1)]
        if quotients:  # ⌊f/d⌋ ≤ r if and only if f ≤ d·r + d − 1, and r ≤ ⌊f/d⌋ if and only if d·r ≤ f
            atom = max(quotients, key=lambda a: abs(a.form.coefficient(self.sets.counter)))
            rest = form.without(atom).scaled(atom.divisor)
            if form.coefficient(atom) > 0:
                return self._not_positive(rest + atom.form - (atom.divisor - 1))
            return self._not_positive(rest - atom.form)
        if self.forms.compares_alone(form):
            return self.unknown
        always, never = self.sets.none, self.sets.none
        for extreme in self.forms.extremes(form, 1):
            always = self.sets.union(always, self._tiles(extreme))
        for extreme in self.forms.extremes(form, -1):
            never = self.sets.union(never, self._tiles(extreme + 1))
        return Truth(Where(always), Where(never))

    def _tiles(self, form: Index) -> Tiles:
        """Where `form`, of whole tiles, is 0 at most."""
        return self._scan(self.forms.scans, form) if has_looked_up(form) else self.sets.where_not_positive(form)


def _at_least(form: Index, number: int) -> Index:
    """0 at most where `form` is that number at least."""
    return form.scaled(-1) + number


def _are_same_element(a: Scalar, b: Scalar) -> bool:
    places = [through_views(side) if isinstance(side.value.owner, ir.Block) else None for side in (a, b)]
    return places[0] is not None and places[0] == places[1]


_SIGNED = {
    arith.CmpIPredicate.ult: arith.CmpIPredicate.slt,
    arith.CmpIPredicate.ule: arith.CmpIPredicate.sle,
    arith.CmpIPredicate.ugt: arith.CmpIPredicate.sgt,
    arith.CmpIPredicate.uge: arith.CmpIPredicate.sge,
}
_LOGIC = ("arith.andi", "arith.ori", "arith.xori", "arith.select")


def opposite(a: Truth) -> Truth:
    return Truth(a.never, a.always)
