"""How many registers threads have, by the roles of their warps, and what takes them."""

from collections.abc import Iterable, Sequence

from ...dialects.mlir import ir
from ...dialects.tile import layout_of
from ..rewriting import defining_op

REGISTERS = 65536  # of a multiprocessor
PRODUCER_REGISTERS = 24
ARRANGER_REGISTERS, MOST_ARRANGER_REGISTERS = 32, 40
WGMMA_ADDRESSES = 26  # what an instruction needs besides its result, as ptxas says, with its left operand in memory
LARGEST_COUNT = 240  # that a thread can ask for, in eights, besides a warpgroup that keeps few


def consumer_registers(warpgroups: int, kept: int = PRODUCER_REGISTERS) -> int:
    """Of a thread that computes, where so many warpgroups do, and one more copies: what all have at the launch, less
    what that one keeps. (A warpgroup that asked for more would wait for ever.)"""
    return min(LARGEST_COUNT, (_at_launch(warpgroups) - kept) // warpgroups // 8 * 8)


def arranger_registers(warpgroups: int) -> int:
    """Of a thread of the warpgroup that copies, where others of its warps arrange tiles: what is left."""
    left = _at_launch(warpgroups) - warpgroups * consumer_registers(warpgroups, ARRANGER_REGISTERS)
    return min(left, MOST_ARRANGER_REGISTERS)


def _at_launch(warpgroups: int) -> int:
    """Of a thread of each warpgroup together, and of one more."""
    return REGISTERS // (128 * (warpgroups + 1)) // 8 * 8 * (warpgroups + 1)


def matmul_registers(matmuls: Iterable[ir.Operation]) -> int:
    """Of a thread: results have a register for two columns, left operands of 16 bits, if they are in registers, one for
    four, those of 8 bits one for eight, those of f32, which are parts of 16 bits, one for two. What is summed of 8 bits
    is not yet added to its start."""
    found = 0
    for op in matmuls:
        left, columns = op.operands[0].type, op.results[0].type.shape[1]
        found += columns // 2 + _left_registers(left)
        if left.element_type.width == 8 and adds(op):
            found += columns // 2
    return found


def wgmma_registers(matmuls: Sequence[ir.Operation], whole: bool) -> int:
    """The least that ptxas compiles kernels with: it refuses fewer than one instruction's (C7602), and where there are
    many threads may find no place for the `whole`, all results and left operands (C7600)."""
    kinds = {(op.operands[0].type, op.results[0].type): op for op in matmuls}  # those of loops that were split, once
    of_one = max(op.results[0].type.shape[1] // 2 + WGMMA_ADDRESSES for op in kinds.values())
    return max(of_one, matmul_registers(kinds.values()) if whole else 0)


def adds(matmul: ir.Operation) -> bool:
    """Whether a matmul adds to what there is, and not to 0."""
    start = defining_op(matmul.operands[2])
    return start is None or start.name != "arith.constant"


def _left_registers(kind: ir.RankedTensorType) -> int:
    return kind.shape[1] * kind.element_type.width // 64 if layout_of(kind) != "shared" else 0
