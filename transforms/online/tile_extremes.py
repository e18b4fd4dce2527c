"""The largest and the least of the numbers of each tile of a tensor: found once, before the parallel loop.

Of numbers of keys %n, and tiles of 64 of them::

    %extremes:2 = linalg.generic {…, iterators = [parallel, parallel, reduction]}
        ins(%steps : tensor<64xi1>) outs(%least, %greatest : tensor<4x32xi32>) {   // 4 batch entries, 32 tiles
      %at = min(%tile * 64 + %step, 2047)                  // behind the end the last one is taken once more
      %number = tensor.extract %n[%batch, %at]
      linalg.yield max(%number, %known0), min(%number, %known1)

Of a mask in memory that several heads share, likewise: whether a test of an element holds anywhere in a tile, or
everywhere. That is first found of each row, whose elements are side by side.

Numbers that are far from 0 count as if they were further (far_numbers.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from ...dialects import build
from ...dialects.mlir import arith, ir, linalg, tensor
from ...dialects.tiling import Index
from ..linear import DYNAMIC, least_divisor, minima
from ..reshapes import reshape
from .before_loops import BeforeLoops, Steps, mark_small
from .far_numbers import extreme, first, widened, width_of
from .loaded_masks import Test
from .positions import Loaded, OfTile, Tiled
from .tile_sets import TileSets, extremum

FEWEST_TILES = 16  # of a mask that is looked at (on an H200 that takes 3 µs and more)


@dataclass(frozen=True)
class _Numbers:
    """In tiles; with a `test` those that are 1 where it holds for an element of a mask, else 0, which have rows of
    `tiled[-1]`, each wholly there."""

    tensor: ir.Value
    tiled: tuple[Tiled, ...]
    test: Test | None = None


class TileExtremes:
    """Of the tiles that the loops around come to, which those of `sets` are some of.

    What is returned stands for tables that are computed when the sets are finished: those that are used, at once.
    """

    def __init__(self, sets: TileSets, before: BeforeLoops):
        self._sets = sets
        self._before = before
        self._tables: dict[_Numbers, dict[int, ir.Value]] = {}

    def can_look_up(self, loaded: Loaded, step: int) -> bool:
        """Whether the numbers are one of the tiles that a table can have."""
        return self._vector(loaded, step) is not None

    def has(self, tensor: ir.Value) -> bool:
        """Whether a tensor is there before all loops."""
        return self._before.has(tensor)

    def begins_tile(self, at: Index, step: int) -> bool:
        """Whether surely a multiple of `step`."""
        tiled = self._tiled(at, 0, step)
        return tiled is not None and tiled.start == 0

    def of(self, loaded: Loaded, step: int, sign: int) -> OfTile:
        """Of the numbers the largest (sign 1), or the least."""
        numbers = self._vector(loaded, step)
        return OfTile(self._table(numbers, sign), loaded.position, numbers.tiled, loaded.along)

    def fails(self, test: Test) -> Index | None:
        """1 where a test fails for some element of a tile of a mask, else 0; None if there can be no table of it, or it
        takes too long: of as many elements as the loops compute, for few tiles, or of numbers that are added, which
        seldom are masks."""
        mask, extents = test.mask, dict(test.mask.extents)
        rows = [self._tiled(mask.position[d], d, smallest(extents[d])) for d in extents if d != mask.along]
        keys = self._tiled(mask.position[mask.along], mask.along, smallest(extents[mask.along]))
        count = mask.tensor.type.shape[mask.along]
        if keys is None or None in rows or keys.start or count == DYNAMIC or count % keys.step:
            return None
        if count < FEWEST_TILES * keys.step or isinstance(mask.tensor.type.element_type, ir.FloatType):
            return None
        is_there = self._before.has(mask.tensor) and self._before.is_shared(mask.needs)
        if not is_there or not mask.has_rows or mask.along != mask.tensor.type.rank - 1:
            return None
        canonical = replace(test, negated=False)
        numbers = _Numbers(mask.tensor, (*rows, keys), canonical)
        of_tile = OfTile(self._table(numbers, 1 if test.negated else -1), mask.position, numbers.tiled, mask.along)
        return Index(0, ((of_tile, 1),)) if test.negated else Index(1, ((of_tile, -1),))

    def _table(self, numbers: _Numbers, sign: int) -> ir.Value:
        self._before.open(self._sets)
        if numbers not in self._tables:
            self._tables[numbers] = self._stand_ins(numbers)
            self._sets.at_the_end(lambda: self._emit(numbers), behind=1)  # scans, which look them up
        return self._tables[numbers][sign]

    def _vector(self, loaded: Loaded, step: int) -> _Numbers | None:
        tiled = self._tiled(loaded.position[loaded.along], loaded.along, step)
        return _Numbers(loaded.tensor, (tiled,)) if tiled is not None and self._before.has(loaded.tensor) else None

    def _tiled(self, at: Index, along: int, step: int | None) -> Tiled | None:
        """Those tiles one of which begins `at` that element."""
        counted = [Steps.of(self._sets), *(self._before.counted or [])]
        steps = {s.variable: s.step for s in counted if s.low == 0}
        if not step or any(c * least_divisor(v, steps) % step for v, c in at.terms):
            return None
        return Tiled(along, at.const % step, step)

    def _stand_ins(self, numbers: _Numbers) -> dict[int, ir.Value]:
        given = numbers.tensor.type.element_type
        is_long = numbers.test is None and (isinstance(given, ir.IndexType) or given.width > 32)
        element = ir.IntegerType.get_signless(64 if is_long else 32)  # of one kind: all threads of a GPU know it
        with self._before.at("tables"):
            sizes = build.mixed_sizes(numbers.tensor)
            for tiled in numbers.tiled:
                sizes[tiled.along] = _count(sizes[tiled.along], tiled)
            return {sign: build.empty(sizes, element) for sign in (1, -1)}

    def _emit(self, numbers: _Numbers) -> None:
        """Puts what is used of the tables in the place of what stands for them."""
        uses = {sign: list(table.uses) for sign, table in self._tables[numbers].items()}
        signs = [sign for sign, of_table in uses.items() if of_table]
        with self._before.at("tables"):
            results = self._results(numbers, signs) if signs else []
        for sign, result in zip(signs, results, strict=True):
            for use in uses[sign]:
                use.owner.operands[use.operand_number] = result

    def _results(self, numbers: _Numbers, signs: list[int]) -> list[ir.Value]:
        tables = self._tables[numbers]
        element = tables[1].type.element_type
        sources, width = [numbers.tensor] * len(signs), width_of(numbers.tensor.type.element_type)
        tiles: Sequence[Tiled] = numbers.tiled
        if numbers.test is not None:  # 0 or 1
            *tiles, keys = numbers.tiled
            sources, width = _rows_of_test(numbers.tensor, keys, numbers.test, element, signs), 1
        rank = sources[0].type.rank
        ends = [build.as_index(build.mixed_size(sources[0], tiled.along)) for tiled in tiles]
        last = [arith.subi(end, build.index(1)) for end in ends]
        spans = [build.empty([tiled.step], ir.IntegerType.get_signless(1)) for tiled in tiles]
        starts = [build.fill(first(element, sign), tables[sign]) for sign in signs]

        def combined(*scalars: ir.Value) -> list[ir.Value]:
            position = [linalg.IndexOp(d).result for d in range(rank)]
            for number, tiled in enumerate(tiles):
                tile = arith.muli(position[tiled.along], build.index(tiled.step))
                at = arith.addi(arith.addi(tile, linalg.IndexOp(rank + number).result), build.index(tiled.start))
                position[tiled.along] = arith.minsi(at, last[number])
            loaded = {source: widened(tensor.extract(source, position), element) for source in sources}
            return [
                extremum(element, s)(old, extreme(loaded[source], s, width))
                for s, source, old in zip(signs, sources, scalars[len(spans) :], strict=True)
            ]

        loops = rank + len(spans)
        maps = [build.projection(loops, [rank + number]) for number in range(len(spans))]
        maps += [build.projection(loops, range(rank))] * len(signs)
        iterators = [build.PARALLEL] * rank + [build.REDUCTION] * len(spans)
        return mark_small(build.generic(spans, starts, maps, iterators, combined))


def _rows_of_test(mask: ir.Value, keys: Tiled, test: Test, element: ir.Type, signs: Sequence[int]) -> list[ir.Value]:
    """Whether a test holds for any element of a row of a tile (sign 1), or for all (−1), as 0 or 1: [batch, queries,
    tiles of keys], say."""
    *sizes, count = build.mixed_sizes(mask)
    tiles = reshape(mask, [*([size] for size in sizes), [count // keys.step, keys.step]], expand=True)
    n = len(sizes) + 1
    starts = [build.fill(first(element, s), build.empty([*sizes, count // keys.step], element)) for s in signs]
    maps = [build.projection(n + 1, range(n + 1)), *[build.projection(n + 1, range(n))] * len(signs)]

    def combined(x: ir.Value, *known: ir.Value) -> list[ir.Value]:
        holds = widened(test.of_element(x), element)
        return [extremum(element, s)(old, holds) for s, old in zip(signs, known, strict=True)]

    return build.generic([tiles], starts, maps, [build.PARALLEL] * n + [build.REDUCTION], combined)


def smallest(sizes: Iterable[Index]) -> int | None:
    """A number that the size of a tile is, but for a shorter last one: of forms that it never exceeds."""
    forms = [f for s in sizes for f in (minima(s.terms[0][0]) if s.is_value else [s])]
    return next((f.static for f in forms if f.static is not None), None)


def _count(size: ir.Value | int, tiled: Tiled) -> ir.Value | int:
    """How many tiles a dimension of that size has."""
    if isinstance(size, int):
        return max(0, -(-(size - tiled.start) // tiled.step))
    count = ir.AffineExpr.get_ceil_div(ir.AffineExpr.get_dim(0) - tiled.start, tiled.step)
    map_ = ir.AffineMapAttr.get(ir.AffineMap.get(1, 0, [count, ir.AffineExpr.get_constant(0)]))
    return ir.Operation.create("affine.max", [ir.IndexType.get()], [size], {"map": map_}).result
