"""Writes that one branch does, as one branch for each; used by ``donated-writes`` and ``scatters-to-linalg``.

  %r:2 = scf.if %fits -> (…) {
    %0 = tensor.insert_slice %k into %keys[…]
    %1 = tensor.insert_slice %v into %values[…]
    scf.yield %0, %1
  } else { scf.yield %keys, %values }

is what upstream makes of two that stand side by side, with one condition.
"""

from __future__ import annotations

from ....dialects.mlir import ir
from ...rewriting import copy_op, defining_op, erase_dead, ops_of, terminator


def split_writes(block: ir.Block) -> None:
    """Splits all in `block` that do several."""
    for op in ops_of(block):
        if op.name == "scf.if" and len(op.results) > 1 and all(_is_write(op, n) for n in range(len(op.results))):
            with ir.InsertionPoint(op), op.location:
                for number, result in enumerate(op.results):
                    result.replace_all_uses_with(_only(op, number))
            op.erase()


def _is_write(branch: ir.Operation, number: int) -> bool:
    then, other = (terminator(region.blocks[0]).operands[number] for region in branch.regions)
    op = defining_op(then)
    return op is not None and op.name == "tensor.insert_slice" and op.operands[1] == other


def _only(branch: ir.Operation, number: int) -> ir.Value:
    """The branch once more, with one of its results alone."""
    new = ir.Operation.create("scf.if", [branch.results[number].type], [branch.operands[0]], regions=2)
    for region, old in zip(new.regions, branch.regions, strict=True):
        block = region.blocks.append()
        values: dict[ir.Value, ir.Value] = {}
        with ir.InsertionPoint(block):
            *ops, end = ops_of(old.blocks[0])
            for op in ops:
                copy_op(op, values)
            yielded = end.operands[number]
            ir.Operation.create("scf.yield", [], [values.get(yielded, yielded)])
        erase_dead(block)
    return new.results[0]
