"""Probabilities of an attention without a softmax by what is read for each row, of the statistics that are given.

exp(s − m) / l                                  exp2(s·log₂e − n), where n = m·log₂e + log₂ l, if no s can be the
                                                low number of a mask; else exp(s − m)·n, where n = 1 / l
exp((c ? s : −1e9) − m)                         c ? exp(s − m) : m < −2¹⁷ ? 1 : 0 (live_rows.py)
exp((c ? s : −1e9) − m) / l                     c ? exp2(s·log₂e − n) : w, where w = m < −2¹⁷ ? 1 / l : 0
(x / l + c)·exp(s − m), c of the row            (x + c·l)·(exp(s − m) / l), as a derivative by scores is written that
                                                does not have the probabilities: these are made once for all
0 if all scores of the row are −∞, else x       x, where exp(s − m) is a factor, which is 0 there
"""

from __future__ import annotations

import math
from dataclasses import replace

from ...dialects.mlir import arith
from .dead_weights import is_zero, zeros_outside
from .expressions import Expr, Expressions
from .live_rows import masked_rows, masks_apart, with_infinite_masks
from .masks import masks_outside
from .matching import Match

LARGEST_NUMBER = 2.0**13  # in scores; others may be masks


def by_rows(match: Match) -> Match:
    """The match with what is made of statistics alone read instead."""
    if not match.follows:
        return match
    weights = _without_tests(match, _with_infinite_masks(match, match.softmax.scores))
    weights = zeros_outside(match.tracer.make, weights, match.scores.element)
    return replace(match, softmax=replace(match.softmax, scores=_read(match, weights)))


def _with_infinite_masks(match: Match, weights: Expr) -> Expr:
    """The weights with −∞ in place of the low numbers of masks where probabilities are computed of them."""
    make, products = match.tracer.make, _products(match)

    def replaced(node: Expr) -> Expr | None:
        if node.name == "arith.select":
            return _of_kept_weights(match, node)
        if not _is_relative(match, node):
            return None
        x, maximum = node.args[0].args
        x = with_infinite_masks(make, masks_outside(make, x, products), maximum, products)
        return _relative(make, "math.exp", x, maximum)

    return make.rewritten(weights, replaced)


def _relative(make: Expressions, function: str, x: Expr, to: Expr) -> Expr:
    return make.op(function, (make.op("arith.subf", (x, to)),))


def _of_kept_weights(match: Match, node: Expr) -> Expr | None:
    """w > 0 ? w : exp2(x − n) by scores alone, where w is the probability of each key in rows that are masked as a
    whole, and 0 in others; None if it is none."""
    make, given, products = match.tracer.make, match.tracer.given, _products(match)
    masked, weight, power = node.args
    if weight.kind != "element" or not given.is_weight(weight.payload[0]):
        return None
    if power.name != "math.exp2" or power.args[0].name != "arith.subf":
        return None
    x, shift = power.args[0].args
    x = masks_outside(make, x, products)
    apart = masks_apart(make, x, products)
    if apart is None:
        return None
    rows = masked_rows(make, x, shift, apart.masks)
    masked = masked if rows is None else make.all_of([rows, masked])
    return apart.probabilities(make, _relative(make, "math.exp2", apart.scores, shift), masked, weight)


def _products(match: Match) -> frozenset[Expr]:
    return frozenset(p.scores.element for p in (match.first, *match.beside))


def _without_tests(match: Match, weights: Expr) -> Expr:
    """The weights without guards against rows that are masked as a whole, if they are 0 there."""
    make, unguarded = match.tracer.make, _unguarded(match, weights)
    is_zero_there = any(is_zero(make, unguarded, {p: make.const(-math.inf)}.get) for p in _products(match))
    return unguarded if is_zero_there else weights


def _unguarded(match: Match, weights: Expr) -> Expr:
    """The weights as they are where not all of a row is masked."""
    make, given = match.tracer.make, match.tracer.given

    def known(node: Expr) -> Expr | None:
        kind = given.kinds.get(node.payload[0]) if node.kind == "element" else None
        return make.const(kind == "live", node.type) if kind in ("masked", "live") else None

    return make.rewritten(weights, known)


def _read(match: Match, weights: Expr) -> Expr:
    make, given = match.tracer.make, match.tracer.given

    def replaced(node: Expr) -> Expr | None:
        of_probability = _of_probability(match, node)
        if of_probability is not None:
            return make.rewritten(of_probability, replaced)
        power = _power(match, node)
        if power is not None:
            return power
        if _is_relative(match, node):
            apart = _without_masks(match, node)
            return None if apart is None else make.rewritten(apart, replaced)
        if node.kind == "element" and node.payload[0] in given:
            return make.element(given.statistic(node.payload[0]), node.payload[1])
        if node.name != "arith.divf" or not node.vars - node.args[1].vars:
            return None
        dividend, divisor = make.rewritten(node.args[0], replaced), node.args[1]
        if divisor.kind == "element" and given.is_sum(divisor.payload[0]):
            return make.mul(dividend, make.element(given.inverse(divisor.payload[0]), divisor.payload[1]))
        return make.mul(dividend, make.op("arith.divf", (make.const(1.0), make.rewritten(divisor, replaced))))

    return make.rewritten(weights, replaced)


