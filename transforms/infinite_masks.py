"""The pass ``infinite-masks``."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ..dialects import build
from ..dialects.mlir import arith, ir, linalg
from ..dialects.tiling import Index, online_reduction_of
from ..dialects.tiling.structured import indexing_maps, iterator_types
from .attention import Attention, find_attention
from .copying import copy_body
from .element_copies import CannotCopy, Reads, copied, is_slice, slice_along
from .extents import extent
from .graph import Needed
from .online.one_tile import OneTile
from .online.positions import Local, Scalar, element
from .online.score_masks import Mask, masks_of, where_live
from .online.tile_conditions import TileConditions
from .online.tile_forms import TileForms, is_never_negative
from .online.tile_scans import TileScans
from .passes import Pass, remark
from .reshapes import VIEWS
from .rewriting import defining_op


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
    first one, the last one, or the query's own. Where that depends on the query, or on what is loaded, the rows tell::

        %live = linalg.generic … { 0 <= i and %there_0, or i <= i and %there_i, or … }      // tensor<2x64xi1>
        %x = linalg.generic ins(%s, %there, %live) {
          %c = j <= i and %there_j
          select(%c or not %live, select(%c, s, -2.38e+38), -∞)

    For GPUs, which know nothing of tiles that are computed late (online/finite_masks.py).
    """

    def run(self, op: ir.Operation) -> None:
        for attention in find_attention(op):
            softmax = attention.softmax
            if softmax is None:
                continue
            row = _Row(attention, softmax)
            masks = row.masks(row.anywhere)
            finite = [mask for mask in masks if mask is not None and mask.number != -math.inf]
            if not finite or not all(_is_alone(mask, softmax) for mask in finite):
                continue
            if any(map(row.is_live, row.places(*row.rows))):
                for mask in finite:
                    _make_infinite(mask)
                remark(softmax, f"takes {finite[0].number:g} of a mask for −∞: each row has a live key")
            elif None not in masks and row.tells_where_live(masks, finite):
                remark(softmax, f"takes {finite[0].number:g} of a mask for −∞ in rows that have a live key")


