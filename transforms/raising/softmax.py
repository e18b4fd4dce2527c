"""Whether an expression is a softmax along a variable k, and of what.

By what it computes: a quotient e/Σ_k e with e = exp(y). How e was shifted does not matter, exp(y − c) with any c that
is the same along k gives the same quotient; so neither the maximum nor the way it was computed is looked for. What else
may occur is a product with something that is the same along k, which is taken out, and a guard that makes fully masked
rows 0, which `linalg_ext.softmax` does by itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

from ...dialects.mlir import ir
from ..rewriting import defining_op
from .expressions import REAL, Expr
from .indices import Index, Var
from .tracing import MAXIMA, Tracer

OEQ, ONE, UNO, UEQ, UNE = 1, 6, 14, 8, 13  # arith.cmpf's predicates


class NearMiss(Exception):
    """It looks like softmax and is none: the message says why not."""


Keys = tuple[Var, ...]  # what is summed over: the keys, which may be counted through by several variables


def varies(expr: Expr, k: Keys) -> bool:
    """Whether `expr` is not the same for all keys."""
    return any(v in expr.vars for v in k)


@dataclass
class Quotient:
    """Π num / Π den."""

    num: list[Expr] = field(default_factory=list)
    den: list[Expr] = field(default_factory=list)


@dataclass(frozen=True)
class Softmax:
    """softmax(`scores`) along a variable, times Π `num` / Π `den`, which are the same along it."""

    scores: Expr
    num: tuple[Expr, ...]
    den: tuple[Expr, ...]


def quotient(tracer: Tracer, expr: Expr) -> Quotient:
    """`expr` as a product of factors, of which some divide; select(c, x, 0) is x·c, exp(y − log z) is exp(y)/z."""
    result = Quotient()
    _collect(tracer, expr, result.num, result.den)
    return result


def _collect(tracer: Tracer, expr: Expr, num: list[Expr], den: list[Expr]) -> None:
    make = tracer.make
    if expr.name == "arith.mulf":
        for arg in expr.args:
            _collect(tracer, arg, num, den)
    elif expr.name == "arith.divf":
        _collect(tracer, expr.args[0], num, den)
        _collect(tracer, expr.args[1], den, num)
    elif expr.name == "arith.negf":
        num.append(make.const(-1.0))
        _collect(tracer, expr.args[0], num, den)
    elif expr.name == "arith.select" and expr.type == REAL and 0.0 in (expr.args[1].number, expr.args[2].number):
        condition, then, otherwise = expr.args
        if then.number == 0.0:
            if condition.name == "arith.cmpf" and _is_nan_test(condition, otherwise):
                return _collect(tracer, otherwise, num, den)
            condition, then = make.negation(condition), otherwise
        num.append(make.op("arith.uitofp", (condition,)))
        _collect(tracer, then, num, den)
    elif expr.name == "math.exp":
        rest, logs = _without_logs(tracer, expr.args[0])
        if logs:
            num.append(make.op("math.exp", (rest,)))
            for sign, inner in logs:
                _collect(tracer, inner, *((num, den) if sign > 0 else (den, num)))
        else:
            num.append(expr)
    elif expr.number != 1.0:
        num.append(expr)


def _is_nan_test(condition: Expr, value: Expr) -> bool:
    return _predicate(condition) in (UNO, UNE) and condition.args[0] is value and condition.args[1] is value


def _predicate(comparison: Expr) -> int:
    attribute = comparison.attribute("predicate")
    return ir.IntegerAttr(attribute).value if attribute is not None else -1


def _without_logs(tracer: Tracer, expr: Expr) -> tuple[Expr, list[tuple[int, Expr]]]:
    """`expr` without its terms ±log(z), and these."""
    make = tracer.make
    logs: list[tuple[int, Expr]] = []

    def strip(e: Expr, sign: int) -> Expr:
        if e.name == "math.log":
            logs.append((sign, e.args[0]))
            return make.const(0.0)
        if e.name == "arith.addf":
            return make.add(strip(e.args[0], sign), strip(e.args[1], sign))
        if e.name == "arith.subf":
            return make.op("arith.subf", (strip(e.args[0], sign), strip(e.args[1], -sign)))
        return e

    rest = strip(expr, 1)
    return rest, logs


def match_softmax(tracer: Tracer, q: Quotient, k: Keys, is_statistic: Callable[[Expr], bool]) -> Softmax | None:
    """The softmax along `k` that the quotient is; None if nothing speaks for one; NearMiss if something does.

    `is_statistic` tells what is computed from whole rows of scores.
    """
    along = [f for f in q.num if varies(f, k)]
    num = [f for f in q.num if not varies(f, k)]
    ready = _existing_softmax(tracer, along, k)
    if ready is not None:
        if len(along) > 1:
            raise NearMiss("its result is multiplied by something that varies along the keys (an active dropout?)")
        _require_free(q.den, k)
        return _finished(tracer, ready, num, q.den, k, is_statistic)
    exponentials = [f for f in along if f.name in ("math.exp", "math.exp2")]
    if not exponentials:
        if along and any(_summed(tracer, divisor, k) is not None for divisor in q.den):
            raise NearMiss("what is divided by its sum is no exponential")
        return None
    for divisor in q.den:
        plain = _unguarded(divisor)
        body = None if varies(divisor, k) else _summed(tracer, plain, k)
        if body is None:
            continue
        inner = quotient(tracer, body)
        inner_along = [f for f in inner.num if varies(f, k)]
        if any(varies(f, k) for f in inner.den):
            continue
        if _same(inner_along, along):
            scores = _logarithm(tracer, along, k, is_statistic)
            if plain is not divisor and not _is_shifted_by_maximum(tracer, along, scores, k):
                raise NearMiss("its sum is bounded from below, and its exponentials are not shifted by their maximum")
            den = [d for d in q.den if d is not divisor]
            num += inner.den
            den += [f for f in inner.num if not varies(f, k)]
            _require_free(den, k)
            return _finished(tracer, scores, num, den, k, is_statistic)
        if all(f in along for f in inner_along):
            raise NearMiss("its result is multiplied by something that varies along the keys (an active dropout?)")
        raise NearMiss("its exponentials are divided by a sum of something else")
    _require_free(q.den, k)
    if not q.den:
        raise NearMiss("its exponentials are not divided by their sum")
    raise NearMiss("its exponentials are not divided by their plain sum along the keys")


def _require_free(den: list[Expr], k: Keys) -> None:
    if any(varies(d, k) for d in den):
        raise NearMiss("it is normalised along another dimension than the one that the second matmul sums over")


def _existing_softmax(tracer: Tracer, along: list[Expr], k: Keys) -> Expr | None:
    """What linalg.softmax or linalg_ext.softmax with fresh statistics is applied to."""
    for factor in along:
        op = defining_op(factor.payload[0]) if factor.kind == "element" else None
        if op is None or op.name not in ("linalg.softmax", "linalg_ext.softmax"):
            continue
        tensor, indices = factor.payload
        if op.name == "linalg_ext.softmax" and (tensor != op.results[0] or not _fresh(tracer, op)):
            return None
        dimension = ir.IntegerAttr(op.attributes["dimension"]).value
        elsewhere = any(v in i.vars for v in k for d, i in enumerate(indices) if d != dimension)
        if len(k) != 1 or indices[dimension].single is not k[0] or elsewhere:
            raise NearMiss("it is normalised along another dimension than the one that the second matmul sums over")
        return tracer.expand(tracer.make.element(op.operands[0], indices))
    return None


def _fresh(tracer: Tracer, op: ir.Operation) -> bool:
    """Whether the statistics start from −inf and 0."""
    starts = []
    for operand in (op.operands[2], op.operands[3]):
        row = tuple(Index() for _ in operand.type.shape)
        starts.append(tracer.expand(tracer.make.element(operand, row)).number)
    return starts == [-math.inf, 0.0]


def _summed(tracer: Tracer, divisor: Expr, k: Keys) -> Expr | None:
    """x, looked into, if `divisor` is Σ_k x, |Σ_k x|, or a guarded one: select(Σ = 0, 1, Σ) is Σ or x = 0."""
    if divisor.name == "math.absf":  # of exponentials, as it turns out
        divisor = divisor.args[0]
    if divisor.name == "arith.select":
        condition, then, otherwise = divisor.args
        if condition.name == "arith.cmpf" and 0.0 in (condition.args[0].number, condition.args[1].number):
            tested = condition.args[0] if condition.args[1].number == 0.0 else condition.args[1]
            if _predicate(condition) in (OEQ, UEQ) and tested is otherwise and then.number:
                divisor = otherwise
            elif _predicate(condition) in (ONE, UNE) and tested is then and otherwise.number:
                divisor = then
    if divisor.kind != "element":
        return None
    reduction = tracer.reduction(divisor)
    if reduction is None or reduction.kind != "sum" or tracer.expand(reduction.init).number != 0:
        return None
    return _along(tracer, reduction, k)


def _unguarded(divisor: Expr) -> Expr:
    """Σ for max(Σ, c) with 0 < c ≤ 1: the same if the largest term is 1, or all are 0."""
    if divisor.name in MAXIMA:
        for sum_, bound in (divisor.args, divisor.args[::-1]):
            if bound.number is not None and 0 < bound.number <= 1:
                return sum_
    return divisor


def _is_shifted_by_maximum(tracer: Tracer, factors: list[Expr], scores: Expr, k: Keys) -> bool:
    """Whether the factors are one exp(x − m), with m the maximum of `scores`, or that of it and a lower number.

    Lower than what masks may make of all scores of a row: where these are −∞, the exponentials are 0.
    """
    exponentials = [f for f in factors if f.name in ("math.exp", "math.exp2")]
    if len(exponentials) != 1 or exponentials[0].args[0].name != "arith.subf":
        return False
    m = exponentials[0].args[0].args[1]
    numbers = [n.number for n in scores.nodes() if n.type == REAL and n.number is not None and math.isfinite(n.number)]
    if m.name in MAXIMA:
        bounds = [a for a in m.args if a.number is not None and a.number < min([0.0, *numbers])]
        m = next((a for a in m.args if a.number is None), m) if bounds else m
    elif m.name == "arith.select":  # 0 in place of −∞
        m = m.args[2] if m.args[1].number == 0 else m.args[1] if m.args[2].number == 0 else m
    reduction = tracer.reduction(m) if m.kind == "element" else None
    if reduction is None or reduction.kind != "max":
        return False
    body = _along(tracer, reduction, k)
    return body is not None and (body is scores or body is unshifted(tracer, body, k, lambda e: False))


def _along(tracer: Tracer, reduction, k: Keys) -> Expr | None:
    """What `reduction` reduces, at k; None if it does not run over dimensions like k's."""
    wide = [d for d in reduction.loops if reduction.extent(d) != 1]
    if len(k) == 1 and k[0].extent == 1:
        wide = list(reduction.loops[-1:])
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


