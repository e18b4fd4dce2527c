"""What is known of the tiles of one loop before it: where masks make tiles dead, and where they are of no effect."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from ...dialects.mlir import ir
from ..open_queries import FEW_QUERIES
from ..passes import remark
from ..rewriting import ops_in, terminator
from .cut_tiles import cut_sizes, narrow_types
from .finite_masks import bound_of, carried_maximum, threshold
from .masks import Added, Decided, TileMasks
from .match_accumulation import Unsuited, first_value, zero_like
from .modified_scores import ModifiedScores, carried_states
from .tile_conditions import Where
from .tile_guards import Guard
from .tile_predicates import ALL, Predicate, TilePredicates, opposite
from .tile_sets import Bound, Tiles, TileSets

if TYPE_CHECKING:
    from .split_masked_tiles import SplitMaskedTiles

MAX_LOOPS = 6  # in place of one: each is a copy of the body
JOINED = 3  # that GPUs make one again (`join-loops`); more would stay apart
Part: TypeAlias = tuple[Bound, Bound, bool]  # of the tiles: from, to, whether all are live


@dataclass(frozen=True)
class MaskedTiles:
    """The tiles of `loop`, in `parts`: intervals of those that are all live, which no mask changes, and of others; not
    of those that are `dead`, or computed `late`.

    `known` are masks of which it is computed where they are of no effect, `tested` those of which a `guard` finds it
    out, tile by tile. `reason`: why dead tiles are not skipped.
    """

    loop: ir.Operation
    sets: TileSets
    scores: ModifiedScores
    options: SplitMaskedTiles
    masks: TileMasks
    dead: Tiles
    live: Tiles
    late: LateTiles | None
    parts: list[Part]
    known: list[Decided]
    tested: list[Decided]
    guard: Guard | None
    reason: str | None
    has_few_rows: bool

    @staticmethod
    def of(
        loop: ir.Operation, sets: TileSets, scores: ModifiedScores, options: SplitMaskedTiles, is_peeled: bool
    ) -> MaskedTiles:
        """`is_peeled`: dead tiles may be skipped, as was seen before the last one was taken off."""
        masks = TileMasks(sets, scores.value, options)
        where = dead_tiles(scores, masks)
        dead, tests = where.tiles, where.tests
        late = LateTiles.of(loop, scores.consumer, masks, dead) if options.tests and scores.is_softmax else None
        decided = masks.conditions(masks.scores)
        known, tested = ([one for one in decided if bool(one.where.tiles) == has_tiles] for has_tiles in (True, False))
        few = scores.has_fewer_rows(options.few_rows) or any(FEW_QUERIES in op.attributes for op in ops_in(loop))
        live = sets.all if decided and not (known and few) else sets.none
        for one in known:
            live = sets.intersection(live, one.where.tiles)
        reason = _why_not_skipped(loop, scores) if (dead or tests or late is not None) and not is_peeled else None
        if reason:
            remark(scores.consumer, f"tiles that the mask makes dead are computed: {reason}")
            dead, tests, late = sets.none, (), None
        if late is not None:
            dead = late.tiles
        guard = Guard.of(sets, tests, tested)
        parts = parts_of(sets, sets.complement(dead), live)
        return MaskedTiles(
            loop, sets, scores, options, masks, dead, live, late, parts, known, tested, guard, reason, few
        )

    @property
    def alive(self) -> Tiles:
        return self.sets.complement(self.dead)

    @functools.cached_property
    def each(self) -> EachTile | None:
        """The same of the tiles one by one, where intervals must leave some out, or would be too many; None where that
        is not so, or loops over intervals do better: tiles that are computed late, or have few rows."""
        most = JOINED if self.options.lists else MAX_LOOPS
        has_holes = self.masks.forms.by_data or len(_sequence(self.sets, self.alive, self.live)) > most
        if not has_holes or self.late is not None or self.has_few_rows or self.reason:
            return None
        return EachTile.of(self.loop, self.sets, self.scores, self.options)


@dataclass(frozen=True)
class EachTile:
    """What is known of tiles one by one: which are `dead`, and in which of them `known` masks, if there are any, are of
    no effect: in `live` ones, which is said of all where those that are not dead are live."""

    dead: Predicate
    live: Predicate | None
    known: list[Decided]

    @staticmethod
    def of(loop: ir.Operation, sets: TileSets, scores: ModifiedScores, options: SplitMaskedTiles) -> EachTile | None:
        """None where no tile may be left out by it, or the last one needs a loop of its own."""
        if options.whole_tiles and narrow_types(loop) and cut_sizes(loop, sets.step):
            return None
        predicates = TilePredicates(sets)
        masks = TileMasks(sets, scores.value, replace(options, tests=False), predicates)
        dead: Any = dead_tiles(scores, masks).tiles
        known = masks.conditions(masks.scores)
        if not dead or _why_not_skipped(loop, scores):
            return None
        live = predicates.all
        for one in known:
            live = predicates.intersection(live, one.where.tiles)
        return EachTile(dead, (ALL if opposite(dead) == live else live) if known else None, known)


@dataclass(frozen=True)
class LateTiles:
    """Tiles whose scores are all `bound` at most: computed after the others, unless rows' `maximum` is far above."""

    tiles: Tiles
    bound: float
    gap: float
    maximum: int  # its position among what the loop carries

    @staticmethod
    def of(loop: ir.Operation, softmax: ir.Operation, masks: TileMasks, dead: Tiles) -> LateTiles | None:
        """What is masked by finite numbers, with what is `dead`; None if nothing is, or the loop cannot tell."""
        bound = bound_of(softmax, masks.lowest(masks.scores))
        maximum = carried_maximum(loop, softmax)
        if bound is None or maximum is None:
            return None
        low = masks.dead(masks.scores, bound).tiles
        if not low or low == dead:
            return None
        return LateTiles(masks.sets.union(low, dead), bound, threshold(softmax), maximum)


