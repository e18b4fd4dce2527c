"""The pass ``split-masked-tiles``."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from ...dialects.mlir import arith, ir
from ..passes import Pass, option, remark
from ..rewriting import ancestors
from .cut_tiles import cut_sizes, narrow_types, take_off_last
from .masked_tiles import MaskedTiles, dead_tiles
from .masks import TileMasks
from .modified_scores import ModifiedScores, modified_scores_in
from .tile_plans import plan_of
from .tile_sets import TileSets


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
    cut one: sizes are constants in all but that (`cpu/tensors/peel_tails.py` says what for).

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
    `tests`. To see that all of what is added is 0 would take as long as to add it. Else a mask that several heads share
    is looked at before all loops (mask_tables.py). So is what is `added`, where there is much to compute and no other
    mask: most are masks. Then numbers as low as −32768 count as −∞ in rows that have higher ones.

    Without a softmax, scores become weights of values by themselves: tiles are dead where a mask makes these 0.

    A mask may also be a finite number, such as −1e9: tiles that it fills are computed last, and only where a row of
    queries needs them (finite_masks.py).
    """

    from_data: bool = option("which tiles are computed may depend on numbers that are loaded", True)
    tests: bool = option("each tile may be tested when the loop is there: of masks that are loaded, and low ones", True)
    lists: bool = option("tiles that masks with holes leave are listed before all loops", False)
    added: int = option("scores from which on numbers that are added are looked at before all loops; 0: never", 0)
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
    tiles = MaskedTiles.of(loop, sets, scores, options, is_peeled)
    unknown += tiles.masks.unknown
    plan = plan_of(tiles)
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
    location, done, details = scores.consumer.location, plan.description, plan.details()
    plan.emit()
    remark(location, done, kind="split", **details)
    return True


def _skip_dead(tail: ir.Operation, options: SplitMaskedTiles) -> None:
    """Leaves the one tile of the loop out if it is dead."""
    (scores,) = modified_scores_in(tail)
    sets = TileSets(tail)
    masks = TileMasks(sets, scores.value, options)
    dead = dead_tiles(scores, masks).tiles
    alive = sets.complement(dead)
    if dead:
        low, high = (sets.value(bound) for bound in (alive[0][0], alive[-1][1])) if alive else (tail.operands[0],) * 2
        with ir.InsertionPoint(tail), tail.location:
            is_alive = arith.cmpi(arith.CmpIPredicate.slt, low, high)
            tail.operands[1] = arith.select(is_alive, tail.operands[1], tail.operands[0])
    sets.finish()
