"""The pass ``rescale-rarely``."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ....dialects import build
from ....dialects.mlir import arith, ir
from ....dialects.tile import AnyOfWarpOp
from ...passes import Pass, option, remark
from ...rewriting import either, for_body, for_inits, ops_in
from .bulk_copies import bulk_copies
from .running_maximum import (
    Update,
    first_update,
    is_lowest,
    probability_types,
    rescaling,
    rows_that,
    running_maxima,
    weight,
)
from .shifted_maximum import same_for_every_maximum

# By the type of probabilities: by how many powers of 2 the largest one of a tile is made larger, and may be exceeded.
RANGES = {"f8E4M3FN": (5, 3), "f8E5M2": (7, 8)}


@dataclass(frozen=True)
class RescaleRarely(Pass):
    """A running maximum stays while scores exceed it by little, and what was summed is rescaled only where it changes::

        %m1 = max(%m, %t)
        %alpha = exp2(%m − %m1)
        %o1 = %o · %alpha
      becomes
        %m1 = %t > %m + 8 ? %t : %m
        %alpha = exp2(%m − %m1)
        %some = tile.any_of_warp(%alpha ≠ 1)
        %o1 = scf.if %some { %o · %alpha } else { %o }

    softmax(x) = exp(x − m) / Σ exp(x − m) for every m. Exponentials are at most 2⁸ then: f16 holds them, and they are
    as exact as smaller ones. (FlashAttention-4 has this.) For results that are the same for every m
    (``shifted_maximum.py``), in kernels whose loads the copy engine does; not where exponentials have weights, whose
    products f16 might not hold. A constant one makes the maximum larger by its power of 2.

    Where they are rounded to 8 bits, the maximum of each tile is first made smaller by some powers of 2, so that more
    of the exponentials are normal numbers: between 2⁻⁶ and 448 (e4m3), or 2⁻¹⁴ and 57344 (e5m2).
    """

    bits: int = option("by how many powers of 2 exponentials of 16 bits may exceed 1", 8)

    def run(self, op: ir.Operation) -> None:
        for kernel in ops_in(op, "gpu.func"):
            if bulk_copies(kernel):
                for loop in ops_in(kernel, "scf.for"):
                    found = _update(loop)
                    if found is not None:
                        with loop.location:
                            self._rescale_rarely(loop, *found)

    def _rescale_rarely(self, loop: ir.Operation, update: Update, number: int, factor: float) -> None:
        body, init = for_body(loop), for_inits(loop)[number]
        shift, bits = RANGES.get("".join(probability_types(body)), (0, self.bits))
        shift -= round(math.log2(factor))
        first = first_update(init)
        if shift and (first is not None or is_lowest(init)):
            for each in filter(None, (update, first)):
                _make_smaller(each, shift)
        elif shift < 0:
            return
        _stay(update, body.arguments[1 + number], bits)
        for rescale in rescaling(update) or []:
            _only_if_changed(rescale, update)
        remark(loop, "what was summed is rescaled only where the maximum has grown by much")


def _update(loop: ir.Operation) -> tuple[Update, int, float] | None:
    """What brings the maximum that a loop carries up to date, which of its results that is, and what exponentials are
    multiplied with."""
    factor = weight(loop)
    if factor is None:
        return None
    for update, number in running_maxima(loop):
        if rescaling(update) is not None:
            carried = list(for_body(loop).arguments)[1:]
            sums = [carried.index(v) for v in update.sums.values() if v in carried]
            same = len(sums) == 1 and same_for_every_maximum(loop, update, number, sums[0])
            return (update, number, factor) if same else None
    return None


def _make_smaller(update: Update, powers: int) -> None:
    """Divides what exponentials are divided by, the largest one of a tile, by powers of 2."""
    larger, inputs = update.larger, len(update.op.operands) - len(update.op.results)
    (number,) = [i for i, v in enumerate(larger.operands) if v.arg_number < inputs]
    value = larger.operands[number]
    with ir.InsertionPoint(larger), larger.location:
        larger.operands[number] = arith.subf(value, build.constant(value.type, powers * update.unit))


def _stay(update: Update, before: ir.Value, bits: int) -> None:
    """The new maximum is the old one unless that is exceeded by much."""
    block, larger = update.op.regions[0].blocks[0], update.larger
    old = block.arguments[list(update.op.operands).index(before)]
    (new,) = [v for v in larger.operands if v != old]
    with ir.InsertionPoint(larger):
        limit = arith.addf(old, build.constant(old.type, bits * update.unit))
        exceeds = arith.cmpf(arith.CmpFPredicate.OGT, new, limit)
        chosen = arith.select(exceeds, new, old)
    larger.results[0].replace_all_uses_with(chosen)
    larger.erase()


def _only_if_changed(rescale: ir.Operation, update: Update) -> None:
    (factor,) = [v for v in list(rescale.operands)[:2] if v in [update.op.results[i] for i in update.factors]]
    (tile,) = [v for v in list(rescale.operands)[:2] if v != factor]
    kind = rescale.results[0].type
    with ir.InsertionPoint(rescale):
        differs = arith.CmpFPredicate.UNE
        changed = rows_that(factor, lambda x: arith.cmpf(differs, x, build.constant(x.type, 1.0)))
        some = AnyOfWarpOp(changed, result=ir.IntegerType.get_signless(1)).result
        (found,) = either(some, [kind], lambda: list(rescale.clone().operation.results), lambda: [tile])
    rescale.results[0].replace_all_uses_with(found)
    rescale.erase()
