"""Tiling: the interface, and its implementations for structured ops and the tensor dialect."""

from .index import Index, Range, Tile, TileBuilder, Untileable, is_full
from .interface import OnlineReduction, Tiling, online_reduction_of, register, tiling_of
from .structured import is_structured

__all__ = [
    "Index",
    "OnlineReduction",
    "Range",
    "Tile",
    "TileBuilder",
    "Tiling",
    "Untileable",
    "is_full",
    "is_structured",
    "online_reduction_of",
    "register",
    "tiling_of",
]
