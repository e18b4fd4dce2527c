"""How large the operands of exponentials are, where a function bounds scores, as a softcap does."""

from __future__ import annotations

import math

from ...dialects.build import constant_value
from ...dialects.mlir import ir
from ...dialects.tile import layout_of
from ..attention import is_contraction
from ..rewriting import defining_op
from .masking import yielded

MOST_BOUND = 63  # of |x| but for its row's number: twice that is in the range of exponents


def exponent_bound(exponential: ir.Operation) -> int | None:
    """How large an exponential's operand is at most, but for the number of its row that is subtracted at last."""
    value, factor = _without_factor(exponential.operands[0])
    difference = defining_op(value)
    if difference is not None and difference.name == "arith.subf" and _is_of_row(difference.operands[1]):
        value = difference.operands[0]
    found = factor * _bound_of(value)
    return math.ceil(found) if found <= MOST_BOUND else None


def _is_of_row(value: ir.Value) -> bool:
    """Whether a value of a body is the same for all elements of a row."""
    op = defining_op(value)
    if op is not None:
        return op.name != "linalg.index" and all(map(_is_of_row, op.operands))
    tile = _tile_of(value)
    return tile is None or layout_of(tile.type) in ("row", None)


def _tile_of(argument: ir.Value) -> ir.Value | None:
    """The operand of a linalg.generic whose element an argument of its body is; None for another op's argument."""
    op = argument.owner.owner.operation
    return op.operands[argument.arg_number] if op.name == "linalg.generic" else None


def _bound_of(value: ir.Value) -> float:
    """Of what is computed for each element of a tile."""
    value, factor = _without_factor(value)
    op = defining_op(value)
    if op is not None:
        return factor if op.name == "math.tanh" else math.inf
    tile = _tile_of(value)
    made = defining_op(tile) if tile is not None else None
    if made is None or made.name != "linalg.generic" or is_contraction(made) or len(made.results) != 1:
        return math.inf
    return factor * _bound_of(yielded(made))


def _without_factor(value: ir.Value) -> tuple[ir.Value, float]:
    """A value less what it is multiplied by, if that is a constant; and its size."""
    op = defining_op(value)
    for i in (0, 1) if op is not None and op.name == "arith.mulf" else ():
        factor = constant_value(op.operands[1 - i])
        if factor is not None:
            return op.operands[i], abs(factor)
    return value, 1.0
