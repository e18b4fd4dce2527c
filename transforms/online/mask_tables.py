"""What is so of each tile of a mask in memory that several heads share: found once, before the parallel loop.

Of a mask %m [batch, queries, keys], and tiles of 128 queries and 64 keys, the least that a number of its elements is,
such as whether they are true, or how many of some bounds they are below::

    %rows = linalg.generic {…, iterators = [parallel, parallel, parallel, reduction]}      // side by side in memory
        ins(%m as 2x4096x64x64) outs(… : tensor<2x4096x64xi32>) { min(%known, %number) }
    %tiles = linalg.generic {…, iterators = [parallel, parallel, parallel, reduction]} ins(%steps : tensor<128xi1>)
        outs(… : tensor<2x32x64xi32>) { min(%known, %rows[%batch, %tile * 128 + %step, %keys]) }

The greatest of what is the least of a row as a whole is found of the same rows::

    %whole = linalg.generic … ins(%keys : tensor<64xi1>) outs(… : tensor<2x32x128xi32>) { min(%known, %rows[…]) }
    %greatest = linalg.generic … ins(%whole) outs(… : tensor<2x32xi32>) { max(%known, %of_row) }
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from ...dialects import build
from ...dialects.mlir import ir, linalg, tensor
from ...dialects.tiling import Index
from ..linear import DYNAMIC
from ..reshapes import drop_units, reshape
from .before_loops import BeforeLoops, mark_small
from .loaded_masks import Depth, LoadedMask, Test
from .positions import OfTile, Tiled
from .tile_extremes import element_of, last_of, smallest, tiles_in
from .tile_sets import TileSets, extremum

FEWEST_TILES = 16  # of a mask that is looked at (on an H200 that takes 3 µs and more)
FEWEST_READERS = 8  # of numbers that are added, which may be no mask: else looking at them in vain takes too long
MOST = 3  # no number of an element is greater


@dataclass(frozen=True)
class _Mask:
    """Of which dimensions of one element are left out, in tiles; rows, along `keys`, consist of whole ones."""

    tensor: ir.Value
    units: tuple[bool, ...]  # which dimensions are left out
    rows: tuple[Tiled, ...]
    keys: Tiled


@dataclass(frozen=True)
class _Asked:
    """The greatest (sign 1) of the numbers that `what` makes of the elements of a tile, or the least; with `tiles` of
    what is the least in so many tiles of each row that goes through this one."""

    what: Test | Depth
    sign: int
    tiles: int = 0

    @property
    def in_row(self) -> int:
        """The sign by which the elements of a row are put together."""
        return -1 if self.tiles else self.sign


class MaskTables:
    """Of the tiles that the loops around come to, which those of `sets` are some of.

    What is returned stands for tables that are computed when the sets are finished: those that are used, at once.
    """

    def __init__(self, sets: TileSets, before: BeforeLoops, added: int):
        """`added`: from how many scores on there are tables of what is added to them; 0: never."""
        self._sets = sets
        self._before = before
        self._added = added
        self._tables: dict[_Mask, dict[_Asked, ir.Value]] = {}

    def fails(self, test: Test) -> Index | None:
        """1 where a test fails for some element of a tile of a mask, else 0; None if there can be no table of it."""
        found = self._found(_Asked(replace(test, negated=False), 1 if test.negated else -1))
        if found is None:
            return None
        return Index(0, ((found, 1),)) if test.negated else Index(1, ((found, -1),))

    def least(self, depth: Depth) -> OfTile | None:
        """Of the elements of a tile; None likewise."""
        return self._found(_Asked(depth, -1))

    def greatest_of_rows(self, depth: Depth) -> OfTile | None:
        """Of the least of each row that goes through a tile, as far as loops go; None likewise."""
        mask, keys = self._tiled(depth.mask), self._before.gone_through(self._sets, depth.mask.position[-1])
        if mask is None or not keys or keys % mask.keys.step:
            return None
        return self._found(_Asked(depth, 1, tiles=keys // mask.keys.step))

    def _found(self, asked: _Asked) -> OfTile | None:
        place = asked.what.mask
        mask = self._tiled(place)
        if mask is None:
            return None
        table = self._table(mask, asked)
        position = [at for at, is_unit in zip(place.position, mask.units, strict=True) if not is_unit]
        along = place.along - sum(mask.units[: place.along])
        tiled = mask.rows if asked.tiles else (*mask.rows, mask.keys)
        return OfTile(table, tuple(position[: table.type.rank]), tiled, along)

    def _tiled(self, mask: LoadedMask) -> _Mask | None:
        """None if there can be no table of it, or it takes too long: of as many elements as the loops compute, for few
        tiles, or of numbers that are added where that is little work."""
        extents, shape = dict(mask.extents), list(mask.tensor.type.shape)
        units = tuple(size == 1 and d not in extents for d, size in enumerate(shape))
        tiled = [
            self._before.tiled(self._sets, mask.position[d], d - sum(units[:d]), smallest(extents[d]))
            for d in sorted(extents)
        ]
        if None in tiled or not mask.has_rows or len(shape) - 1 not in extents or not self._before.has(mask.tensor):
            return None
        *rows, keys = tiled
        looped = tiled[sorted(extents).index(mask.along)]
        if keys.start or shape[-1] == DYNAMIC or shape[-1] % keys.step:
            return None
        if shape[mask.along] < FEWEST_TILES * looped.step:
            return None
        readers = self._before.sharing(mask.needs)
        is_added = isinstance(mask.tensor.type.element_type, ir.FloatType)
        is_much = DYNAMIC not in shape and readers >= FEWEST_READERS and 0 < self._added <= readers * math.prod(shape)
        return None if readers < 2 or (is_added and not is_much) else _Mask(mask.tensor, units, tuple(rows), keys)

    def _table(self, mask: _Mask, asked: _Asked) -> ir.Value:
        self._before.open(self._sets)
        if mask not in self._tables:
            self._tables[mask] = {}
            self._sets.at_the_end(lambda: self._emit(mask), behind=1)  # scans, which look them up
        tables = self._tables[mask]
        if asked not in tables:
            with self._before.at("tables"):
                sizes = _sizes(mask)
                for tiled in (*mask.rows, mask.keys):
                    sizes[tiled.along] = tiles_in(sizes[tiled.along], tiled)
                tables[asked] = build.empty(sizes[:-1] if asked.tiles else sizes, _number())
        return tables[asked]

    def _emit(self, mask: _Mask) -> None:
        """Puts what is used of the tables in the place of what stands for them."""
        uses = {asked: list(table.uses) for asked, table in self._tables[mask].items()}
        used = [asked for asked, of_table in uses.items() if of_table]
        if not used:
            return
        with self._before.at("tables"):
            rows = _rows(mask, used)
            for asked in used:
                if asked.tiles:
                    result = _of_rows(mask, rows[asked], asked.sign, asked.tiles)
                else:
                    result = _of_tiles(mask, rows[asked], asked.sign)
                for use in uses[asked]:
                    use.owner.operands[use.operand_number] = result


def _number() -> ir.Type:
    """Small ones, in tables of one kind: all threads of a GPU know it."""
    return ir.IntegerType.get_signless(32)


def _sizes(mask: _Mask) -> list[ir.Value | int]:
    return [size for size, is_unit in zip(build.mixed_sizes(mask.tensor), mask.units, strict=True) if not is_unit]


def _rows(mask: _Mask, asked: Sequence[_Asked]) -> dict[_Asked, ir.Value]:
    """What is found of each row of a tile: [batch, queries, tiles of keys], say. The mask is read once for all."""
    *sizes, count = _sizes(mask)
    n, several = len(sizes), count // mask.keys.step
    x = drop_units(mask.tensor, mask.units) if any(mask.units) else mask.tensor
    x = reshape(x, [*([size] for size in sizes), [several, mask.keys.step]], expand=True)
    wanted = list(dict.fromkeys((one.what, one.in_row) for one in asked))

    def combined(element: ir.Value, *known: ir.Value) -> list[ir.Value]:
        numbers = {what: what.of_element(element, _number()) for what in dict.fromkeys(what for what, _ in wanted)}
        return [extremum(_number(), s)(old, numbers[what]) for (what, s), old in zip(wanted, known, strict=True)]

    starts = [_start([*sizes, several], sign) for _, sign in wanted]
    maps = [build.projection(n + 2, range(n + 2)), *[build.projection(n + 2, range(n + 1))] * len(wanted)]
    iterators = [build.PARALLEL] * (n + 1) + [build.REDUCTION]
    found = dict(zip(wanted, build.generic([x], starts, maps, iterators, combined), strict=True))
    return {one: found[one.what, one.in_row] for one in asked}


def _of_tiles(mask: _Mask, rows: ir.Value, sign: int) -> ir.Value:
    """The most, or the least, of the rows of each tile."""
    tiles = _Tiles.of(mask, rows)
    n = len(tiles.sizes)
    return _reduced(tiles.sizes, tiles.steps, sign, lambda at: tiles.row(at[:n], at[n:]))


def _of_rows(mask: _Mask, rows: ir.Value, sign: int, count: int) -> ir.Value:
    """The same of the least in the first `count` tiles of each row."""
    tiles = _Tiles.of(mask, rows)
    *sizes, _ = tiles.sizes
    n = len(sizes)
    whole = _reduced([*sizes, *tiles.steps], [count], -1, lambda at: tiles.row([*at[:n], at[-1]], at[n:-1]))
    return _reduced(sizes, tiles.steps, sign, lambda at: tensor.extract(whole, at))


@dataclass(frozen=True)
class _Tiles:
    """Of `rows` of tiles: how many tiles there are, and rows along each dimension of one; `last` rows."""

    mask: _Mask
    rows: ir.Value
    sizes: list[ir.Value | int]
    steps: list[int]
    last: list[ir.Value]

    @staticmethod
    def of(mask: _Mask, rows: ir.Value) -> _Tiles:
        sizes = build.mixed_sizes(rows)
        for tiled in mask.rows:
            sizes[tiled.along] = tiles_in(sizes[tiled.along], tiled)
        last = [last_of(rows, tiled) for tiled in mask.rows]
        return _Tiles(mask, rows, sizes, [tiled.step for tiled in mask.rows], last)

    def row(self, tile: list[ir.Value], steps: list[ir.Value]) -> ir.Value:
        """What is known of the row that is so many `steps` into a tile."""
        at = list(tile)
        for tiled, step, end in zip(self.mask.rows, steps, self.last, strict=True):
            at[tiled.along] = element_of(tiled, at[tiled.along], step, end)
        return tensor.extract(self.rows, at)


def _reduced(
    sizes: Sequence[ir.Value | int],
    steps: Sequence[ir.Value | int],
    sign: int,
    of: Callable[[list[ir.Value]], ir.Value],
) -> ir.Value:
    """A tensor of `sizes`: the most (sign 1), or the least, over `steps` of what is found at each place of both."""
    n, m = len(sizes), len(sizes) + len(steps)

    def combined(*scalars: ir.Value) -> ir.Value:
        return extremum(_number(), sign)(scalars[-1], of([linalg.IndexOp(d).result for d in range(m)]))

    spans = [build.empty([step], ir.IntegerType.get_signless(1)) for step in steps]
    maps = [*(build.projection(m, [d]) for d in range(n, m)), build.projection(m, range(n))]
    iterators = [build.PARALLEL] * n + [build.REDUCTION] * len(steps)
    return mark_small(build.generic(spans, [_start(sizes, sign)], maps, iterators, combined))[0]


def _start(sizes: Sequence[ir.Value | int], sign: int) -> ir.Value:
    """What is neutral beside the numbers of elements."""
    return build.fill(build.constant(_number(), 0 if sign > 0 else MOST), build.empty(sizes, _number()))
