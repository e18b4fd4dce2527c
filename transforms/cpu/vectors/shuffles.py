"""Moves between lanes of several vectors at once."""

from __future__ import annotations

import functools
from collections.abc import Callable

from ....dialects.llvm_ops import call_intrinsic
from ....dialects.mlir import ir, vector

SEGMENT_BITS = 128  # within which lanes move by one cheap instruction
SHUFFLES_IN_A_ROW = 2  # that LLVM sees: from each it follows both operands, and theirs, looking for a shuffle of all


def transpose(rows: list[ir.Value]) -> list[ir.Value]:
    """The columns of a square of vectors: in stage d, blocks of d × d off the diagonal change places.

    The stages are what a machine does best, but LLVM looks for something better, which took a seventh of its time.
    """
    n = len(rows)
    for stage in range(n.bit_length() - 1):
        d = 1 << stage
        if stage and stage % SHUFFLES_IN_A_ROW == 0:
            rows = [_as_it_is(row) for row in rows]
        upper = [j + n - d if j & d else j for j in range(n)]
        lower = [j + n if j & d else j + d for j in range(n)]
        for i in range(n):
            if not i & d:
                a, b = rows[i], rows[i | d]
                rows[i], rows[i | d] = vector.ShuffleOp(a, b, upper).result, vector.ShuffleOp(a, b, lower).result
    return rows


def _as_it_is(value: ir.Value) -> ir.Value:
    """The value, of which LLVM does not know how it was computed; no instruction does this. It is for floats only."""
    kind = value.type
    bits = kind.shape[0] * kind.element_type.width
    if bits % SEGMENT_BITS:
        return value
    floats = ir.VectorType.get([bits // 32], ir.F32Type.get())
    known = vector.BitCastOp(floats, value).result
    kept = call_intrinsic(floats, f"llvm.arithmetic.fence.v{bits // 32}f32", [known])
    return vector.BitCastOp(kind, kept).result


def sum_of_lanes(rows: list[ir.Value], combine: Callable[[ir.Value, ir.Value], ir.Value]) -> ir.Value:
    """A vector whose lane i is `combine` over all lanes of row i; their number is a power of 2, up to that of lanes.

    Each step makes one vector of two. Where there are more rows than a segment of 128 bits has lanes, halves come
    first, as that is when there are most vectors, and it takes one permutation where all else takes two: a blend has
    the first half of `a` and the second one of `b`, what is added to it the others. Then neighbouring segments of each
    are combined, then neighbours within segments, in which shuffles are cheap. What is left of fewer rows are sums of
    one vector with itself.
    """
    n = rows[0].type.shape[0]
    segment = min(n, max(1, SEGMENT_BITS // rows[0].type.element_type.width))

    def halved(a: ir.Value, b: ir.Value, run: int, within: int) -> ir.Value:
        """`combine` of the even and the odd runs of lanes, of `a` and then `b` in each stretch of `within` lanes."""
        size = a.type.shape[0]
        parts = [0] if a == b else [0, size]
        lanes = [
            part + start + lane
            for start in range(0, size, within)
            for part in parts
            for lane in range(within)
            if lane // run % 2 == 0
        ]
        even, odd = (vector.ShuffleOp(a, b, [lane + move for lane in lanes]).result for move in (0, run))
        return combine(even, odd)

    def exchanged(a: ir.Value, b: ir.Value) -> ir.Value:
        """The halves of `a` combined, and then those of `b`."""
        kept = [*range(n // 2), *range(n + n // 2, 2 * n)]
        others = [*range(n // 2, n + n // 2)]
        return combine(*(vector.ShuffleOp(a, b, lanes).result for lanes in (kept, others)))

    def of_neighbours(
        rows: list[ir.Value], count: int, step: Callable[[ir.Value, ir.Value], ir.Value]
    ) -> list[ir.Value]:
        """One row of two that are `count` apart: the first of each run of `count` with the first of the next one."""
        firsts = [i for i in range(len(rows)) if i // count % 2 == 0]
        return [step(rows[i], rows[i + count]) for i in firsts]

    groups = 1  # of lanes, each of which has sums of rows of its own
    while len(rows) > segment:
        run = n // (2 * groups)
        rows = of_neighbours(rows, segment, exchanged if groups == 1 else functools.partial(halved, run=run, within=n))
        groups *= 2
    left = segment  # lanes of a row in a segment
    while left > 1 and len(rows) > 1:
        rows = of_neighbours(rows, 1, functools.partial(halved, run=1, within=segment))
        left //= 2
    (found,) = rows
    while (size := found.type.shape[0]) > groups * segment:
        found = halved(found, found, size // 2 if groups == 1 else segment, size)
    while left > 1:
        found = halved(found, found, 1, found.type.shape[0])
        left //= 2
    return found
