"""tanh of a vector of 16 f32 by polynomials of degree 4, one of 32 for each number: no exponential, no division.

The division of the form by exp(2·|x|) keeps its unit busy for 10 to 16 cycles, longer than all else takes; looking a
number up in 32 others is one instruction of AVX-512::

    w = |x| + 3/4                   its exponent and 3 bits of its mantissa tell the interval: [0, 1/16), [1/16, 1/8), …
                                    to 1/4, of 1/8 each to 5/4, of 1/4 to 13/4, of 1/2 to 29/4, of 1 beyond
    s = |x| − center
    y = c0 + s·(c1 + s·(c2 + s·(c3 + s·c4)))

The center and the coefficients are looked up by the lowest 5 of these bits. In the first interval the center and c0 are
0, so that errors are small next to a result that is. An error of 1.5 units in the last place, at most.
"""

import functools

import numpy as np

from ....dialects import llvm_ops
from ....dialects.mlir import arith, ir, math
from ...polynomials import Numbers

LOOKUP = "llvm.x86.avx512.vpermi2var.ps.512"
LANES, ENTRIES, DEGREE = 16, 32, 4
SHIFT, LIMIT = 0.75, 10.0  # beyond the limit, 1 is the nearest
INTERVAL_BITS = 20  # of f32: what is above them tells the interval


def tanh(n: Numbers, x: ir.Value) -> ir.Value:
    magnitude, limit = math.absf(x), n.number(LIMIT)
    magnitude = n.select("OGT", magnitude, limit, limit, magnitude)
    interval = arith.shrui(n.as_bits(arith.addf(magnitude, n.number(SHIFT))), n.integer(INTERVAL_BITS))
    center, *coefficients = (_look_up(n, table, interval) for table in _tables())
    s = arith.subf(magnitude, center)
    y = coefficients[-1]
    for c in reversed(coefficients[:-1]):
        y = math.fma(y, s, c)
    return math.copysign(y, x)


def _look_up(n: Numbers, table: np.ndarray, index: ir.Value) -> ir.Value:
    halves = (
        arith.ConstantOp(n.kind, ir.DenseElementsAttr.get(np.ascontiguousarray(half), type=n.kind)).result
        for half in (table[:LANES], table[LANES:])
    )
    first, second = halves
    return llvm_ops.call_intrinsic(n.kind, LOOKUP, [first, index, second])


@functools.cache
def _tables() -> np.ndarray:
    """The center and the coefficients of each interval, which interpolate at Chebyshev's nodes."""
    tables = np.zeros((DEGREE + 2, ENTRIES), np.float32)
    first, last = (int(np.float32(SHIFT + x).view(np.int32)) >> INTERVAL_BITS for x in (0.0, LIMIT))
    for number in range(first, last + 1):
        ends = (np.array([number, number + 1], np.int32) << INTERVAL_BITS).view(np.float32).astype(np.float64)
        center, half = ends.mean() - SHIFT, np.diff(ends) / 2
        if number == first:  # tanh(x)/x, by one degree less
            x = center + half * _nodes(DEGREE)
            found = [0.0, 0.0, *_through(x, np.tanh(x) / x)]
        else:
            s = half * _nodes(DEGREE + 1)
            found = [center, *_through(s, np.tanh(center + s))]
        tables[:, number % ENTRIES] = found
    return tables


def _nodes(count: int) -> np.ndarray:
    return np.cos(np.pi * (np.arange(count) + 0.5) / count)


def _through(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The coefficients of the polynomial through these points."""
    return np.linalg.solve(np.vander(x, increasing=True), y)