class _Row:
    """The scores of one query, as they go into softmax."""

    def __init__(self, attention: Attention, softmax: ir.Operation):
        self.x = attention.modified
        self.scores = attention.scores
        reduction = online_reduction_of(softmax)
        assert reduction is not None, "softmax goes through its tiles one by one"
        self.along = reduction.dimension
        self.anywhere = [Index(0, ((Local(d), 1),)) for d in range(self.x.type.rank)]
        self.rows = [d for d in range(self.x.type.rank) if d != self.along]  # queries are along the last, most often
        self.sizes = [extent(self.x, d) for d in range(self.x.type.rank)]
        forms = TileForms(OneTile(), [[] if size is None else [size] for size in self.sizes])
        self._at = TileConditions(forms, False, TileScans.at_the_ends, tables=False)

    def places(self, *dims: int) -> Iterator[Index]:
        """Where there may be a live key, of each query; where there surely is a key. `dims`: those that queries may be
        along."""
        keys = self.sizes[self.along]
        yield Index(0)
        if keys is None:
            return
        yield keys - 1
        for d in dims:
            size = self.sizes[d]
            if size is not None and is_never_negative(keys - size):
                yield self.anywhere[d]
                if size != keys:
                    yield self.anywhere[d] + (keys - size)

    def _position(self, key: Index) -> list[Index]:
        return [key if d == self.along else own for d, own in enumerate(self.anywhere)]

    def masks(self, position: Sequence[Index]) -> list[Mask | None]:
        return list(masks_of(element(self.x, position)))

    def is_live(self, key: Index) -> bool:
        """Whether the scores at this key are no mask's, whatever the query is."""
        return where_live(element(self.x, self._position(key)), self._at) == self._at.all

    def tells_where_live(self, masks: Sequence[Mask], finite: Sequence[Mask]) -> bool:
        """Lets the `finite` ones of the masks be −∞ in rows that have a live key at one of the places, if it can be
        told which these are."""
        generic, *others = dict.fromkeys(mask.select.parent.operation for mask in masks)
        keys = self.places(self.rows[-1])
        places = [found for key in keys if (found := self._at_place(key, generic)) is not None]
        dims = sorted(set[int]().union(*(reads.dims for _, reads in places)))
        loops = _loops_along(finite[0], dims)
        if others or not places or loops is None:
            return False
        with ir.InsertionPoint(generic), generic.location:
            live = self._live(places, dims)
        _choose_by_rows(generic, live, finite, loops)
        return True

    def _at_place(self, key: Index, before: ir.Operation) -> tuple[list[Mask], Reads] | None:
        """The masks of the scores at this key, and what their conditions read; None if that cannot be read before an
        op, row by row."""
        masks = self.masks(self._position(key))
        try:
            reads = Reads.of(mask.condition for mask in masks)
        except CannotCopy:
            return None
        keys = self.sizes[self.along]
        has_keys = keys is not None and bool(keys.static)  # of none the first one would not be there
        fits = all(self._is_given(value, before) for value in reads.values) and all(map(is_slice, reads.elements))
        return (masks, reads) if fits and (has_keys or not reads.elements) else None

    def _is_given(self, value: ir.Value, before: ir.Operation) -> bool:
        """Whether a value is there before an op, and without the scores."""
        made = defining_op(value)
        if made is None or made.block != before.block:
            return True
        return made.is_before_in_block(before) and self.scores not in Needed(made)

    def _live(self, places: Sequence[tuple[list[Mask], Reads]], dims: list[int]) -> ir.Value:
        """Whether each row, along dimensions `dims`, has a live key at one of the places."""
        i1 = ir.IntegerType.get_signless(1)
        n, sizes = len(dims), {d: build.mixed_size(self.x, d) for d in dims}
        slices = {place: slice_along(place, sizes) for _, reads in places for place in reads.elements}

        def body(*scalars: ir.Value) -> ir.Value:
            elements, known = dict(zip(slices, scalars, strict=False)), dict[Scalar, ir.Value]()
            found = build.constant(i1, 0)
            for masks, _ in places:
                live = build.constant(i1, 1)
                for mask in masks:
                    truth = copied(mask.condition, elements, lambda d: linalg.IndexOp(dims.index(d)).result, known)
                    live = arith.andi(live, truth if mask.wanted else _not(truth))
                found = arith.ori(found, live)
            return found

        maps = [build.projection(n, [dims.index(d) for d in along]) for _, along in slices.values()]
        out, own = build.empty(list(sizes.values()), i1), build.projection(n, range(n))
        return build.generic([v for v, _ in slices.values()], [out], [*maps, own], [build.PARALLEL] * n, body)[0]


def _not(condition: ir.Value) -> ir.Value:
    return arith.xori(condition, build.constant(condition.type, 1))


def _loops_along(mask: Mask, dims: Sequence[int]) -> list[int] | None:
    """The loops of the op around a mask that are dimensions of the scores; None if one of these is none."""
    at = [Index(0, ((Local(d), 1),)) for d in dims]
    return [mask.condition.loops.index(i) for i in at] if all(i in mask.condition.loops for i in at) else None


def _choose_by_rows(generic: ir.Operation, live: ir.Value, masks: Sequence[Mask], loops: Sequence[int]) -> None:
    """Gives an op one more operand, by which the masks in it are −∞, or stay."""
    first, kinds = len(generic.operands) - len(generic.results), iterator_types(generic)
    maps, operands = indexing_maps(generic), list(generic.operands)
    block = generic.regions[0].blocks[0]

    def body(*scalars: ir.Value) -> list[ir.Value]:
        known = dict(zip(block.arguments, [*scalars[:first], *scalars[first + 1 :]], strict=True))
        yielded = copy_body(block, known)
        for mask in masks:
            select = known[mask.select.results[0]].owner.operation
            users = list(select.results[0].uses)
            with ir.InsertionPoint.after(select), select.location:
                kind = select.results[0].type
                is_low = select.operands[0] if mask.side == 1 else _not(select.operands[0])
                dead = arith.andi(is_low, scalars[first])
                infinite = arith.select(dead, build.constant(kind, -math.inf), select.results[0])
            for use in users:
                use.owner.operands[use.operand_number] = infinite
            yielded = [infinite if v == select.results[0] else v for v in yielded]
        return yielded

    by_rows = build.projection(len(kinds), loops)
    with ir.InsertionPoint(generic), generic.location:
        results = build.generic(
            [*operands[:first], live], operands[first:], [*maps[:first], by_rows, *maps[first:]], kinds, body
        )
    for old, new in zip(generic.results, results, strict=True):
        old.replace_all_uses_with(new)
    generic.erase()


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
