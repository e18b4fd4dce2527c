"""Which ops have several neighbouring elements computed by each thread; used by ``outline-elements``.

    %r = linalg.generic { … } ins(%found, %a) -> tensor<32000x1024xbf16>        // the gradient of an embedding

A thread for each element writes 2 bytes: to start so many threads takes longer than the memory takes. Here each has a
piece of a row, as many elements as 16 bytes hold, and computes one after the other::

    %x0 = …, %x1 = … of the next column, …
    vector.store [%x0, %x1, …, %x7], %out[%i, 8·%piece]
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ....dialects.mlir import ir
from ....dialects.tiling.structured import all_parallel, dim_position, indexing_maps
from ...online.before_loops import SMALL
from ...splats import filled_with
from ..axes import DYNAMIC
from .row_lanes import THREADS, aligned_width

OPEN = 1024  # what an open size is taken to be


@dataclass(frozen=True)
class Pieces:
    """A thread has `width` elements of each result, along `loop`, and loads as many at a time of the operands
    `along`."""

    loop: int
    along: tuple[int, ...]
    width: int


def element_pieces(op: ir.Operation, any_strides: bool) -> Pieces | None:
    """How the elements of a linalg.generic are shared; None where a thread has one of each result: where they add up
    others, or are too few to keep all multiprocessors busy otherwise."""
    maps, first = indexing_maps(op), len(op.operands) - len(op.results)
    if not all_parallel(op) or SMALL in op.attributes:
        return None
    ends = {_end(m) for m in maps[first:]}
    loop = ends.pop() if len(ends) == 1 else None
    if loop is None or any(not _is_number(value) for value in op.results):
        return None
    along = [n for n, value in enumerate(op.operands) if n < first and _end(maps[n]) == loop and _is_loaded(value)]
    width = math.gcd(*(aligned_width(v, any_strides=False) for v in op.results))
    width = math.gcd(width, *(aligned_width(op.operands[n], any_strides) for n in along))
    elements = math.prod(OPEN if size == DYNAMIC else size for size in op.results[0].type.shape)
    while width > 1 and elements // width < THREADS:
        width //= 2
    return Pieces(loop, tuple(along), width) if width > 1 else None


def _end(m: ir.AffineMap) -> int | None:
    """The loop that the last dimension runs along, if no other one does."""
    dims = [dim_position(e) for e in m.results]
    return dims[-1] if dims and dims.count(dims[-1]) == 1 else None


def _is_loaded(value: ir.Value) -> bool:
    return isinstance(value.type, ir.RankedTensorType) and _is_number(value) and filled_with(value) is None


def _is_number(value: ir.Value) -> bool:
    kind = value.type.element_type
    return isinstance(kind, (ir.FloatType, ir.IntegerType)) and str(kind) != "i1"
