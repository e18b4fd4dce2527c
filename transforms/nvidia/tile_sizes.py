"""Which tile sizes to take for GPUs when none are given.

A block of threads has a tile of queries, its warps 16 rows each; it goes over the keys:

- batch loops get size 1, and so do all loops of queries but the last: the grid;
- queries: 64 rows, so that two blocks share a multiprocessor and one computes while the other waits; 128 where head
  dimensions exceed 128 and only one block has room;
- keys: 64, or 32 where head dimensions exceed 128: a thread holds keys/2 scores, dv/2 outputs and d/4 words of Q;
- the head dimensions are not tiled.
"""

from __future__ import annotations

from ..attention import Attention, contraction_loops
from ..tile_sizes import extent_of, static_extents

# Up to which head dimension how many queries and keys; measured on an H200 (docs/nvidia.md).
TILES_BY_HEAD = ((128, 64, 64), (1 << 30, 128, 32))
WIDE_TILES_BY_HEAD = ((64, 64, 64), (128, 64, 32), (1 << 30, 64, 16))  # of f32: by what shared memory holds
FEW_QUERIES = 64


def choose_gpu_tile_sizes(attention: Attention) -> tuple[list[int], list[int]]:
    """Sizes for the loops of the second matmul, and their order from outer to inner."""
    root = attention.root
    loops, scores = contraction_loops(root), contraction_loops(attention.scores)
    assert loops is not None and scores is not None, "an attention's matmuls are contractions"
    extents, of_scores = static_extents(root), static_extents(attention.scores)
    sizes = [0] * len(extents)
    for d in loops.batch + loops.m[:-1] + loops.k[:-1]:
        sizes[d] = 1
    head = max([of_scores[d] or 64 for d in scores.k] + [extents[d] or 64 for d in loops.n])
    tiles = WIDE_TILES_BY_HEAD if root.operands[1].type.element_type.width > 16 else TILES_BY_HEAD
    queries, keys = next((queries, keys) for limit, queries, keys in tiles if head <= limit)
    for d in loops.m[-1:]:
        known = extents[d]
        sizes[d] = queries if known is None else min(known, FEW_QUERIES if known <= FEW_QUERIES else queries)
    d = loops.k[-1]
    sizes[d] = min(keys, extent_of(extents, [d], keys))
    return sizes, [*loops.batch, *loops.m, *loops.n, *loops.k]
