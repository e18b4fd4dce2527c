"""Tiles that a mask makes finite, but lower than any score is meant to be: −1e9, or the least number of the type.

Such a tile is no more dead than any other: in a row that is masked as a whole, all scores are equal, and so is softmax.
But in a row whose maximum m without the tile is far above, exp(low − m) is 0, not nearly but as a number of the type.
Whether it is so in all rows is seen when all other tiles have been computed; only if not, these are computed too, after
them, and give exactly what they would have given in their place. ::

    %t:3 = … the tiles that are not wholly masked …
    %gap = max over rows of low − m                                   // one op on the statistics, tensor<f32>
    %clear = arith.cmpf ole, %gap, −104                               // exp(−104) is 0 in f32
    %high = arith.select %clear, %live, %n
    %r:3 = scf.for %k = %live to %high step %c32 iter_args(%t#0, …)   // no iteration, but in rows without a key
"""

from __future__ import annotations

import math

from ...dialects import build
from ...dialects.linalg_ext.softmax import EXP2
from ...dialects.mlir import arith, ir, tensor
from .match_accumulation import MAX, carried_levels

# exp2(x) is 0 for x below: half of the least subnormal number of the type.
UNDERFLOW = {32: -150.0, 64: -1075.0}
SLACK = 2.0**-20  # what a chain of roundings in f32 may add to a constant


def threshold(softmax: ir.Operation) -> float:
    """The number below which the softmax's exponential is 0."""
    kind = build.compute_type(softmax.operands[1 + MAX].type.element_type)
    return UNDERFLOW[ir.FloatType(kind).width] * (1.0 if EXP2 in softmax.attributes else math.log(2))


def bound_of(softmax: ir.Operation, lowest: float | None) -> float | None:
    """What scores masked by `lowest` surely do not exceed; None if it is no number that a mask uses."""
    if lowest is None or lowest > 2 * threshold(softmax):  # scores around 0 would not be clear of it
        return None
    return lowest * (1 - SLACK)


def carried_maximum(loop: ir.Operation, softmax: ir.Operation) -> int | None:
    """The position among what `loop` carries of the rows' running maximum, if the loop carries all of it."""
    levels = carried_levels(softmax.operands[1 + MAX], softmax.results[MAX])
    return next((level.position for level in levels if level.loop == loop and level.offsets is None), None)


def is_clear(maxima: ir.Value, bound: float, gap: float) -> ir.Value:
    """Whether `bound` is below each of `maxima` by −`gap`; emitted here. NaN and −∞ are not clear of anything."""
    kind = maxima.type
    element = build.compute_type(kind.element_type)
    low, least = build.constant(element, bound), build.constant(element, gap)
    start = build.fill(build.constant(element, -math.inf), build.empty([], element))
    rows = build.projection(kind.rank, range(kind.rank))
    (largest,) = build.generic(
        [maxima],
        [start],
        [rows, build.projection(kind.rank, [])],
        [build.REDUCTION] * kind.rank,
        lambda m, most: arith.maximumf(arith.subf(low, build.convert(m, element)), most),
    )
    return arith.cmpf(arith.CmpFPredicate.OLE, tensor.extract(largest, []), least)
