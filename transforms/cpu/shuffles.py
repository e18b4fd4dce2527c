"""Moves between lanes of several vectors at once."""

from __future__ import annotations

from collections.abc import Callable

from ...dialects.llvm_ops import call_intrinsic
from ...dialects.mlir import ir, vector

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

    Each step makes one vector of two: neighbours of each are combined, first within segments of 128 bits, in which
    shuffles are cheap, then neighbouring segments. What is left of fewer rows are sums of one vector with itself.
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

    left = segment  # lanes of a row in a segment
    while left > 1 and len(rows) > 1:
        rows = [halved(a, b, 1, segment) for a, b in zip(rows[::2], rows[1::2], strict=True)]
        left //= 2
    groups = 1
    while len(rows) > 1:
        rows = [halved(a, b, segment, n) for a, b in zip(rows[::2], rows[1::2], strict=True)]
        groups *= 2
    (found,) = rows
    while (size := found.type.shape[0]) > groups * segment:
        found = halved(found, found, size // 2 if groups == 1 else segment, size)
    while left > 1:
        found = halved(found, found, 1, found.type.shape[0])
        left //= 2
    return found
