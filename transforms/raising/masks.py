"""Masks to the outside: what a −inf makes −inf anyway is a choice between the scores and −inf.

    (c ? 0 : −inf) + x   becomes   c ? x : −inf
    (c ? x : −inf)·2 + y           c ? x·2 + y : −inf
    c ? (d ? x : −inf) : −inf      (c and d) ? x : −inf
    x·m − 10⁹·(1 − m)              c ? x : −10⁹, where m is c as a number
    (c ? 0 : −10⁹) + x             c ? x : −10⁹, as it is in f32, if x is a score

That is the form in which later passes see which tiles are masked as a whole.
"""

from __future__ import annotations

import math
from collections.abc import Set as AbstractSet

from ..online.score_masks import ABSORBING
from ..online.scores import LARGEST_TERM, OF_SCORES
from .expressions import REAL, Expr, Expressions


def masks_outside(make: Expressions, expr: Expr, products: AbstractSet[Expr] = frozenset()) -> Expr:
    """`expr` with masks moved outwards through sums and positive factors. `products`: of queries and keys."""
    done: dict[Expr, Expr] = {}

    def visit(node: Expr) -> Expr:
        if node not in done:
            if not node.args or node.type != REAL:
                done[node] = node
            else:
                args = tuple(visit(a) for a in node.args)
                done[node] = _outwards(make, make.op(node.name, args, node.type, node.payload[1]), products)
        return done[node]

    return visit(expr)


def is_score(x: Expr, products: AbstractSet[Expr]) -> bool:
    """Whether it is made of products and small constants alone: nothing that is loaded, which may hold a mask."""

    def may_be(node: Expr) -> bool:
        if node.kind == "op":
            return node.name.removeprefix("arith.") in OF_SCORES or node.name == "math.tanh"
        return node in products or (node.number is not None and abs(node.number) <= LARGEST_TERM)

    return all(map(may_be, x.nodes()))


def split_mask(make: Expressions, expr: Expr) -> tuple[Expr, Expr] | None:
    """(condition, x) if `expr` is x where the condition holds and −inf elsewhere."""
    if expr.name != "arith.select":
        return None
    condition, then, otherwise = expr.args
    if otherwise.number == -math.inf:
        return condition, then
    if then.number == -math.inf:
        return make.negation(condition), otherwise
    return None


def _choice(make: Expressions, expr: Expr) -> tuple[Expr, Expr, Expr] | None:
    """(condition, then, otherwise), also of a condition as a number."""
    if expr.name == "arith.select":
        return expr.args[0], expr.args[1], expr.args[2]
    if expr.name == "arith.uitofp" and str(expr.args[0].type) == "i1":
        return expr.args[0], make.const(1.0), make.const(0.0)
    return None


def _merged(make: Expressions, expr: Expr) -> Expr | None:
    """Arithmetic on two choices by one condition, or on one between numbers, as a choice; None for anything else."""
    if expr.name not in ("arith.addf", "arith.subf", "arith.mulf"):
        return None
    choices = [_choice(make, a) for a in expr.args]
    if choices[0] is not None and choices[1] is not None and choices[0][0] is choices[1][0]:
        (condition, *first), (_, *second) = choices[0], choices[1]
        parts = [make.op(expr.name, pair) for pair in zip(first, second, strict=True)]
        return make.op("arith.select", (condition, *parts))
    for at in (0, 1):
        choice, other = choices[at], expr.args[1 - at]
        if choice is None:
            continue
        numbers = [part.number for part in choice[1:]]
        if other.number is not None and None not in numbers:
            pairs = [(part, other) if at == 0 else (other, part) for part in choice[1:]]
            return make.op("arith.select", (choice[0], *(make.op(expr.name, pair) for pair in pairs)))
        if expr.name == "arith.mulf" and 0.0 in numbers and 1.0 in numbers:
            parts = [other if number == 1.0 else make.const(0.0) for number in numbers]
            return make.op("arith.select", (choice[0], *parts))
    return None


def _with_low_number(make: Expressions, expr: Expr, products: AbstractSet[Expr]) -> Expr | None:
    """A sum of a score and a choice between 0 and a low number as a choice; None for anything else."""
    for mask, score in (expr.args, expr.args[::-1]) if expr.name == "arith.addf" else ():
        numbers = [a.number for a in mask.args[1:]] if mask.name == "arith.select" else [None]
        if None in numbers or 0.0 not in numbers or not -math.inf < min(numbers) <= ABSORBING:
            continue
        if is_score(score, products):
            sides = (score if number == 0 else make.const(number) for number in numbers)
            return make.op("arith.select", (mask.args[0], *sides))
    return None


def _outwards(make: Expressions, expr: Expr, products: AbstractSet[Expr]) -> Expr:
    merged = _merged(make, expr) or _with_low_number(make, expr, products)
    if merged is not None:
        return _outwards(make, merged, products)
    lowest = make.const(-math.inf)
    if expr.name == "arith.select":
        outer = split_mask(make, expr)
        inner = split_mask(make, outer[1]) if outer else None
        if outer is None:
            return expr
        condition, x = outer
        if inner is not None:
            condition, x = make.op("arith.andi", (condition, inner[0]), condition.type), inner[1]
        return make.op("arith.select", (condition, x, lowest))
    if expr.name in ("arith.addf", "arith.mulf", "arith.subf"):
        for at in (0,) if expr.name == "arith.subf" else (0, 1):
            mask = split_mask(make, expr.args[at])
            other = expr.args[1 - at]
            if mask is None or (expr.name == "arith.mulf" and not (other.number is not None and other.number > 0)):
                continue
            args = (mask[1], other) if at == 0 else (other, mask[1])
            inside = _outwards(make, make.op(expr.name, args), products)
            return _outwards(make, make.op("arith.select", (mask[0], inside, lowest)), products)
    return expr
