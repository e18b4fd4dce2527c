"""Whether the derivatives by queries, keys and values are to have one loop nest on a CPU, or two."""

from __future__ import annotations

import math

from ...dialects.build import is_in_bf16
from ..attention import Attention, contraction_loops
from ..extents import static_extents
from ..host import matrix_unit
from ..open_queries import FEW_QUERIES
from ..siblings import products
from .matrix_unit import has_tiles
from .tile_sizes import ROWS_TO_PACK

MOST_IDLE = 1.2  # times the work that threads would share evenly: two nests compute 7 products for one nest's 5


def pays_to_turn(by_queries: Attention, by_keys: Attention, threads: int) -> bool:
    """Whether one nest is the faster one: a thread has a whole head in it, as all tiles of keys add to all of dQ.

    So there must be as many heads as `threads` share evenly, about. Heads that are not known can only be more. What is
    bf16 has two nests where matrix units multiply it in tiles: there one nest takes as long, as weights have to be
    turned for dQ, and two have more parts to share. So have few rows, which are no lanes.
    """
    loops, extents = contraction_loops(by_keys.root), static_extents(by_keys.root)
    assert loops is not None, "an attention's root is a contraction"
    if FEW_QUERIES in by_queries.root.attributes:
        return False
    multiplied = [by_queries.root, by_keys.root, *products(by_queries)]
    if has_tiles(matrix_unit()) and any(is_in_bf16(v.type.element_type) for op in multiplied for v in op.operands):
        return False
    rows = [extents[d] for d in (loops.m[-1], loops.k[-1])]
    if any(n is not None and n < ROWS_TO_PACK for n in rows):
        return False
    heads = math.prod(extents[d] or 1 for d in loops.batch)
    return math.ceil(heads / threads) * threads <= MOST_IDLE * heads
