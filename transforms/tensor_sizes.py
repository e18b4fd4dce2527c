"""The sizes of tensors by the values that they were made with, so that who compares sizes sees that they are equal."""

from __future__ import annotations

from ..dialects import build
from ..dialects.mlir import ir
from .linear import DYNAMIC
from .rewriting import defining_op
from .slices import Size, slice_parts


def tensor_sizes(value: ir.Value) -> list[Size]:
    """Ints where static; tensor.dim, built here, where what made the tensor does not tell."""
    if value.type.has_static_shape:
        return list(value.type.shape)
    op = defining_op(value)
    if op is None:
        return build.mixed_sizes(value)
    if op.name == "linalg.fill":
        return tensor_sizes(op.operands[1])
    if op.name == "scf.for":  # what it carries keeps its sizes
        return tensor_sizes(op.operands[3 + ir.OpResult(value).result_number])
    if op.name == "tensor.empty":
        dynamic = iter(op.operands)
        return [next(dynamic) if s == DYNAMIC else s for s in value.type.shape]
    if op.name == "tensor.extract_slice" and op.operands[0].type.rank == value.type.rank:
        return slice_parts(op)[1]
    return build.mixed_sizes(value)
