"""The largest and the least of the numbers of each tile of a tensor: found once, before the parallel loop.

Of numbers of keys %n, and tiles of 64 of them::

    %extremes:2 = linalg.generic {…, iterators = [parallel, parallel, reduction]}
        ins(%steps : tensor<64xi1>) outs(%least, %greatest : tensor<4x32xi32>) {   // 4 batch entries, 32 tiles
      %at = min(%tile * 64 + %step, 2047)                  // behind the end the last one is taken once more
      %number = tensor.extract %n[%batch, %at]
      linalg.yield max(%number, %known0), min(%number, %known1)

Numbers that are far from 0 count as if they were further (far_numbers.py).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ...dialects import build
from ...dialects.mlir import arith, ir, linalg, tensor
from ...dialects.tiling import Index
from ..linear import minima
from .before_loops import BeforeLoops, mark_small
from .far_numbers import extreme, first, widened, width_of
from .positions import Loaded, OfTile, Tiled
from .tile_sets import TileSets, extremum


@dataclass(frozen=True)
class _Numbers:
    tensor: ir.Value
    tiled: Tiled


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
        tiled = self._before.tiled(self._sets, at, 0, step)
        return tiled is not None and tiled.start == 0

    def of(self, loaded: Loaded, step: int, sign: int) -> OfTile:
        """Of the numbers the largest (sign 1), or the least."""
        numbers = self._vector(loaded, step)
        return OfTile(self._table(numbers, sign), loaded.position, (numbers.tiled,), loaded.along)

    def _table(self, numbers: _Numbers, sign: int) -> ir.Value:
        self._before.open(self._sets)
        if numbers not in self._tables:
            self._tables[numbers] = self._stand_ins(numbers)
            self._sets.at_the_end(lambda: self._emit(numbers), behind=1)  # scans, which look them up
        return self._tables[numbers][sign]

    def _vector(self, loaded: Loaded, step: int) -> _Numbers | None:
        tiled = self._before.tiled(self._sets, loaded.position[loaded.along], loaded.along, step)
        return _Numbers(loaded.tensor, tiled) if tiled is not None and self._before.has(loaded.tensor) else None

    def _stand_ins(self, numbers: _Numbers) -> dict[int, ir.Value]:
        given = numbers.tensor.type.element_type
        is_long = isinstance(given, ir.IndexType) or given.width > 32
        element = ir.IntegerType.get_signless(64 if is_long else 32)  # of one kind: all threads of a GPU know it
        with self._before.at("tables"):
            sizes = build.mixed_sizes(numbers.tensor)
            along = numbers.tiled.along
            sizes[along] = tiles_in(sizes[along], numbers.tiled)
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
        tables, tensor_, tiled = self._tables[numbers], numbers.tensor, numbers.tiled
        element, width, rank = tables[1].type.element_type, width_of(tensor_.type.element_type), tensor_.type.rank
        end = last_of(tensor_, tiled)
        span = build.empty([tiled.step], ir.IntegerType.get_signless(1))
        starts = [build.fill(first(element, sign), tables[sign]) for sign in signs]

        def combined(_span: ir.Value, *known: ir.Value) -> list[ir.Value]:
            position = [linalg.IndexOp(d).result for d in range(rank)]
            position[tiled.along] = element_of(tiled, position[tiled.along], linalg.IndexOp(rank).result, end)
            number = widened(tensor.extract(tensor_, position), element)
            return [extremum(element, s)(old, extreme(number, s, width)) for s, old in zip(signs, known, strict=True)]

        maps = [build.projection(rank + 1, [rank]), *[build.projection(rank + 1, range(rank))] * len(signs)]
        return mark_small(build.generic([span], starts, maps, [build.PARALLEL] * rank + [build.REDUCTION], combined))


def last_of(numbers: ir.Value, tiled: Tiled) -> ir.Value:
    """The index of the last one along what is tiled, emitted here."""
    return arith.subi(build.as_index(build.mixed_size(numbers, tiled.along)), build.index(1))


def element_of(tiled: Tiled, tile: ir.Value, step: ir.Value, last: ir.Value) -> ir.Value:
    """Where an element of a tile is, emitted here; behind the `last` one there is that one once more."""
    begin = arith.muli(tile, build.index(tiled.step))
    return arith.minsi(arith.addi(arith.addi(begin, step), build.index(tiled.start)), last)


def smallest(sizes: Iterable[Index]) -> int | None:
    """A number that the size of a tile is, but for a shorter last one: of forms that it never exceeds."""
    forms = [f for s in sizes for f in (minima(s.terms[0][0]) if s.is_value else [s])]
    return next((f.static for f in forms if f.static is not None), None)


def tiles_in(size: ir.Value | int, tiled: Tiled) -> ir.Value | int:
    """How many tiles a dimension of that size has."""
    if isinstance(size, int):
        return max(0, -(-(size - tiled.start) // tiled.step))
    count = ir.AffineExpr.get_ceil_div(ir.AffineExpr.get_dim(0) - tiled.start, tiled.step)
    map_ = ir.AffineMapAttr.get(ir.AffineMap.get(1, 0, [count, ir.AffineExpr.get_constant(0)]))
    return ir.Operation.create("affine.max", [ir.IndexType.get()], [size], {"map": map_}).result
