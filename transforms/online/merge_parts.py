"""Merging the states of an online softmax that parts of the keys gave, by their maxima and sums."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ...dialects import build
from ...dialects.mlir import arith, ir, scf
from ...dialects.mlir import math as math_dialect
from ..slices import Size, extract

TOGETHER = 2  # parts that are read at once: waiting for memory is most of the time; registers hold no more tiles


def merged(
    parts: int,
    inits: Sequence[ir.Value],
    slices: Sequence[tuple[ir.Value, list[Size], list[Size]]],
    rows: Sequence[int],
    exp2: bool,
) -> list[ir.Value]:
    """Output (not divided), maximum and sum over all parts, where each has its own::

        m = max(m₁, m₂)    a = a₁·exp(m₁ − m) + a₂·exp(m₂ − m)    o = o₁·exp(m₁ − m) + o₂·exp(m₂ − m)

    in a loop over parts from `inits`. `slices`: of output, maxima and sums of all parts, with the tile's offsets and
    sizes but for the first dimension, which counts parts. `rows[d]`: the dimension of the output that dimension d of
    the statistics is. Where m = −∞, 0 is subtracted in its place: a part that is masked weighs exp(−∞) = 0.
    """
    step = math.gcd(parts, TOGETHER)
    loop = scf.ForOp(build.index(0), build.index(parts), build.index(step), list(inits))
    with ir.InsertionPoint(loop.body):
        state = list(loop.inner_iter_args)
        places = [
            arith.addi(loop.induction_variable, build.index(i)) if i else loop.induction_variable for i in range(step)
        ]
        read = [
            [
                extract(init.type, value, [place, *offsets], [1, *sizes], [1] * (1 + len(offsets)))
                for init, (value, offsets, sizes) in zip(inits, slices, strict=True)
            ]
            for place in places
        ]
        for part_output, part_maximum, part_total in read:
            output, maximum, total = state
            sizes = slices[1][2]
            maximum, total, kept, added = _statistics(maximum, total, part_maximum, part_total, sizes, exp2)
            state = [_weighted(output, kept, part_output, added, rows), maximum, total]
        scf.YieldOp(state)
    return list(loop.operation.results)


def _statistics(
    m: ir.Value, a: ir.Value, m_part: ir.Value, a_part: ir.Value, sizes: Sequence[Size], exp2: bool
) -> list[ir.Value]:
    """The new maximum and sum, and the factors of the old output and of the part's."""
    kind = m.type
    compute = build.compute_type(kind.element_type)
    exp = math_dialect.exp2 if exp2 else math_dialect.exp
    infinity, zero = build.constant(compute, -math.inf), build.constant(compute, 0.0)

    def on_row(*values: ir.Value) -> list[ir.Value]:
        mp, ap, mo, ao = (build.convert(v, compute) for v in values[:4])
        largest = arith.maxnumf(mo, mp)
        shift = arith.select(arith.cmpf(arith.CmpFPredicate.OEQ, largest, infinity), zero, largest)
        kept, added = exp(arith.subf(mo, shift)), exp(arith.subf(mp, shift))
        total = arith.addf(arith.mulf(ao, kept), arith.mulf(ap, added))
        return [build.convert(v, kind.element_type) for v in (largest, total)] + [kept, added]

    identity = build.projection(kind.rank, range(kind.rank))
    factors = [build.empty(sizes, compute) for _ in range(2)]
    return build.generic([m_part, a_part], [m, a, *factors], [identity] * 6, [build.PARALLEL] * kind.rank, on_row)


def _weighted(o: ir.Value, kept: ir.Value, o_part: ir.Value, added: ir.Value, rows: Sequence[int]) -> ir.Value:
    """o·kept + o_part·added, row by row."""
    kind = o.type
    compute = build.compute_type(kind.element_type)
    identity, row = build.projection(kind.rank, range(kind.rank)), build.projection(kind.rank, rows)

    def on_element(k: ir.Value, a: ir.Value, op: ir.Value, oo: ir.Value) -> ir.Value:
        k, a, op, oo = (build.convert(v, compute) for v in (k, a, op, oo))
        return build.convert(arith.addf(arith.mulf(oo, k), arith.mulf(op, a)), kind.element_type)

    (result,) = build.generic(
        [kept, added, o_part], [o], [row, row, identity, identity], [build.PARALLEL] * kind.rank, on_element
    )
    return result