def dead_tiles(scores: ModifiedScores, masks: TileMasks) -> Where:
    """Where all scores are −∞, or all weights 0."""
    if not scores.is_softmax:
        return masks.zero(masks.scores)
    rows = frozenset(range(scores.value.type.rank)) - {scores.keys}
    return masks.dead(masks.scores, added=Added(rows=rows))


def _why_not_skipped(loop: ir.Operation, scores: ModifiedScores) -> str | None:
    """Why an iteration in which all scores are −∞, or all weights 0, might change something; None if it surely does
    not."""
    try:
        _, carried = carried_states(scores)
    except Unsuited as reason:
        return str(reason)
    if scores.is_softmax:
        output, _, total = carried
        if not output or not zero_like(first_value(total)):
            return "its sum does not start from zero"
    positions = {level.position for levels in carried for level in levels if level.loop == loop}
    block = loop.regions[0].blocks[0]
    yielded = list(terminator(block).operands)
    for i, value in enumerate(yielded):
        if i not in positions and value != block.arguments[1 + i]:
            return "the loop carries more than the output and the statistics of softmax"
    return None


def parts_of(sets: TileSets, alive: Tiles, live: Tiles) -> list[Part]:
    """The loops in order: their bounds, and whether all of their tiles are live. As fine as MAX_LOOPS allow."""
    hull = [(alive[0][0], alive[-1][1])] if alive else []
    for some_alive, some_live in ((alive, live), (hull, live), (alive, []), (hull, [])):
        parts = _sequence(sets, some_alive, some_live)
        if len(parts) <= MAX_LOOPS:
            break
    return parts


def _sequence(sets: TileSets, alive: Tiles, live: Tiles) -> list[Part]:
    paired = len(alive) == len(live)
    parts: list[Part] = []

    def add(low: Bound, high: Bound, is_live: bool) -> None:
        parts.extend((*tiles, is_live) for tiles in sets.interval(low, high))

    for i, window in enumerate(alive):
        at, high = window
        for start, end in sets.clip([live[i]] if paired else live, window):
            add(at, start, False)
            add(start, end, True)
            at = end
        add(at, high, False)
    return parts
