"""Loaded numbers as they count where tiles are compared: sums of any would overflow, in the graph, or where an index
has 32 bits (on GPUs).

A number that is far from 0 counts as the largest of all where the largest is looked for, and as the least where that
is: nothing is concluded of it. Sums of others, of positions and sizes are what they seem. A number that stands alone
counts as no further than between both; two of these are not compared (`TileConditions`).
"""

from __future__ import annotations

from collections.abc import Callable

from ...dialects import build
from ...dialects.mlir import arith, ir

FAR, BETWEEN, BEYOND = 1 << 28, 1 << 29, 3 << 28  # of 32 bits and more; twice the last, and a position, fit in 32


def first(kind: ir.Type, sign: int) -> ir.Value:
    """What the search for the largest number starts from (sign 1), or for the least."""
    return build.constant(kind, -sign * FAR) if width_of(kind) >= 32 else _neutral(kind, sign)


def extreme(number: ir.Value, sign: int, width: int) -> ir.Value:
    """A number, loaded with so many bits, as it counts for the largest one (sign 1), or for the least."""
    if width == 1:
        return number
    far = FAR if width >= 32 else 1 << (width - 3)
    beyond = min(BEYOND, (1 << (width_of(number.type) - 1)) - 1)
    low, high, counted = (build.constant(number.type, n) for n in (-far, far, sign * beyond))
    is_below, is_above = (
        arith.cmpi(predicate, number, limit)
        for predicate, limit in ((arith.CmpIPredicate.slt, low), (arith.CmpIPredicate.sgt, high))
    )
    return arith.select(arith.ori(is_below, is_above), counted, number)


def width_of(kind: ir.Type) -> int:
    return 64 if isinstance(kind, ir.IndexType) else kind.width


def widened(number: ir.Value, kind: ir.Type) -> ir.Value:
    """A number as one of a type that holds it; of a bit 0 or 1."""
    if isinstance(number.type, ir.IndexType):
        return arith.index_cast(kind, number)
    if number.type == kind:
        return number
    return (arith.extui if number.type.width == 1 else arith.extsi)(kind, number)


def alone(number: ir.Value, keep: Callable[[ir.Value], ir.Value]) -> ir.Value:
    """A number as it counts by itself; `keep` is told of each op."""
    if width_of(number.type) < 32:
        return number
    low, high = (keep(build.constant(number.type, n)) for n in (-BETWEEN, BETWEEN))
    return keep(arith.minsi(keep(arith.maxsi(number, low)), high))


def _neutral(kind: ir.IntegerType, sign: int) -> ir.Value:
    """The number that no other one is less than, or, of sign −1, larger; of bits as 0 and 1."""
    if kind.width == 1:
        return build.constant(kind, 0 if sign > 0 else 1)
    greatest = (1 << (kind.width - 1)) - 1
    return build.constant(kind, -greatest - 1 if sign > 0 else greatest)
