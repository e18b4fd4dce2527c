"""Of which tiles something holds, asked of each tile by itself.

Where intervals (tile_sets.py) must leave tiles out, as of a mask with holes, formulas of linear forms ≤ 0 do not. They
cannot be the bounds of loops: they are evaluated for each tile when a loop is there (tile_guards.py), or for all tiles
before the loops (tile_lists.py).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias

from ...dialects import build
from ...dialects.mlir import arith, ir
from ...dialects.tiling import Index
from .forms_before import Copied, Moved, value_of, wide
from .positions import OfTile, Quotient
from .tile_sets import SetsOfTiles, TileSets


@dataclass(frozen=True)
class NotPositive:
    """The tiles for which `form` ≤ 0."""

    form: Index


@dataclass(frozen=True)
class AnyOf:
    """The tiles of which one of the parts holds: none, if there are no parts."""

    parts: tuple[Predicate, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.parts)


@dataclass(frozen=True)
class AllOf:
    """The tiles of which all parts hold: all, if there are no parts."""

    parts: tuple[Predicate, ...] = ()


Predicate: TypeAlias = NotPositive | AnyOf | AllOf
NONE, ALL = AnyOf(), AllOf()


class TilePredicates(SetsOfTiles):
    """Sets of the tiles of the loop of `sets`, as predicates."""

    def __init__(self, sets: TileSets):
        self._sets = sets
        self.counter = sets.variable
        self.none: Any = NONE

    @property
    def all(self) -> Any:
        return ALL

    def visible(self, value: ir.Value) -> bool:
        return self._sets.visible(value)

    def where_not_positive(self, form: Index) -> Any:
        if form.static is not None:
            return self.all if form.static <= 0 else self.none
        return NotPositive(form) if all(self._is_known(atom) for atom, _ in form.terms) else self.none

    def _is_known(self, atom: Any) -> bool:
        if isinstance(atom, Quotient):
            return all(self._is_known(inner) for inner, _ in atom.form.terms)
        is_number = isinstance(atom, ir.Value) and (atom == self.counter or self._sets.visible(atom))
        return is_number or isinstance(atom, OfTile)

    def quotient(self, form: Index, divisor: int) -> Index | None:
        if form.static is not None:
            return Index(form.static // divisor)
        return Index(0, ((Quotient(form, divisor), 1),))

    def union(self, a: Any, b: Any) -> Any:
        return self._joined(AnyOf, self.none, self.all, a, b)

    def intersection(self, a: Any, b: Any) -> Any:
        return self._joined(AllOf, self.all, self.none, a, b)

    @staticmethod
    def _joined(how: type[AnyOf | AllOf], neutral: Any, absorbing: Any, a: Any, b: Any) -> Any:
        if absorbing in (a, b):
            return absorbing
        parts: dict[Predicate, None] = {}
        for side in (a, b):
            if side != neutral:
                parts |= dict.fromkeys(side.parts if isinstance(side, how) else [side])
        return how(tuple(parts)) if len(parts) > 1 else next(iter(parts), neutral)


def forms_in(predicates: Iterable[Predicate]) -> list[Index]:
    found: list[Index] = []
    for one in predicates:
        found += [one.form] if isinstance(one, NotPositive) else forms_in(one.parts)
    return list(dict.fromkeys(found))


def opposite(predicate: Predicate) -> Predicate:
    """Where it does not hold; of integers f, f ≤ 0 is the opposite of 1 − f ≤ 0."""
    if isinstance(predicate, NotPositive):
        return NotPositive(predicate.form.scaled(-1) + 1)
    return (AnyOf if isinstance(predicate, AllOf) else AllOf)(tuple(map(opposite, predicate.parts)))


def holds(predicate: Predicate, moved: Moved, copied: Copied, known: dict[Predicate, ir.Value]) -> ir.Value:
    """Whether it holds of a tile, at the insertion point; as `value_of`. `known`: what was asked of the tile there."""
    if predicate not in known:
        if isinstance(predicate, NotPositive):
            value, zero = value_of(predicate.form, moved, copied), build.constant(wide(), 0)
            known[predicate] = arith.cmpi(arith.CmpIPredicate.sle, value, zero)
        else:
            every = isinstance(predicate, AllOf)
            found = build.constant(ir.IntegerType.get_signless(1), int(every))
            for part in predicate.parts:
                value = holds(part, moved, copied, known)
                found = (arith.andi if every else arith.ori)(found, value)
            known[predicate] = found
    return known[predicate]