def _same(a: list[Expr], b: list[Expr]) -> bool:
    return sorted(e.serial for e in a) == sorted(e.serial for e in b)


def _logarithm(tracer: Tracer, factors: list[Expr], k: Keys, is_statistic: Callable[[Expr], bool]) -> Expr:
    """The scores: log Π factors, without shifts by statistics. A factor that is 0 or 1 becomes a mask."""
    make = tracer.make
    total: Expr | None = None
    masks: list[Expr] = []
    for f in factors:
        if f.name == "math.exp":
            term = f.args[0]
        elif f.name == "math.exp2":
            term = make.mul(f.args[0], make.const(math.log(2.0)))
        elif f.name == "arith.uitofp" and str(f.args[0].type) == "i1":
            masks.append(f.args[0])
            continue
        else:
            raise NearMiss("what is normalised is no product of exponentials and masks")
        term = unshifted(tracer, term, k, is_statistic)
        total = term if total is None else make.add(total, term)
    assert total is not None
    for mask in masks:
        total = make.op("arith.select", (mask, total, make.const(-math.inf)))
    return total


def unshifted(tracer: Tracer, expr: Expr, k: Keys, is_statistic: Callable[[Expr], bool]) -> Expr:
    """`expr` without the additive terms that are statistics of its row, such as the maximum."""
    make = tracer.make
    if expr.name in ("arith.addf", "arith.subf"):
        a, b = expr.args
        if is_statistic(b):
            return unshifted(tracer, a, k, is_statistic)
        if expr.name == "arith.addf" and is_statistic(a):
            return unshifted(tracer, b, k, is_statistic)
        if expr.name == "arith.subf" and is_statistic(a):
            return make.op("arith.negf", (unshifted(tracer, b, k, is_statistic),))
        return make.op(expr.name, (unshifted(tracer, a, k, is_statistic), unshifted(tracer, b, k, is_statistic)))
    if expr.name == "arith.mulf":
        for x, factor in (expr.args, expr.args[::-1]):
            if not varies(factor, k) and not is_statistic(factor):
                return make.mul(unshifted(tracer, x, k, is_statistic), factor)
    if expr.name == "arith.select" and expr.args[2].number == -math.inf:
        return make.op(expr.name, (expr.args[0], unshifted(tracer, expr.args[1], k, is_statistic), expr.args[2]))
    if expr.name == "arith.select" and expr.args[1].number == -math.inf:
        return make.op(expr.name, (*expr.args[:2], unshifted(tracer, expr.args[2], k, is_statistic)))
    return expr


