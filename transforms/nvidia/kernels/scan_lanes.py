"""Which running sums several threads of a warp compute together, and how; used by ``outline-elements``.

A thread that has a row to itself goes from element to element, and waits for each of them. Threads that share a row
have a part of it each, of elements side by side, which they go through twice: for the sum of the part, and again for
the running sums, from what those before them found together::

    thread            0        1        2        3
    elements        3 1 4    1 5 9    2 6 5    3 5
    sum of the part   8        15       13       8
    of those before   0        8        23       36        log₂(threads) exchanges, as of Hillis and Steele
    running sums    3 4 8    9 14 23  25 31 36  39 44
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ....dialects import build
from ....dialects.mlir import arith, gpu, ir
from ....dialects.tiling.structured import dim_position, indexing_maps, iterator_types
from ...extents import static_extents
from ...graph import depends_on
from ...rewriting import defining_op
from ..architecture import WARP
from ..reductions import INTEGERS, NEUTRAL, neutrals
from .row_lanes import FEW_RESULTS

LEAST = 2  # elements of a thread: fewer, and it only exchanges
TYPES = ("f16", "bf16", "f32", "i32", "i64")


@dataclass(frozen=True)
class ScanLanes:
    """`loop`: along which sums run; `lanes`: threads of a row, side by side in a warp; `combiners`: of each sum."""

    loop: int
    lanes: int
    combiners: tuple[ir.Operation, ...]

    @property
    def neutral(self) -> list[ir.Value]:
        return neutrals(self.combiners)

    def combined(self, some: Sequence[ir.Value], others: Sequence[ir.Value]) -> list[ir.Value]:
        pairs = zip(self.combiners, some, others, strict=True)
        return [ir.Operation.create(c.name, [a.type], [a, b]).result for c, a, b in pairs]

    def of_those_before(self, parts: Sequence[ir.Value], lane: ir.Value) -> list[ir.Value]:
        """What the threads of a row that come before its `lane` have together."""
        known, distance = list(parts), 1
        while distance < self.lanes:
            more = self.combined(known, [_from_before(v, distance) for v in known])
            known = _where(_is_at_least(lane, distance), more, known)
            distance *= 2
        return _where(_is_at_least(lane, 1), [_from_before(v, 1) for v in known], self.neutral)


def scan_lanes(op: ir.Operation) -> ScanLanes | None:
    """How the rows of a linalg.generic that makes running sums are shared; None where each has a thread to itself: of
    no sums alone, of few elements, or where neighbours read elements side by side and there are many of them."""
    kinds, maps, first = iterator_types(op), indexing_maps(op), len(op.operands) - len(op.results)
    if kinds.count("reduction") != 1:
        return None
    loop, extents = kinds.index("reduction"), static_extents(op)
    along = [[dim_position(e) for e in m.results] for m in maps]
    sums = [i for i in range(len(op.results)) if loop not in along[first + i]]
    combiners = [c for c in (_combiner(op, i) for i in sums) if c is not None]
    if len(sums) in (0, len(op.results)) or len(combiners) < len(sums):
        return None
    is_side_by_side = all(loop not in dims[:-1] for dims in along)
    if not is_side_by_side and _may_be_many(extents[:loop] + extents[loop + 1 :]):
        return None
    extent = extents[loop]
    lanes = WARP if extent is None else 1 << max(1, min(WARP, extent // LEAST)).bit_length() - 1
    return ScanLanes(loop, lanes, tuple(combiners)) if lanes > 1 else None


def _may_be_many(extents: Sequence[int | None]) -> bool:
    return math.prod(FEW_RESULTS if extent is None else extent for extent in extents) >= FEW_RESULTS


def _combiner(op: ir.Operation, number: int) -> ir.Operation | None:
    """What adds an element to a sum that runs along, where the element depends on no sum."""
    block, first = op.regions[0].blocks[0], len(op.operands) - len(op.results)
    running = list(block.arguments)[first:]
    value = list(block.operations)[-1].operation.operands[number]
    combiner = defining_op(value)
    if combiner is None or combiner.name not in (*NEUTRAL, *INTEGERS) or str(value.type) not in TYPES:
        return None
    terms = [v for v in combiner.operands if v != running[number]]
    return combiner if len(terms) == 1 and not any(depends_on(terms[0], v) for v in running) else None


def _from_before(value: ir.Value, distance: int) -> ir.Value:
    """What the thread has that stands so far before, in the warp."""
    word = ir.IntegerType.get_signless(32)
    far, width = build.constant(word, distance), build.constant(word, WARP)
    return gpu.ShuffleOp(value, far, width, ir.Attribute.parse("#gpu<shuffle_mode up>")).results[0]


def _is_at_least(lane: ir.Value, distance: int) -> ir.Value:
    return arith.cmpi(arith.CmpIPredicate.uge, lane, build.index(distance))


def _where(condition: ir.Value, some: Sequence[ir.Value], others: Sequence[ir.Value]) -> list[ir.Value]:
    return [arith.select(condition, a, b) for a, b in zip(some, others, strict=True)]
