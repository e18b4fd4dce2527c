"""The dialect ``pair``."""

from .dialect import Pair
from .ops import PackOp, ProductOp, ViewOp

__all__ = ["PackOp", "Pair", "ProductOp", "ViewOp"]
