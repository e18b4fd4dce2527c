"""Memory of tiles: its size and alignment, in whose frame it is, and through which ops it is seen."""

from __future__ import annotations

from collections.abc import Sequence

from ...dialects.mlir import ir, memref

ALIGNMENT = 64
VIEWS = (
    "memref.subview",
    "memref.cast",
    "memref.expand_shape",
    "memref.collapse_shape",
    "memref.reinterpret_cast",
    "memref.view",
    "pair.view",
    "builtin.unrealized_conversion_cast",
)
FRAMES = ("func.func", "scf.forall", "scf.parallel")  # what has a stack frame of its own, once outlined
TAKES_AWAY = ("memref.dealloc", "memref.realloc", "memref.extract_aligned_pointer_as_index")


def in_frame(frame: ir.Operation, shape: Sequence[int], element: ir.Type) -> ir.Value:
    """Scratch on the stack, at the top of its frame."""
    with ir.InsertionPoint.at_block_begin(frame.regions[0].blocks[0]):
        return memref.AllocaOp(ir.MemRefType.get(shape, element), [], [], alignment=ALIGNMENT).result


def element_bytes(kind: ir.Type) -> int | None:
    if isinstance(kind, ir.IndexType):
        return 8
    if isinstance(kind, ir.IntegerType | ir.FloatType):
        return -(-kind.width // 8)
    return None


def has_identity_layout(kind: ir.MemRefType) -> bool:
    """True if elements stand as in an array of the buffer's shape: rows one after the other, from its start on."""
    return kind.layout == ir.AffineMapAttr.get(ir.AffineMap.get_identity(kind.rank))
