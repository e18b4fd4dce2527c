"""Probabilities that are rounded to 8 bits: with the scale that makes use of their range, without clamps to it.

    round(min(448, max(-448, p·256)))·x   is   round(p·256)·x:

a probability is at most 1. The scale stays before the rounding, where all other uniform factors are taken out.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ...dialects.mlir import ir
from .expressions import ROUND, Expr
from .quotients import Keys, NearMiss, Quotient, extremum, quotient, varies, without
from .softmax import Softmax
from .tracing import Tracer


@dataclass(frozen=True)
class Rounding:
    """To which type, with which factors before; `rest` is what else divides before; `limits` are those of a clamp."""

    element: ir.Type
    factors: tuple[Expr, ...]
    rest: tuple[Expr, ...]
    limits: tuple[float, float]

    def check(self, softmax: Softmax) -> None:
        """NearMiss if something is clamped that may be beyond the limits, or else not a probability times factors."""
        if softmax.own_sum is not None:
            raise NearMiss("its result, rounded to 8 bits, is divided by its sum")
        if softmax.weights:
            raise NearMiss("its result, rounded to 8 bits, is multiplied by something that varies along the keys")
        if any(f in self.rest for f in (*softmax.num, *softmax.den)):
            raise NearMiss("its result is scaled by something of each row before it is rounded to 8 bits")
        low, high = self.limits
        scale = math.prod(math.nan if f.number is None else f.number for f in self.factors)
        if self.limits != (-math.inf, math.inf) and not (low <= 0 < scale <= high):
            raise NearMiss("its result is clamped, which may be more than rounding it to 8 bits")


def split_rounding(tracer: Tracer, q: Quotient, k: Keys) -> tuple[Quotient, Rounding | None]:
    """The quotient without a rounding to 8 bits of what varies along the keys, and that."""
    found = next((f for f in q.num if f.name == ROUND and varies(f, k)), None)
    if found is None:
        return q, None
    body, limits = _unclamped(found.args[0])
    inner = quotient(tracer, body)
    one = tracer.make.const(1.0)
    factors = [f for f in inner.num if _is_given(f)]
    factors += [tracer.make.op("arith.divf", (one, f)) for f in inner.den if _is_given(f)]
    num, den = ([f for f in part if not _is_given(f)] for part in (inner.num, inner.den))
    rest = tuple(f for f in (*num, *den) if not varies(f, k))
    rounding = Rounding(found.attribute("type").value, tuple(factors), rest, limits)
    num = [*without(q.num, [found]), *num]
    return Quotient(num, [*q.den, *den], q.tested or inner.tested), rounding


def _is_given(factor: Expr) -> bool:
    """Whether it is a number that does not come from scores: a constant, or an argument."""
    is_argument = factor.kind == "element" and not factor.vars and isinstance(factor.payload[0].owner, ir.Block)
    return factor.kind in ("const", "scalar") or is_argument


def _unclamped(expr: Expr) -> tuple[Expr, tuple[float, float]]:
    """What is clamped, and to which numbers."""
    low, high = -math.inf, math.inf
    while True:
        kind, args = extremum(expr)
        bound = next((a.number for a in args if a.number is not None), None)
        if not kind or bound is None:
            return expr, (low, high)
        low, high = (max(low, bound), high) if kind == "max" else (low, min(high, bound))
        expr = next(a for a in args if a.number is None)
