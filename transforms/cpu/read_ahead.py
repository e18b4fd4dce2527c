"""Operands that come from memory and go: which they are, and how far ahead of their use they are asked for.

A contraction that uses each element of an operand a few times only (decoding: one query, or the queries of a group of
heads) runs at the speed of memory, if enough of it is under way at any time. What the processor fetches ahead by itself
stops at the end of a page and while sums are finished; ``memref.prefetch`` fills these gaps.
"""

from __future__ import annotations

from ...dialects.mlir import ir
from .schedule import LIKELY_SIZE, ROWS_TO_PACK, reuse
from .structured import NO_LOOP, Operand, Structured

L1 = 3  # "locality" of memref.prefetch, which becomes prefetcht0: what is asked for is used once, and soon
AHEAD = 12 << 10  # bytes: what arrives within the latency of memory, several times over
SHORT = 16  # rows: what is shorter is over before it pays


def rows_ahead(op: Structured, operand: Operand) -> tuple[int, int] | None:
    """For a streamed operand: the position of the dimension along which it is read ahead, and by how many elements."""
    if operand.is_output or operand.is_scalar or reuse(op, operand) >= ROWS_TO_PACK:
        return None
    if not operand.dims or all(op.is_parallel(d) for d in range(op.n_loops)) or operand.strides[-1] != 1:
        return None
    is_contraction = len(op.operands) - len(op.outputs) in (2, 3)  # rows may come two by two
    if not is_contraction or not all(op.is_accumulator(out) for out in op.outputs):
        return None
    wide = [i for i, d in enumerate(operand.dims) if d != NO_LOOP and (op.sizes[d] or LIKELY_SIZE) >= SHORT]
    if len(wide) < 2:
        return None
    position = wide[0]
    pitch = operand.strides[position]
    if pitch < 0:  # dynamic
        pitch = op.sizes[operand.dims[-1]] or LIKELY_SIZE
    width = operand.element.width if isinstance(operand.element, ir.FloatType | ir.IntegerType) else 64
    return position, max(1, min(2 * SHORT, AHEAD // max(1, pitch * width // 8)))
