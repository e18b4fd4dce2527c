"""Which tiles of a loop something holds for, found by looking at each of them before all loops.

A condition on numbers that are loaded for each key, as which of several documents it belongs to, has no first tile from
which on it holds that could be computed. So a reduction over the tiles finds it, of what is known of each tile
(tile_extremes.py), for all iterations of the parallel loop at once. Of documents that stand one after the other, a tile
of queries finds its own between the first and the last tile of which it is not known that they are others::

    %first, %end = linalg.generic {…, iterators = [parallel, parallel, reduction]} … {   // batch, queries; keys
      %holds = %least_of_keys[%batch, %k] > %greatest_of_queries[%batch, %q]
      linalg.yield min(%first, select(%holds, 32, %k)), max(%end, select(%holds, 0, %k + 1))
    }
    scf.forall (%b, %q) … {
      %0 = tensor.extract %first[%b, %q / 64]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...dialects import build
from ...dialects.mlir import arith, ir, linalg, tensor
from ...dialects.tiling import Index
from .before_loops import BeforeLoops, Steps, counters_at, mark_small
from .forms_before import narrow, needed_steps, sizes_of, value_of, values_of, wide
from .positions import OfTile
from .tile_sets import Tiles, TileSets, as_index

FIRST, END, COUNT = "first", "end", "count"


@dataclass(frozen=True)
class _Scan:
    """What is asked of the tiles for which `form` ≤ 0 `holds`, or does not."""

    form: Index
    holds: bool
    own: tuple[Steps, ...]  # what the answer depends on


class TileScans:
    """Of the tiles of `sets`. What is found is computed when these are finished: what is used, all at once."""

    def __init__(self, sets: TileSets, before: BeforeLoops):
        self._sets = sets
        self._before = before
        self._wanted: dict[tuple[Steps, ...], list[tuple[_Scan, str, ir.Value]]] = {}
        self.found_rows = False  # whether `in_a_row` has found any tiles

    def at_the_ends(self, form: Index) -> Tiles:
        """The tiles before the first one for which `form` ≤ 0 does not hold, and those after the last one."""
        sets, scan = self._sets, self._scan(form, holds=False)
        if scan is None:
            return sets.none
        first, end = (sets.start_of(self._found(scan, what)) for what in (FIRST, END))
        return sets.interval(sets.low, first) + sets.interval(sets.maximum(first, end), sets.high)

    def in_a_row(self, form: Index) -> Tiles:
        """The tiles for which `form` ≤ 0, where they follow each other; else none."""
        sets, scan = self._sets, self._scan(form, holds=True)
        if scan is None:
            return sets.none
        self.found_rows = True
        first, end, count = (self._found(scan, what) for what in (FIRST, END, COUNT))
        with ir.InsertionPoint(sets.loop), sets.loop.location:
            is_row = sets.keep(arith.cmpi(arith.CmpIPredicate.eq, sets.keep(arith.subi(end, first)), count))
            end = sets.keep(arith.select(is_row, end, first))
        return sets.interval(sets.start_of(first), sets.start_of(end))

    def _scan(self, form: Index, holds: bool) -> _Scan | None:
        """None where it cannot be made before the loops."""
        own = needed_steps(self._before, self._sets, [form])
        return _Scan(form, holds, own) if own is not None else None

    def _found(self, scan: _Scan, what: str) -> ir.Value:
        """The number of the first tile, counted from 0, or of all tiles if there is none; where the last one ends, or
        0; how many there are. Before the loop of this iteration."""
        sets = self._sets
        if scan.own not in self._wanted:
            self._wanted[scan.own] = []
            sets.at_the_end(lambda: self._emit(scan.own))
        self._before.open(sets)
        with self._before.at("tables"):
            stand_in = build.empty(sizes_of(self._before, scan.own), narrow())
        self._wanted[scan.own].append((scan, what, stand_in))
        sets.hold(values_of(scan.form))
        with ir.InsertionPoint(sets.loop), sets.loop.location:
            places = [sets.keep(s.place(s.variable)) for s in scan.own]
            return sets.keep(as_index(sets.keep(tensor.extract(stand_in, places))))

    def _emit(self, own: tuple[Steps, ...]) -> None:
        """Puts what is used of these scans in the place of what stands for them."""
        wanted = self._wanted[own]
        used = [one for one in wanted if any(True for _ in one[2].uses)]
        with self._before.at("scans"):
            for (_, _, stand_in), result in zip(used, self._results(own, used) if used else [], strict=True):
                stand_in.replace_all_uses_with(result)
        for scan, _, stand_in in wanted:
            self._sets.release(values_of(scan.form))
            stand_in.owner.erase()

    def _results(self, own: tuple[Steps, ...], used: list[tuple[_Scan, str, ir.Value]]) -> list[ir.Value]:
        sets, n = self._sets, len(own)
        sizes = sizes_of(self._before, own)
        count = self._most_tiles([scan.form for scan, _, _ in used])
        zero, number = build.constant(narrow(), 0), arith.index_cast(narrow(), build.as_index(count))
        neutral = {FIRST: number, END: zero, COUNT: zero}
        starts = [build.fill(neutral[what], build.empty(sizes, narrow())) for _, what, _ in used]

        def combined(_tile: ir.Value, *known: ir.Value) -> list[ir.Value]:
            moved = counters_at([*own, Steps.of(sets)])
            tile, one = arith.index_cast(narrow(), linalg.IndexOp(n).result), build.constant(narrow(), 1)
            end = sets.high if isinstance(sets.high, int) else self._before.copied(sets.high, moved)
            is_tile = arith.cmpi(arith.CmpIPredicate.slt, moved[sets.variable], build.as_index(end))
            conditions: dict[tuple[Index, bool], ir.Value] = {}
            found = []
            for (scan, what, _), old in zip(used, known, strict=True):
                key = scan.form, scan.holds
                if key not in conditions:
                    predicate = arith.CmpIPredicate.sle if scan.holds else arith.CmpIPredicate.sgt
                    is_so = arith.cmpi(
                        predicate, value_of(scan.form, moved, self._before.copied), build.constant(wide(), 0)
                    )
                    conditions[key] = arith.andi(is_tile, is_so)
                combine = {FIRST: arith.minsi, END: arith.maxsi, COUNT: arith.addi}[what]
                own_number = {FIRST: tile, END: arith.addi(tile, one), COUNT: one}[what]
                found.append(combine(old, arith.select(conditions[key], own_number, neutral[what])))
            return found

        span = build.empty([count], ir.IntegerType.get_signless(1))
        maps = [build.projection(n + 1, [n]), *[build.projection(n + 1, range(n))] * len(used)]
        return mark_small(build.generic([span], starts, maps, [build.PARALLEL] * n + [build.REDUCTION], combined))

    def _most_tiles(self, forms: Sequence[Index]) -> ir.Value | int:
        """A number of tiles that no loop exceeds: as many as a table has, or several for each of its blocks."""
        atom = next(atom for form in forms for atom, _ in form.terms if isinstance(atom, OfTile))
        blocks, block = (
            build.mixed_size(atom.table, atom.along),
            next(t.step for t in atom.tiled if t.along == atom.along),
        )
        several = -(-block // self._sets.step)
        return blocks * several if isinstance(blocks, int) else arith.muli(blocks, build.index(several))