def _finished(
    tracer: Tracer, scores: Expr, num: list[Expr], den: list[Expr], k: Keys, is_statistic: Callable[[Expr], bool]
) -> Softmax:
    """Without guards for fully masked rows. What is left over must not depend on whole rows of scores."""
    rest = []
    for factor in num:
        if factor.name == "arith.uitofp" and is_statistic(factor):
            if not _tells_masked_rows(tracer, make_not(tracer, factor.args[0]), scores, k):
                raise NearMiss("its rows are set to zero by a condition on the scores other than that all are -inf")
        else:
            rest.append(factor)
    if any(is_statistic(f) for f in (*rest, *den)):
        raise NearMiss("its result is multiplied by something that is computed from the scores")
    return Softmax(scores, tuple(rest), tuple(den))


def make_not(tracer: Tracer, condition: Expr) -> Expr:
    return tracer.make.negation(condition)


def _tells_masked_rows(tracer: Tracer, condition: Expr, scores: Expr, k: Keys) -> bool:
    """Whether `condition` says of a row that all its scores are −inf."""
    if condition.name == "arith.xori" and any(a.number for a in condition.args):
        (inner,) = [a for a in condition.args if a.number is None]
        reduction = tracer.reduction(inner) if inner.kind == "element" else None
        if reduction is None or reduction.kind != "any":
            return _compares(tracer, inner, scores, k, (ONE, UNE))
        return _is_comparison(_along(tracer, reduction, k), scores, (ONE, UNE))
    if condition.kind == "element":
        reduction = tracer.reduction(condition)
        if reduction is None or reduction.kind != "all":
            return False
        return _is_comparison(_along(tracer, reduction, k), scores, (OEQ, UEQ))
    return _compares(tracer, condition, scores, k, (OEQ, UEQ))


def _is_comparison(expr: Expr | None, scores: Expr, predicates: tuple[int, ...]) -> bool:
    """expr: `scores` = −inf, or ≠."""
    if expr is None or expr.name != "arith.cmpf" or _predicate(expr) not in predicates:
        return False
    return scores in expr.args and any(a.number == -math.inf for a in expr.args)


def _compares(tracer: Tracer, expr: Expr, scores: Expr, k: Keys, predicates: tuple[int, ...]) -> bool:
    """expr: max_k scores = −inf, or ≠."""
    if expr.name != "arith.cmpf" or _predicate(expr) not in predicates:
        return False
    if not any(a.number == -math.inf for a in expr.args):
        return False
    for a in expr.args:
        reduction = tracer.reduction(a) if a.kind == "element" else None
        if reduction is not None and reduction.kind == "max" and _along(tracer, reduction, k) is scores:
            return True
    return False
