"""Results that have an element for each query and key, as the derivative of an attention by a bias has, and are no
attention: what is made of products of queries and keys element by element, summed over batch entries or heads.

    %s = linalg.generic ins(%q, %k : …)            // [b, h, q, k], and other products
    %x = linalg.generic ins(%s, …)                 // element-wise
    %r = linalg.generic {__pairwise__} ins(%x : …) // Σ_b %x, for each head, query and key; or %x as it is
"""

from __future__ import annotations

from dataclasses import dataclass

from ..dialects.mlir import ir
from ..dialects.tiling.structured import iterator_types
from .attention import KEY, QUERY, fused_loops, is_in, products_of
from .extents import static_extents
from .rewriting import ops_in

PAIRWISE = "__pairwise__"  # on the op that sums; its last two loops are those of queries and keys


@dataclass(frozen=True)
class Pairwise:
    """`products` of queries and keys → element-wise ops → `root`, which sums, or is element-wise, too."""

    products: list[ir.Operation]
    root: ir.Operation

    @property
    def loops(self) -> list[int]:
        """Those of the root from outer to inner: what is summed over stays in the registers of a tile."""
        kinds = iterator_types(self.root)
        return sorted(range(len(kinds)), key=lambda d: kinds[d] == "reduction")

    def tile_sizes(self, queries: int, keys: int) -> list[int]:
        """Sizes for all loops of the root: tiles have up to so many queries and keys."""
        *batch, rows, columns = static_extents(self.root)
        return [*[1] * len(batch), min(queries, rows or queries), min(keys, columns or keys)]


def find_pairwise(function: ir.Operation) -> list[Pairwise]:
    """All in `function`, in program order, but those that are fused already."""
    fused = fused_loops(function)
    found = [pairwise_at(op) for op in ops_in(function, "linalg.generic") if not is_in(op, fused)]
    return [pairwise for pairwise in found if pairwise is not None]


def pairwise_at(root: ir.Operation) -> Pairwise | None:
    """The one that `root` sums, or None."""
    if PAIRWISE not in root.attributes:
        return None
    batch = root.operands[0].type.rank - 2
    return Pairwise(products_of(root.operands[0], (*[frozenset[str]()] * batch, QUERY, KEY)), root)
