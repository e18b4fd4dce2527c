"""Tiles of scores in fused loops, as they were modified: by a mask, a bias, a cap."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from ...dialects.mlir import ir
from ...dialects.tiling.structured import dim_position, indexing_maps
from ..attention import SOFTMAXES, contraction_loops, unnormalised_at
from ..extents import extent
from ..linear import upper_bound
from ..rewriting import ancestors, ops_in
from .match_accumulation import MAX, Level, accumulation_of, carried_levels


@dataclass(frozen=True)
class ModifiedScores:
    """`value`, the tile that `consumer` reads: a softmax along dimension `keys`, or, without one, the matmul of which
    these are the weights of values."""

    consumer: ir.Operation
    value: ir.Value
    keys: int

    @property
    def is_softmax(self) -> bool:
        return self.consumer.name in SOFTMAXES

    @property
    def most_rows(self) -> float:
        """How many rows the tile has at most, all dimensions but the keys' together."""
        return math.prod(self._row_bounds())

    def has_fewer_rows(self, limit: int) -> bool:
        """Whether it has less than `limit` rows along each dimension (decoding): reading keys and values takes much
        longer than masking scores and merging parts."""
        return all(rows < limit for rows in self._row_bounds())

    def _row_bounds(self) -> Iterator[float]:
        """The sizes of all dimensions but the keys', or bounds on them."""
        return (_most(self.value, d) for d in range(self.value.type.rank) if d != self.keys)


def scores_of(softmax: ir.Operation) -> ModifiedScores:
    """What a softmax is of."""
    return ModifiedScores(softmax, softmax.operands[0], ir.IntegerAttr(softmax.attributes["dimension"]).value)


def carried_states(scores: ModifiedScores) -> tuple[list[int], list[list[Level]]]:
    """Through which loops output, maximum and sum are carried, or the output alone without a softmax; before that, the
    dimension of the output that each dimension of the statistics is. Unsuited if they are used in another way."""
    consumer = scores.consumer
    if not scores.is_softmax:
        return [], [carried_levels(consumer.operands[2], consumer.results[0])]
    found = accumulation_of(consumer)
    maximum = carried_levels(consumer.operands[1 + MAX], consumer.results[MAX])
    return found.rows, [found.output, maximum, found.accum]


def modified_scores_in(op: ir.Operation) -> list[ModifiedScores]:
    """All in `op`, in program order but for those that have no softmax, which come last."""
    found = [scores_of(softmax) for softmax in ops_in(op, *SOFTMAXES)]
    for root in ops_in(op, "linalg.", "linalg_ext.batch_matmul"):
        is_tile = any(a.name == "scf.for" for a in ancestors(root))
        loops = contraction_loops(root) if is_tile and unnormalised_at(root) is not None else None
        if loops is not None:
            axes = [dim_position(e) for e in indexing_maps(root)[0].results]
            found.append(ModifiedScores(root, root.operands[0], axes.index(loops.k[-1])))
    return found


def _most(value: ir.Value, d: int) -> float:
    """The size of a dimension, or a bound on it."""
    form = extent(value, d)
    bounds = [form.static, *(upper_bound(v) for v, _ in form.terms if form.is_value)] if form is not None else []
    return min((bound for bound in bounds if bound is not None), default=math.inf)
