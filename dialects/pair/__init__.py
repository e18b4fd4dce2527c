"""The dialect ``pair``."""

from .dialect import Pair
from .ops import PackOp, ProductOp, ViewOp, WidenOp

__all__ = ["PackOp", "Pair", "ProductOp", "ViewOp", "WidenOp"]
