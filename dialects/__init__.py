"""What the IR can say: the bindings, our dialects, their assembly and their tiling."""

from __future__ import annotations

from .mlir import ir


def make_context() -> ir.Context:
    """A context with upstream's dialects and ours loaded."""
    from .linalg_ext import LinalgExt
    from .pair import Pair
    from .tile import Tile
    from .transform_ext import TransformExt

    context = ir.Context()
    with context:
        LinalgExt.load()
        Pair.load()
        Tile.load()
        TransformExt.load()
    return context
