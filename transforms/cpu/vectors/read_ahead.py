"""Operands that come from memory and go: which they are, and how far ahead of their use they are asked for.

A contraction that uses each element of an operand a few times only (decoding: one query, or the queries of a group of
heads) runs at the speed of memory, if enough of it is under way at any time. What the processor fetches ahead by itself
stops at the end of a page, and multiply-adds that wait for data fill its queues long before enough loads are in them.
``memref.prefetch`` fills these gaps. It is dropped where it comes too fast or where too many lines are under way (here
20 in a row, and 110): requests stand next to the loads, one after the other, and each line is asked for twice.

A line that is asked for into the L1 cache holds one of its buffers for misses until it is there. Where these are few,
they are what limits (24 on an AMD Zen 4, 9 GB/s of 28); lines are then asked for into the L2 cache, which has more.
What computes faster than memory is read has more requests dropped: each line is then asked for four times, unless
several passes over the rows ask for it twice each, or keys and values are known to fit into the L3 cache, which is
read faster than they are multiplied.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ...host import cache_bytes
from ..initial_values import origin_of
from ..memory import element_bytes
from ..structured import NO_LOOP, Operand, Structured
from ..target import LINE
from .schedule import LIKELY_SIZE, PART, Schedule, is_scratch, pays_to_copy, places_of

L1, L2 = 3, 2  # "locality" of memref.prefetch, which becomes prefetcht0, prefetcht1
# Bytes: the second time for what was dropped the first time, and so on.
AHEAD = {L1: (8 << 10, 4 << 10), L2: (16 << 10, 12 << 10, 8 << 10, 6 << 10)}
BLOCKS_AHEAD = {L1: (16 << 10, 8 << 10), L2: (32 << 10, 24 << 10, 16 << 10, 8 << 10)}  # where heads stand side by side
PLACES_AHEAD = (2 << 10,)  # of each place, where several are read in turn
REQUESTS = 2  # of a line, where several register tiles ask for it
MANY_PRODUCTS = 16  # vectors of products with one line, beside which a core has few other lines under way
ROWS_BYTES = 8 << 10  # of such rows before the next ones are read, but AT_ONCE at least
AT_ONCE = 4  # rows, by a register tile
SHORT = 16  # rows: what is shorter is over before it pays


@dataclass(frozen=True)
class Ahead:
    """How far ahead of its use an operand is asked for: `rows`, each for one request, along dimension `position`."""

    position: int
    rows: tuple[int, ...]


def rows_ahead(op: Structured, operand: Operand, cache: int = L1, schedule: Schedule | None = None) -> Ahead | None:
    """How a streamed operand is read ahead into that cache; None for others. `schedule`: where it is known, it tells
    how many passes there are over the rows."""
    if PART in op.op.attributes or operand.is_output or operand.is_scalar:
        return None
    if pays_to_copy(op, operand) or is_scratch(operand):
        return None
    if not operand.dims or not op.reductions or operand.strides[-1] != 1:
        return None
    is_contraction = len(op.operands) - len(op.outputs) in (2, 3)  # rows may come two by two
    if not is_contraction or not all(op.is_accumulator(out) for out in op.outputs):
        return None
    block = block_of_rows(op, operand)
    if block is not None:
        position, count = block
        row = row_bytes(op, operand, position)
        distances = _distances(op, operand, BLOCKS_AHEAD[cache], schedule)
        return Ahead(position, tuple(max(count, distance // row) for distance in distances))
    places = places_of(op)
    if places in operand.loops:
        position = operand.dims.index(places) + 1
        row = row_bytes(op, operand, position)
        return Ahead(position, tuple(max(1, distance // row) for distance in PLACES_AHEAD))
    wide = [i for i, d in enumerate(operand.dims) if d != NO_LOOP and (op.sizes[d] or LIKELY_SIZE) >= SHORT]
    if len(wide) < 2:
        return None
    row = row_bytes(op, operand, wide[0])
    distances = _distances(op, operand, AHEAD[cache], schedule)
    return Ahead(wide[0], tuple(max(1, distance // row) for distance in distances))


def _distances(
    op: Structured, operand: Operand, distances: tuple[int, ...], schedule: Schedule | None
) -> tuple[int, ...]:
    """Those of them at which a register tile asks for a line: fewer where tiles of other rows do so, too, and where no
    more would be dropped."""
    others = [d for d in range(op.n_loops) if op.is_parallel(d) and d not in operand.loops]
    count = {} if schedule is None else schedule.unroll
    is_one_pass = all(op.sizes[d] is not None and op.sizes[d] <= count.get(d, 1) for d in others)
    enough = not is_one_pass or _fits_into_l3(operand)
    return distances[:: len(distances) // REQUESTS] if enough else distances


def _fits_into_l3(operand: Operand) -> bool:
    """True if the L3 cache holds all of the array that the operand is a part of, and another one of its size."""
    kind = origin_of(operand.value).type
    total = math.prod(kind.shape) * (element_bytes(kind.element_type) or 8) if kind.has_static_shape else math.inf
    return 2 * total <= cache_bytes(3)


def reaches_too_short(operand: Operand, schedule: Schedule) -> bool:
    """True if the processor by itself has too few lines under way, so that they are asked for.

    Along the rows of a few places it does well, unless so many multiply-adds wait for each line that they fill its
    queues first: then requests help (here by a tenth), with fewer they take a quarter of the rate.
    """
    if schedule.places not in operand.loops:
        return True
    uses = math.prod(n for d, n in schedule.unroll.items() if d not in operand.loops)
    vectors = LINE // (schedule.lanes * (element_bytes(operand.element) or LINE))
    return uses * vectors >= MANY_PRODUCTS


def block_ahead(op: Structured, schedule: Schedule, operand: Operand, cache: int = L1) -> tuple[int, int] | None:
    """Of a streamed operand whose elements are broadcast, how many rows a register tile has at once, and how many rows
    ahead as many are asked for: not more than a line has elements, so that there is a step for each of their lines."""
    if schedule.vector_loop in operand.loops or rows_ahead(op, operand) is None or block_of_rows(op, operand):
        return None
    *_, row, column = operand.dims
    at_once = schedule.unroll.get(row, 1)
    if op.is_parallel(column) or at_once == 1 or LINE // (element_bytes(operand.element) or LINE) % at_once:
        return None
    return at_once, at_once * -(-AHEAD[cache][0] // (at_once * row_bytes(op, operand, len(operand.dims) - 2)))


def block_of_rows(op: Structured, operand: Operand) -> tuple[int, int] | None:
    """Where the rows of several heads stand side by side: the dimension of such rows, and how many are read at a time.

    Heads are a loop of all operands. What is computed head by head would go over far rows for one and then for the
    next; over a block of rows for all heads it goes through memory in order, but for what is in the L1 cache.
    """
    real = [i for i, d in enumerate(operand.dims) if d != NO_LOOP and op.sizes[d] != 1]
    of_all = frozenset.intersection(*(o.loops for o in op.operands))
    if len(real) < 3 or operand.dims[real[0]] in of_all or operand.dims[real[1]] not in of_all:
        return None
    return real[0], max(1, ROWS_BYTES // row_bytes(op, operand, real[0]) // AT_ONCE) * AT_ONCE


def row_bytes(op: Structured, operand: Operand, position: int) -> int:
    """What is read of an operand for each step along the dimension at `position`."""
    inner = math.prod(op.sizes[d] or LIKELY_SIZE for d in operand.dims[position + 1 :] if d != NO_LOOP)
    return inner * (element_bytes(operand.element) or 8)
