"""Memory for results of kernels that are read in another shape alone: it is allocated in that one."""

from __future__ import annotations

from ...dialects import build
from ...dialects.mlir import arith, ir, memref
from ...dialects.tiling.tensor_ops import reassociation
from ..slices import Size, split
from .launching import allocate


def only_collapse(result: ir.Value) -> ir.Operation | None:
    """The tensor.collapse_shape that is all that reads a result: its own result may be what is allocated."""
    users = [use.owner.operation for use in result.uses]
    return users[0] if len(users) == 1 and users[0].name == "tensor.collapse_shape" else None


def allocated(sizes: list[Size], kind: ir.Type, reshape: ir.Operation | None) -> ir.Value:
    """Memory for a result of those sizes, or for what `reshape` makes of it."""
    if reshape is not None:
        kind, wide, sizes = reshape.results[0].type, sizes, []
        for group in reassociation(reshape):
            total = wide[group[0]]
            for d in group[1:]:
                total = _product(total, wide[d])
            sizes.append(total)
    return allocate(kind, sizes)


def _product(a: Size, b: Size) -> Size:
    if isinstance(a, int) and isinstance(b, int):
        return a * b
    return arith.muli(build.as_index(a), build.as_index(b))


def expanded(memory: ir.Value, kind: ir.Type, sizes: list[Size], reshape: ir.Operation) -> ir.Value:
    """Memory that was allocated for what `reshape` makes, in the shape before it."""
    dynamic, static = split(sizes)
    wide = ir.MemRefType.get(kind.shape, kind.element_type)
    return memref.ExpandShapeOp(wide, memory, reshape.attributes["reassociation"], dynamic, static).result
