"""What the IR can say: the bindings, our dialects, their assembly and their tiling."""

from __future__ import annotations

from .mlir import ir, register


def make_context() -> ir.Context:
    """A context with upstream's dialects and ours loaded."""
    from .linalg_ext import LinalgExt
    from .pair import Pair
    from .tile import Tile
    from .transform_ext import TransformExt

    context = ir.Context()
    with context:
        for dialect in (LinalgExt, Pair, Tile, TransformExt):
            dialect.load()
            register(dialect)
    return context
