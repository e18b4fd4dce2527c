"""What the exponentials of a softmax are relative to, where a number in their sum depends on it.

    e = exp((x − f)·c),   c > 0,   f made of numbers and of m, the maximum of x in the row

f is m itself, or m guarded, as rows without a live key would give NaN: `select(m = −∞, 0, m)` or `max(m, −1e30)`.
Beside exp((x − m)·c), which the fused loop sums, a number that stood beside e is exp((f − m)·c) times itself.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from dataclasses import dataclass

from .expressions import Expr
from .quotients import Keys, along_k, predicate
from .tracing import Tracer

EXPONENTIALS = ("math.exp", "math.exp2")
LOWEST = -3e38  # nothing that is lower raises a maximum
# arith.cmpf's predicates for operands of which none is NaN, and whether they hold if one is.
COMPARISONS: tuple[Callable[[float, float], bool], ...] = (
    *(operator.eq, operator.gt, operator.ge, operator.lt, operator.le, operator.ne, lambda a, b: True),
    *(operator.eq, operator.gt, operator.ge, operator.lt, operator.le, operator.ne, lambda a, b: False),
)


@dataclass(frozen=True)
class Relative:
    """`factor` = exp((f − m)·c), an expression of `maximum`, m."""

    factor: Expr
    maximum: Expr

    @property
    def to_maximum(self) -> bool:
        """Whether f is m in each row that has a live key: then one of its exponentials is 1."""
        return self.factor.number == 1


def relative(tracer: Tracer, factors: list[Expr], scores: Expr, k: Keys) -> Relative | None:
    """What the one exponential among `factors` is relative to, if that is made of the maximum of `scores`, which is the
    logarithm of them all; None if it is something else, or not known."""
    make = tracer.make
    exponentials = [f for f in factors if f.name in EXPONENTIALS]
    if len(exponentials) != 1:
        return None
    difference = exponentials[0].args[0]
    while difference.name == "arith.mulf" and any(a.number is not None and a.number > 0 for a in difference.args):
        difference = next(a for a in difference.args if a.number is None)
    if difference.name != "arith.subf":
        return None
    x, f = difference.args
    maxima = [n for n in f.nodes() if n.kind in ("element", "scalar", "index")]
    if len(maxima) != 1 or maxima[0].kind != "element":
        return None
    m = maxima[0]
    body = _maximum_of(tracer, m, k)
    if body is None or (body is not scores and not (len(factors) == 1 and body is x)):
        return None
    f = _without_guards(f, m)
    if f is m:
        return Relative(make.const(1.0), m)
    # Above neither c nor terms of x that are the same in a row make a difference; here they would.
    if body is not scores or exponentials[0].name != "math.exp" or difference is not exponentials[0].args[0]:
        return None
    return Relative(make.op("math.exp", (make.op("arith.subf", (f, m)),)), m)


def _maximum_of(tracer: Tracer, m: Expr, k: Keys) -> Expr | None:
    """x, if `m` is the maximum of x along k."""
    reduction = tracer.reduction(m)
    if reduction is None or reduction.kind != "max":
        return None
    start = tracer.expand(reduction.init).number
    return along_k(tracer, reduction, k) if start is not None and start < LOWEST else None


def _without_guards(f: Expr, m: Expr) -> Expr:
    """`f` as it is where `m` is finite: where it is −∞, all exponentials are 0, and so is the attention."""
    while f.name == "arith.select":
        chosen = _if_finite(f.args[0], m)
        if chosen is None:
            return f
        f = f.args[1] if chosen else f.args[2]
    return f


def _if_finite(condition: Expr, m: Expr) -> bool | None:
    """Whether `condition` holds of every finite `m`, or of none; None if that depends, or is not known."""
    if condition.number is not None:
        return bool(condition.number)
    if condition.name in ("arith.andi", "arith.ori", "arith.xori"):
        parts = [_if_finite(a, m) for a in condition.args]
        if None in parts:
            return None
        combine = {"arith.andi": all, "arith.ori": any, "arith.xori": lambda p: p[0] != p[1]}[condition.name]
        return bool(combine(parts))
    if condition.name != "arith.cmpf":
        return None
    sides = [_standing_for(a, m) for a in condition.args]
    if None in sides or (sides.count(0.0) == 2 and condition.args[0] is not condition.args[1]):
        return None
    number = predicate(condition) - 1
    return bool(COMPARISONS[number](*sides)) if 0 <= number < len(COMPARISONS) else None


def _standing_for(e: Expr, m: Expr) -> float | None:
    """0 for `m`, or its size, and ±∞: how these compare tells how every finite m does."""
    if e is m or (e.name == "math.absf" and e.args[0] is m):
        return 0.0
    return e.number if e.number is not None and math.isinf(e.number) else None
