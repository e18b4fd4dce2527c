"""The tiles of a loop that are to be computed, listed before all loops.

Tiles that a mask leaves out between others, as of documents whose tokens are not side by side, a loop from a first tile
to a last one would compute. A list has the numbers of those that are live, then of those that need the mask::

    %states = linalg.generic {…, iterators = [parallel, parallel]} … { select(… ≤ 0, 0, …) }   // queries, tiles
    %counts = linalg.generic {…, iterators = [parallel, parallel, reduction]} ins(%states) … {
      linalg.yield %known + (%other <= %tile and %state == 2)    // how many tiles up to this one need the mask
    }
    %list = linalg.generic {…, iterators = [parallel, parallel, reduction]} ins(%counts) … {
      linalg.yield %known + (%count <= %entry)                   // the first tile with a larger count
    }
    scf.forall (%q) … {
      %n = tensor.extract %counts[%q / 64, 31]
      scf.for %entry = 0 to %n {
        %k = (tensor.extract %list[%q / 64, %entry]) * 64
        …
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ...dialects import build
from ...dialects.mlir import arith, ir, linalg, tensor
from ..rewriting import ops_of
from .before_loops import BeforeLoops, Steps, counters_at, mark_small
from .forms_before import narrow, needed_steps, sizes_of, values_of
from .tile_predicates import ALL, NONE, Predicate, forms_in, holds
from .tile_sets import TileSets, as_index

FEWEST_TILES = 16  # below, what makes a list takes longer than what it leaves out
MOST_TILES = 1024  # what makes a list takes as many steps as tiles by tiles
DEAD, LIVE, MASKED = 0, 1, 2  # what a tile is


@dataclass
class TileList:
    """Of the tiles of `sets` those that are not `dead`: first those that are `live`, if there may be any, then others,
    unless all are live.

    What is read of it is computed when the sets are finished.
    """

    sets: TileSets
    dead: Predicate
    live: Predicate | None
    own: tuple[Steps, ...]  # what it depends on
    count: int  # of all tiles

    @staticmethod
    def of(sets: TileSets, dead: Predicate, live: Predicate | None) -> TileList | None:
        """None where it cannot be made before the loops, or is not worth it."""
        low, high, before = sets.low, sets.high, BeforeLoops(sets.loop)
        if low != 0 or not isinstance(high, int) or not sets.supported or high % sets.step or before.forall is None:
            return None
        count = high // sets.step
        own = needed_steps(before, sets, forms_in([dead, live or NONE]))
        is_worth_it = own is not None and FEWEST_TILES <= count <= MOST_TILES
        return TileList(sets, dead, live, own, count) if is_worth_it else None

    @property
    def kinds(self) -> list[int]:
        """What the tiles of the loops are, in their order."""
        return [LIVE] * (self.live is not None) + [MASKED] * (self.live != ALL)

    def over_entries(self, loop: ir.Operation) -> tuple[ir.Operation, list[tuple[ir.Value, ir.Value, bool]]]:
        """The `loop` as one over entries, before it, of which copies are to be made; and of which entries: from, to,
        and whether their tiles are live."""
        before, sets = BeforeLoops(loop), self.sets
        before.open(sets)
        with before.at("tables"):
            sizes = [*sizes_of(before, self.own), self.count]
            stand_ins = [build.empty(sizes, narrow()) for _ in range(len(self.kinds) + 1)]
        *counts, entries = stand_ins
        sets.hold(self._values)
        sets.at_the_end(lambda: self._emit(before, stand_ins))
        with ir.InsertionPoint(loop), loop.location:
            places = [s.place(s.variable) for s in self.own]
            ends = [as_index(tensor.extract(one, [*places, build.index(self.count - 1)])) for one in counts]
            ends = [ends[0], *(arith.addi(ends[0], one) for one in ends[1:])]
            zero, one = build.index(0), build.index(1)
            clone = loop.clone().operation
        for number, value in enumerate((zero, ends[-1], one)):
            clone.operands[number] = value
        entry = clone.regions[0].blocks[0].arguments[0]
        users = [(use.owner, use.operand_number) for use in entry.uses]
        first = ops_of(clone.regions[0].blocks[0])[0]
        with ir.InsertionPoint(first), first.location:
            tile = as_index(tensor.extract(entries, [*places, entry]))
            at = arith.muli(tile, build.index(sets.step))
        for user, number in users:
            user.operands[number] = at
        return clone, [
            (low, high, kind == LIVE) for low, high, kind in zip([zero, *ends], ends, self.kinds, strict=False)
        ]

    @property
    def _values(self) -> list[ir.Value]:
        return [v for form in forms_in([self.dead, self.live or NONE]) for v in values_of(form)]

    def _emit(self, before: BeforeLoops, stand_ins: Sequence[ir.Value]) -> None:
        with before.at("scans"):
            counts = self._counts(self._states(before), before)
            found = [*counts, self._entries(counts, before)]
        for stand_in, value in zip(stand_ins, found, strict=True):
            stand_in.replace_all_uses_with(value)
            stand_in.owner.erase()
        self.sets.release(self._values)

    def _table(self, before: BeforeLoops) -> ir.Value:
        """Of a number for each iteration and tile."""
        return build.empty([*sizes_of(before, self.own), self.count], narrow())

    def _states(self, before: BeforeLoops) -> ir.Value:
        """What each tile is."""
        n = len(self.own)

        def state(_old: ir.Value) -> list[ir.Value]:
            moved = counters_at([*self.own, Steps.of(self.sets)])
            known: dict[Predicate, ir.Value] = {}
            is_dead, is_live = (holds(one or NONE, moved, before.copied, known) for one in (self.dead, self.live))
            dead, live, masked = (build.constant(narrow(), number) for number in (DEAD, LIVE, MASKED))
            return [arith.select(is_dead, dead, arith.select(is_live, live, masked))]

        identity = build.projection(n + 1, range(n + 1))
        (states,) = mark_small(build.generic([], [self._table(before)], [identity], [build.PARALLEL] * (n + 1), state))
        return states

    def _sums(self, tables: Sequence[ir.Value], results: int, addends: Callable, before: BeforeLoops) -> list[ir.Value]:
        """For each iteration and number up to that of all tiles, sums over tiles; `addends` emits what is added, bits,
        of the iteration's place, the number, the number of the tile, and what tables have of it."""
        n = len(self.own)
        zero = build.constant(narrow(), 0)
        starts = [build.fill(zero, self._table(before)) for _ in range(results)]

        def combined(*scalars: ir.Value) -> list[ir.Value]:
            numbers = [linalg.IndexOp(d).result for d in range(n + 2)]
            number, tile = (arith.index_cast(narrow(), one) for one in numbers[n:])
            found = addends(numbers[:n], number, tile, *scalars[: len(tables)])
            pairs = zip(scalars[len(tables) :], found, strict=True)
            return [arith.addi(known, arith.extui(narrow(), bit)) for known, bit in pairs]

        maps = [build.projection(n + 2, [*range(n), n + 1])] * len(tables)
        maps += [build.projection(n + 2, range(n + 1))] * results
        iterators = [build.PARALLEL] * (n + 1) + [build.REDUCTION]
        return mark_small(build.generic(tables, starts, maps, iterators, combined))

    def _counts(self, states: ir.Value, before: BeforeLoops) -> list[ir.Value]:
        """Of each kind, how many of the tiles up to one, itself too, are of it."""

        def addends(_place: list[ir.Value], number: ir.Value, tile: ir.Value, state: ir.Value) -> list[ir.Value]:
            counts = arith.cmpi(arith.CmpIPredicate.sle, tile, number)
            return [
                arith.andi(counts, arith.cmpi(arith.CmpIPredicate.eq, state, build.constant(narrow(), kind)))
                for kind in self.kinds
            ]

        return self._sums([states], len(self.kinds), addends, before)

    def _entries(self, counts: Sequence[ir.Value], before: BeforeLoops) -> ir.Value:
        """The number of the tile of each entry: how many tiles are before it."""

        def addends(place: list[ir.Value], entry: ir.Value, _tile: ir.Value, *counted: ir.Value) -> list[ir.Value]:
            is_before = arith.cmpi(arith.CmpIPredicate.sle, counted[0], entry)
            if len(counts) > 1:
                live = tensor.extract(counts[0], [*place, build.index(self.count - 1)])
                is_live = arith.cmpi(arith.CmpIPredicate.slt, entry, live)
                others = arith.cmpi(arith.CmpIPredicate.sle, counted[1], arith.subi(entry, live))
                is_before = arith.select(is_live, is_before, others)
            return [is_before]

        return self._sums(counts, 1, addends, before)[0]
