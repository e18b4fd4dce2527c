"""Products with a positive constant, by which scores, and the maxima of their rows, are scaled."""

import math

from ....dialects.build import constant_value
from ....dialects.mlir import ir
from ....dialects.tiling.structured import indexing_maps
from ...rewriting import defining_op, ops_of, terminator

MAXIMA = ("arith.maxnumf", "arith.maximumf")


def scale_of(generic: ir.Operation) -> float | None:
    """c, if all that the op does is to multiply its one input by a positive constant c, element by element."""
    if len(generic.operands) != 2 or len(generic.results) != 1:
        return None
    maps = indexing_maps(generic)
    if generic.operands[0].type != generic.results[0].type or maps[0] != maps[1]:
        return None
    block = generic.regions[0].blocks[0]
    scaled = scaled_value(terminator(block).operands[0])
    return scaled[1] if scaled is not None and scaled[0] == block.arguments[0] else None


def scaled_value(value: ir.Value) -> tuple[ir.Value, float] | None:
    """x and c, if the value is x · c of a positive constant c."""
    made = defining_op(value)
    if made is None or made.name != "arith.mulf":
        return None
    for x, c in (list(made.operands), list(made.operands)[::-1]):
        factor = constant_value(c)
        if factor is not None and 0 < factor < math.inf:
            return x, factor
    return None


def scale_of_maxima(generic: ir.Operation) -> float | None:
    """c, if all that the op does is to multiply maxima of rows, just found, by c."""
    factor = scale_of(generic)
    made = None if factor is None else defining_op(generic.operands[0])
    if made is None or made.name != "linalg.generic":
        return None
    return factor if any(o.name in MAXIMA for o in ops_of(made.regions[0].blocks[0])) else None
