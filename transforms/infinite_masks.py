"""The pass ``infinite-masks``."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from ..dialects import build
from ..dialects.build import constant_value
from ..dialects.mlir import ir
from ..dialects.tiling import Index, online_reduction_of
from .attention import Attention, find_attention
from .extents import extent
from .online.masks import scaled_by
from .online.one_tile import OneTile
from .online.positions import Local, Scalar, element, follow, operand_of, through_views
from .online.tile_conditions import TileConditions
from .online.tile_forms import TileForms, is_never_negative
from .online.tile_scans import TileScans
from .passes import Pass, remark
from .reshapes import VIEWS
from .rewriting import defining_op

HIGHEST_MASK = -(2.0**15)  # that of f16 is −65504
LARGEST_TERM = 2.0**20  # a constant that scores are made with, and no mask
OF_SCORES = ("addf", "subf", "mulf", "divf", "negf", "extf", "truncf", "maximumf", "minimumf", "maxnumf", "minnumf")
OF_INTEGERS = ("arith.sitofp", "arith.uitofp")


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
            finite = [mask for mask in row.masks(row.anywhere) if mask is not None and mask.number != -math.inf]
            alone = all(_is_alone(mask, softmax) for mask in finite)
            if finite and alone and any(map(row.is_live, row.places())):
                for mask in finite:
                    mask.make_infinite()
                remark(softmax, f"takes {finite[0].number:g} of a mask for −∞: each row has a live key")


@dataclass(frozen=True)
class _Mask:
    """A select that puts `number` at one side in the place of a score, which it takes where `condition` is `wanted`."""

    select: ir.Operation
    side: int
    number: float  # of the score itself
    condition: Scalar
    wanted: bool

    def make_infinite(self) -> None:
        with ir.InsertionPoint(self.select), self.select.location:
            self.select.operands[self.side] = build.constant(self.select.results[0].type, -math.inf)


class _Row:
    """The scores of one query, as they go into softmax."""

    def __init__(self, attention: Attention, softmax: ir.Operation):
        self.scores, self.x = attention.scores, attention.modified
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
        found = []
        for mask in self.masks(position):
            if mask is None:
                return False
            truth = self._at.truth(mask.condition)
            found.append((truth.always if mask.wanted else truth.never) == self._at.all)
        return all(found)

    def masks(self, position: list[Index]) -> Iterator[_Mask | None]:
        """Those between softmax and what must be a score; None where that is not known."""
        scalar, scale = element(self.x, position), 1.0
        while scalar is not None:
            scalar = _followed(scalar)
            op = defining_op(scalar.value)
            if op is not None and op.name == "arith.select":
                sides = [(n, number) for n in (1, 2) if (number := _constant(scalar.operand(n))) is not None]
                if len(sides) == 1 and sides[0][1] * scale <= HIGHEST_MASK:
                    ((side, number),) = sides
                    yield _Mask(op, side, number * scale, scalar.operand(0), side == 2)
                    scalar = scalar.operand(3 - side)
                    continue
            elif op is not None and op.name == "arith.extf":
                scalar = scalar.operand(0)
                continue
            elif op is not None and (scaled := scaled_by(op)) is not None:
                scalar, scale = scalar.operand(scaled[0]), scale * scaled[1]
                continue
            break
        if scalar is None or not self._is_score(scalar):
            yield None

    def _is_score(self, scalar: Scalar) -> bool:
        """Whether a number is made of the scores, and of small constants and indices: no mask, and nothing loaded,
        which may hold one."""
        followed = _followed(scalar)
        op = defining_op(followed.value)
        if op is None:
            place = through_views(followed)
            return place is not None and place[0] == self.scores.results[0]
        if op.name == "arith.constant":
            number = constant_value(followed.value)
            return number is not None and abs(number) <= LARGEST_TERM
        if op.name in OF_INTEGERS:
            return True
        known = op.name.removeprefix("arith.") in OF_SCORES or op.name.startswith("math.")
        floats = [n for n, v in enumerate(op.operands) if isinstance(v.type, ir.FloatType)]
        return known and bool(floats) and all(self._is_score(followed.operand(n)) for n in floats)


def _is_alone(mask: _Mask, softmax: ir.Operation) -> bool:
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


def _constant(scalar: Scalar) -> float | None:
    followed = follow(scalar)
    number = None if followed is None else constant_value(followed.value)
    return number if isinstance(number, float) else None


def _followed(scalar: Scalar) -> Scalar:
    """As far back as it can be followed: where that is an element of a tensor that is not made by element, there."""
    while isinstance(scalar.value.owner, ir.Block):
        place = operand_of(scalar)
        found = element(*place) if place is not None else None
        if found is None:
            return scalar
        scalar = found
    return scalar
