"""The loops of structured ops: where an iteration reads and writes."""

from __future__ import annotations

from collections.abc import Sequence

from ...dialects.mlir import ir
from ...dialects.tiling.structured import dim_position, indexing_maps, iterator_types
from ..linear import DYNAMIC
from .indices import Index, Opaque


def extents(value: ir.Value) -> list[int | None]:
    """The sizes of a tensor; None where dynamic."""
    return [None if s == DYNAMIC else s for s in value.type.shape]


def loops_at(op: ir.Operation, number: int, indices: Sequence[Index]) -> dict[int, Index] | None:
    """The iteration that makes an element of result `number`; None if its map is no projection."""
    loops: dict[int, Index] = {}
    out = indexing_maps(op)[len(op.operands) - len(op.results) + number]
    for expression, index in zip(out.results, indices, strict=True):
        loop = dim_position(expression)
        if loop is None:
            if not isinstance(expression, ir.AffineConstantExpr):
                return None
        elif loop in loops:
            return None
        else:
            loops[loop] = index
    kinds = iterator_types(op)
    return loops if all(d in loops for d, kind in enumerate(kinds) if kind == "parallel") else None


def index_of(expression: ir.AffineExpr, loops: Sequence[Index]) -> Index:
    """What an affine expression of loops is in the iteration `loops`."""
    if isinstance(expression, ir.AffineConstantExpr):
        return Index((), expression.value)
    loop = dim_position(expression)
    if loop is not None:
        return loops[loop]
    if isinstance(expression, ir.AffineAddExpr):
        return index_of(expression.lhs, loops).plus(index_of(expression.rhs, loops))
    if isinstance(expression, ir.AffineMulExpr):
        a, b = index_of(expression.lhs, loops), index_of(expression.rhs, loops)
        if not b.terms:
            return a.scaled(b.constant)
        if not a.terms:
            return b.scaled(a.constant)
    raise Opaque(f"an operand is indexed by {expression}")
