"""What is said of an op that was tiled: its loops from outer to inner, what they go over, what went inside.

``TilingRemark.of(root)`` is taken before the root is tiled, while the graph around it can be read; `tell` after.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..dialects.diagnostic import place_of
from ..dialects.mlir import ir
from ..dialects.tiling import Index
from ..dialects.tiling.structured import iterator_types
from .attention import attention_at, contraction_loops, is_contraction
from .formulas import UNKNOWN, Formula
from .index_formulas import formula
from .open_queries import FEW_QUERIES
from .pairwise import PAIRWISE
from .passes import remark
from .tile_and_fuse import Tiled

_UNSAID = ("tensor.empty", "linalg.fill")


@dataclass(frozen=True)
class TilingRemark:
    """`axes`: what the loops of the root are called; `softmax`: its place, where the root ends an attention with
    one."""

    axes: dict[int, str]
    softmax: tuple[str, int, int] | None
    has_softmax: bool
    is_attention: bool
    is_for_few: bool

    @staticmethod
    def of(root: ir.Operation) -> TilingRemark:
        attention = attention_at(root)
        loops = contraction_loops(root) if is_contraction(root) else None
        axes: dict[int, str] = {}
        if attention is not None and loops is not None:
            names = (("batch", loops.batch), ("queries", loops.m), ("columns", loops.n), ("keys", loops.k))
            axes = {d: name for name, dims in names for d in dims}
            for d in loops.m[:-1]:
                axes[d] = "heads"  # of a group that shares its keys
        if PAIRWISE in root.attributes:
            *batch, queries, keys = range(len(iterator_types(root)))
            axes = {**dict.fromkeys(batch, "batch"), queries: "queries", keys: "keys"}
        softmax = attention.softmax if attention is not None else None
        place = place_of(softmax.location) if softmax is not None else None
        is_few = FEW_QUERIES in root.attributes
        return TilingRemark(axes, place, softmax is not None, attention is not None, is_few)

    def tell(self, tiled: Tiled, sizes: Sequence[int] = (), order: Sequence[int] = ()) -> None:
        """The remark on what was tiled, by these options of ``fuse-attention`` where others may be tried."""
        inside = [name for name in dict.fromkeys(tiled.fused) if name not in _UNSAID]
        loops = [
            {"axis": self.axes.get(d, f"dimension {d}"), "tile": size, "extent": _extent(extent)}
            for d, size, extent in tiled.steps
        ]
        nest = ", ".join(
            f"{loop['axis']}{f' {whole}' if isinstance(whole := loop['extent'], int) else ''} by {loop['tile']}"
            for loop in loops
        )
        message = f"tiled into {len(tiled.loops)} loops, fused with {', '.join(inside) or 'nothing'}"
        message += f"; from outer to inner: {nest}" if nest else ""
        details: dict[str, Any] = {
            "attention": self.is_attention,
            "has_softmax": self.has_softmax,
            "loops": loops,
            "fused": inside,
            "softmax": self.softmax,
        }
        if self.is_for_few:
            details["few_queries"] = True
        if sizes:
            axes = [self.axes.get(d, "") for d in range(len(sizes))]
            details["tiling"] = {"sizes": list(sizes), "order": list(order), "axes": axes}
        remark(tiled.root, message, kind="fused", **details)


def _extent(extent: Index) -> Formula:
    if extent.static is not None:
        return extent.static
    whole: Formula = extent.const
    for value, coefficient in extent.terms:
        term = formula(value) if isinstance(value, ir.Value) else UNKNOWN
        whole = ["add", whole, ["mul", coefficient, term]]
    return whole
