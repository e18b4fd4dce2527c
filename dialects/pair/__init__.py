"""The dialect ``pair``."""

from .dialect import Pair
from .ops import Exp2Op, PackOp, ProductOp, ViewOp, WidenOp

__all__ = ["Exp2Op", "PackOp", "Pair", "ProductOp", "ViewOp", "WidenOp"]
