"""Ops that put the dimensions of a tensor in another order, and nothing else."""

from __future__ import annotations

from ..dialects.mlir import ir
from ..dialects.tiling.structured import all_parallel, body_names, dim_position, indexing_maps, moves_first

TRANSPOSES = ("linalg.transpose", "linalg.generic")  # the names of ops that may be such


def permutation(op: ir.Operation) -> list[int] | None:
    """The dimension of the operand that each of the result is; None if `op` does anything else.

    [1, 0, 2] of ``linalg.transpose … permutation = [1, 0, 2]``, and of a ``linalg.generic`` with the maps
    (d0, d1, d2) → (d1, d0, d2) and (d0, d1, d2) → (d0, d1, d2) that yields what it reads.
    """
    if op.name not in TRANSPOSES or len(op.operands) != 2 or len(op.results) != 1:
        return None
    if body_names(op) or not all_parallel(op) or not moves_first(op):
        return None
    source, target = ([dim_position(e) for e in m.results] for m in indexing_maps(op))
    if None in source or None in target or len(source) != len(target) or set(source) != set(target):
        return None
    return [source.index(d) for d in target] if len(set(source)) == len(source) else None
