"""How sums over the rows of tiles look in kernels."""

from __future__ import annotations

from ....dialects.mlir import ir
from ....dialects.tile import layout_of
from ....dialects.tiling.structured import iterator_types
from ...attention import is_matmul
from ...rewriting import defining_op, ops_of
from ..constants import is_zero

OF_ROWS = ("row", "row_part")


def combined(op: ir.Operation, result: int, name: str) -> tuple[ir.Value | None, ir.Value | None] | None:
    """What a result of the linalg.generic `op` is the sum or product (`name`) of: tiles that `op` takes; None for a
    value made within."""
    block = op.regions[0].blocks[0]
    made = defining_op(ops_of(block)[-1].operands[result])
    if made is None or made.name != name or made.block != block:
        return None
    arguments = [v if v.owner == block else None for v in made.operands]
    first, second = (None if v is None else op.operands[v.arg_number] for v in arguments)
    return first, second


def is_row_sum(op: ir.Operation, value: ir.Value) -> bool:
    """Whether `value`, a result of `op`, is the sum of the elements of each row, from 0 on."""
    if op.name != "linalg.generic" or is_matmul(op) or iterator_types(op) != ["parallel", "reduction"]:
        return False
    number = list(op.results).index(value)
    combiner = defining_op(ops_of(op.regions[0].blocks[0])[-1].operands[number])
    adds = combiner is not None and combiner.name == "arith.addf"
    return layout_of(value.type) in OF_ROWS and adds and is_zeros(op.operands[_init(op, number)])


def summed_tile(op: ir.Operation, value: ir.Value) -> ir.Value | None:
    """The tile whose rows add up to `value`, a row sum that `op` makes: one that it takes, or another that it makes;
    None where it is neither."""
    block, number = op.regions[0].blocks[0], list(op.results).index(value)
    yielded = list(ops_of(block)[-1].operands)
    total = block.arguments[_init(op, number)]
    terms = [v for v in defining_op(yielded[number]).operands if v != total]
    if len(terms) != 1:
        return None
    (term,) = terms
    if term in block.arguments:
        return op.operands[term.arg_number]
    return next((r for r, v in zip(op.results, yielded, strict=True) if v == term), None)


def is_zeros(tile: ir.Value) -> bool:
    """Whether a tile is known to be 0, as the sum before the first tile is, also once it is rescaled."""
    op = defining_op(tile)
    if op is None:
        return False
    if op.name == "arith.constant":
        return is_zero(op)
    if op.name != "linalg.generic":
        return False
    factors = combined(op, list(op.results).index(tile), "arith.mulf")
    return factors is not None and any(v is not None and is_zeros(v) for v in factors)


def _init(op: ir.Operation, result: int) -> int:
    """The operand that a result starts from."""
    return len(op.operands) - len(op.results) + result
