"""Which rows of memory are known to begin at multiples of 16 bytes, which copies of 16 bytes take."""

from __future__ import annotations

from ...dialects.mlir import ir
from .elements import byte_width

CHUNK = 16  # bytes that a thread copies to shared memory at a time, if memory is aligned so


def are_aligned(kind: ir.RankedTensorType | ir.MemRefType) -> bool:
    """Whether rows of what is dense are known to begin at multiples of 16 bytes."""
    last = kind.shape[-1]
    return last != ir.ShapedType.get_dynamic_size() and last * byte_width(kind.element_type) % CHUNK == 0


def has_dense_rows(kind: ir.MemRefType) -> bool:
    """Whether the elements of the last dimension stand side by side; rows are then aligned as dense ones are."""
    strides, _ = kind.get_strides_and_offset()
    return bool(kind.rank) and strides[-1] == 1
