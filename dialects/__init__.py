"""What the IR can say: the bindings, our dialects, their assembly and their tiling."""

from __future__ import annotations

import importlib

from .mlir import ir, register

CLASSES = {"linalg_ext": "LinalgExt", "pair": "Pair", "tile": "Tile", "transform_ext": "TransformExt"}
# For GPUs, and for scripts: as large as the others. What names them in a text; ops of scripts have older names, too.
SELDOM = {"tile": "tile.", "transform_ext": "transform"}


def make_context(text: str | None = None) -> ir.Context:
    """A context with upstream's dialects and ours loaded, without threads: verifiers and passes in Python hold the
    interpreter's lock, for which threads would only wait. For the module that `text` is, those alone that it needs."""
    context = ir.Context()
    context.enable_multithreading(False)
    load(context, *(name for name in CLASSES if text is None or SELDOM.get(name, "") in text))
    return context


def load(context: ir.Context, *names: str) -> None:
    """Loads those of our dialects that the context lacks."""
    with context:
        for name in names:
            if not context.is_dialect_loaded(name):
                dialect = getattr(importlib.import_module(f".{name}", __package__), CLASSES[name])
                dialect.load()
                register(dialect)
