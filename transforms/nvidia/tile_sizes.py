"""Which tile sizes to take for GPUs when none are given.

A block of threads has a tile of queries, its warps 16 rows each; it goes over the keys:

- batch loops get size 1, and so do all loops of queries but the last: the grid;
- queries: 128 rows, or 64 where there are no more than 64;
- keys: 128 for head dimensions up to 64, 64 up to 128, 32 above: as many as registers have room for scores beside the
  output (a thread holds keys/2 + dv/2 floats of them, and Q);
- the head dimensions are not tiled.
"""

from __future__ import annotations

from ..attention import Attention, contraction_loops
from ..tile_sizes import extent_of, static_extents

QUERIES, FEW_QUERIES = 128, 64
KEYS_BY_HEAD = ((64, 128), (128, 64), (1 << 30, 32))


def choose_gpu_tile_sizes(attention: Attention) -> tuple[list[int], list[int]]:
    """Sizes for the loops of the second matmul, and their order from outer to inner."""
    root = attention.root
    loops, scores = contraction_loops(root), contraction_loops(attention.scores)
    assert loops is not None and scores is not None, "an attention's matmuls are contractions"
    extents, of_scores = static_extents(root), static_extents(attention.scores)
    sizes = [0] * len(extents)
    for d in loops.batch + loops.m[:-1] + loops.k[:-1]:
        sizes[d] = 1
    for d in loops.m[-1:]:
        known = extents[d]
        sizes[d] = FEW_QUERIES if known is not None and known <= FEW_QUERIES else QUERIES
        if known is not None:
            sizes[d] = min(sizes[d], known)
    head = max([of_scores[d] or 64 for d in scores.k] + [extents[d] or 64 for d in loops.n])
    keys = next(size for limit, size in KEYS_BY_HEAD if head <= limit)
    d = loops.k[-1]
    sizes[d] = min(keys, extent_of(extents, [d], keys))
    return sizes, [*loops.batch, *loops.m, *loops.n, *loops.k]
