"""The guard of a row's maximum, which is −∞ where all scores are: exp(x − m) would be NaN of −∞ − −∞."""

from __future__ import annotations

import math

from ..dialects.build import constant_value
from ..dialects.mlir import arith, ir
from .rewriting import defining_op


def guarded(value: ir.Value) -> tuple[ir.Value, ir.Value] | None:
    """m and c, where `value` is c in the place of −∞; None of anything else::

    %dead = arith.cmpf oeq, %m, %minus_inf
    %value = arith.select %dead, %c, %m
    """
    op = defining_op(value)
    if op is None or op.name != "arith.select":
        return None
    condition, instead, maximum = op.operands
    test = defining_op(condition)
    if test is None or test.name != "arith.cmpf" or test.operands[0] != maximum:
        return None
    is_equal = ir.IntegerAttr(test.attributes["predicate"]).value == int(arith.CmpFPredicate.OEQ)
    return (maximum, instead) if is_equal and constant_value(test.operands[1]) == -math.inf else None
