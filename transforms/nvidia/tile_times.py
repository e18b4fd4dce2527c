"""How long tiles of different sizes take on Hopper's multiprocessors, by which ``tile_sizes`` compares them.

The unit is what a multiprocessor takes for 128 queries and all keys; measured on an H200 (docs/nvidia-figures.md,
"Few tiles").
"""

from __future__ import annotations

import math

from ..online.split_keys import KEYS_OF_A_MERGE

TIME = {64: 0.7, 128: 1.0, 192: 1.2, 256: 1.6}  # of a tile of so many queries
OF_A_PART = 1.3  # times as long: a part of the keys has a running maximum


def time_of_tiles(
    rows: int, queries: int, keys: int, heads: int | None, is_causal: bool, multiprocessors: int
) -> float:
    """That of all tiles of so many rows, on all multiprocessors; of one head, on one, where heads are not known.

    A multiprocessor has one tile at a time, or one pair of them below a causal mask, where tiles differ and two are as
    much as any other two (``persistent-blocks``); most have as many as any has.
    """
    tiles, mean = -(-queries // rows), 1.0
    if is_causal:
        mean -= max(queries - rows, 0) / (2 * max(keys, queries))
    if heads is None:
        return TIME[rows] * tiles * mean
    if is_causal and heads * tiles > multiprocessors:
        return TIME[rows] * math.ceil(heads * -(-tiles // 2) / multiprocessors) * min(tiles, 2) * mean
    return TIME[rows] * math.ceil(heads * tiles / multiprocessors)


def time_of_parts(rows: int, keys: int, tiles: int, multiprocessors: int) -> float:
    """That of so many tiles, the keys of which are split where that leaves no multiprocessor idle (``split-keys``)."""
    parts = multiprocessors // tiles
    if parts < 2:
        return TIME[rows] * math.ceil(tiles / multiprocessors)
    return min(TIME[rows], OF_A_PART * TIME[rows] / parts + KEYS_OF_A_MERGE / keys)
