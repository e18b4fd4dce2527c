"""Masks of attention without a softmax, moved to where they make weights 0.

    σ(select(c, x, −∞))                        select(c, σ(x), 0)
    y = select(c, x, −∞), select(y > 0, y, 0)  select(c, select(x > 0, x, 0), 0)
    σ(x)·float(c)                              select(c, σ(x), 0)

So tiles that a mask makes dead can be skipped whatever function makes weights of scores. What is masked is replaced by
its number: if that makes 0 of the whole, whatever is not known, it is a mask of the whole. (0 times anything is taken
to be 0, and adding to ∞ to give ∞.)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

from .expressions import Expr, Expressions, folded
from .quotients import GREATER, LESS, is_mask, predicate

_MORE: dict[str, Callable[..., float]] = {
    "arith.maximumf": max,
    "arith.maxnumf": max,
    "arith.minimumf": min,
    "arith.minnumf": min,
    "math.absf": abs,
    "math.exp": lambda x: math.exp(min(x, 700.0)) if x < math.inf else x,
    "math.exp2": lambda x: 2.0 ** min(x, 1000.0) if x < math.inf else x,
    "math.sqrt": lambda x: math.sqrt(x) if x >= 0 else math.nan,
    "math.tanh": math.tanh,
    "math.erf": math.erf,
}


def zeros_outside(make: Expressions, weights: Expr, scores: Expr) -> Expr:
    """The weights with masks, conditions that do not depend on the scores, at the outermost place."""
    conditions: list[Expr] = []
    while (found := _dead(make, weights, scores)) is not None:
        condition, weights = found
        conditions.append(condition)
    if not conditions:
        return weights
    return make.op("arith.select", (make.all_of(conditions), weights, make.const(0.0)))


def is_zero(make: Expressions, expr: Expr, where: Callable[[Expr], Expr | None]) -> bool:
    """Whether `expr` is 0 with what `where` gives in place of its nodes, whatever the others are."""
    return _number(make.rewritten(expr, where), {}) == 0


def _dead(make: Expressions, weights: Expr, scores: Expr) -> tuple[Expr, Expr] | None:
    """A condition without which the weights are 0, and what they are where it holds."""
    for node in weights.nodes():
        for condition, live, dead in _choices(make, node):
            if scores in set(condition.nodes()):
                continue
            if _number(_replaced(make, weights, node, dead), {}) == 0:
                return condition, _replaced(make, weights, node, live)
    return None


def _replaced(make: Expressions, expr: Expr, node: Expr, by: Expr) -> Expr:
    return make.rewritten(expr, lambda n: by if n is node else None)


def _choices(make: Expressions, node: Expr) -> Iterator[tuple[Expr, Expr, Expr]]:
    """(when, what, else a number) of a node that is a choice."""
    if is_mask(node):
        yield node.args[0], make.const(1.0), make.const(0.0)
    if node.name == "arith.select":
        condition, then, otherwise = node.args
        if otherwise.number in (0.0, -math.inf):
            yield condition, then, otherwise
        if then.number in (0.0, -math.inf):
            yield make.negation(condition), otherwise, then


def _number(expr: Expr, known: dict[Expr, float | None]) -> float | None:
    """The number that `expr` is whatever its elements are; None if that is not known."""
    if expr not in known:
        known[expr] = _computed(expr, [_number(a, known) for a in expr.args])
    return known[expr]


def _computed(expr: Expr, args: list[float | None]) -> float | None:
    name = expr.name
    if expr.kind == "const":
        return expr.number
    if name == "arith.mulf" and 0.0 in args:
        return 0.0
    if name in ("arith.addf", "arith.subf") and None in args:
        infinite = [(-a if name == "arith.subf" and i else a) for i, a in enumerate(args) if a is not None]
        return infinite[0] if infinite and math.isinf(infinite[0]) else None
    if name == "arith.divf":
        first, second = args
        return 0.0 if first == 0 or (second is not None and math.isinf(second)) else None
    if name == "arith.select":
        condition, then, otherwise = args
        if condition is None:
            return then if then == otherwise else None
        return then if condition else otherwise
    numbers = [a for a in args if a is not None]
    if len(numbers) < len(args):
        return None
    if name == "arith.cmpf" and predicate(expr) in (*GREATER, *LESS) and numbers[0] != numbers[1]:
        return float((numbers[0] > numbers[1]) == (predicate(expr) in GREATER))
    return _MORE[name](*numbers) if name in _MORE else folded(name, numbers)
