"""Which sums over columns the threads of a block compute together, and how; used by ``outline-elements``.

    %s = linalg.generic { s + x } ins(%x : tensor<2048x512xbf16>) -> tensor<512xf32>        // the gradient of a bias

A thread that has a column to itself goes through all rows, one after the other, and there are no more threads than
columns: most of the GPU has nothing to do. Here a block has as many columns as 32 bytes of a row hold, which is what
comes from memory at once, and each of its threads every so many rows of them, several of which it asks for together::

    thread            0            1            …     127
    rows              0 128 256 …  1 129 257 …        127 255 383 …     columns 16·block to 16·block + 15 of each
    sums of 16 columns in each thread, which all of the block put together
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ....dialects.mlir import ir
from ....dialects.tiling.structured import dim_position, indexing_maps, iterator_types
from ...extents import static_extents
from ...online.before_loops import SMALL
from ..alignment import CHUNK
from ..architecture import WARP
from ..elements import byte_width
from .row_lanes import THREADS, SharedSums, aligned_width, combiners_of

PIECES = 2  # of 16 bytes of a row
TOGETHER = 4  # rows that a thread asks for before it adds them up
ROWS = 16  # of a thread, at least: what is put together is as much for fewer
LEAST_ROWS = 128  # fewer a thread adds up sooner than others are asked
MOST_RESULTS = THREADS // 2  # more, and threads of their own keep all multiprocessors busy
OPEN_ROWS = 1024  # what their number is taken to be where it is open
MOST_THREADS = 1024


@dataclass(frozen=True)
class ColumnLanes(SharedSums):
    """`loop`: the columns, `width` of which the threads share."""


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
    if width == min(CHUNK // byte_width(op.operands[n].type.element_type) for n in along):
        width *= math.gcd((extents[loop] or 1) // width, PIECES)
    groups = results // width
    lanes = min(rows // ROWS, THREADS // groups, MOST_THREADS)
    return ColumnLanes(max(WARP, 1 << lanes.bit_length() - 1), combiners, loop, tuple(along), width)


def _product(extents: Sequence[int | None]) -> int | None:
    return None if None in extents else math.prod(n for n in extents if n is not None)
