"""How large or small numbers of a body are, as far as it says: operands of exponentials, where a function bounds
scores, as a softcap does; maxima, where masks are finite; what is no subnormal."""

from __future__ import annotations

import math

from ...dialects.build import constant_value
from ...dialects.mlir import arith, ir
from ...dialects.tile import layout_of
from ...dialects.tiling.structured import reduces
from ..attention import is_matmul
from ..online.score_masks import NO_SCORE
from ..rewriting import defining_op, terminator
from .masking import yielded

LOW = NO_SCORE  # below it s · c − m · c, of the rounded m · c, is far from 0 where s is m: 1 from 2²⁴ on
LOWEST_OF_F16 = -65504.0
SMALLEST = 2.0**-126  # of the f32 that are not subnormal
MOST = 126.0  # of |x| in 2^x, where it is bounded
BOUNDED = ("math.tanh", "math.exp", "math.exp2", "tile.exp2")
NEVER_NEGATIVE = ("math.exp", "math.exp2", "math.absf", "math.sqrt")
MOST_BOUND = 84  # of an operand but for its row's number: that of the row has half of it left


def exponent_bound(exponential: ir.Operation) -> int | None:
    """How large an exponential's operand is at most, but for the number of its row that is subtracted at last. None
    where that is too much: with the number of the row, which is known to be no larger (a maximum), or less (one that is
    kept within `row_limit`), the operand must be in the range of exponents."""
    element, row, factor = exponent_parts(exponential)
    most = factor * _bound_of(element)
    if most > MOST_BOUND:
        return None
    most = math.ceil(most)
    of_row = min(most, factor * _bound_of_row(row)) if row is not None else 0.0
    return most if most + of_row <= MOST else None


def may_be_low(value: ir.Value, low: float = LOW) -> bool:
    """Whether what a body computes may be a finite number below `low`, by what masks are: floats from memory that reach
    so far, and constants."""
    number, op = constant_value(value), defining_op(value)
    if number is not None:
        return -math.inf < number < low
    if op is not None:
        if op.name == "arith.select" and _is_test_of_low(op.operands[0], op.operands[2], low):
            return may_be_low(op.operands[1], low)
        floats = (v for v in op.operands if isinstance(v.type, ir.FloatType))
        return op.name not in BOUNDED and any(may_be_low(v, low) for v in floats)
    tile = tile_of(value)
    if tile is None or not isinstance(tile.type, ir.RankedTensorType):  # any number
        return _reaches(value.type, low)
    return _tile_may_be_low(tile, low)


def _reaches(kind: ir.Type, low: float) -> bool:
    """Whether a type of floats has numbers below `low`."""
    return not isinstance(kind, ir.F16Type) or low > LOWEST_OF_F16


def _is_test_of_low(condition: ir.Value, value: ir.Value, low: float) -> bool:
    """Whether it holds where the value is below `low`."""
    op = defining_op(condition)
    if op is None or op.name != "arith.cmpf" or op.operands[0] != value:
        return False
    number = constant_value(op.operands[1])
    is_less = ir.IntegerAttr(op.attributes["predicate"]).value == int(arith.CmpFPredicate.OLT)
    return is_less and number is not None and number >= low


def _tile_may_be_low(tile: ir.Value, low: float) -> bool:
    made = defining_op(tile)
    if not _reaches(tile.type.element_type, low):
        return False
    if made is not None and made.name == "scf.if":
        number = list(made.results).index(tile)
        ends = (terminator(region.blocks[0]).operands[number] for region in made.regions)
        return any(_tile_may_be_low(v, low) for v in ends)
    if made is not None and made.name in ("tile.wait_matmuls", "tile.settle"):
        return _tile_may_be_low(made.operands[0], low)
    if made is None or made.name != "linalg.generic" or is_matmul(made):
        return made is not None and made.name.startswith("tile.")  # what comes from memory
    if reduces(made):  # the maximum of a row
        return any(_tile_may_be_low(v, low) for v in made.operands if isinstance(v.type, ir.RankedTensorType))
    return may_be_low(terminator(made.regions[0].blocks[0]).operands[list(made.results).index(tile)], low)


