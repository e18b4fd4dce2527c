"""Whether an expression is a softmax along a variable k, and of what.

By what it computes: a quotient e/Σ_k e with e = exp(y). How e was shifted does not matter, exp(y − c) with any c that
is the same along k gives the same quotient; so neither the maximum nor the way it was computed is looked for. What else
may occur is a product with something that is the same along k, which is taken out, and a guard that makes fully masked
rows 0, which `linalg_ext.softmax` does by itself.
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ...dialects.mlir import ir
from ..rewriting import defining_op
from .expressions import EXPONENTIALS, Expr
from .guards import maximum_of, tells_masked
from .indices import Index, combined
from .loops import extents
from .low_numbers import brought_closer
from .own_sums import OwnSum, own_sums
from .quotients import (
    OEQ,
    ONE,
    UEQ,
    UNE,
    Keys,
    NearMiss,
    Quotient,
    along_k,
    extremum,
    is_mask,
    predicate,
    quotient,
    summed,
    unguarded,
    varies,
    without,
)
from .relative import Relative, relative
from .signs import is_not_negative
from .sinks import MAX_SINKS, Beside, sinks, sums
from .tracing import Tracer

if TYPE_CHECKING:
    from .inner import Inner

SINGLE_KEY = "there is a single key, whose weight is 1"


@dataclass(frozen=True)
class Softmax:
    """softmax(`scores`) along a variable, times Π `num` / Π `den`, which are the same along it, times Π `weights`.

    `beside` is what else is in the sum, but meets no values: sinks. `least` is a lower bound of the sum.
    `weights` vary along it, and do not depend on what is computed from scores but element by element: a dropout's mask.
    `own_sum` divides by something that is made of the sum of all this. It is times the sum of exponentials, where these
    are not divided by it: relative to what `undivided` is, a 1 beside them. It is 0 where their sum is, though not all
    scores are −∞, relative to what `guarded` is, and `tested` where their sum is no number. `is_plain`: there is no
    softmax, and `scores` are what values are multiplied by; or it is in these expressions, as `inner` says.
    """

    scores: Expr
    num: tuple[Expr, ...]
    den: tuple[Expr, ...]
    beside: tuple[Beside, ...] = ()
    weights: tuple[Expr, ...] = ()
    least: Beside | None = None
    own_sum: OwnSum | None = None
    undivided: Beside | None = None
    guarded: Beside | None = None
    tested: bool = False
    is_plain: bool = False
    inner: Inner | None = None


def match_softmax(
    tracer: Tracer, q: Quotient, k: Keys, is_computed: Callable[[Expr], bool], logs: Keys = ()
) -> Softmax | None:
    """The softmax along `k` that the quotient is; None if nothing speaks for one; NearMiss if something does.

    `is_computed` tells what is computed from scores, not element by element; `logs`: see `quotient`.
    """
    try:
        return _match(tracer, q, k, is_computed, logs)
    except NearMiss:
        for rest, own_sum in own_sums(tracer, q, k, is_computed) if not q.tested else ():
            for way in (_match, _undivided):
                with contextlib.suppress(NearMiss):
                    found = way(tracer, rest, k, is_computed, logs)
                    if found is not None:
                        return replace(found, own_sum=own_sum)
        raise


def _undivided(tracer: Tracer, q: Quotient, k: Keys, is_computed: Callable[[Expr], bool], logs: Keys) -> Softmax | None:
    """exp(x − m)·w, where m is the maximum of x, or nothing, as softmax(x) times the sum of its exponentials."""

    def is_statistic(e: Expr) -> bool:
        return not varies(e, k) and is_computed(e)

    along = [f for f in q.num if varies(f, k)]
    own = [f for f in along if f.name in EXPONENTIALS]
    num, weights = without(q.num, along), without(along, own)
    if not own:
        return None
    _require_given([*weights, *num, *q.den], is_computed)
    _require_free(q.den, k)
    scores = logarithm(tracer, own, k, is_statistic)
    (one,) = sinks(tracer, own, [tracer.make.const(1.0)], is_statistic, relative(tracer, own, scores, k))
    return Softmax(scores, tuple(num), tuple(q.den), weights=tuple(weights), undivided=one)


def _match(tracer: Tracer, q: Quotient, k: Keys, is_computed: Callable[[Expr], bool], logs: Keys) -> Softmax | None:

    def is_statistic(e: Expr) -> bool:
        return not varies(e, k) and is_computed(e)

    def with_inverses(given: Quotient) -> Quotient:
        """What divides and varies along k as a factor."""
        dividing = [d for d in given.den if varies(d, k) and not is_computed(d)]
        inverses = [tracer.make.op("arith.divf", (tracer.make.const(1.0), d)) for d in dividing]
        return Quotient([*given.num, *inverses], [d for d in given.den if d not in dividing], given.tested)

    q = with_inverses(q)
    along = [f for f in q.num if varies(f, k)]
    num = [f for f in q.num if not varies(f, k)]
    ready = _existing_softmax(tracer, along, k)
    exponentials = [f for f in along if f.name in EXPONENTIALS or (ready is not None and f is ready[0])]
    if not exponentials:
        if along and any(summed(tracer, divisor, k) is not None for divisor in q.den):
            raise NearMiss("what is divided by its sum is no exponential")
        return None

    def finished(scores: Expr, own: list[Expr], num: list[Expr], den: list[Expr]) -> Softmax:
        """Of the factors `own`, and the others as weights."""
        weights = without(along, own)
        _require_given(weights, is_computed)
        _require_free(den, k)
        num, den = without(num, den), without(den, num)
        return replace(_finished(tracer, scores, num, den, k, is_statistic), weights=tuple(weights))

    missed: NearMiss | None = None
    for divisor in q.den:
        plain, bound = _unbounded(divisor)
        for body, beside in [] if varies(divisor, k) else sums(tracer, plain, k):
            inner = with_inverses(quotient(tracer, body, logs))
            own = [f for f in inner.num if varies(f, k)]
            if any(varies(f, k) for f in inner.den):
                continue
            if not _includes(along, own) or not any(f in exponentials for f in own):
                missed = missed or NearMiss("its exponentials are divided by a sum of something else")
                continue
            more = [f for f in inner.num if not varies(f, k)]
            if (beside or bound) and (more or inner.den):
                missed = NearMiss("the sum of its exponentials is scaled before others are added to it")
                continue
            try:
                scores = logarithm(tracer, own, k, is_statistic, ready)
                den = [*without(q.den, [divisor]), *more]
                found = finished(scores, own, [*num, *inner.den], den)
                to = relative(tracer, own, scores, k)
                others = sinks(tracer, own, beside, is_statistic, to)
                if not beside and bound is None and (q.tested or plain is not unguarded(plain)):
                    is_ready = ready is not None and own == [ready[0]]
                    guarded = None if is_ready else _guarded(tracer, own, is_statistic, to)
                    return replace(found, guarded=guarded)
                if bound is None or (bound.number <= 1 and to is not None and to.to_maximum):
                    return replace(found, beside=others)
                least = sinks(tracer, own, [bound], is_statistic, to)
                return replace(found, beside=others, least=least[0])
            except NearMiss as miss:
                missed = miss
    if ready is not None:
        element, scores, others = ready
        try:
            if any(other.score is not None and is_statistic(other.score) for other in others):
                raise NearMiss("it is normalised over other keys than those that the second matmul sums over")
            return replace(finished(scores, [element], num, q.den), beside=others)
        except NearMiss as miss:
            missed = missed or miss
    if missed is not None:
        raise missed
    _require_free(q.den, k)
    if not q.den:
        raise NearMiss(
            "its exponentials are not divided by their sum (attention in blocks of keys is fused if it is written as "
            "one over all of them)"
        )
    raise NearMiss("its exponentials are not divided by their plain sum along the keys")


def _guarded(
    tracer: Tracer, own: list[Expr], is_statistic: Callable[[Expr], bool], to: Relative | None
) -> Beside | None:
    """A 1 beside the exponentials of `own`, whose sum is compared with 0: relative to the largest it is never 0, but
    for rows that are masked as a whole. Else exponentials of all scores may be too small to be told from 0, as those of
    masks by large negative numbers."""
    if to is not None and to.to_maximum:
        return None
    if any(f.name in EXPONENTIALS for f in own):
        with contextlib.suppress(NearMiss):
            (one,) = sinks(tracer, own, [tracer.make.const(1.0)], is_statistic, to)
            return one
    raise NearMiss(
        "where the sum of its exponentials is 0, so is its result, and they are not relative to their maximum"
    )


def _require_given(weights: list[Expr], is_computed: Callable[[Expr], bool]) -> None:
    if any(is_computed(f) for f in weights):
        raise NearMiss(
            "its result is multiplied by something that varies along the keys and is computed from the scores"
        )


def _require_free(den: list[Expr], k: Keys) -> None:
    if any(varies(d, k) for d in den):
        if all(key.extent == 1 for key in k):
            raise NearMiss(SINGLE_KEY)
        raise NearMiss("it is normalised along another dimension than the one that the second matmul sums over")


def _existing_softmax(tracer: Tracer, along: list[Expr], k: Keys) -> tuple[Expr, Expr, tuple[Beside, ...]] | None:
    """The element of linalg.softmax, or of linalg_ext.softmax with fresh statistics, what it is applied to, and sinks:
    scores at either end of its dimension that are left out after it."""
    for factor in along:
        op = defining_op(factor.payload[0]) if factor.kind == "element" else None
        if op is None or op.name not in ("linalg.softmax", "linalg_ext.softmax"):
            continue
        tensor, indices = factor.payload
        if op.name == "linalg_ext.softmax" and (tensor != op.results[0] or not _fresh(tracer, op)):
            return None
        dimension = ir.IntegerAttr(op.attributes["dimension"]).value
        index, own = indices[dimension], combined(k)
        elsewhere = any(v in i.vars for v in k for d, i in enumerate(indices) if d != dimension)
        if index != own.plus(Index((), index.constant)) or elsewhere:
            raise NearMiss("it is normalised along another dimension than the one that the second matmul sums over")
        size, last = extents(tensor)[dimension], own.bounds()[1]
        others = (
            set(range(size)) - set(range(index.constant, index.constant + last + 1))
            if size and last is not None
            else set()
        )
        if len(others) > MAX_SINKS or (index.constant and not others):
            raise NearMiss("it is normalised over other keys than those that the second matmul sums over")

        def score(at: Index, op=op, indices=indices, dimension=dimension) -> Expr:
            at_ = tuple(at if d == dimension else i for d, i in enumerate(indices))
            return tracer.expand(tracer.make.element(op.operands[0], at_))

        beside = tuple(Beside(tracer.make.const(1.0), score(Index((), i))) for i in sorted(others))
        return factor, score(index), beside
    return None


def _fresh(tracer: Tracer, op: ir.Operation) -> bool:
    """Whether the statistics start from −inf and 0."""
    starts = []
    for operand in (op.operands[2], op.operands[3]):
        row = tuple(Index() for _ in operand.type.shape)
        starts.append(tracer.expand(tracer.make.element(operand, row)).number)
    return starts == [-math.inf, 0.0]


def _unbounded(divisor: Expr) -> tuple[Expr, Expr | None]:
    """(Σ, c) for max(Σ, c) with c > 0."""
    kind, args = extremum(divisor)
    for sum_, bound in (args, args[::-1]) if kind == "max" else ():
        if bound.number is not None and bound.number > 0:
            return sum_, bound
    return divisor, None


def _includes(all_: list[Expr], some: list[Expr]) -> bool:
    """Whether `some` are among them, each as often."""
    return len(without(all_, some)) == len(all_) - len(some)


def logarithm(
    tracer: Tracer,
    factors: list[Expr],
    k: Keys,
    is_statistic: Callable[[Expr], bool],
    ready: tuple[Expr, Expr, tuple[Beside, ...]] | None = None,
) -> Expr:
    """The scores: log Π factors, without shifts by statistics. A factor that is 0 or 1 becomes a mask.

    `ready`: a softmax, what it is of, and what it has beside that.
    """
    make = tracer.make
    terms: list[Expr] = []
    masks: list[Expr] = []
    for f in factors:
        if ready is not None and f is ready[0]:
            term = ready[1]
        elif f.name == "math.exp":
            term = f.args[0]
        elif f.name == "math.exp2":
            term = make.mul(f.args[0], make.const(math.log(2.0)))
        elif is_mask(f):
            masks.append(f.args[0])
            continue
        elif is_not_negative(f):
            term = make.op("math.log", (f,))
        else:
            raise NearMiss("what is normalised is no product of exponentials, masks and what is never negative")
        terms.append(unshifted(tracer, term, k, is_statistic))
    if len(terms) > 1:
        terms = [brought_closer(tracer, term) for term in terms]
    total = functools.reduce(make.add, (make.mul(term, make.const(float(n))) for term, n in Counter(terms).items()))
    for mask in masks:
        total = make.op("arith.select", (mask, total, make.const(-math.inf)))
    return total


def unshifted(tracer: Tracer, expr: Expr, k: Keys, is_statistic: Callable[[Expr], bool]) -> Expr:
    """`expr` without the additive terms that are statistics of its row, such as the maximum."""
    make = tracer.make

    def parts(*given: Expr) -> list[Expr]:
        """What is left of them, to be computed with."""
        left = [rest(e) for e in given]
        is_shifted = any(e is not was for e, was in zip(left, given, strict=True))
        return [brought_closer(tracer, e) for e in left] if is_shifted else left

    @functools.cache  # terms may be shared
    def rest(e: Expr) -> Expr:
        if e.name in ("arith.addf", "arith.subf"):
            a, b = e.args
            if is_statistic(b):
                return rest(a)
            if e.name == "arith.addf" and is_statistic(a):
                return rest(b)
            if e.name == "arith.subf" and is_statistic(a):
                return make.op("arith.negf", (rest(b),))
            return make.op(e.name, tuple(parts(a, b)))
        if e.name == "arith.mulf":
            for x, factor in (e.args, e.args[::-1]):
                if not varies(factor, k) and not is_statistic(factor):
                    (part,) = parts(x)
                    return make.mul(part, factor)
        if e.name == "arith.select" and e.args[2].number == -math.inf:
            return make.op(e.name, (e.args[0], rest(e.args[1]), e.args[2]))
        if e.name == "arith.select" and e.args[1].number == -math.inf:
            return make.op(e.name, (*e.args[:2], rest(e.args[2])))
        return e

    return rest(expr)


def _finished(
    tracer: Tracer, scores: Expr, num: list[Expr], den: list[Expr], k: Keys, is_statistic: Callable[[Expr], bool]
) -> Softmax:
    """Without guards for fully masked rows. What is left over must not depend on whole rows of scores."""
    rest = []
    for factor in num:
        if factor.name == "arith.uitofp" and is_statistic(factor):
            if not _tells_masked_rows(tracer, tracer.make.negation(factor.args[0]), scores, k):
                raise NearMiss("its rows are set to zero by a condition on the scores other than that all are -inf")
        else:
            rest.append(factor)
    if any(is_statistic(f) for f in (*rest, *den)):
        raise NearMiss("its result is multiplied by something that is computed from the scores")
    return Softmax(scores, tuple(rest), tuple(den))


def _tells_masked_rows(tracer: Tracer, condition: Expr, scores: Expr, k: Keys) -> bool:
    """Whether `condition` says of a row that all its scores are −inf."""
    if condition.kind == "element":
        reduction = tracer.reduction(condition)
        return (
            reduction is not None
            and reduction.kind == "all"
            and _is_comparison(along_k(tracer, reduction, k), scores, (OEQ, UEQ))
        )
    if condition.name == "arith.xori" and any(a.number for a in condition.args):
        (inner,) = [a for a in condition.args if a.number is None]
        reduction = tracer.reduction(inner) if inner.kind == "element" else None
        if reduction is not None and reduction.kind == "any":
            return _is_comparison(along_k(tracer, reduction, k), scores, (ONE, UNE))
    return any(tells_masked(condition, m) for m in condition.nodes() if maximum_of(tracer, m, k) is scores)


def _is_comparison(expr: Expr | None, scores: Expr, predicates: tuple[int, ...]) -> bool:
    """expr: `scores` = −inf, or ≠."""
    if expr is None or expr.name != "arith.cmpf" or predicate(expr) not in predicates:
        return False
    return scores in expr.args and any(a.number == -math.inf for a in expr.args)


def same_but_shift(tracer: Tracer, expr: Expr, scores: Expr) -> Expr | None:
    """c, if `expr` is exp(scores − c), where masks may make it 0; None if it is anything else."""
    q = quotient(tracer, expr)
    masks = [f.args[0] for f in q.num if is_mask(f)]
    if q.den or len(q.num) != len(masks) + 1:
        return None
    (other,) = (f for f in q.num if not is_mask(f))

    def masked(x: Expr) -> Expr:
        for mask in masks:
            x = tracer.make.op("arith.select", (mask, x, tracer.make.const(-math.inf)))
        return x

    if other.name != "math.exp":
        return None
    (exponent,) = other.args
    if masked(exponent) is scores:
        return tracer.make.const(0.0)
    return exponent.args[1] if exponent.name == "arith.subf" and masked(exponent.args[0]) is scores else None


def tests_for_masked(expr: Expr, scores: Expr, equal: bool) -> bool:
    """expr: `scores` = −inf, or ≠ without `equal`."""
    return _is_comparison(expr, scores, (OEQ, UEQ) if equal else (ONE, UNE))
