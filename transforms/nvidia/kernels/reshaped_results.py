"""Memory for results of kernels that are read in another shape alone: it is allocated in that one."""

from __future__ import annotations

from ....dialects.mlir import ir, memref
from ....dialects.tiling.tensor_ops import reassociation
from ...products import product
from ...slices import Size, split
from ..launching import allocate


def only_collapse(result: ir.Value) -> ir.Operation | None:
    """The tensor.collapse_shape that is all that reads a result: its own result may be what is allocated."""
    users = [use.owner.operation for use in result.uses]
    return users[0] if len(users) == 1 and users[0].name == "tensor.collapse_shape" else None


def allocated(sizes: list[Size], kind: ir.Type, reshape: ir.Operation | None) -> ir.Value:
    """Memory for a result of those sizes, or for what `reshape` makes of it."""
    if reshape is not None:
        kind = reshape.results[0].type
        sizes = [product([sizes[d] for d in group]) for group in reassociation(reshape)]
    return allocate(kind, sizes)


def expanded(memory: ir.Value, kind: ir.Type, sizes: list[Size], reshape: ir.Operation) -> ir.Value:
    """Memory that was allocated for what `reshape` makes, in the shape before it."""
    dynamic, static = split(sizes)
    wide = ir.MemRefType.get(kind.shape, kind.element_type)
    return memref.ExpandShapeOp(wide, memory, reshape.attributes["reassociation"], dynamic, static).result
