"""Slices that are written in the memory of an argument: a new token's keys in a cache, of which no copy is made."""

from __future__ import annotations

from ....dialects.mlir import ir
from ....dialects.tiling.structured import indexing_maps, is_direct
from ...donated import donated_arguments
from ...rewriting import single_use

SIZES = "tensor.dim"


def donated_target(op: ir.Operation) -> ir.Value | None:
    """The argument in whose memory the result of an insertion can be made: a donated one that nothing else reads."""
    if op.name != "tensor.insert_slice" or any(s != 1 for s in op.opview.static_strides):
        return None
    target = op.operands[1]
    function = target.owner.owner if isinstance(target.owner, ir.Block) else None
    if function is None or function.operation.name != "func.func" or op.block != target.owner:
        return None
    readers = [use for use in target.uses if use.owner.operation.name != SIZES]
    return target if len(readers) == 1 and target in donated_arguments(function.operation) else None


def donated_write(op: ir.Operation) -> ir.Operation | None:
    """The insertion into a donated argument that alone reads what `op` computes by element."""
    if len(op.results) != 1 or not single_use(op.results[0]):
        return None
    (use,) = op.results[0].uses
    insertion = use.owner.operation
    is_written = use.operand_number == 0 and donated_target(insertion) is not None
    return insertion if is_written and all(map(is_direct, indexing_maps(op)[-1].results)) else None
