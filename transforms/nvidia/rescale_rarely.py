"""The pass ``rescale-rarely``."""

from __future__ import annotations

from dataclasses import dataclass

from ...dialects import build
from ...dialects.mlir import arith, ir
from ...dialects.tile import AnyOfWarpOp
from ..passes import Pass, option, remark
from ..rewriting import Values, copy_op, defining_op, ops_in
from .axes import for_body, ops_of
from .bulk_copies import bulk_copies
from .running_maximum import Update, outermost, rescaling, rows_that, running_maxima


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
    as exact as smaller ones. (FlashAttention-4 has this.) For loops whose maximum nothing else reads, in kernels whose
    loads the copy engine does.
    """

    bits: int = option("by how many powers of 2 exponentials may exceed 1", 8)

    def run(self, op: ir.Operation) -> None:
        for kernel in ops_in(op, "gpu.func"):
            if bulk_copies(kernel):
                for loop in ops_in(kernel, "scf.for"):
                    found = _update(loop)
                    if found is not None:
                        with loop.location:
                            _stay(*found, self.bits)
                            for rescale in rescaling(found[0]) or []:
                                _only_if_changed(rescale, found[0])
                        remark(loop, "what was summed is rescaled only where the maximum has grown by much")


def _update(loop: ir.Operation) -> tuple[Update, ir.Value] | None:
    """What brings the maximum that a loop carries up to date, and the maximum before."""
    for update, number in running_maxima(loop):
        if rescaling(update) is not None:
            is_read = list(outermost(loop.results[number]).uses)
            return None if is_read else (update, for_body(loop).arguments[1 + number])
    return None


def _stay(update: Update, before: ir.Value, bits: int) -> None:
    """The new maximum is the old one unless that is exceeded by much."""
    block = update.op.regions[0].blocks[0]
    old = block.arguments[list(update.op.operands).index(before)]
    larger = defining_op(ops_of(block)[-1].operands[update.maximum])
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
        branch = ir.Operation.create("scf.if", [kind], [some], regions=2)
        with ir.InsertionPoint(branch.regions[0].blocks.append()):
            values: Values = {}
            copy_op(rescale, values)
            ir.Operation.create("scf.yield", [], [values[rescale.results[0]]])
        with ir.InsertionPoint(branch.regions[1].blocks.append()):
            ir.Operation.create("scf.yield", [], [tile])
    rescale.results[0].replace_all_uses_with(branch.results[0])
    rescale.erase()
