"""Exponentials of a·x + b with constants a and b, as one multiply-add and a power of 2.

exp(−(0.125·s − 5))      exp2(−0.18·s + 7.21)
"""

from __future__ import annotations

import math

from .expressions import Expr, Expressions


def with_powers_of_2(make: Expressions, expr: Expr) -> Expr:
    """`expr` with exp(y) as exp2(y·log₂e), whose factor becomes one with constants in y. What else is in y stays:
    scores of which another loop has the maximum are to be the same numbers here, where that is subtracted."""

    def power(node: Expr) -> Expr | None:
        if node.name != "math.exp":
            return None
        x, a, b = line(node.args[0])
        scaled = make.mul(x, make.const(a * math.log2(math.e)))
        return make.op("math.exp2", (make.add(scaled, make.const(b * math.log2(math.e))) if b else scaled,))

    return make.rewritten(expr, power)


def line(expr: Expr) -> tuple[Expr, float, float]:
    """x, a and b, where `expr` is a·x + b."""
    a, b = 1.0, 0.0
    while True:
        numbers = [arg.number for arg in expr.args]
        at = next((i for i, n in enumerate(numbers) if n is None), 0)
        other = numbers[1 - at] if len(numbers) == 2 else None
        if expr.name == "arith.negf":
            a = -a
        elif other is None or not math.isfinite(other):
            return expr, a, b
        elif expr.name == "arith.addf":
            b += a * other
        elif expr.name == "arith.subf":
            b += -a * other if at == 0 else a * other
            a = a if at == 0 else -a
        elif expr.name == "arith.mulf":
            a *= other
        elif expr.name == "arith.divf" and at == 0 and other:
            a /= other
        else:
            return expr, a, b
        expr = expr.args[at]
