"""Whether a number cannot be negative, by how it is computed."""

from __future__ import annotations

import functools

from .expressions import Expr
from .quotients import LARGER, SMALLER

NEVER_NEGATIVE = ("math.exp", "math.exp2", "math.absf", "math.sqrt", "arith.uitofp")
OF_PARTS = ("arith.addf", "arith.mulf", "arith.divf", "math.log1p", *SMALLER)  # where none of the operands is negative


def is_not_negative(expr: Expr) -> bool:
    """Whether it is at least 0, or no number: a sigmoid, a square, a condition as a number."""

    @functools.cache
    def holds(e: Expr) -> bool:
        if e.number is not None:
            return e.number >= 0
        if e.name in NEVER_NEGATIVE or (e.name == "arith.mulf" and e.args[0] is e.args[1]):
            return True
        if e.name == "arith.select":
            return all(map(holds, e.args[1:]))
        return any(map(holds, e.args)) if e.name in LARGER else e.name in OF_PARTS and all(map(holds, e.args))

    return holds(expr)
