"""The pass ``keep-maximum``."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ....dialects import build
from ....dialects.build import constant_value
from ....dialects.mlir import arith, ir, linalg
from ....dialects.tile import AnyOp
from ....dialects.tiling.structured import reduces
from ...copying import copy_needed
from ...passes import Pass, option, remark
from ...rewriting import Values, copy_op, defining_op, for_body, for_inits, ops_in, ops_of
from ..bounds import row_limit
from ..marks import LIMIT
from .bulk_copies import bulk_copies
from .first_maximum import adjust, unmask
from .running_maximum import (
    Update,
    first_update,
    outermost,
    probability_types,
    rescaling,
    rows_that,
    running_maxima,
    weight,
)
from .shifted_maximum import same_for_every_maximum
from .special_unit import score_ops
from .tabulate_exponentials import is_exponential, table_shares

KEPT = ("arith.constant", "gpu.block_id")
RETRY = "tile.retry"  # of a scf.if that computes a tile again


@dataclass(frozen=True)
class _Range:
    """Of probabilities in a type, scaled down by 2^`shift`: between which sums of a row all is well.

    Below `most` each can be represented, and products with values can be summed in f32. What is rounded below the
    normal numbers is off by at most half of the least number; of n keys together, that is less than 2⁻⁸ of the sum (of
    8 bits, which round others by up to 2⁻⁴ or 2⁻³ each: by up to 2⁻³) where this is at least n · `of_key`. `limit`: of
    what a thread adds up, where `most` is more than numbers can be.
    """

    shift: int
    of_key: float
    most: float
    limit: float | None = None

    def of_weighted(self, weight: float) -> _Range:
        """Where exponentials are multiplied with a constant before they become of that type."""
        limit = None if self.limit is None else self.limit / weight
        return _Range(self.shift + round(math.log2(weight)), self.of_key / weight, self.most / weight, limit)


# By the type of a matmul's left operand. Exponentials of f32 below the normal numbers are 0.
RANGES = {
    "f16": _Range(3, 2.0**-17, 65504.0),
    "bf16": _Range(0, 2.0**-118, 2.0**32),
    "f8E4M3FN": _Range(-5, 2.0**-7, 2.0**32, 448.0),
    "f8E5M2": _Range(-7, 2.0**-14, 2.0**32, 57344.0),
}


@dataclass(frozen=True)
class KeepMaximum(Pass):
    """The maximum of the first tile of keys is kept for all others; where that does not do, a tile is computed again::

        %m0, … = first iteration
        %o, %m, %l = scf.for … iter_args(%o0, %m0, %l0) {
          %t = rowmax(%x)
          %m1, %l1, %alpha = max(%m, %t), %l · exp(%m − %m1), exp(%m − %m1)
          %p = exp(%x − %m1)
          %o1 = %o · %alpha
          …
      becomes
        %m0, … = first iteration                                  // m0 + 3 log 2 for f16; see first_maximum.py
        %o, %l = scf.for … iter_args(%o0, %l0) {
          %p = exp(%x − %m0)
          …
        }
        %bad = tile.any(¬(n · 2⁻¹⁷ ≤ %l < 65504))                 // of f16, n: the number of keys
        scf.if %bad { all of the tile, as it was } {tile.retry}

    softmax(x) = exp(x − m) / Σ exp(x − m) for every m; the maximum only keeps numbers in range. Each probability is at
    most their sum l: where that is below the limit, none has overflowed; where it is large enough, rounding the
    smallest ones has changed little. Neither would follow if probabilities had weights; but the range is divided by one
    that is a constant, as scales of 8 bits are. For loops whose first iteration stands before them
    (``overlap-matmuls``), and results that are the same for every m (``shifted_maximum.py``), as a log-sum-exp,
    m + log l, is.

    Numbers of 8 bits have less room. There sums become infinite where what a thread adds up of a row of a tile, in some
    parts, is not below the largest number::

        %t = rowsum(%p) {tile.limit = 448.0}                      // of e4m3
        %l1 = %l + %t
    """

    masked: bool = option("also in loops with a branch around a mask", True)

    def run(self, op: ir.Operation) -> None:
        for kernel in ops_in(op, "gpu.func"):
            if bulk_copies(kernel):
                loops = ops_in(kernel, "scf.for")
                plans = [_Plan.of(loop) for loop in loops]
                if len(loops) == 1 and plans[0] is not None and (self.masked or not ops_in(loops[0], "scf.if")):
                    with kernel.location:
                        _rewrite(kernel, plans[0])


@dataclass
class _Plan:
    loop: ir.Operation
    update: Update
    first: Update  # of the first iteration
    rescale: list[ir.Operation]
    sum: int  # its number among what the loop carries
    total: ir.Value  # the sum, after the loop
    range: _Range

    @staticmethod
    def of(loop: ir.Operation) -> _Plan | None:
        update, number = next(running_maxima(loop), (None, 0))
        if update is None:
            return None
        body = for_body(loop)
        first = first_update(for_inits(loop)[number])
        rescale = rescaling(update)
        sums = [s for s in update.sums.values() if s in body.arguments]
        elements = probability_types(body)
        if first is None or rescale is None or len(sums) != 1 or len(elements) != 1:
            return None
        (element,) = elements
        of_sum = list(body.arguments).index(sums[0]) - 1
        total = outermost(loop.results[of_sum])
        factor = weight(loop)
        if element not in RANGES or factor is None:
            return None
        if not same_for_every_maximum(loop, update, number, of_sum):
            return None
        if RANGES[element].limit is not None and _tile_sum(loop, of_sum) is None:
            return None
        return _Plan(loop, update, first, rescale, of_sum, total, RANGES[element].of_weighted(factor))


def _rewrite(kernel: ir.Operation, plan: _Plan) -> None:
    block = kernel.regions[0].blocks[0]
    body = [o for o in ops_of(block)[:-1] if o.name not in KEPT]
    store = next((o for o in body if o.name == "tile.store"), None)
    if store is None or defining_op(plan.total) is None or defining_op(plan.total).block != block:
        return
    keys = _keys(plan.loop, block)
    with ir.InsertionPoint(ops_of(block)[-1]):
        least = arith.mulf(keys, build.constant(keys.type, plan.range.of_key))
        bad = AnyOp(
            _out_of_range(plan.total, store, least, plan.range.most), result=ir.IntegerType.get_signless(1)
        ).result
        branch = ir.Operation.create("scf.if", [], [bad], {RETRY: ir.UnitAttr.get()}, regions=2)
        with ir.InsertionPoint(branch.regions[0].blocks.append()):
            values: Values = {}
            for op in body:
                copy_op(op, values)
            ir.Operation.create("scf.yield")
    _choose_first(plan, plan.range.shift * plan.update.unit, _limit(kernel, plan.loop))
    _keep(plan)
    if plan.range.limit is not None:
        tile_sum = _tile_sum(plan.loop, plan.sum)
        assert tile_sum is not None, "a plan for numbers of 8 bits has it"
        tile_sum.attributes[LIMIT] = ir.FloatAttr.get(ir.F32Type.get(), plan.range.limit)
    remark(kernel, "the first maximum is kept; a tile whose sums leave the range is computed again")


def _keys(loop: ir.Operation, block: ir.Block) -> ir.Value:
    """How many keys there are, in f32, at the end of `block`: those of `loop`, and the tile before it."""
    values: Values = {}
    with ir.InsertionPoint(ops_of(block)[-1]):
        bounds = list(loop.operands)[:3]
        lower, upper, step = (copy_needed(v, values, lambda op: op.block != block) for v in bounds)
        count = arith.addi(arith.subi(upper, lower), step)
        wide = arith.index_cast(ir.IntegerType.get_signless(32), count)
        return arith.sitofp(ir.F32Type.get(), wide)


def _out_of_range(total: ir.Value, store: ir.Operation, least: ir.Value, most: float) -> ir.Value:
    """For each row that is no padding, whether its sum is not between `least` and `most`."""
    view = store.opview
    valid = view.indices[view.memory.type.rank]

    def check(x: ir.Value) -> ir.Value:
        fits = arith.andi(
            arith.cmpf(arith.CmpFPredicate.OGE, x, least),
            arith.cmpf(arith.CmpFPredicate.OLT, x, build.constant(x.type, most)),
        )
        bad = arith.xori(fits, build.constant(fits.type, 1))
        if (constant_value(valid) or 0) >= total.type.shape[0]:
            return bad
        return arith.andi(bad, arith.cmpi(arith.CmpIPredicate.slt, linalg.IndexOp(0).result, valid))

    return rows_that(total, check)


def _limit(kernel: ir.Operation, loop: ir.Operation) -> float | None:
    """How large the maximum may be for exponentials that come from a table."""
    if table_shares(kernel) is None:
        return None
    limits = [row_limit(o) for o in score_ops(loop) if is_exponential(o)]
    return min((x for x in limits if x is not None), default=None)


def _choose_first(plan: _Plan, by: float, limit: float | None) -> None:
    """Makes the maximum of the first tile one to be kept."""
    op, number = plan.first.op, plan.first.maximum
    block = op.regions[0].blocks[0]
    for argument in defining_op(ops_of(block)[-1].operands[number]).operands:
        maxima = defining_op(op.operands[argument.arg_number]) if argument in block.arguments else None
        if maxima is not None and maxima.name == "linalg.generic" and reduces(maxima):
            unmask(maxima)
    adjust(op, number, by, limit)


def _keep(plan: _Plan) -> None:
    """In the loop the maximum stays what it was, and all that would follow from a change of it is left out."""
    update = plan.update
    yielded = ops_of(for_body(plan.loop))[-1]
    number = list(yielded.operands).index(update.op.results[update.maximum])
    old = for_body(plan.loop).arguments[1 + number]
    for op in plan.rescale:
        factors = [update.op.results[i] for i in update.factors]
        (tile,) = [v for v in list(op.operands)[:2] if v not in factors]
        op.results[0].replace_all_uses_with(tile)
        op.erase()
    update.op.results[update.maximum].replace_all_uses_with(old)
    for i, operand in update.sums.items():
        update.op.results[i].replace_all_uses_with(operand)
    update.op.erase()


def _tile_sum(loop: ir.Operation, number: int) -> ir.Operation | None:
    """The op that sums up the rows of a tile, which are added to what the loop carries."""
    added = defining_op(ops_of(for_body(loop))[-1].operands[number])
    makers = [defining_op(v) for v in added.operands] if added is not None else []
    found = [o for o in makers if o is not None and o.name == "linalg.generic" and reduces(o)]
    return found[0] if len(found) == 1 else None
