"""What the IR can say: the bindings, our dialects, their assembly and their tiling."""

from __future__ import annotations

from .mlir import ir, register


def make_context() -> ir.Context:
    """A context with upstream's dialects and ours loaded, without threads: verifiers and passes in Python hold the
    interpreter's lock, for which threads would only wait."""
    from .linalg_ext import LinalgExt
    from .pair import Pair
    from .tile import Tile
    from .transform_ext import TransformExt

    context = ir.Context()
    context.enable_multithreading(False)
    with context:
        for dialect in (LinalgExt, Pair, Tile, TransformExt):
            dialect.load()
            register(dialect)
    return context
