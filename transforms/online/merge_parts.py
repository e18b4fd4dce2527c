"""Merging what parts of the keys gave: the states of an online softmax by their maxima and sums; outputs alone, where
there is no softmax, by adding them."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import TypeAlias

from ...dialects import build
from ...dialects.mlir import arith, ir, scf
from ...dialects.mlir import math as math_dialect
from ..slices import Size, extract

# Numbers of those after the first one, and what each is less than if it counts; none where all do.
Limited: TypeAlias = Sequence[tuple[ir.Value, ir.Value]]


def merged(
    parts: Size,
    together: int,
    inits: Sequence[ir.Value],
    slices: Sequence[tuple[ir.Value, list[Size], list[Size]]],
    rows: Sequence[int],
    exp2: bool,
) -> list[ir.Value]:
    """Output (not divided), maximum and sum over all parts, where each has its own::

        m = max(m₁, m₂, …)    a = a₁·exp(m₁ − m) + a₂·exp(m₂ − m) + …    o = o₁·exp(m₁ − m) + o₂·exp(m₂ − m) + …

    in a loop over parts from `inits`, up to `together` of them at once: waiting for memory is most of the time.
    `slices`: of output, maxima and sums of all parts, with the tile's offsets and sizes but for the first dimension,
    which counts parts. `rows[d]`: the dimension of the output that dimension d of the statistics is. Where m = −∞, 0 is
    subtracted in its place: a part that is masked weighs exp(−∞) = 0. Without maxima and sums o = o₁ + o₂ + ….

    Where the number of parts is known at run time only, a loop over half of `together` at once goes before one over the
    rest, an eighth at once: where there are few parts, there are many outputs, and what is read in vain counts.
    """
    loop = functools.partial(_merged, slices=slices, rows=rows, exp2=exp2)
    if isinstance(parts, int):
        step = max(n for n in range(1, together + 1) if parts % n == 0)
        return loop((build.index(0), build.index(parts)), step, inits)
    many, few = (max(together // n, 1) for n in (2, 8))
    whole = arith.subi(parts, arith.remui(parts, build.index(many)))
    state = loop((build.index(0), whole), many, inits)
    return loop((whole, parts), few, state, ends_within=few > 1)


def _merged(
    bounds: tuple[ir.Value, ir.Value],
    step: int,
    inits: Sequence[ir.Value],
    slices: Sequence[tuple[ir.Value, list[Size], list[Size]]],
    rows: Sequence[int],
    exp2: bool,
    ends_within: bool = False,
) -> list[ir.Value]:
    """The loop over the parts within `bounds`, `step` at once. With `ends_within` the last ones may be fewer: in place
    of others the last part is read again, as if its maximum were −∞."""
    loop = scf.ForOp(*bounds, build.index(step), list(inits))
    with ir.InsertionPoint(loop.body):
        numbers = [
            arith.addi(loop.induction_variable, build.index(i)) if i else loop.induction_variable for i in range(step)
        ]
        last = arith.subi(bounds[1], build.index(1)) if ends_within else None
        places = [number if last is None else arith.minsi(number, last) for number in numbers]
        outputs, *others = (
            [extract(init.type, value, [at, *offsets], [1, *sizes], [1] * (1 + len(offsets))) for at in places]
            for init, (value, offsets, sizes) in zip(inits, slices, strict=True)
        )
        output, *statistics = loop.inner_iter_args
        limited = [(number, bounds[1]) for number in numbers] if ends_within else []
        weights: list[ir.Value] = []
        if statistics:
            maxima, totals = ([one, *more] for one, more in zip(statistics, others, strict=True))
            *statistics, weights = _statistics(maxima, totals, slices[1][2], exp2, limited)
        added = _added([output, *outputs], weights, rows, [] if weights else limited)
        scf.YieldOp([added, *statistics])
    return list(loop.operation.results)


def _statistics(
    maxima: Sequence[ir.Value],
    totals: Sequence[ir.Value],
    sizes: Sequence[Size],
    exp2: bool,
    limited: Limited,
) -> tuple[ir.Value, ir.Value, list[ir.Value]]:
    """The maximum and the sum over all, in place of the first ones, and the factor of each one's output."""
    kind, count = maxima[0].type, len(maxima)
    compute = build.compute_type(kind.element_type)
    exp = math_dialect.exp2 if exp2 else math_dialect.exp
    lowest, zero = build.constant(compute, -math.inf), build.constant(compute, 0.0)

    def on_row(*values: ir.Value) -> list[ir.Value]:
        *rest, first_maximum, first_total = (build.convert(v, compute) for v in values[: 2 * count])
        others, other_totals = rest[: count - 1], rest[count - 1 :]
        if limited:
            counts = _counts(limited)
            others = [arith.select(does, m, lowest) for does, m in zip(counts, others, strict=True)]
        ms, sums = [first_maximum, *others], [first_total, *other_totals]
        largest = functools.reduce(arith.maxnumf, ms)
        shift = arith.select(arith.cmpf(arith.CmpFPredicate.OEQ, largest, lowest), zero, largest)
        weights = [exp(arith.subf(m, shift)) for m in ms]
        total = functools.reduce(arith.addf, map(arith.mulf, sums, weights))
        return [*(build.convert(v, kind.element_type) for v in (largest, total)), *weights]

    identity = build.projection(kind.rank, range(kind.rank))
    factors = [build.empty(sizes, compute) for _ in maxima]
    operands = [*maxima[1:], *totals[1:]], [maxima[0], totals[0], *factors]
    maps = [identity] * sum(map(len, operands))
    maximum, total, *weights = build.generic(*operands, maps, [build.PARALLEL] * kind.rank, on_row)
    return maximum, total, weights


def _counts(limited: Limited) -> list[ir.Value]:
    """Whether each of them counts."""
    return [arith.cmpi(arith.CmpIPredicate.slt, *pair) for pair in limited]


def _added(outputs: Sequence[ir.Value], weights: Sequence[ir.Value], rows: Sequence[int], limited: Limited) -> ir.Value:
    """The sum of the outputs, each times the factor of its row if there are factors, in place of the first."""
    kind = outputs[0].type
    compute = build.compute_type(kind.element_type)
    identity, row = build.projection(kind.rank, range(kind.rank)), build.projection(kind.rank, rows)

    def on_element(*values: ir.Value) -> ir.Value:
        *read, first = (build.convert(v, compute) for v in values)
        factors, others = read[: len(weights)], read[len(weights) :]
        zero = build.constant(compute, 0.0)
        if limited:
            others = [arith.select(does, x, zero) for does, x in zip(_counts(limited), others, strict=True)]
        terms = list(map(arith.mulf, [first, *others], factors)) if factors else [first, *others]
        total = functools.reduce(arith.addf, terms)
        return build.convert(total, kind.element_type)

    others = list(outputs[1:])
    maps = [row] * len(weights) + [identity] * len(outputs)
    (result,) = build.generic([*weights, *others], [outputs[0]], maps, [build.PARALLEL] * kind.rank, on_element)
    return result
