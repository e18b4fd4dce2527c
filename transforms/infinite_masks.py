"""The pass ``infinite-masks``."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from ..dialects import build
from ..dialects.mlir import ir
from ..dialects.tiling import Index, online_reduction_of
from .attention import Attention, find_attention
from .extents import extent
from .online.one_tile import OneTile
from .online.positions import Local, element
from .online.score_masks import Mask, masks_of, where_live
from .online.tile_conditions import TileConditions
from .online.tile_forms import TileForms, is_never_negative
from .online.tile_scans import TileScans
from .passes import Pass, remark
from .reshapes import VIEWS


@dataclass(frozen=True)
class InfiniteMasks(Pass):
    """A finite number that a mask puts in the place of scores becomes −∞ where each row has a score that is none::

        %x = linalg.generic ins(%s) { select(j <= i, s, -2.38e+38) }          // JAX's; −1e9 and the least number, too
        %p:4 = linalg_ext.softmax dimension(1) ins(%x) …
      becomes
        %x = linalg.generic ins(%s) { select(j <= i, s, -∞) }

    exp(−1e9 − m) is 0, as exp(−∞ − m) is, if the maximum m of the row is a score, and not as low as half of that number
    (no smaller one than −32768 counts). Where a row is masked as a whole, as padding is, it is the mean of all values,
    for which all tiles have to be computed: so for all queries some key must be seen to be live by its place alone, the
    first one, the last one, or the query's own. For GPUs, which know nothing of tiles that are computed late
    (online/finite_masks.py).
    """

    def run(self, op: ir.Operation) -> None:
        for attention in find_attention(op):
            softmax = attention.softmax
            if softmax is None:
                continue
            row = _Row(attention, softmax)
            masks = masks_of(element(row.x, row.anywhere))
            finite = [mask for mask in masks if mask is not None and mask.number != -math.inf]
            alone = all(_is_alone(mask, softmax) for mask in finite)
            if finite and alone and any(map(row.is_live, row.places())):
                for mask in finite:
                    _make_infinite(mask)
                remark(softmax, f"takes {finite[0].number:g} of a mask for −∞: each row has a live key")


class _Row:
    """The scores of one query, as they go into softmax."""

    def __init__(self, attention: Attention, softmax: ir.Operation):
        self.x = attention.modified
        reduction = online_reduction_of(softmax)
        assert reduction is not None, "softmax goes through its tiles one by one"
        self.along = reduction.dimension
        self.anywhere = [Index(0, ((Local(d), 1),)) for d in range(self.x.type.rank)]
        self.sizes = [extent(self.x, d) for d in range(self.x.type.rank)]
        forms = TileForms(OneTile(), [[] if size is None else [size] for size in self.sizes])
        self._at = TileConditions(forms, False, TileScans.at_the_ends, tables=False)

    def places(self) -> Iterator[Index]:
        """Where there may be a live key, of each query; where there surely is a key."""
        keys = self.sizes[self.along]
        yield Index(0)
        if keys is None:
            return
        yield keys - 1
        for d, size in enumerate(self.sizes):
            if d != self.along and size is not None and is_never_negative(keys - size):
                yield self.anywhere[d]
                yield self.anywhere[d] + (keys - size)

    def is_live(self, key: Index) -> bool:
        """Whether the scores at this key are no mask's, whatever the query is."""
        position = [key if d == self.along else own for d, own in enumerate(self.anywhere)]
        return where_live(element(self.x, position), self._at) == self._at.all


def _is_alone(mask: Mask, softmax: ir.Operation) -> bool:
    """Whether no one but softmax reads what a mask is part of."""

    def leads_there(op: ir.Operation) -> bool:
        users = {use.owner.operation for result in op.results for use in result.uses}
        return all(
            user in (softmax, op) or user.name == "tensor.dim" or (is_moved_or_computed(user) and leads_there(user))
            for user in users
        )

    def is_moved_or_computed(op: ir.Operation) -> bool:
        return op.name in VIEWS or op.name == "linalg.generic"

    around = mask.select.parent.operation
    return around.name == "linalg.generic" and leads_there(around)


def _make_infinite(mask: Mask) -> None:
    with ir.InsertionPoint(mask.select), mask.select.location:
        mask.select.operands[mask.side] = build.constant(mask.select.results[0].type, -math.inf)
