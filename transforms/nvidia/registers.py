"""How many registers threads have, by the roles of their warps, and what takes them."""

from collections.abc import Iterable

from ...dialects.mlir import ir
from ...dialects.tile import layout_of

REGISTERS = 65536  # of a multiprocessor
PRODUCER_REGISTERS = 24
LARGEST_COUNT = 240  # that a thread can ask for, in eights, besides a warpgroup that keeps few


def consumer_registers(warpgroups: int) -> int:
    """Of a thread that computes, where so many warpgroups do, and one more copies: what all have at the launch, less
    what that one keeps. (A warpgroup that asked for more would wait for ever.)"""
    at_launch = REGISTERS // (128 * (warpgroups + 1)) // 8 * 8
    left = at_launch * (warpgroups + 1) - PRODUCER_REGISTERS
    return min(LARGEST_COUNT, left // warpgroups // 8 * 8)


def matmul_registers(matmuls: Iterable[ir.Operation]) -> int:
    """Of a thread: results have a register for two columns, left operands of 16 bits, if they are in registers, one for
    four."""
    found = 0
    for op in matmuls:
        left, result = op.operands[0].type, op.results[0].type
        found += result.shape[1] // 2 + (left.shape[1] // 4 if layout_of(left) != "shared" else 0)
    return found