def row_limit(exponential: ir.Operation) -> float | None:
    """Within which numbers, of either sign, a row's must be kept for its exponentials to have a bound, masks aside.
    None: there is none, or no need for it."""
    element, row, factor = exponent_parts(exponential)
    most = math.ceil(min(factor * _bound_of(element, masked=True), MOST_BOUND + 1))
    if row is None or most > MOST_BOUND or 2 * most <= MOST:
        return None
    return (MOST - most) / factor


def exponent_parts(exponential: ir.Operation) -> tuple[ir.Value, ir.Value | None, float]:
    """(x − m) · c as x, m and |c|; m: None if the operand is x · c."""
    value, factor = _without_factor(exponential.operands[0])
    difference = defining_op(value)
    if difference is not None and difference.name == "arith.subf" and _is_of_row(difference.operands[1]):
        return difference.operands[0], difference.operands[1], factor
    return value, None, factor


def _is_of_row(value: ir.Value) -> bool:
    """Whether a value of a body is the same for all elements of a row."""
    op = defining_op(value)
    if op is not None:
        return op.name != "linalg.index" and all(map(_is_of_row, op.operands))
    tile = tile_of(value)
    return tile is None or layout_of(tile.type) in ("row", None)


def tile_of(argument: ir.Value) -> ir.Value | None:
    """The operand of a linalg.generic whose element an argument of its body is; None for another op's argument."""
    op = argument.owner.owner.operation
    return op.operands[argument.arg_number] if op.name == "linalg.generic" else None


def _bound_of(value: ir.Value, masked: bool = False) -> float:
    """Of what is computed for each element of a tile; of elements that masks make −∞, if there may be some (`masked`),
    before."""
    value, factor = _without_factor(value)
    op = defining_op(value)
    if op is None:
        tile = tile_of(value)
        return math.inf if tile is None else factor * _bound_of_tile(tile, masked)
    if masked and op.name == "arith.select":
        live = [v for v in list(op.operands)[1:] if constant_value(v) != -math.inf]
        return factor * max((_bound_of(v, masked) for v in live), default=0.0)
    return factor if op.name == "math.tanh" else math.inf


def _bound_of_tile(tile: ir.Value, masked: bool) -> float:
    made = defining_op(tile)
    if masked and made is not None and made.name == "scf.if":
        number = list(made.results).index(tile)
        return max(_bound_of_tile(terminator(region.blocks[0]).operands[number], masked) for region in made.regions)
    if made is None or made.name != "linalg.generic" or is_matmul(made) or len(made.results) != 1:
        return math.inf
    return _bound_of(yielded(made), masked)


def _bound_of_row(value: ir.Value) -> float:
    """Of a row's number, if something keeps it within limits."""
    op = defining_op(value)
    if op is None:
        tile = tile_of(value)
        made = defining_op(tile) if tile is not None else None
        if made is None or made.name != "linalg.generic" or reduces(made):
            return math.inf
        return _bound_of_row(terminator(made.regions[0].blocks[0]).operands[list(made.results).index(tile)])
    if op.name == "arith.select":
        return max(_bound_of_row(v) for v in list(op.operands)[1:])
    ends = [value] if op.name == "arith.constant" else list(op.operands)[1:] if op.name == "math.clampf" else []
    numbers = [constant_value(v) for v in ends]
    return max((math.inf if number is None else abs(number) for number in numbers), default=math.inf)


def _without_factor(value: ir.Value) -> tuple[ir.Value, float]:
    """A value less what it is multiplied by, if that is a constant; and its size."""
    op = defining_op(value)
    for i in (0, 1) if op is not None and op.name == "arith.mulf" else ():
        factor = constant_value(op.operands[1 - i])
        if factor is not None:
            return op.operands[i], abs(factor)
    return value, 1.0


def is_normal(value: ir.Value) -> bool:
    """Whether a float is known to be no subnormal number, and not negative: a constant and what is never negative, as
    1 + exp(−x) in a sigmoid."""
    op = defining_op(value)
    if op is None or op.name != "arith.addf":
        return False
    for number, other in ((op.operands[0], op.operands[1]), (op.operands[1], op.operands[0])):
        known, made = constant_value(number), defining_op(other)
        if isinstance(known, float) and known >= SMALLEST and made is not None and made.name in NEVER_NEGATIVE:
            return True
    return False
