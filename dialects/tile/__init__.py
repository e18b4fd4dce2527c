"""The dialect ``tile``; to add an op, write it in the file of its kind and import it here."""

from .dialect import LAYOUTS, Tile, dims_of, layout_of, with_layout
from .movement import ConvertLayoutOp, LoadOp, StoreOp
from .roles import (
    ArriveOp,
    CopyBulkOp,
    InitBarriersOp,
    PassTurnOp,
    SetRegistersOp,
    StartTurnsOp,
    TakeTurnOp,
    TensorMapOp,
    WaitBarrierOp,
    WarpOp,
    is_tensor_map,
    tensor_map_type,
)
from .staging import CommitCopiesOp, CopyAsyncOp, ViewOp, WaitCopiesOp, WaitMatmulsOp, staged_tile

__all__ = [
    "LAYOUTS",
    "ArriveOp",
    "CommitCopiesOp",
    "ConvertLayoutOp",
    "CopyAsyncOp",
    "CopyBulkOp",
    "InitBarriersOp",
    "LoadOp",
    "PassTurnOp",
    "SetRegistersOp",
    "StartTurnsOp",
    "StoreOp",
    "TakeTurnOp",
    "TensorMapOp",
    "Tile",
    "ViewOp",
    "WaitBarrierOp",
    "WaitCopiesOp",
    "WaitMatmulsOp",
    "WarpOp",
    "dims_of",
    "is_tensor_map",
    "layout_of",
    "staged_tile",
    "tensor_map_type",
    "with_layout",
]
