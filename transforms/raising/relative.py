"""What the exponentials of a softmax are relative to, where a number in their sum depends on it.

    e = exp((x − f)·c),   c > 0,   f made of numbers and of m, the maximum of x in the row

f is m itself, or m guarded, as rows without a live key would give NaN: `select(m = −∞, 0, m)` or `max(m, −1e30)`.
Beside exp((x − m)·c), which the fused loop sums, a number that stood beside e is exp((f − m)·c) times itself.
"""

from __future__ import annotations

from dataclasses import dataclass

from .expressions import EXPONENTIALS, Expr
from .guards import maximum_of, without_guards
from .quotients import Keys
from .tracing import Tracer


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
    body = maximum_of(tracer, m, k)
    if body is None or (body is not scores and not (len(factors) == 1 and body is x)):
        return None
    f = without_guards(f, m)
    if f is m:
        return Relative(make.const(1.0), m)
    # Above neither c nor terms of x that are the same in a row make a difference; here they would.
    if body is not scores or exponentials[0].name != "math.exp" or difference is not exponentials[0].args[0]:
        return None
    return Relative(make.op("math.exp", (make.op("arith.subf", (f, m)),)), m)
