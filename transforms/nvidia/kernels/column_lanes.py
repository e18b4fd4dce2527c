"""Which sums over columns the threads of a block compute together, and how; used by ``outline-elements``.

    %s = linalg.generic { s + x } ins(%x : tensor<2048x512xbf16>) -> tensor<512xf32>        // the gradient of a bias

A thread that has a column to itself goes through all rows, one after the other, and there are no more threads than
columns: most of the GPU has nothing to do. Here each thread has as many columns as 16 bytes of a row hold, of every so
many rows, several of which it asks for together, and a block some such threads beside each other: a warp's load touches
a row of the cache for each of its rows, whatever it takes of it::

    thread            0            1            2            3            4            …     511
    columns           0 to 7       8 to 15      16 to 23     24 to 31     0 to 7             24 to 31     and 32·block
    rows              0 128 256 …  0 128 256 …  0 128 256 …  0 128 256 …  1 129 257 …        127 255 383 …
    sums of 8 columns in each thread, which every fourth one of the block put together
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ....dialects.mlir import ir
from ....dialects.tiling.structured import dim_position, indexing_maps, iterator_types
from ...extents import static_extents
from ...online.before_loops import SMALL
from ..architecture import WARP
from .row_lanes import THREADS, SharedSums, aligned_width, combiners_of

BESIDE = 4  # threads that have pieces of the same rows
TOGETHER = 4  # rows that a thread asks for before it adds them up
ROWS = 16  # of a thread, at least: what is put together is as much for fewer
LEAST_ROWS = 128  # fewer a thread adds up sooner than others are asked
MOST_RESULTS = THREADS // 2  # more, and threads of their own keep all multiprocessors busy
OPEN_ROWS = 1024  # what their number is taken to be where it is open
MOST_THREADS = 1024


@dataclass(frozen=True)
class ColumnLanes(SharedSums):
    """`loop`: the columns, `width` of which a thread has."""

    @property
    def columns(self) -> int:
        """Of all threads."""
        return self.width * self.beside


def column_lanes(op: ir.Operation, any_strides: bool) -> ColumnLanes | None:
    """How the columns of a linalg.generic are shared; None where a thread has to compute each result alone."""
    maps, first, kinds = indexing_maps(op), len(op.operands) - len(op.results), iterator_types(op)
    combiners, extents = combiners_of(op), static_extents(op)
    if combiners is None or SMALL in op.attributes or "reduction" not in kinds:
        return None
    results = _product([n for n, kind in zip(extents, kinds, strict=True) if kind == "parallel"])
    rows = _product([n for n, kind in zip(extents, kinds, strict=True) if kind == "reduction"]) or OPEN_ROWS
    places = [[dim_position(e) for e in m.results] for m in maps[:first]]
    whole = [dims for dims in places if len({*dims} - {None}) == len(kinds)]
    loops = {dims[-1] for dims in whole}
    if not results or results > MOST_RESULTS or rows < LEAST_ROWS or len(loops) != 1:
        return None
    (loop,) = loops
    if loop is None or kinds[loop] == "reduction":
        return None
    along = [n for n, dims in enumerate(places) if dims[-1:] == [loop] and dims.count(loop) == 1]
    if not all(isinstance(op.operands[n].type.element_type, (ir.FloatType, ir.IntegerType)) for n in along):
        return None
    width = math.gcd(extents[loop] or 1, *(aligned_width(op.operands[n], any_strides) for n in along))
    beside = math.gcd((extents[loop] or 1) // width, BESIDE)
    groups = results // (width * beside)
    lanes = min(rows // ROWS * beside, THREADS // groups, MOST_THREADS)
    lanes = max(WARP, 1 << lanes.bit_length() - 1)
    return ColumnLanes(lanes, beside, combiners, loop, tuple(along), width)


def _product(extents: Sequence[int | None]) -> int | None:
    return None if None in extents else math.prod(n for n in extents if n is not None)
