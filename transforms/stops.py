"""Ops that are marked to stop fusion: those and their producers stay before the loops."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..dialects.mlir import ir
from .graph import ancestor_in, dependents
from .passes import warn


def warn_of_idle_stops(stops: Iterable[ir.Operation], roots: Sequence[ir.Operation]) -> None:
    """Warns of each stop that no root depends on: whoever marked it means another op, and it would stop nothing."""
    for stop in stops:
        after = dependents(stop) - {stop}
        if not any(ancestor_in(root, stop.block) in after for root in roots):
            names = ", ".join(dict.fromkeys(f"'{root.name}'" for root in roots))
            warn(
                stop,
                f"'{stop.name}' is marked as a stop, but stops nothing: it is no producer of the op to tile ({names}); "
                "mark an op on the way to it, or no stop",
            )
