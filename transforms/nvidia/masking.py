"""How masks look in kernels: element-wise ops on tiles, elements of which become −inf by selects."""

from __future__ import annotations

from ...dialects.build import constant_value
from ...dialects.mlir import ir
from ...dialects.tiling.structured import indexing_maps, iterator_types
from ..attention import is_contraction
from ..rewriting import defining_op, ops_of


def is_elementwise(op: ir.Operation) -> bool:
    """Whether `op` makes one tile, each element from that of its first operand at the same place, and others."""
    return (
        op.name == "linalg.generic"
        and not is_contraction(op)
        and len(op.results) == 1
        and set(iterator_types(op)) == {"parallel"}
        and op.operands[0].type == op.results[0].type
        and indexing_maps(op)[0] == indexing_maps(op)[-1]
    )


def yielded(op: ir.Operation) -> ir.Value:
    """The element that an op with one result makes."""
    return ops_of(op.regions[0].blocks[0])[-1].operands[0]


def masks(value: ir.Value) -> list[ir.Operation]:
    """The ops select(c, −inf, x), each of which gives the x of the one before it, that make an element."""
    found: list[ir.Operation] = []
    while (op := defining_op(value)) is not None and op.name == "arith.select":
        if constant_value(op.operands[1]) != float("-inf"):
            break
        found.append(op)
        value = op.operands[2]
    return found


def unmasked(value: ir.Value) -> ir.Value:
    """What an element is where none of the masks holds."""
    found = masks(value)
    return found[-1].operands[2] if found else value
