"""Which sums over rows several threads of a warp compute together, and how; used by ``outline-elements``.

A thread that has a row to itself reads an element at a time, and its neighbours read as far away as rows are long: of
each 32 bytes that come from memory a load takes one element, and they are gone from the cache before the next one asks.
Threads beside each other that share a row read it in pieces of 16 bytes, two of which they ask for at once.

Where there are few results, rows are shared whatever they are made of: most threads would have nothing to do, and the
others wait for what they read step by step. So are searches, which read no operand in order, as far as threads go.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ....dialects.mlir import ir
from ....dialects.tiling.structured import dim_position, indexing_maps, iterator_types, sole_combiner
from ...online.before_loops import SMALL
from ...rewriting import defining_op
from ...slices import slice_offsets
from ...splats import filled_with, is_constant_tensor
from ..alignment import CHUNK
from ..architecture import WARP
from ..axes import DYNAMIC, is_first, kept_dims
from ..elements import byte_width
from ..reductions import INTEGERS, NEUTRAL, neutrals, put_together

AHEAD = 2  # pieces that a thread has of a row, at least: their loads are under way together
FEW_RESULTS = 4096  # which threads of their own would keep few multiprocessors busy
THREADS = FEW_RESULTS * WARP  # that keep all of them busy
LEAST_BYTES = 64  # of a row, below which the threads of a warp read about all of the lines that they touch


@dataclass(frozen=True)
class SharedSums:
    """`lanes`: threads that share sums, side by side in a warp, or all of a block, `beside` of which have sums of their
    own; `combiners`: how their parts are put together, for each result; `along`: the operands of which a thread loads
    `width` elements at a time, those along `loop`."""

    lanes: int
    beside: int
    combiners: tuple[ir.Operation, ...]
    loop: int
    along: tuple[int, ...]
    width: int

    @property
    def neutral(self) -> list[ir.Value]:
        return neutrals(self.combiners)

    @property
    def of_each(self) -> int:
        """Threads that share one sum."""
        return self.lanes // self.beside

    def put_together(self, parts: Sequence[ir.Value]) -> list[ir.Value]:
        """The sums of what the threads have, in all of them."""
        pairs = zip(parts, self.combiners, strict=True)
        return [put_together(part, combiner.name, self.of_each, self.beside) for part, combiner in pairs]


@dataclass(frozen=True)
class RowLanes(SharedSums):
    """`loop`: that is summed over; `pieces` of `width` elements make a row."""

    pieces: int


def row_lanes(op: ir.Operation, any_strides: bool, threads: int | None = None) -> RowLanes | None:
    """How the rows of a linalg.generic are shared; None where a thread has to compute each result alone. `threads`:
    how many each result of an op on whole tiles may have, where that is known."""
    maps, first = indexing_maps(op), len(op.operands) - len(op.results)
    reduced = [d for d, kind in enumerate(iterator_types(op)) if kind == "reduction"]
    combiners = combiners_of(op)
    if not reduced or combiners is None:
        return None
    loop, along, extent = reduced[-1], [], DYNAMIC
    for number, (value, m) in enumerate(zip(op.operands, maps, strict=True)):
        dims = [None if is_first(e) else dim_position(e) for e in m.results]
        if any(d is None and not is_first(e) for d, e in zip(dims, m.results, strict=True)):
            return None
        if loop not in dims:
            continue
        if number >= first or dims.index(loop) != len(dims) - 1:
            return None
        extent = value.type.shape[-1]
        if not isinstance(value.type.element_type, (ir.FloatType, ir.IntegerType)) or extent == DYNAMIC:
            return None
        if filled_with(value) is None and any(True for _ in op.regions[0].blocks[0].arguments[number].uses):
            along.append(number)
    read = [op.operands[number] for number in along]
    width, most = 1, WARP
    if SMALL in op.attributes:
        most = _threads_for_each(op) if threads is None else threads
    elif any(len(maps[number].results) == len(iterator_types(op)) for number in along):
        if max(extent * byte_width(v.type.element_type) for v in read) < LEAST_BYTES:
            return None
        width = math.gcd(extent, *(aligned_width(v, any_strides) for v in read))
    elif len(reduced) > 1 or (along and _may_be_many(op)):
        return None  # rows are read again for other results, as of a matmul, and come from the cache
    elif not along:  # a search
        most = _threads_for_each(op)
    pieces = extent // width
    lanes = 1 << max(1, min(most, WARP, pieces // AHEAD)).bit_length() - 1
    return RowLanes(lanes, 1, combiners, loop, tuple(along), width, pieces) if lanes > 1 else None


def _may_be_many(op: ir.Operation) -> bool:
    """Whether there are more than few results, for all that is known."""
    shape = op.results[0].type.shape
    return DYNAMIC in shape or math.prod(shape) > FEW_RESULTS


def _threads_for_each(op: ir.Operation) -> int:
    """How many threads a result may have, so that there are no more than keep all multiprocessors busy."""
    shape = op.results[0].type.shape
    return 1 if DYNAMIC in shape else THREADS // max(1, math.prod(shape))


def combiners_of(op: ir.Operation) -> tuple[ir.Operation, ...] | None:
    """As `combiner_of`, of all results, integers, too; None where a result has none."""
    found = []
    for number in range(len(op.results)):
        combiner = sole_combiner(op, number)
        if combiner is None or combiner.name not in INTEGERS:
            combiner = combiner_of(op, number)
        elif str(combiner.results[0].type) not in ("i32", "i64"):
            return None
        if combiner is None:
            return None
        found.append(combiner)
    return tuple(found)


def combiner_of(op: ir.Operation, number: int) -> ir.Operation | None:
    """What adds an element to a result, where that is all that the result is for, and threads can put it together."""
    combiner = sole_combiner(op, number)
    if combiner is None or combiner.name not in NEUTRAL or isinstance(combiner.results[0].type, ir.F64Type):
        return None
    return combiner


def aligned_width(value: ir.Value, any_strides: bool) -> int:
    """How many elements, of 16 bytes at most, can be loaded at once wherever a multiple of as many begins in a row."""
    width = CHUNK // byte_width(value.type.element_type)
    op = defining_op(value)
    while op is not None and op.name == "tensor.extract_slice":
        offset, step = slice_offsets(op)[-1], list(op.opview.static_strides)[-1]
        kept = kept_dims(op, value.type, steps=True)
        if isinstance(offset, ir.Value) or step != 1 or kept[-1] != op.operands[0].type.rank - 1:
            return 1
        width, value = math.gcd(width, offset), op.operands[0]
        op = defining_op(value)
    last = value.type.shape[-1]
    if last == DYNAMIC or (any_strides and not is_constant_tensor(value)):
        return 1
    return math.gcd(width, last)
