"""Matmuls that a warpgroup begins and waits for later, as Hopper's wgmma does."""

from __future__ import annotations

from ....dialects import build
from ....dialects.mlir import ir
from ....dialects.tile import WaitMatmulsOp
from ...attention import is_matmul
from ...graph import dependents
from ...rewriting import defining_op, ops_of, terminator


def is_of_wgmma(matmul: ir.Operation) -> bool:
    """Whether it is one of wgmma; others are not asynchronous."""
    return matmul.operands[1].type.element_type.width <= 16


def has_computed_right(matmul: ir.Operation) -> bool:
    """Whether its right operand is computed, for which there is one buffer."""
    right = defining_op(matmul.operands[1])
    return right is not None and right.name == "tile.convert_layout"


def is_carried(matmul: ir.Operation) -> bool:
    """Whether its result goes to the next iteration, and nowhere else."""
    return [use.owner.operation for use in matmul.results[0].uses] == [terminator(matmul.block)]


def beginnings(block: ir.Block) -> list[ir.Operation]:
    """The matmuls of a block that need no other one."""
    matmuls = [op for op in ops_of(block) if is_matmul(op)]
    followers = set[ir.Operation]().union(*(dependents(one) - {one} for one in matmuls))
    return [one for one in matmuls if one not in followers]


def awaited(value: ir.Value, pending: int) -> ir.Value:
    """The result of a matmul once it is there, when so many begun after it may still run."""
    return WaitMatmulsOp(value, build.i64_attribute(pending), result=value.type).result
