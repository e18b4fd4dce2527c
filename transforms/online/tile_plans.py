"""What a loop over tiles becomes, of which masks make some dead and are of no effect in others.

Each kind of plan is a class, whose `of` says where there is one; of `KINDS` the first one counts that there is.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import Any

from ...dialects.mlir import arith, ir
from ..formulas import Formula
from ..index_formulas import formula
from ..rewriting import ancestors
from .finite_masks import is_clear
from .fold_conditions import DECIDED, DECIDED_BY_TEST, fold_conditions, mark, unmark
from .masked_tiles import JOINED, LateTiles, MaskedTiles, Part, parts_of
from .masks import Decided
from .tile_guards import Guard, put_guard
from .tile_lists import TileList


def plan_of(tiles: MaskedTiles) -> Plan:
    return next(plan for kind in KINDS if (plan := kind.of(tiles)) is not None)


@dataclass(frozen=True)
class Plan:
    """A loop for each of the `parts`: intervals of tiles that are all live, and of others that are not dead::

        %0:3 = scf.for %k = %c0 to %live step %c32 iter_args(…) { …; without the masks }
        %r:3 = scf.for %k = %live to %end step %c32 iter_args(%0#0, …) { …; with them }

    Of `known` masks it is computed where they are of no effect; of `tested` ones a `guard` finds it out.
    """

    tiles: MaskedTiles
    parts: list[Part]
    known: list[Decided]
    tested: list[Decided]
    guard: Guard | None

    @classmethod
    def of(cls, tiles: MaskedTiles) -> Plan | None:
        """None where there is no plan of this kind."""
        return cls(tiles, tiles.parts, tiles.known, tiles.tested, tiles.guard)

    @property
    def is_as_before(self) -> bool:
        return self.guard is None and self.parts == [(*self.tiles.sets.all[0], False)]

    @property
    def may_peel(self) -> bool:
        """Whether the last tile may have a loop of its own."""
        return len(self.parts) > 1 and self.guard is None and not self.tiles.reason

    @property
    def description(self) -> str:
        loops = f": {self.loops} loops in place of one" if self.loops > 1 else ""
        return f"{' and '.join(self._gains())}{loops}"

    @property
    def loops(self) -> int:
        """How many there are."""
        return len(self.parts)

    def _gains(self) -> list[str]:
        some = [self._skipped()] if self.tiles.dead else []
        some += ["computes live tiles without the mask"] if self.known and any(part[2] for part in self.parts) else []
        some += ["looks at each tile" + " of what is loaded as a mask" * self.guard.has_tests] if self.guard else []
        return some

    def _skipped(self) -> str:
        return "skips dead tiles"

    def details(self) -> dict[str, Any]:
        """For the picture of tiles: where the loops go."""
        known: dict[ir.Value, Formula] = {}
        schedule = [
            {
                "from": formula(low, known),
                "to": formula(high, known),
                "masked": not is_live or self.guard is not None,
            }
            for low, high, is_live in self.parts
        ]
        around = itertools.takewhile(lambda a: a != self.tiles.loop, ancestors(self.tiles.scores.consumer))
        depth = sum(a.name == "scf.for" for a in around)
        return {"step": self.tiles.sets.step, "loops_inside": depth, "parts": schedule}

    def emit(self) -> None:
        """Puts the loops in the place of the one that there is."""
        mark(self.known, DECIDED)
        mark(self.tested, DECIDED_BY_TEST)
        loop = self.tiles.loop
        for result, value in zip(loop.results, self._emit(loop), strict=True):
            result.replace_all_uses_with(value)
        self.tiles.sets.finish()
        loop.erase()

    def _emit(self, loop: ir.Operation) -> list[ir.Value]:
        """What the loop gives, computed before it."""
        return self._copies(loop, self.parts)

    def _copies(self, loop: ir.Operation, parts: list[Part]) -> list[ir.Value]:
        """What copies of the loop give, one for each part, before it."""
        current, value = list(loop.operands)[3:], self.tiles.sets.value
        for low, high, is_live in parts:
            current = _copy(loop, value(low), value(high), current, is_live, self.guard)
        return current


@dataclass(frozen=True)
class PlanWithLate(Plan):
    """After the others, tiles that finite numbers mask are computed where a row needs them (finite_masks.py)::

    %t:3 = scf.for … { … }                     // the tiles that are not wholly masked
    %r:3 = scf.for %k = %low to (%clear ? %low : %high) step %c32 iter_args(%t#0, …) { … }
    """

    late: LateTiles

    @classmethod
    def of(cls, tiles: MaskedTiles) -> Plan | None:
        if tiles.late is None:
            return None
        return cls(tiles, tiles.parts, tiles.known, tiles.tested, tiles.guard, tiles.late)

    @property
    def may_peel(self) -> bool:
        return False

    @property
    def loops(self) -> int:
        return len(self.parts) + len(self.late.tiles)

    def _skipped(self) -> str:
        return "skips masked tiles unless a row has no other keys"

    def _emit(self, loop: ir.Operation) -> list[ir.Value]:
        current, late, value = super()._emit(loop), self.late, self.tiles.sets.value
        with ir.InsertionPoint(loop), loop.location:
            clear = is_clear(current[late.maximum], late.bound, late.gap)
            bounds = [(value(low), arith.select(clear, value(low), value(high))) for low, high in late.tiles]
        for low, high in bounds:
            current = _copy(loop, low, high, current, False, None)
        return current


@dataclass(frozen=True)
class PlanOfList(Plan):
    """Loops over the entries of a list, which is made before all loops, of the tiles that are not dead (tile_lists.py),
    the live ones first::

        %0:3 = scf.for %entry = %c0 to %live step %c1 iter_args(…) { %k = %list[%q / 64, %entry] * 32; … }
        %r:3 = scf.for %entry = %live to %n step %c1 iter_args(%0#0, …) { … the mask … }
    """

    listed: TileList

    @classmethod
    def of(cls, tiles: MaskedTiles) -> Plan | None:
        each = tiles.each if tiles.options.lists else None
        listed = TileList.of(tiles.sets, each.dead, each.live) if each is not None else None
        if each is None or listed is None:
            return None
        return cls(tiles, tiles.parts, each.known, tiles.tested, tiles.guard, listed)

    @property
    def is_as_before(self) -> bool:
        return False

    @property
    def may_peel(self) -> bool:
        return False

    @property
    def loops(self) -> int:
        return len(self.listed.kinds)

    def _gains(self) -> list[str]:
        return ["lists the tiles that are not dead"]

    def _emit(self, loop: ir.Operation) -> list[ir.Value]:
        over_entries, parts = self.listed.over_entries(loop)
        current = self._copies(over_entries, parts)
        over_entries.erase()
        return current


@dataclass(frozen=True)
class PlanOfGuards(Plan):
    """Each tile is looked at when its loop comes to it (tile_guards.py), from the first one that may be live on to the
    last::

        %r:3 = scf.for %k = %low to %high step %c32 iter_args(%o = …) {
          scf.if %dead { scf.yield %o } else { scf.if %live { … } else { … the mask … } }
    """

    @classmethod
    def of(cls, tiles: MaskedTiles) -> Plan | None:
        each = tiles.each if tiles.options.tests else None
        if each is None:
            return None
        guard = replace(tiles.guard or Guard(tiles.sets.variable), dead_where=each.dead, live_where=each.live)
        parts = [(*interval, True) for interval in tiles.alive]
        return cls(tiles, parts, [], [*tiles.tested, *each.known], guard)


@dataclass(frozen=True)
class PlanOfMasks(Plan):
    """All tiles that are not dead keep the masks, where loops without them would stay apart on a GPU: in many parts,
    from and to tiles that are found by data."""

    @classmethod
    def of(cls, tiles: MaskedTiles) -> Plan | None:
        scans = tiles.masks.forms.scans
        by_data = scans is not None and scans.found_rows
        if tiles.options.tests or not (by_data and len(tiles.parts) > JOINED):
            return None
        return cls(tiles, parts_of(tiles.sets, tiles.alive, []), [], tiles.tested, tiles.guard)


KINDS = (PlanWithLate, PlanOfList, PlanOfGuards, PlanOfMasks, Plan)


def _copy(
    loop: ir.Operation, low: ir.Value, high: ir.Value, inits: list[ir.Value], is_live: bool, guard: Guard | None
) -> list[ir.Value]:
    """The results of a copy of `loop` before it, from `low` to `high`, without the masks where all is live."""
    with ir.InsertionPoint(loop):
        clone = loop.clone().operation
    for i, value in enumerate([low, high]):
        clone.operands[i] = value
    for i, value in enumerate(inits):
        clone.operands[3 + i] = value
    if is_live:
        fold_conditions(clone, DECIDED)
    if guard is not None:
        put_guard(clone, guard, with_live=is_live)
    unmark(clone)
    return list(clone.results)
