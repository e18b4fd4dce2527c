"""An expression as a quotient of products, and whether a divisor is a sum along a variable."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from ...dialects.mlir import ir
from ..rewriting import defining_op
from .expressions import REAL, Expr
from .indices import Index, Var, combined
from .tracing import Tracer

OEQ, ONE, UNO, UEQ, UNE = 1, 6, 14, 8, 13  # arith.cmpf's predicates
GREATER, LESS = (2, 3, 9, 10), (4, 5, 11, 12)
LARGER = {"arith.maximumf", "arith.maxnumf"}
SMALLER = {"arith.minimumf", "arith.minnumf"}


class NearMiss(Exception):
    """It looks like softmax and is none: the message says why not."""


MOST = 256  # factors that are looked for: a number that is squared again and again has thousands of millions
Keys = tuple[Var, ...]  # what is summed over: the keys, which may be counted through by several variables


def varies(expr: Expr, k: Keys) -> bool:
    """Whether `expr` is not the same for all keys."""
    return any(v in expr.vars for v in k)


def without(factors: Sequence[Expr], some: Sequence[Expr]) -> list[Expr]:
    """The factors but for `some`: of what is there twice, once for each time that it is among them."""
    rest = list(factors)
    for e in some:
        if e in rest:
            rest.remove(e)
    return rest


def is_mask(expr: Expr) -> bool:
    """Whether it is a condition as a number, 0 or 1."""
    return expr.name == "arith.uitofp" and str(expr.args[0].type) == "i1"


@dataclass
class Quotient:
    """Π num / Π den; `tested`: 0 where it is no number."""

    num: list[Expr] = field(default_factory=list)
    den: list[Expr] = field(default_factory=list)
    tested: bool = False


def quotient(tracer: Tracer, expr: Expr, k: Keys = ()) -> Quotient:
    """`expr` as a product of factors, of which some divide; select(c, x, 0) is x·c, exp(y − log z) is exp(y)/z.

    A logarithm of what varies along `k`, and is no mask, stays in the exponent.
    """
    result = Quotient()
    _collect(tracer, expr, result, result.num, result.den, k)
    return result


def _collect(tracer: Tracer, expr: Expr, whole: Quotient, num: list[Expr], den: list[Expr], k: Keys) -> None:
    make = tracer.make
    if expr.name == "arith.mulf" and len(num) + len(den) < MOST:
        for arg in expr.args:
            _collect(tracer, arg, whole, num, den, k)
    elif expr.name == "arith.divf":
        _collect(tracer, expr.args[0], whole, num, den, k)
        _collect(tracer, expr.args[1], whole, den, num, k)
    elif expr.name == "arith.negf":
        num.append(make.const(-1.0))
        _collect(tracer, expr.args[0], whole, num, den, k)
    elif expr.name == "arith.select" and expr.type == REAL and 0.0 in (expr.args[1].number, expr.args[2].number):
        condition, then, otherwise = expr.args
        if then.number == 0.0:
            if condition.name == "arith.cmpf" and _is_nan_test(condition, otherwise):
                if _is_given(otherwise):
                    return num.append(expr)
                whole.tested = True
                return _collect(tracer, otherwise, whole, num, den, k)
            condition, then = make.negation(condition), otherwise
        num.append(make.op("arith.uitofp", (condition,)))
        _collect(tracer, then, whole, num, den, k)
    elif expr.name == "arith.select" and _is_test_of_infinity(expr.args[0]):
        _collect(tracer, expr.args[2], whole, num, den, k)  # as nan_to_num does; probabilities are finite
    elif expr.name == "math.exp":
        rest, logs = _without_logs(tracer, expr.args[0], k)
        if logs:
            num.append(make.op("math.exp", (rest,)))
            for sign, inner in logs:
                _collect(tracer, inner, whole, *((num, den) if sign > 0 else (den, num)), k)
        else:
            num.append(expr)
    elif expr.number != 1.0:
        num.append(expr)


def _is_nan_test(condition: Expr, value: Expr) -> bool:
    return predicate(condition) in (UNO, UNE) and condition.args[0] is value and condition.args[1] is value


def _is_given(expr: Expr) -> bool:
    """Whether it is made of arguments alone, element by element, with no exponential in it."""
    return not any(
        n.name in ("math.exp", "math.exp2") or (n.kind == "element" and defining_op(n.payload[0]) is not None)
        for n in expr.nodes()
    )


def _is_test_of_infinity(condition: Expr) -> bool:
    """Whether it compares exponentials over something with an infinity: they are never equal to it."""
    if condition.name != "arith.cmpf" or predicate(condition) not in (OEQ, UEQ):
        return False
    (value, number), (other, swapped) = condition.args, condition.args[::-1]
    for x, n in ((value, number), (other, swapped)):
        if n.number in (math.inf, -math.inf) and x.name == "arith.divf" and x.args[0].name in ("math.exp", "math.exp2"):
            return True
    return False


def predicate(comparison: Expr) -> int:
    attribute = comparison.attribute("predicate")
    return ir.IntegerAttr(attribute).value if attribute is not None else -1


def _without_logs(tracer: Tracer, expr: Expr, k: Keys) -> tuple[Expr, list[tuple[int, Expr]]]:
    """`expr` without its terms ±log(z), but those that stay, and these."""
    make = tracer.make
    logs: list[tuple[int, Expr]] = []

    @functools.cache  # sums may share terms: there may be thousands of paths to one
    def has_log(e: Expr) -> bool:
        if e.name == "math.log":
            return not varies(e.args[0], k) or is_mask(e.args[0])
        return e.name in ("arith.addf", "arith.subf") and any(map(has_log, e.args))

    def strip(e: Expr, sign: int) -> Expr:
        if not has_log(e):
            return e
        if e.name == "math.log":
            logs.append((sign, e.args[0]))
            return make.const(0.0)
        if e.name == "arith.addf":
            return make.add(strip(e.args[0], sign), strip(e.args[1], sign))
        return make.op("arith.subf", (strip(e.args[0], sign), strip(e.args[1], -sign)))

    rest = strip(expr, 1)
    return rest, logs


def unguarded(divisor: Expr) -> Expr:
    """Σ for select(Σ = 0, 1, Σ), which is Σ or divides what is 0, as all of a sum of what is not negative."""
    if divisor.name == "arith.select":
        condition, then, otherwise = divisor.args
        if condition.name == "arith.cmpf" and 0.0 in (condition.args[0].number, condition.args[1].number):
            tested = condition.args[0] if condition.args[1].number == 0.0 else condition.args[1]
            if predicate(condition) in (OEQ, UEQ) and tested is otherwise and then.number:
                return otherwise
            if predicate(condition) in (ONE, UNE) and tested is then and otherwise.number:
                return then
    return divisor


def summed(tracer: Tracer, divisor: Expr, k: Keys) -> Expr | None:
    """x, looked into, if `divisor` is Σ_k x, |Σ_k x|, or a guarded one."""
    divisor = unguarded(divisor)
    if divisor.name == "math.absf":  # a sum of exponentials is not negative
        divisor = divisor.args[0]
    if divisor.kind != "element":
        return None
    reduction = tracer.reduction(divisor)
    if reduction is None or reduction.kind != "sum" or tracer.expand(reduction.init).number != 0:
        return None
    return along_k(tracer, reduction, k)


def along_k(tracer: Tracer, reduction, k: Keys) -> Expr | None:
    """What `reduction` reduces, at k; None if it does not run over dimensions like k's."""
    wide = [d for d in reduction.loops if reduction.extent(d) != 1]
    if len(k) == 1 and k[0].extent == 1:
        wide = list(reduction.loops[-1:])
    if len(wide) == 1 < len(k) and reduction.extent(wide[0]) == math.prod(v.extent or 0 for v in k):
        return tracer.expand(reduction.body([combined(k) if d in wide else Index() for d in reduction.loops]))
    if len(wide) != len(k):
        return None
    order = sorted(wide, key=lambda d: reduction.extent(d) or 0)
    sizes = sorted(k, key=lambda v: v.extent or 0)
    if any(reduction.extent(d) not in (v.extent, None) for d, v in zip(order, sizes, strict=True)):
        return None
    if len({v.extent for v in k}) == len(k):
        at = dict(zip(order, sizes, strict=True))
    else:  # equal sizes in the order in which both have them
        at = dict(zip(wide, k, strict=True))
    return tracer.expand(reduction.body([Index.of(at[d]) if d in at else Index() for d in reduction.loops]))


def extremum(expr: Expr) -> tuple[str, tuple[Expr, ...]]:
    """Whether the larger or the smaller of two is taken, which must not both be numbers."""
    if expr.name in LARGER | SMALLER:
        return "max" if expr.name in LARGER else "min", expr.args
    if expr.name != "arith.select" or expr.args[0].name != "arith.cmpf":
        return "", ()
    test, *chosen = expr.args
    if test.args not in (tuple(chosen), tuple(chosen[::-1])) or all(a.number is not None for a in chosen):
        return "", ()
    is_greater = predicate(test) in GREATER
    if not is_greater and predicate(test) not in LESS:
        return "", ()
    return "max" if is_greater == (test.args[0] is chosen[0]) else "min", tuple(chosen)
