"""Constant tensors in kernels: one number where all elements are the same, else memory that is part of the code."""

from __future__ import annotations

import math

from ...dialects.mlir import ir
from ..passes import PassError
from ..rewriting import defining_op, ops_in

LARGEST = 1 << 16  # bytes in a kernel's code


def own_constants(op: ir.Operation) -> None:
    """Gives every use of a constant or empty tensor in `op` a copy of its own."""
    for inner in ops_in(op):
        if inner.name in ("arith.constant", "tensor.empty") and isinstance(inner.results[0].type, ir.RankedTensorType):
            for use in list(inner.results[0].uses)[1:]:
                with ir.InsertionPoint(inner):
                    use.owner.operation.operands[use.operand_number] = inner.clone().operation.results[0]


def constant_memory(value: ir.Value, module: ir.Operation, name: str) -> ir.Value:
    """The memory of a constant tensor, in a kernel's `module`, under that `name`."""
    kind = ir.MemRefType.get(value.type.shape, value.type.element_type)
    if math.prod(kind.shape) * kind.element_type.width > 8 * LARGEST:
        raise PassError(
            f"a constant of type {value.type} is too large to be part of a kernel's code: make it an argument",
            defining_op(value),
        )
    with ir.InsertionPoint.at_block_begin(module.regions[0].blocks[0]):
        attributes = {
            "sym_name": ir.StringAttr.get(name),
            "type": ir.TypeAttr.get(kind),
            "initial_value": defining_op(value).attributes["value"],
            "constant": ir.UnitAttr.get(),
        }
        ir.Operation.create("memref.global", [], [], attributes)
    symbol = {"name": ir.FlatSymbolRefAttr.get(name)}
    return ir.Operation.create("memref.get_global", [kind], [], symbol).result


def is_zero(op: ir.Operation) -> bool:
    splat = ir.DenseElementsAttr(op.attributes["value"]).get_splat_value()
    return isinstance(splat, ir.FloatAttr) and ir.FloatAttr(splat).value == 0.0


def zeros(kind: ir.RankedTensorType) -> ir.Value:
    """A tile of zeros, at the insertion point."""
    splat = ir.DenseElementsAttr.get_splat(kind, ir.FloatAttr.get(kind.element_type, 0.0))
    return ir.Operation.create("arith.constant", [kind], [], {"value": splat}).result
