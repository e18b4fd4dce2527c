"""Moves between lanes of several vectors at once."""

from __future__ import annotations

from collections.abc import Callable

from ...dialects.mlir import ir, vector


def transpose(rows: list[ir.Value]) -> list[ir.Value]:
    """The columns of a square of vectors: in stage d, blocks of d × d off the diagonal change places."""
    n = len(rows)
    d = 1
    while d < n:
        upper = [j + n - d if j & d else j for j in range(n)]
        lower = [j + n if j & d else j + d for j in range(n)]
        for i in range(n):
            if not i & d:
                a, b = rows[i], rows[i | d]
                rows[i], rows[i | d] = vector.ShuffleOp(a, b, upper).result, vector.ShuffleOp(a, b, lower).result
        d *= 2
    return rows


def sum_of_lanes(rows: list[ir.Value], combine: Callable[[ir.Value, ir.Value], ir.Value]) -> ir.Value:
    """A vector whose lane i is `combine` over all lanes of row i; their number is a power of 2, up to that of lanes.

    Each step halves how many lanes are left of a row: two vectors become one, in the end one becomes a shorter one.
    """
    lanes = width = rows[0].type.shape[0]  # `width`: lanes of one row in a vector

    def halves(a: ir.Value, b: ir.Value, size: int) -> ir.Value:
        low = [i for i in range(size) if i % width < width // 2]
        high = [i + width // 2 for i in low]
        return combine(vector.ShuffleOp(a, b, low).result, vector.ShuffleOp(a, b, high).result)

    while len(rows) > 1:
        rows = [halves(a, b, 2 * lanes) for a, b in zip(rows[::2], rows[1::2], strict=True)]
        width //= 2
    (found,) = rows
    while width > 1:
        found = halves(found, found, found.type.shape[0])
        width //= 2
    return found
