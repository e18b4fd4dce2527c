"""The dialect ``tile``; to add an op, write it in the file of its kind and import it here."""

from .dialect import LAYOUTS, Tile, dims_of, layout_of, with_layout
from .movement import ConvertLayoutOp, LoadOp, StoreOp
from .staging import CommitCopiesOp, CopyAsyncOp, StoreSharedOp, ViewOp, WaitCopiesOp, WaitMatmulsOp, staged_tile

__all__ = [
    "LAYOUTS",
    "CommitCopiesOp",
    "ConvertLayoutOp",
    "CopyAsyncOp",
    "LoadOp",
    "StoreOp",
    "StoreSharedOp",
    "Tile",
    "ViewOp",
    "WaitCopiesOp",
    "WaitMatmulsOp",
    "dims_of",
    "layout_of",
    "staged_tile",
    "with_layout",
]
