"""The pass ``guard-divisions``."""

from dataclasses import dataclass

import numpy as np

from ....dialects import build
from ....dialects.mlir import arith, ir
from ...passes import Pass
from ...rewriting import defining_op, ops_in

SIGNED = ("arith.divsi", "arith.remsi", "arith.floordivsi", "arith.ceildivsi")
UNSIGNED = ("arith.divui", "arith.remui", "arith.ceildivui")


@dataclass(frozen=True)
class GuardDivisions(Pass):
    """Divides integers by 1 where the instruction would end the process::

        %q = arith.divsi %a, %b : vector<8xi64>
    becomes
        %zero = arith.cmpi eq, %b, %zeros
        %least = arith.cmpi eq, %a, %minima
        %minus = arith.cmpi eq, %b, %minus_ones
        %over = arith.andi %least, %minus
        %bad = arith.ori %zero, %over
        %c = arith.select %bad, %ones, %b
        %q = arith.divsi %a, %c : vector<8xi64>

    A vector that stands over the end of a row has zeros in its other lanes, and a division traps for every lane. So it
    would for what the graph divides by zero, whose result is any number, and for the least number by −1, which is
    itself. Divisors that are known are left, and scalar indices, which are offsets and sizes of ours.
    """

    def run(self, op: ir.Operation) -> None:
        for division in ops_in(op, *SIGNED, *UNSIGNED):
            is_signed = division.name in SIGNED
            if not _is_safe(division.operands[1], is_signed):
                with ir.InsertionPoint(division), division.location:
                    division.operands[1] = _guarded(division.operands[0], division.operands[1], is_signed)


def _is_safe(divisor: ir.Value, is_signed: bool) -> bool:
    """Whether no number can be divided by `divisor` such that it traps."""
    if isinstance(divisor.type, ir.IndexType):
        return True
    op = defining_op(divisor)
    if op is None or op.name != "arith.constant":
        return False
    value = op.attributes["value"]
    numbers = {value.value} if isinstance(value, ir.IntegerAttr) else set(np.array(value).flat)
    return not numbers & ({0, -1} if is_signed else {0})


def _guarded(dividend: ir.Value, divisor: ir.Value, is_signed: bool) -> ir.Value:
    bad = arith.cmpi(arith.CmpIPredicate.eq, divisor, build.constant(divisor.type, 0))
    if is_signed:
        least = build.constant(divisor.type, -(2 ** (_width(divisor.type) - 1)))
        least = arith.cmpi(arith.CmpIPredicate.eq, dividend, least)
        minus = arith.cmpi(arith.CmpIPredicate.eq, divisor, build.constant(divisor.type, -1))
        bad = arith.ori(bad, arith.andi(least, minus))
    return arith.select(bad, build.constant(divisor.type, 1), divisor)


def _width(kind: ir.Type) -> int:
    element = build.element_of(kind)
    return 64 if isinstance(element, ir.IndexType) else element.width
