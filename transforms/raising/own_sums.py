"""Divisors that are made of the sum of what they divide: probabilities that are renormalised in any way.

    x = p·w,   (x / (Σ_k x + ε))·v   is   (Σ_k x·v) / (Σ_k x + ε),

whatever w and whatever else is made of Σ x, such as max(Σ x, ε): the sum is one more column of the output, that of
values which are 1. Where w cannot be negative and nothing is added, it is part of softmax itself, without that column.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from .expressions import Expr
from .quotients import Keys, Quotient, along_k, quotient, varies, without
from .signs import is_not_negative
from .tracing import Tracer


@dataclass(frozen=True)
class OwnSum:
    """Divides by `divisor`, an expression of `sum`. Times `more`, that is the sum of what is divided."""

    divisor: Expr
    sum: Expr
    more: Quotient


def own_sums(
    tracer: Tracer, q: Quotient, k: Keys, is_computed: Callable[[Expr], bool]
) -> Iterator[tuple[Quotient, OwnSum]]:
    """The quotient without a divisor that is made of the sum along `k` of the rest of it, and that."""
    for divisor in q.den:
        rest = Quotient(q.num, without(q.den, [divisor]))
        for node in () if varies(divisor, k) else divisor.nodes():
            reduction = tracer.reduction(node) if node.kind == "element" else None
            if reduction is None or reduction.kind != "sum" or tracer.expand(reduction.init).number != 0:
                continue
            body = along_k(tracer, reduction, k)
            more = _more(tracer, rest, body, k) if body is not None else None
            if more is not None and not is_computed(_at_one(tracer, divisor, node)):
                yield rest, OwnSum(divisor, node, more)


def _at_one(tracer: Tracer, expr: Expr, node: Expr) -> Expr:
    """What `expr` is where `node` is 1."""
    return tracer.make.rewritten(expr, lambda n: tracer.make.const(1.0) if n is node else None)


def _more(tracer: Tracer, q: Quotient, body: Expr, k: Keys) -> Quotient | None:
    """What `q`, the same along `k`, has more than `body`, or than what that is the absolute value of; None if it is
    something else."""
    is_absolute = body.name == "math.absf"
    inner = quotient(tracer, body.args[0] if is_absolute else body)
    if is_absolute and not all(_is_not_negative(tracer, f, k) for f in (*inner.num, *inner.den)):
        return None
    num, den = list(q.num), list(q.den)
    for given, own in ((inner.num, num), (inner.den, den)):
        for factor in given:
            if factor not in own:
                return None
            own.remove(factor)
    return None if any(varies(f, k) for f in (*num, *den)) else Quotient(num, den)


def _is_not_negative(tracer: Tracer, factor: Expr, k: Keys) -> bool:
    reduction = tracer.reduction(factor) if factor.kind == "element" else None
    if reduction is None or reduction.kind != "sum":
        return is_not_negative(factor)
    body = along_k(tracer, reduction, k)
    return body is not None and is_not_negative(body)
