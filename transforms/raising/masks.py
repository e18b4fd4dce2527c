"""Masks to the outside: what a −inf makes −inf anyway is a choice between the scores and −inf.

    (c ? 0 : −inf) + x   becomes   c ? x : −inf
    (c ? x : −inf)·2 + y           c ? x·2 + y : −inf
    c ? (d ? x : −inf) : −inf      (c and d) ? x : −inf

That is the form in which later passes see which tiles are masked as a whole.
"""

from __future__ import annotations

import math

from .expressions import REAL, Expr, Expressions


def masks_outside(make: Expressions, expr: Expr) -> Expr:
    """`expr` with masks moved outwards through sums and positive factors."""
    done: dict[Expr, Expr] = {}

    def visit(node: Expr) -> Expr:
        if node not in done:
            if not node.args or node.type != REAL:
                done[node] = node
            else:
                args = tuple(visit(a) for a in node.args)
                done[node] = _outwards(make, make.op(node.name, args, node.type, node.payload[1]))
        return done[node]

    return visit(expr)


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


def _outwards(make: Expressions, expr: Expr) -> Expr:
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
            return _outwards(
                make, make.op("arith.select", (mask[0], _outwards(make, make.op(expr.name, args)), lowest))
            )
    return expr
