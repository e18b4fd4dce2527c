"""Sinks: what is in the sum of a softmax and meets no values, such as exponentials of scores that each head learned.

    e / (Σ_k e + exp(y − m)),   or a sum over the keys and a column of y beside them,

is softmax times l / (l + exp(y − m)), where l is the sum over the keys alone, if y is shifted as the scores are. A
number beside the sum, e / (Σ_k e + ε), is one beside l if the exponentials are relative to the maximum of their row
(`relative.py`), and exp(0 − m)·ε if they are not shifted.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass

from .expressions import EXPONENTIALS, Expr
from .indices import Index
from .quotients import Keys, NearMiss, quotient, summed
from .relative import Relative
from .tracing import Tracer

MAX_SINKS = 16  # more that are summed beside the keys are no sinks


@dataclass(frozen=True)
class Beside:
    """`factor`·exp(`score` − m) where m is the maximum of the row; without a score, `factor`, times what `to` says."""

    factor: Expr
    score: Expr | None
    to: Relative | None = None


def sums(tracer: Tracer, divisor: Expr, k: Keys) -> list[tuple[Expr, list[Expr]]]:
    """(x, others) if `divisor` is Σ_k x + Σ others: a sum over more than k has others at its end, or at its start."""
    body = summed(tracer, divisor, k)
    if body is not None:
        return [(body, [])]
    if divisor.name == "arith.addf":
        found = []
        for a, b in (divisor.args, divisor.args[::-1]):
            found += [(body, [*beside, b]) for body, beside in sums(tracer, a, k)]
        return found
    reduction = tracer.reduction(divisor) if divisor.kind == "element" else None
    if reduction is None or reduction.kind != "sum" or tracer.expand(reduction.init).number != 0:
        return []
    wide = [d for d in reduction.loops if reduction.extent(d) != 1]
    extent = reduction.extent(wide[0]) if len(wide) == 1 else None
    if len(k) != 1 or extent is None or k[0].extent is None or not 0 < extent - k[0].extent <= MAX_SINKS:
        return []
    key, count = k[0], k[0].extent

    def at(index: Index) -> Expr:
        return tracer.expand(reduction.body([index if d == wide[0] else Index() for d in reduction.loops]))

    more = extent - count
    return [
        (at(Index.of(key)), [at(Index((), count + i)) for i in range(more)]),
        (at(Index(((key, 1),), more)), [at(Index((), i)) for i in range(more)]),
    ]


def sinks(
    tracer: Tracer, along: list[Expr], beside: list[Expr], is_statistic: Callable[[Expr], bool], to: Relative | None
) -> tuple[Beside, ...]:
    """What is `beside` the exponentials of `along` in a sum, without the shift that all of it must have.

    `to`: what those of the keys are relative to.
    """
    return tuple(_sink(tracer, other, _shift(along, is_statistic), is_statistic, to) for other in beside)


def _sink(
    tracer: Tracer, other: Expr, shift: list[tuple], is_statistic: Callable[[Expr], bool], to: Relative | None
) -> Beside:
    make = tracer.make
    parts = quotient(tracer, other)
    exponentials = [f for f in parts.num if f.name in EXPONENTIALS]
    factor = functools.reduce(make.mul, [f for f in parts.num if f not in exponentials], make.const(1.0))
    for divisor in parts.den:
        factor = make.op("arith.divf", (factor, divisor))
    score: Expr | None = make.const(0.0)
    if exponentials and _shift(exponentials, is_statistic) != shift:
        raise NearMiss("exponentials that are shifted in another way are added to the sum of its exponentials")
    if not exponentials and shift:
        if to is None:
            raise NearMiss("a number is added to the sum of its exponentials, which are not shifted by their maximum")
        score = None
    for f in exponentials:
        term = _without_statistics(tracer, f.args[0], is_statistic)
        in_nats = term if f.name == "math.exp" else make.mul(term, make.const(math.log(2.0)))
        assert score is not None
        score = make.add(score, in_nats)
    if is_statistic(factor) or (score is not None and is_statistic(score)):
        raise NearMiss("something that is computed from the scores is added to the sum of its exponentials")
    return Beside(factor, score, to if score is None else None)


def _without_statistics(tracer: Tracer, expr: Expr, is_statistic: Callable[[Expr], bool]) -> Expr:
    """`expr`, the same along the keys, without what is computed from the scores in its sums."""
    make = tracer.make

    @functools.cache  # terms may be shared
    def strip(e: Expr) -> Expr:
        if e.name in ("arith.negf", "arith.addf", "arith.subf"):
            return make.op(e.name, tuple(strip(a) for a in e.args))
        if e.name == "arith.mulf":
            for x, factor in (e.args, e.args[::-1]):
                if not is_statistic(factor):
                    return make.mul(strip(x), factor)
        if e.name == "arith.select" and not is_statistic(e.args[0]):  # else it is a maximum by a comparison
            return make.op(e.name, (e.args[0], strip(e.args[1]), strip(e.args[2])))
        return make.const(0.0) if is_statistic(e) else e

    return strip(expr)


def _shift(factors: list[Expr], is_statistic: Callable[[Expr], bool]) -> list[tuple]:
    """What statistics are added to the exponents of `factors`: each as its sign and the numbers of what it is times."""
    found: list[tuple] = []

    @functools.cache
    def look(expr: Expr, sign: int, times: tuple) -> None:
        if expr.name == "arith.negf":
            look(expr.args[0], -sign, times)
        elif expr.name in ("arith.addf", "arith.subf"):
            look(expr.args[0], sign, times)
            look(expr.args[1], sign if expr.name == "arith.addf" else -sign, times)
        elif expr.name == "arith.select" and not is_statistic(expr.args[0]):
            for arg in expr.args[1:]:
                if arg.number != -math.inf:
                    look(arg, sign, times)
        elif expr.name == "arith.mulf" and not all(is_statistic(arg) for arg in expr.args):
            for arg, other in (expr.args, expr.args[::-1]):
                if not is_statistic(other):
                    look(arg, sign, (*times, other.serial))
        elif is_statistic(expr):
            found.append((sign, expr.serial, times))

    for f in factors:
        if f.name in EXPONENTIALS:
            look(f.args[0], 1, (f.name,))
    return sorted(set(found))
