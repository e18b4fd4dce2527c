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
from dataclasses import dataclass, replace

from ...dialects import build
from ...dialects.mlir import arith, ir, linalg, tensor
from ...dialects.tiling import Index
from .before_loops import BeforeLoops, Steps, Unknown, mark_small
from .far_numbers import widened
from .positions import OfTile
from .tile_sets import Tiles, TileSets, as_index

FIRST, END, COUNT = "first", "end", "count"


def has_looked_up(form: Index) -> bool:
    """Whether a form is of numbers that are looked up for each tile."""
    return any(isinstance(atom, OfTile) for atom, _ in form.terms)


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
        before, sets = self._before, self._sets
        counted = before.counted
        if counted is None or not sets.supported:
            return None
        try:
            needed = before.needed(_values(form))
            needed |= before.needed([] if isinstance(sets.high, int) else [sets.high])
            own = tuple(s for s in counted if s.variable in needed)
            is_known = all(isinstance(s.high, int) or not before.needed([s.high]) for s in own)
        except Unknown:
            return None
        variables = [sets.variable, *(s.variable for s in own)]
        return _Scan(form, holds, own) if is_known and all(v in variables for v in needed) else None

    def _found(self, scan: _Scan, what: str) -> ir.Value:
        """The number of the first tile, counted from 0, or of all tiles if there is none; where the last one ends, or
        0; how many there are. Before the loop of this iteration."""
        sets = self._sets
        if scan.own not in self._wanted:
            self._wanted[scan.own] = []
            sets.at_the_end(lambda: self._emit(scan.own))
        with self._before.at("tables"):
            stand_in = build.empty(self._sizes(scan.own), _number())
        self._wanted[scan.own].append((scan, what, stand_in))
        sets.hold(_values(scan.form))
        with ir.InsertionPoint(sets.loop), sets.loop.location:
            places = [sets.keep(s.place(s.variable)) for s in scan.own]
            return sets.keep(as_index(sets.keep(tensor.extract(stand_in, places))))

    def _sizes(self, own: tuple[Steps, ...]) -> list[ir.Value | int]:
        """How many iterations there are, emitted at the insertion point."""
        highs = [s.high if isinstance(s.high, int) else self._before.copied(s.high, {}) for s in own]
        return [replace(s, high=high).size() for s, high in zip(own, highs, strict=True)]

    def _emit(self, own: tuple[Steps, ...]) -> None:
        """Puts what is used of these scans in the place of what stands for them."""
        wanted = self._wanted[own]
        used = [one for one in wanted if any(True for _ in one[2].uses)]
        with self._before.at("scans"):
            for (_, _, stand_in), result in zip(used, self._results(own, used) if used else [], strict=True):
                stand_in.replace_all_uses_with(result)
        for scan, _, stand_in in wanted:
            self._sets.release(_values(scan.form))
            stand_in.owner.erase()

    def _results(self, own: tuple[Steps, ...], used: list[tuple[_Scan, str, ir.Value]]) -> list[ir.Value]:
        sets, n = self._sets, len(own)
        tiles, sizes = Steps(sets.variable, sets.low, sets.high, sets.step), self._sizes(own)
        count = _most_tiles([scan.form for scan, _, _ in used])
        zero, number = build.constant(_number(), 0), arith.index_cast(_number(), build.as_index(count))
        neutral = {FIRST: number, END: zero, COUNT: zero}
        starts = [build.fill(neutral[what], build.empty(sizes, _number())) for _, what, _ in used]

        def combined(_tile: ir.Value, *known: ir.Value) -> list[ir.Value]:
            moved = {s.variable: s.at(linalg.IndexOp(d).result) for d, s in enumerate(own)}
            moved[sets.variable] = tiles.at(linalg.IndexOp(n).result)
            tile, one = arith.index_cast(_number(), linalg.IndexOp(n).result), build.constant(_number(), 1)
            end = sets.high if isinstance(sets.high, int) else self._before.copied(sets.high, moved)
            is_tile = arith.cmpi(arith.CmpIPredicate.slt, moved[sets.variable], build.as_index(end))
            conditions: dict[tuple[Index, bool], ir.Value] = {}
            found = []
            for (scan, what, _), old in zip(used, known, strict=True):
                key = scan.form, scan.holds
                if key not in conditions:
                    predicate = arith.CmpIPredicate.sle if scan.holds else arith.CmpIPredicate.sgt
                    is_so = arith.cmpi(predicate, self._sum(scan.form, moved), build.constant(_wide(), 0))
                    conditions[key] = arith.andi(is_tile, is_so)
                combine = {FIRST: arith.minsi, END: arith.maxsi, COUNT: arith.addi}[what]
                own_number = {FIRST: tile, END: arith.addi(tile, one), COUNT: one}[what]
                found.append(combine(old, arith.select(conditions[key], own_number, neutral[what])))
            return found

        span = build.empty([count], ir.IntegerType.get_signless(1))
        maps = [build.projection(n + 1, [n]), *[build.projection(n + 1, range(n))] * len(used)]
        return mark_small(build.generic([span], starts, maps, [build.PARALLEL] * n + [build.REDUCTION], combined))

    def _sum(self, form: Index, moved: dict[ir.Value, ir.Value]) -> ir.Value:
        """A form of numbers that may be far from 0."""
        found = build.constant(_wide(), form.const)
        for atom, c in form.terms:
            value = self._looked_up(atom, moved) if isinstance(atom, OfTile) else self._before.copied(atom, moved)
            found = arith.addi(found, arith.muli(widened(value, _wide()), build.constant(_wide(), c)))
        return found

    def _value(self, form: Index, moved: dict[ir.Value, ir.Value]) -> ir.Value:
        found = build.index(form.const)
        for atom, c in form.terms:
            value = self._before.copied(atom, moved)
            found = arith.addi(found, arith.muli(as_index(value), build.index(c)))
        return found

    def _looked_up(self, atom: OfTile, moved: dict[ir.Value, ir.Value]) -> ir.Value:
        position = [self._value(form, moved) for form in atom.position]
        for tiled in atom.tiled:
            tile = arith.divui(arith.subi(position[tiled.along], build.index(tiled.start)), build.index(tiled.step))
            last = arith.subi(build.as_index(build.mixed_size(atom.table, tiled.along)), build.index(1))
            position[tiled.along] = arith.minui(tile, last)  # behind the loop: any
        return tensor.extract(atom.table, position)


def _most_tiles(forms: Sequence[Index]) -> ir.Value | int:
    """A number of tiles that no loop exceeds: that of a table, which has one for each."""
    atom = next(atom for form in forms for atom, _ in form.terms if isinstance(atom, OfTile))
    return build.mixed_size(atom.table, atom.along)


def _wide() -> ir.Type:
    return ir.IntegerType.get_signless(64)


def _number() -> ir.Type:
    """What memory has in place of an index."""
    return ir.IntegerType.get_signless(32)


def _values(form: Index) -> list[ir.Value]:
    found = []
    for atom, _ in form.terms:
        found += [v for f in atom.position for v in _values(f)] if isinstance(atom, OfTile) else [atom]
    return found
