"""What a tensor.pad has at given indices, where these are sure to be inside of what is padded, or outside of it."""

from __future__ import annotations

from ...dialects.mlir import ir
from ..linear import DYNAMIC
from ..rewriting import terminator
from .indices import Index


def unpadded(op: ir.Operation, indices: tuple[Index, ...]) -> tuple[Index, ...] | None:
    """The indices in what is padded; None unless they are sure to be inside."""
    moved = []
    for index, low, high, size in _dimensions(op, indices):
        if low or high:
            lowest, highest = index.bounds()
            if DYNAMIC in (low, size) or highest is None or lowest < low or highest >= low + size:
                return None
        moved.append(index.plus(Index((), -low)))
    return tuple(moved)


def is_padding(op: ir.Operation, indices: tuple[Index, ...]) -> bool:
    """Whether an index is sure to be outside, where there is one value for all elements."""
    block = op.regions[0].blocks[0]
    if terminator(block).operands[0].owner in (block, *block.operations):
        return False
    for index, low, _, size in _dimensions(op, indices):
        lowest, highest = index.bounds()
        if low != DYNAMIC and highest is not None and (highest < low or (size != DYNAMIC and lowest >= low + size)):
            return True
    return False


def _dimensions(op: ir.Operation, indices: tuple[Index, ...]) -> list[tuple[Index, int, int, int]]:
    """Of each dimension the index, the padding at either end, and the size of what is padded."""
    low, high = (list(op.attributes[f"static_{name}"]) for name in ("low", "high"))
    return list(zip(indices, low, high, op.operands[0].type.shape, strict=True))
