"""The pass ``shift-divisions``."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

from ....dialects import build
from ....dialects.mlir import arith, ir
from ...passes import Pass
from ...rewriting import ops_in

COMBINE = {"affine.apply": arith.addi, "affine.min": arith.minsi, "affine.max": arith.maxsi}
DIVISIONS = (ir.AffineFloorDivExpr, ir.AffineCeilDivExpr, ir.AffineModExpr)


@dataclass(frozen=True)
class ShiftDivisions(Pass):
    """Divides by powers of 2 with shifts where affine ops do, which round towards −∞ as shifts do::

        %r = affine.max affine_map<(i) -> (((i - 62) ceildiv 64) * 64, 0)>(%i)
    becomes
        %a = arith.addi %i, %c-62
        %b = arith.addi %a, %c63
        %c = arith.shrsi %b, %c6
        %d = arith.muli %c, %c64
        %r = arith.maxsi %d, %c0

    `lower-affine` makes a comparison, two selects and a division that truncates of each. Bounds of what a mask leaves
    of a tile are computed for each vector of queries, and no loop over keys can start before they are there.
    """

    def run(self, op: ir.Operation) -> None:
        for found in ops_in(op, *COMBINE):
            map_ = found.attributes["map"].value
            if any(_divides(e) for e in map_.results) and all(_is_simple(e) for e in map_.results):
                with ir.InsertionPoint(found), found.location:
                    values = [_value(e, list(found.operands), map_.n_dims) for e in map_.results]
                    found.results[0].replace_all_uses_with(functools.reduce(COMBINE[found.name], values))
                found.erase()


def _divides(e: ir.AffineExpr) -> bool:
    e = e.maybe_downcast()
    return isinstance(e, DIVISIONS) or (isinstance(e, ir.AffineBinaryExpr) and (_divides(e.lhs) or _divides(e.rhs)))


def _is_simple(e: ir.AffineExpr) -> bool:
    """Whether all divisors are powers of 2."""
    e = e.maybe_downcast()
    if not isinstance(e, ir.AffineBinaryExpr):
        return True
    divisor = e.rhs.maybe_downcast()
    if isinstance(e, DIVISIONS) and not (
        isinstance(divisor, ir.AffineConstantExpr) and divisor.value > 0 and divisor.value.bit_count() == 1
    ):
        return False
    return _is_simple(e.lhs) and _is_simple(e.rhs)


def _value(e: ir.AffineExpr, operands: Sequence[ir.Value], n_dims: int) -> ir.Value:
    e = e.maybe_downcast()
    if isinstance(e, ir.AffineConstantExpr):
        return build.index(e.value)
    if isinstance(e, ir.AffineDimExpr | ir.AffineSymbolExpr):
        return operands[e.position + (n_dims if isinstance(e, ir.AffineSymbolExpr) else 0)]
    left, right = (_value(side, operands, n_dims) for side in (e.lhs, e.rhs))
    if isinstance(e, ir.AffineAddExpr):
        return arith.addi(left, right)
    if isinstance(e, ir.AffineMulExpr):
        return arith.muli(left, right)
    divisor = ir.AffineConstantExpr(e.rhs).value
    if isinstance(e, ir.AffineModExpr):
        return arith.andi(left, build.index(divisor - 1))
    if isinstance(e, ir.AffineCeilDivExpr):
        left = arith.addi(left, build.index(divisor - 1))
    return arith.shrsi(left, build.index(divisor.bit_length() - 1))
