"""Attention with a number of queries that is known at run time only."""

from __future__ import annotations

from ..dialects import build
from ..dialects.mlir import ir
from ..dialects.tiling import Index
from ..dialects.tiling.structured import operand_loops
from .attention import Attention, contraction_loops
from .extents import extent
from .linear import DYNAMIC
from .rewriting import defining_op

FEW_QUERIES = "few_queries"  # on a root: the number of queries is not known, but small; how many rows a tile has
FEW_BLOCKS = "few_blocks"  # on a root: there are hardly more tiles than is known of them, for all workers


def open_queries(attention: Attention) -> int | None:
    """The dimension of the output along the queries; None if their number is known, or is that of the keys.

    None too if the number of heads that share keys is not known: which of them are rows is then not known either.
    """
    root, loops = attention.root, contraction_loops(attention.root)
    if loops is None or not loops.m or attention.scores.block != root.block:
        return None
    _, right, output = operand_loops(root)
    shape = root.results[0].type.shape
    at = [output.index(d) for d in loops.m]
    if shape[at[-1]] != DYNAMIC or any(shape[d] == DYNAMIC for d in at[:-1]):
        return None
    same = size_in_common(root.operands[2], at[-1]) == size_in_common(root.operands[1], right.index(loops.k[-1]))
    return None if same else at[-1]


def size_in_common(value: ir.Value, d: int) -> Index | tuple[ir.Value, int]:
    """What two equal sizes have in common: a form, or a dimension of an argument."""
    while (form := extent(value, d)) is not None:
        made = defining_op(form.terms[0][0]) if form.is_value else None
        number = build.constant_value(made.operands[1]) if made is not None and made.name == "tensor.dim" else None
        if made is None or number is None:
            return form
        value, d = made.operands[0], int(number)
    return value, d