def _of_probability(match: Match, node: Expr) -> Expr | None:
    """(x / l + c)·exp(s − m) as (x + c·l)·(exp(s − m) / l); None if it is none."""
    make, given = match.tracer.make, match.tracer.given
    for factor, exponential in (node.args, node.args[::-1]) if node.name == "arith.mulf" else ():
        if not _is_relative(match, exponential):
            continue
        for sums in (n.args[1] for n in factor.nodes() if n.name == "arith.divf"):
            if sums.kind == "element" and given.is_sum(sums.payload[0]):
                times = _times(match, factor, sums)
                return None if times is None else make.mul(times, make.op("arith.divf", (exponential, sums)))
    return None


def _is_relative(match: Match, node: Expr) -> bool:
    """Whether it is exp(s − m)."""
    if node.name != "math.exp" or node.args[0].name != "arith.subf":
        return False
    maximum = node.args[0].args[1]
    return maximum.kind == "element" and match.tracer.given.is_shift(maximum.payload[0])


def _times(match: Match, expr: Expr, sums: Expr) -> Expr | None:
    """`expr` times the sums that it is divided by, or that each of its terms is; None if one is not, nor is the same
    for all of a row."""
    make = match.tracer.make
    if expr.name == "arith.divf" and expr.args[1] is sums:
        return expr.args[0]
    if expr.number == 0:
        return expr
    if expr.vars and expr.vars <= sums.vars:
        return _of_rows(match, expr, sums)
    if expr.name in ("arith.mulf", "arith.divf"):  # one of the factors, not what divides
        for at, arg in enumerate(expr.args[: 2 if expr.name == "arith.mulf" else 1]):
            found = _times(match, arg, sums) if arg.vars - sums.vars else None
            if found is not None:
                return make.op(expr.name, (*expr.args[:at], found, *expr.args[at + 1 :]))
        return None
    if expr.name in ("arith.addf", "arith.subf", "arith.negf", "arith.select"):
        kept = 1 if expr.name == "arith.select" else 0
        terms = [_times(match, arg, sums) for arg in expr.args[kept:]]
        return None if None in terms else make.op(expr.name, (*expr.args[:kept], *filter(None, terms)))
    return None


def _of_rows(match: Match, expr: Expr, sums: Expr) -> Expr:
    """What is the same for all of a row times the sums: one tensor for all that read it, where it is one."""
    make, given = match.tracer.make, match.tracer.given
    if expr.kind == "element":
        along = [[i for i in e.payload[1] if i.vars] for e in (expr, sums)]
        product = given.product(expr.payload[0], sums.payload[0]) if along[0] == along[1] else None
        if product is not None:
            return make.element(product, expr.payload[1])
    return make.mul(expr, sums)


def _without_masks(match: Match, node: Expr) -> Expr | None:
    """exp(s − m) by scores alone, and by whether a row is masked as a whole, where s may be the low number of a mask;
    None if it never is."""
    make = match.tracer.make
    x, maximum = node.args[0].args
    apart = masks_apart(make, x, _products(match))
    if apart is None:
        return None
    masked = make.compared(arith.CmpFPredicate.OLT, maximum, make.const(apart.lowest))
    # What is subtracted is a score, or 0: no product of it is infinite.
    largest_score = make.op("arith.select", (masked, make.const(0.0), maximum))
    found = _relative(make, "math.exp", apart.scores, largest_score)
    return apart.probabilities(make, found, masked, make.const(1.0))


def _power(match: Match, node: Expr) -> Expr | None:
    """exp(s − m), or exp(s − m) / l, as 2 to a product less what is read for each row. Where s may be the low number of
    a mask, the latter alone, and by scores alone: log₂ l is nothing beside that number, nor its product with log₂e
    exactly that of m."""
    make, given = match.tracer.make, match.tracer.given
    if match.values is None:  # probabilities that are returned are to be as exact as s − m is
        return None
    exponential, *divisor = node.args if node.name == "arith.divf" else (node,)
    if exponential.name != "math.exp" or exponential.args[0].name != "arith.subf":
        return None
    x, maximum = exponential.args[0].args
    apart = masks_apart(make, x, _products(match)) if divisor else None
    rows = [maximum, *divisor]
    if any(n.kind != "element" or n.vars != maximum.vars for n in rows) or not given.is_maximum(maximum.payload[0]):
        return None
    if any(not given.is_sum(n.payload[0]) for n in divisor):
        return None
    if not _has_scores_alone(match, x if apart is None else apart.scores):
        return None
    maxima, sums = maximum.payload[0], divisor[0].payload[0] if divisor else None
    shift = given.shift(maxima, sums, apart.lowest if apart else None)
    if shift is None:
        return None

    def power(x: Expr) -> Expr:
        scaled = make.mul(x, make.const(math.log2(math.e)))
        return _relative(make, "math.exp2", scaled, make.element(shift, maximum.payload[1]))

    if apart is None:
        return power(x)
    weight = make.element(given.weight_of_masked(maxima, sums, apart.lowest), maximum.payload[1])
    masked = make.compared(arith.CmpFPredicate.OGT, weight, make.const(0.0))
    return apart.probabilities(make, power(apart.scores), masked, weight)


def _has_scores_alone(match: Match, x: Expr) -> bool:
    """Whether no number in it may be one of a mask."""
    products = _products(match)
    leaves = [n for n in x.nodes() if n.kind in ("element", "const")]
    return all(n in products or abs(n.number or math.inf) < LARGEST_NUMBER for n in leaves)
