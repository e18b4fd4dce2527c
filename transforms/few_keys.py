"""Whether a mask leaves few queries few keys, as a causal one does whose diagonal starts at the first key."""

from __future__ import annotations

from ..dialects.tiling import Index, online_reduction_of
from ..dialects.tiling.structured import dim_position, indexing_maps
from .attention import Attention, contraction_loops
from .online.masks import DeadTiles
from .online.one_tile import OneTile
from .online.positions import Local, element
from .online.tile_forms import TileForms

FEWEST = 1024  # keys, from which on it counts that each is read once


def see_few_keys(attention: Attention, queries: int) -> bool:
    """True if the first `queries` queries see none but the first keys."""
    loops = contraction_loops(attention.root)
    if loops is None or not loops.m:
        return False
    x = attention.modified
    axes = [dim_position(e) for e in indexing_maps(attention.root)[0].results]
    reduction = online_reduction_of(attention.softmax) if attention.softmax is not None else None
    keys = axes.index(loops.k[-1]) if reduction is None else reduction.dimension
    if len(axes) != x.type.rank or axes[keys] != loops.k[-1]:
        return False
    sizes = [[Index(queries)] if d == loops.m[-1] else [] for d in axes]
    start = [Index(FEWEST if d == keys else 0) for d in range(len(axes))]
    position = [at + Index(0, ((Local(d), 1),)) for d, at in enumerate(start)]
    rest = OneTile()  # all keys but the first
    masks = DeadTiles(TileForms(rest, sizes))
    return masks.dead(element(x, position)).tiles == rest.all
