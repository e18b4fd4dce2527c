"""What is a score, by how it is made, and what is a mask's number."""

from __future__ import annotations

from ...dialects.build import constant_value
from ...dialects.mlir import ir
from ..attention import is_contraction
from ..rewriting import defining_op
from .positions import Scalar, follow_far, through_views

HIGHEST_MASK = -(2.0**15)  # that of f16 is −65504
LARGEST_TERM = 2.0**20  # a constant that scores are made with, and no mask
OF_SCORES = ("addf", "subf", "mulf", "divf", "negf", "extf", "truncf", "maximumf", "minimumf", "maxnumf", "minnumf")
OF_INTEGERS = ("arith.sitofp", "arith.uitofp")


def is_score(scalar: Scalar) -> bool:
    """Whether a number is made of scores, and of small constants and indices: no mask, and nothing loaded, which may
    hold one."""
    followed = follow_far(scalar)
    op = defining_op(followed.value)
    if op is None:
        place = through_views(followed)
        maker = defining_op(place[0]) if place is not None else None
        return maker is not None and is_contraction(maker)
    if op.name == "arith.constant":
        number = constant_value(followed.value)
        return number is not None and abs(number) <= LARGEST_TERM
    if op.name in OF_INTEGERS:
        return True
    known = op.name.removeprefix("arith.") in OF_SCORES or op.name.startswith("math.")
    floats = [n for n, v in enumerate(op.operands) if isinstance(v.type, ir.FloatType)]
    return known and bool(floats) and all(is_score(followed.operand(n)) for n in floats)
