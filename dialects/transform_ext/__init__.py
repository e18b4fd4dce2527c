"""Transform ops of ours. The transform dialect cannot be extended from Python, so they live in a dialect of their own;
the assembly maps their spelling, ``transform.structured.fuse_ext`` and so on, onto it."""

from .cleanup import CleanupOp
from .dialect import TransformExt
from .fuse_ext import FuseExtOp
from .tile_ext import TileExtOp
from .tile_loop_hint import TileLoopHintOp

__all__ = ["CleanupOp", "FuseExtOp", "TileExtOp", "TileLoopHintOp", "TransformExt"]
