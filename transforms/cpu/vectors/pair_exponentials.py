"""The pass ``pair-exponentials``."""

import math
from dataclasses import dataclass

from ....dialects import build
from ....dialects.linalg_ext.softmax import NOT_POSITIVE
from ....dialects.mlir import arith, ir
from ....dialects.pair import Exp2Op, ProductOp
from ...host import matrix_unit
from ...passes import Pass, option
from ...rewriting import defining_op, erase_if_unused, ops_in, single_use, terminator
from ..matrix_unit import MATRIX_OPTION
from ..pair_powers import BELOW_NO_NUMBER

ONES = 0x3F803F80  # a pair of bf16
LOGARITHMS = ("math.log", "math.log2", "math.log10", "math.log1p")


@dataclass(frozen=True)
class PairExponentials(Pass):
    """Takes powers of 2 that are rounded to bf16 as pairs, and their sum from what they are rounded to::

        %p = math.exp2 %x {linalg_ext.not_positive}
        %q = math.exp2 %y {linalg_ext.not_positive}
        %s = arith.addf %sum, %p
        %t = arith.addf %s, %q
        %w = pair.pack (%p, %q, both rounded)
    becomes
        %w = pair.exp2 %x, %y
        %r = pair.product %w, (1, 1)
        %t = arith.addf %sum, %r
    and after the op that sums them up
        linalg.generic outs(%sums) { sum < 2^64 ? sum : NaN }

    The word is made in integers of 16 bits, 32 at a time (`pair_powers`), by fewer instructions. What probabilities are
    divided by is then the sum of those that are multiplied by values. It also tells, once per row, of what is no
    number. Where a logarithm is taken, as of the sum for a result of its own, it stays that of the exact ones.
    """

    matrix: str = option(MATRIX_OPTION, "")

    def run(self, op: ir.Operation) -> None:
        if matrix_unit(self.matrix) != "dot" or ops_in(op, *LOGARITHMS):
            return
        for pack in ops_in(op, "pair.pack"):
            powers = [power for x in pack.operands if (power := _rounded_power(x)) is not None]
            if len(powers) == 2:
                _replace(pack, *powers)


def _rounded_power(value: ir.Value) -> ir.Operation | None:
    """The power of 2, of a number known not to be positive, that `value` is when rounded to bf16."""
    extended = defining_op(value)
    rounded = defining_op(extended.operands[0]) if extended is not None and extended.name == "arith.extf" else None
    power = defining_op(rounded.operands[0]) if rounded is not None and rounded.name == "arith.truncf" else None
    is_known = power is not None and power.name == "math.exp2" and NOT_POSITIVE in power.attributes
    return power if is_known else None


def _replace(pack: ir.Operation, low: ir.Operation, high: ir.Operation) -> None:
    """Takes the powers' place, if all else that is done with them is to add one after the other to a sum."""
    adders = [_others(power) for power in (low, high)]
    if [len(found) for found in adders] != [1, 1]:
        return
    first, last = (found[0] for found in adders)
    if {first.name, last.name} != {"arith.addf"} or not single_use(first.results[0]):
        return
    (sums,) = [v for v in first.operands if v != low.results[0]]
    summing = _summing(sums, last)
    if first.results[0] not in list(last.operands) or summing is None:
        return
    with ir.InsertionPoint(pack), pack.location:
        i32, f32 = pack.results[0].type, low.results[0].type
        word = Exp2Op(low.operands[0], high.operands[0], word=i32).result
        of_both = arith.addf(sums, ProductOp(word, build.constant(i32, ONES), sum=f32).result)
    with ir.InsertionPoint.after(summing), summing.location:
        _tell_no_number(summing.operands[ir.BlockArgument(sums).arg_number])
    pack.results[0].replace_all_uses_with(word)
    last.results[0].replace_all_uses_with(of_both)
    left = [pack, last, first]
    for extended in map(defining_op, pack.operands):
        assert extended is not None, "it was looked through"
        left += [extended, extended.operands[0].owner.operation]
    for op in [*left, low, high]:
        erase_if_unused(op)


def _summing(sums: ir.Value, last: ir.Operation) -> ir.Operation | None:
    """The op on buffers of whose accumulator, `sums`, `last` is the new value; else None."""
    if not isinstance(sums.owner, ir.Block):
        return None
    op = sums.owner.owner.operation
    if op.name != "linalg.generic" or op.results:
        return None
    number = ir.BlockArgument(sums).arg_number - (len(op.operands) - len(terminator(sums.owner).operands))
    is_accumulator = number >= 0 and terminator(sums.owner).operands[number] == last.results[0]
    return op if is_accumulator else None


def _tell_no_number(sums: ir.Value) -> None:
    """Makes NaN of those sums of powers that only what is no number can be part of."""
    rank = sums.type.rank

    def checked(total: ir.Value) -> ir.Value:
        is_sum = arith.cmpf(arith.CmpFPredicate.OLT, total, build.constant(total.type, BELOW_NO_NUMBER))
        return arith.select(is_sum, total, build.constant(total.type, math.nan))

    build.generic([], [sums], [build.projection(rank, range(rank))], [build.PARALLEL] * rank, checked)


def _others(power: ir.Operation) -> list[ir.Operation]:
    """Who uses the power, but for rounding it."""
    users = [use.owner.operation for use in power.results[0].uses]
    return [user for user in users if user.name != "arith.truncf"]
