"""Guards for rows that are masked as a whole: conditions on their maximum, which is −∞ there and finite elsewhere.

select(m = −∞, 0, m),   p·uitofp(m ≠ −∞),   isinf(m), m > −∞, and what `and`, `or` and `not` make of them
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable

from .expressions import Expr
from .quotients import Keys, along_k, predicate
from .tracing import Tracer

LOWEST = -3e38  # nothing that is lower raises a maximum
# arith.cmpf's predicates for operands of which none is NaN, and whether they hold if one is.
COMPARISONS: tuple[Callable[[float, float], bool], ...] = (
    *(operator.eq, operator.gt, operator.ge, operator.lt, operator.le, operator.ne, lambda a, b: True),
    *(operator.eq, operator.gt, operator.ge, operator.lt, operator.le, operator.ne, lambda a, b: False),
)


def maximum_of(tracer: Tracer, m: Expr, k: Keys) -> Expr | None:
    """x, if `m` is the maximum of x along k."""
    reduction = tracer.reduction(m) if m.kind == "element" else None
    if reduction is None or reduction.kind != "max":
        return None
    start = tracer.expand(reduction.init).number
    return along_k(tracer, reduction, k) if start is not None and start < LOWEST else None


def without_guards(f: Expr, m: Expr) -> Expr:
    """`f` as it is where `m` is finite: where it is −∞, all exponentials are 0, and so is the attention."""
    while f.name == "arith.select":
        chosen = _holds(f.args[0], m, _if_finite)
        if chosen is None:
            return f
        f = f.args[1] if chosen else f.args[2]
    return f


def tells_masked(condition: Expr, m: Expr) -> bool:
    """Whether `condition` holds where `m` is −∞, and nowhere else."""
    return _holds(condition, m, _if_masked) is True and _holds(condition, m, _if_finite) is False


def _holds(condition: Expr, m: Expr, number: Callable[[Expr, Expr], float | None]) -> bool | None:
    """Whether `condition` holds if what stands in it are these numbers; None if that depends, or is not known."""
    if condition.number is not None:
        return bool(condition.number)
    if condition.name in ("arith.andi", "arith.ori", "arith.xori"):
        parts = [_holds(a, m, number) for a in condition.args]
        if None in parts:
            return None
        combine = {"arith.andi": all, "arith.ori": any, "arith.xori": lambda p: p[0] != p[1]}[condition.name]
        return bool(combine(parts))
    if condition.name != "arith.cmpf":
        return None
    sides = [number(a, m) for a in condition.args]
    if None in sides or (sides.count(0.0) == 2 and condition.args[0] is not condition.args[1]):
        return None
    which = predicate(condition) - 1
    return bool(COMPARISONS[which](*sides)) if 0 <= which < len(COMPARISONS) else None


def _if_finite(e: Expr, m: Expr) -> float | None:
    """0 for `m`, or its size, and ±∞: how these compare tells how every finite m does."""
    if e is m or (e.name == "math.absf" and e.args[0] is m):
        return 0.0
    return e.number if e.number is not None and math.isinf(e.number) else None


def _if_masked(e: Expr, m: Expr) -> float | None:
    """What `e` is where `m` is −∞."""
    if e is m:
        return -math.inf
    return math.inf if e.name == "math.absf" and e.args[0] is m else e.number
