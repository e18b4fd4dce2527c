"""Tiles of heads above 256: values in parts of their columns, and as many queries and keys as shared memory holds.

Hopper's wgmma computes 256 columns of the output at once, and the threads of a warpgroup hold as many; where threads
hold queries, too (mma.sync), they hold fewer. So each part of the columns is a tile of its own, beside the others in
the grid, which computes the scores once more: with two parts three matmuls for two. That takes less time than scores in
memory do, and no memory.
"""

from __future__ import annotations

from .architecture import MOST_COLUMNS, ROWS, TILE_MEMORY

LEAST_COLUMNS = 64
HELD = 192  # registers of a thread for queries, four elements in two, and the output, two columns in one
KEYS = (64, 48, 32, 16)
ROW_BYTES = 128  # in shared memory rows are multiples of it


def most_columns_held(head: int) -> int:
    """How many columns of the output threads hold beside queries."""
    return min(max(2 * (HELD - head // 4), LEAST_COLUMNS), MOST_COLUMNS)


def columns_of_part(columns: int, most: int) -> int:
    """Of equal parts of values' columns, as few as have at most `most`, in whole groups of 16: tiles have no others,
    and the copy engine none that reach into their neighbours."""
    parts = -(-columns // most)
    return -(-columns // (16 * parts)) * 16


def fitting_tile(rows: int, head: int, of_scores: int, cut: bool) -> tuple[int, int]:
    """Queries and keys of a tile of 16-bit values, of at most `rows` queries. `of_scores`: bytes of what comes along
    with each score.

    Two stages of both, so that the next ones are on their way, are worth more than more keys, 128 queries more than
    these. Where a mask by position cuts tiles (`cut`), 64 keys are worth more than a second stage.
    """
    of_keys, of_values = (-(-2 * n // ROW_BYTES) * ROW_BYTES for n in (head, min(head, MOST_COLUMNS)))

    def fits(rows: int, keys: int, stages: int) -> bool:
        return rows * of_keys + stages * keys * (of_keys + of_values + rows * of_scores) <= TILE_MEMORY

    if cut:
        choices = [(most, keys, 1) for keys in KEYS for most in (rows, ROWS)]
    else:
        choices = [(most, keys, 2) for most in (rows, ROWS) for keys in KEYS[:-1]]
        choices += [(ROWS, keys, 1) for keys in KEYS]
    return next(((most, keys) for most, keys, stages in choices if fits(most, keys, stages)), (ROWS, KEYS[-1]))
