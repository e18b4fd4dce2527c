"""The pass ``split-masked-tiles``."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from ...dialects.mlir import arith, ir
from ..formulas import Formula
from ..index_formulas import formula
from ..open_queries import FEW_QUERIES
from ..passes import Pass, option, remark
from ..rewriting import ancestors, ops_in, terminator
from .cut_tiles import cut_sizes, narrow_types, take_off_last
from .finite_masks import bound_of, carried_maximum, is_clear, threshold
from .fold_conditions import DECIDED, DECIDED_BY_TEST, fold_conditions, mark, unmark
from .masks import Decided, TileMasks
from .match_accumulation import Unsuited, first_value, zero_like
from .modified_scores import ModifiedScores, carried_states, modified_scores_in
from .tile_conditions import Where
from .tile_guards import Guard, put_guard
from .tile_lists import TileList
from .tile_predicates import ALL, Predicate, TilePredicates, opposite
from .tile_sets import Bound, Tiles, TileSets

MAX_LOOPS = 6  # in place of one: each is a copy of the body
JOINED = 3  # that GPUs make one again (`join-loops`); more, or with finite masks, would stay apart
Part: TypeAlias = tuple[Bound, Bound, bool]  # of the tiles: from, to, whether all are live


@dataclass(frozen=True)
class SplitMaskedTiles(Pass):
    """Skips tiles that a mask makes wholly dead, and takes the mask out of tiles that it leaves wholly alive::

        %r:3 = scf.for %k = %c0 to %n step %c32 iter_args(…) {
          …
          %x = linalg.generic … { select(j <= i, s, %minus_inf) }   // i = %q + linalg.index 0, j = %k + linalg.index 1
          %p:4 = linalg_ext.softmax dimension(1) ins(%x) …
        }
    becomes, for causal attention with 16 queries in a tile
        %live = affine.min(affine.max(((%q - 30) ceildiv 32) * 32, 0), %n)    // from here on some keys come too late
        %end  = affine.min(affine.max(((%q + 16) ceildiv 32) * 32, %live), %n)  // and from here on, all of them
        %0:3 = scf.for %k = %c0 to %live step %c32 iter_args(…) { … %p:4 = linalg_ext.softmax dimension(1) ins(%s) … }
        %r:3 = scf.for %k = %live to %end step %c32 iter_args(%0#0, …) { … the mask … }

    The masks are found by what they compute (masks.py): comparisons of integers that are linear in the element's
    position, joined by and, or, not and select, at any distance from the softmax. The loop is the innermost one, keys
    or queries, on which they depend; a sliding window gives three loops, two ranges of keys up to six. The order of the
    tiles stays.

    A tile in which all scores are −∞ changes nothing: m = max(m, −∞), a = a·exp(m − m) + 0, and O likewise, also where
    m is still −∞, for then a and O are 0 (checked: they start from 0). So it may be skipped if the loop carries nothing
    else. What a masked score was does not matter: NaN and ∞ times zero, which a dead tile would give, are not made.
    Tiles of less than `few-rows` rows (decoding) keep a mask that is computed: one loop is compiled sooner, and is as
    fast.

    With `whole-tiles` loops over f16 and bf16 end where the last whole tile does, and one more, with the mask, has the
    cut one: sizes are constants in all but that (`cpu/peel_tails.py` says what for).

    Numbers that are loaded take part, if `from-data`: one for all keys (a length), one for each query (where its
    sequence ends), and one for each key: which document it is of, whether it is padding. Of the latter the least and
    the greatest of each tile are found before all loops (tile_extremes.py), and of these the first and the last tile
    that may be live (tile_scans.py). A table of blocks, of bits that are looked up at ⌊i / 128⌋ and ⌊j / 128⌋, is one
    of tiles already.

    Between the first tile and the last one there may be dead ones, as of documents that are not side by side. If it
    `tests`, each tile is looked at when the loop comes to it: it is skipped where it is dead, and computed without the
    mask where it is live (tile_guards.py). With `lists` (on GPUs) the tiles that are not dead are listed before all
    loops (tile_lists.py), the live ones first; loops are over the entries of a list. So are masks whose loops would be
    too many.

    Of a mask that is loaded, an array of i1, or one of floats that is added, each tile is looked at, too, if it
    `tests`. To see that all of what is added is 0 would take as long as to add it. Else a mask of i1 that several heads
    share is looked at before all loops.

    Without a softmax, scores become weights of values by themselves: tiles are dead where a mask makes these 0.

    A mask may also be a finite number, such as −1e9: tiles that it fills are computed last, and only where a row of
    queries needs them (finite_masks.py).
    """

    from_data: bool = option("which tiles are computed may depend on numbers that are loaded", True)
    tests: bool = option("each tile may be tested when the loop is there: of masks that are loaded, and low ones", True)
    lists: bool = option("tiles that masks with holes leave are listed before all loops", False)
    few_rows: int = option("tiles of fewer rows, by dimension, keep a mask that is computed", 0)
    whole_tiles: bool = option("of f16 and bf16, the last, cut tile has a loop of its own", False)

    def run(self, op: ir.Operation) -> None:
        found = [(scores, _loops_around(scores)) for scores in modified_scores_in(op)]
        count = Counter(loop for _, loops in found for loop in loops)
        for scores, loops in found:
            unknown: list[ir.Operation] = []
            own = [loop for loop in loops if count[loop] == 1]
            if not any(_split(loop, scores, unknown, self) for loop in own) and unknown:
                remark(unknown[0], "all tiles are masked: the mask does not depend linearly on positions in any loop")


def _loops_around(scores: ModifiedScores) -> list[ir.Operation]:
    return [loop for loop in ancestors(scores.consumer) if loop.name == "scf.for"]


def _split(
    loop: ir.Operation,
    scores: ModifiedScores,
    unknown: list[ir.Operation],
    options: SplitMaskedTiles,
    is_peeled: bool = False,
) -> bool:
    """Splits `loop` by the masks of the `scores`, which no others are beside; says whether they depend on it. Notes
    `unknown` ones.

    `is_peeled`: its last tile was taken off it, and dead ones may be skipped, as was seen before that.
    """
    sets = TileSets(loop)
    if not sets.supported:
        return False
    plan = _Plan.of(loop, sets, scores, unknown, options, is_peeled)
    if plan.is_as_before:
        sets.finish()
        return False
    cuts = cut_sizes(loop, sets.step) if options.whole_tiles and plan.may_peel and narrow_types(loop) else []
    if cuts:
        tail = take_off_last(loop, sets.value(sets.end_of_whole()), cuts, sets.step)
        sets.finish()
        _skip_dead(tail, options)
        _split(loop, scores, unknown, options, is_peeled=True)
        return True
    location, done, details = scores.consumer.location, plan.description, plan.details(loop, scores.consumer)
    plan.emit(loop)
    sets.finish()
    loop.erase()
    remark(location, done, kind="split", **details)
    return True


def _skip_dead(tail: ir.Operation, options: SplitMaskedTiles) -> None:
    """Leaves the one tile of the loop out if it is dead."""
    (scores,) = modified_scores_in(tail)
    sets = TileSets(tail)
    masks = TileMasks(sets, scores.value, options.from_data, options.tests)
    dead = _dead(scores, masks).tiles
    alive = sets.complement(dead)
    if dead:
        low, high = (sets.value(bound) for bound in (alive[0][0], alive[-1][1])) if alive else (tail.operands[0],) * 2
        with ir.InsertionPoint(tail), tail.location:
            is_alive = arith.cmpi(arith.CmpIPredicate.slt, low, high)
            tail.operands[1] = arith.select(is_alive, tail.operands[1], tail.operands[0])
    sets.finish()


@dataclass(frozen=True)
class _Plan:
    """What a loop becomes: `parts`, those of tiles that are not `dead`, then those that are computed `late`.

    `known` are masks of which it is computed where they are of no effect, `tested` those of which a `guard` finds it
    out. `reason`: why dead tiles are not skipped. Where tiles are `listed`, the parts are those of the list.
    """

    sets: TileSets
    parts: list[Part]
    dead: Tiles
    late: _Late | None
    guard: Guard | None
    known: list[Decided]
    tested: list[Decided]
    reason: str | None
    listed: TileList | None = None

    @staticmethod
    def of(
        loop: ir.Operation,
        sets: TileSets,
        scores: ModifiedScores,
        unknown: list[ir.Operation],
        options: SplitMaskedTiles,
        is_peeled: bool,
    ) -> _Plan:
        masks = TileMasks(sets, scores.value, options.from_data, options.tests)
        where = _dead(scores, masks)
        dead, tests = where.tiles, where.tests
        late = _Late.of(loop, scores.consumer, masks, dead) if options.tests and scores.is_softmax else None
        decided = masks.conditions(masks.scores)
        unknown += masks.unknown
        known, tested = ([one for one in decided if bool(one.where.tiles) == has_tiles] for has_tiles in (True, False))
        few = scores.has_fewer_rows(options.few_rows) or any(FEW_QUERIES in op.attributes for op in ops_in(loop))
        live = sets.all if decided and not (known and few) else sets.none
        for one in known:
            live = sets.intersection(live, one.where.tiles)
        reason = _why_not_skipped(loop, scores) if (where or late is not None) and not is_peeled else None
        if reason:
            remark(scores.consumer, f"tiles that the mask makes dead are computed: {reason}")
            dead, tests, late = sets.none, (), None
        if late is not None:
            dead = late.tiles
        guard = Guard.of(sets, tests, tested)
        alive = sets.complement(dead)
        parts = _parts(sets, alive, live)
        each = listed = None
        most = JOINED if options.lists else MAX_LOOPS
        has_holes = masks.forms.by_data or len(_sequence(sets, alive, live)) > most
        if has_holes and late is None and not few and not reason:
            each = _EachTile.of(loop, sets, scores, options)
        if each is not None and options.lists:
            listed = TileList.of(sets, each.dead, each.live)
        by_data = masks.forms.scans is not None and masks.forms.scans.found_rows
        if each is not None and listed is not None:
            known = each.known
        elif each is not None and options.tests:
            known, tested, parts = [], [*tested, *each.known], [(*interval, True) for interval in alive]
            guard = replace(guard or Guard(sets.variable), dead_where=each.dead, live_where=each.live)
        elif by_data and not options.tests and (masks.is_finite or len(parts) > JOINED):
            known, parts = [], _parts(sets, alive, [])
        return _Plan(sets, parts, dead, late, guard, known, tested, reason, listed)

    @property
    def is_as_before(self) -> bool:
        return self.listed is None and self.guard is None and self.parts == [(*self.sets.all[0], False)]

    @property
    def may_peel(self) -> bool:
        """Whether the last tile may have a loop of its own."""
        looks = self.late is not None or self.guard is not None or self.listed is not None
        return len(self.parts) > 1 and not looks and not self.reason

    @property
    def description(self) -> str:
        some = ["skips dead tiles"] if self.dead and self.late is None else []
        some += ["skips masked tiles unless a row has no other keys"] if self.late is not None else []
        some += ["computes live tiles without the mask"] if self.known and any(part[2] for part in self.parts) else []
        some += ["looks at each tile" + " of what is loaded as a mask" * self.guard.has_tests] if self.guard else []
        count = len(self.parts) + (len(self.late.tiles) if self.late is not None else 0)
        if self.listed is not None:
            some, count = ["lists the tiles that are not dead"], len(self.listed.kinds)
        loops = f": {count} loops in place of one" if count > 1 else ""
        return f"{' and '.join(some)}{loops}"

    def details(self, loop: ir.Operation, consumer: ir.Operation) -> dict[str, Any]:
        """For the picture of tiles: where the loops go."""
        known: dict[ir.Value, Formula] = {}
        schedule = [
            {
                "from": formula(low, known),
                "to": formula(high, known),
                "masked": not is_live or self.guard is not None,
            }
            for low, high, is_live in self.parts
        ]
        depth = sum(a.name == "scf.for" for a in itertools.takewhile(lambda a: a != loop, ancestors(consumer)))
        return {"step": self.sets.step, "loops_inside": depth, "parts": schedule}

    def emit(self, loop: ir.Operation) -> None:
        """Puts the loops before `loop`, which nothing uses then."""
        mark(self.known, DECIDED)
        mark(self.tested, DECIDED_BY_TEST)
        sets, late, results = self.sets, self.late, list(loop.results)
        current, parts = list(loop.operands)[3:], self.parts
        if self.listed is not None:
            loop, parts = self.listed.over_entries(loop)
        for low, high, is_live in parts:
            current = _copy(loop, sets.value(low), sets.value(high), current, is_live, self.guard)
        if late is not None:
            maxima = current[late.maximum]
            with ir.InsertionPoint(loop), loop.location:
                clear = is_clear(maxima, late.bound, late.gap)
                bounds = [
                    (sets.value(low), arith.select(clear, sets.value(low), sets.value(high)))
                    for low, high in late.tiles
                ]
            for first, end in bounds:
                current = _copy(loop, first, end, current, False, None)
        for result, value in zip(results, current, strict=True):
            result.replace_all_uses_with(value)
        if self.listed is not None:
            loop.erase()


@dataclass(frozen=True)
class _EachTile:
    """What is known of tiles one by one: which are `dead`, and in which of them `known` masks, if there are any, are of
    no effect: in `live` ones, which is said of all where those that are not dead are live."""

    dead: Predicate
    live: Predicate | None
    known: list[Decided]

    @staticmethod
    def of(loop: ir.Operation, sets: TileSets, scores: ModifiedScores, options: SplitMaskedTiles) -> _EachTile | None:
        """None where no tile may be left out by it, or the last one needs a loop of its own."""
        if options.whole_tiles and narrow_types(loop) and cut_sizes(loop, sets.step):
            return None
        predicates = TilePredicates(sets)
        masks = TileMasks(sets, scores.value, options.from_data, tests=False, predicates=predicates)
        dead: Any = _dead(scores, masks).tiles
        decided = masks.conditions(masks.scores)
        # In place of a finite mask a list has loops with it and without, which would stay two.
        known = [] if options.lists and masks.is_finite else decided
        if not dead or _why_not_skipped(loop, scores):
            return None
        live = predicates.all
        for one in known:
            live = predicates.intersection(live, one.where.tiles)
        return _EachTile(dead, (ALL if opposite(dead) == live else live) if known else None, known)


@dataclass(frozen=True)
class _Late:
    """Tiles whose scores are all `bound` at most: computed after the others, unless rows' `maximum` is far above."""

    tiles: Tiles
    bound: float
    gap: float
    maximum: int  # its position among what the loop carries

    @staticmethod
    def of(loop: ir.Operation, softmax: ir.Operation, masks: TileMasks, dead: Tiles) -> _Late | None:
        """What is masked by finite numbers, with what is `dead`; None if nothing is, or the loop cannot tell."""
        bound = bound_of(softmax, masks.lowest(masks.scores))
        maximum = carried_maximum(loop, softmax)
        if bound is None or maximum is None:
            return None
        low = masks.dead(masks.scores, bound).tiles
        if not low or low == dead:
            return None
        return _Late(masks.sets.union(low, dead), bound, threshold(softmax), maximum)


def _dead(scores: ModifiedScores, masks: TileMasks) -> Where:
    """Where all scores are −∞, or all weights 0."""
    return masks.dead(masks.scores) if scores.is_softmax else masks.zero(masks.scores)


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


def _parts(sets: TileSets, alive: Tiles, live: Tiles) -> list[Part]:
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


def _copy(
    loop: ir.Operation, low: ir.Value, high: ir.Value, inits: list[ir.Value], is_live: bool, guard: Guard | None
) -> list[ir.Value]:
    """The results of a copy of `loop` before it, from `low` to `high`, without the masks where all is live."""
    with ir.InsertionPoint(loop):
        clone = loop.clone().operation
    for i, value in enumerate([low, high]):
        clone.operands[i] = value
    for i, value in enumerate(inits):
        clone.operands[3 + i] = value
    if is_live:
        fold_conditions(clone, DECIDED)
    if guard is not None:
        put_guard(clone, guard, with_live=is_live)
    unmark(clone)
    return list(clone.results)
