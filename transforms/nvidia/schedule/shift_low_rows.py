"""The pass ``shift-low-rows``."""

from __future__ import annotations

from dataclasses import dataclass

from ....dialects import build
from ....dialects.build import constant_value
from ....dialects.mlir import arith, ir
from ....dialects.tile import AnyOfWarpOp, layout_of
from ...attention import is_matmul
from ...guarded_maxima import guarded
from ...passes import Pass
from ...rewriting import defining_op, either, ops_in, ops_of, single_use
from ..bounds import LOW, exponent_parts, may_be_low, tile_of
from .running_maximum import rows_that

EXPONENTIALS = ("math.exp2", "tile.exp2")


@dataclass(frozen=True)
class ShiftLowRows(Pass):
    """Rows whose maximum is as low as masks of the least number of a type are shifted before their exponentials::

        %p = linalg.generic ins(%m) outs(%s) { exp2((s − (m = −inf ? 0 : m)) · log2 e) }
      becomes
        %some = tile.any_of_warp(%m < −2^17 and %m > −inf)
        %t = scf.if %some { linalg.generic ins(%m) outs(%s) { m < −2^17 and m > −inf ? s − m : s } } else { %s }
        %p = linalg.generic ins(%m) outs(%t) { exp2((t − (m < −2^17 ? 0 : m)) · log2 e) }

    A difference and a product are one instruction for each score, s · log2 e − m · log2 e, whose second part is made,
    and rounded, once a row. Of −1e9 that is off by 64, and −3.4e38 · log2 e is no number. Rows are that low where a
    mask of such a number leaves a query no key, or none so far: their warps alone take the branch. Where scores are no
    tile of their own, and in kernels without the copy engine (docs/nvidia.md, "Turns", says why), exponentials stay as
    they are, of a difference and a product (``elementwise``).
    """

    def run(self, op: ir.Operation) -> None:
        for kernel in ops_in(op, "gpu.func"):
            for found in ops_in(kernel, "linalg.generic") if ops_in(kernel, "tile.copy_bulk") else ():
                if not is_matmul(found) and layout_of(found.results[0].type) == "fragment":
                    for inner in ops_of(found.regions[0].blocks[0]):
                        if inner.name in EXPONENTIALS:
                            _shift(found, inner)


def _shift(op: ir.Operation, exponential: ir.Operation) -> None:
    score, maximum, factor = exponent_parts(exponential)
    is_fused = factor > 1 or exponential.name == "tile.exp2"
    if maximum is None or not is_fused or not may_be_low(maximum):
        return
    of_row = _without_guard(maximum)
    if defining_op(score) is not None or defining_op(of_row) is not None or not single_use(score):
        return
    scores, maxima = tile_of(score), tile_of(of_row)
    if scores is None or maxima is None or layout_of(scores.type) != "fragment" or layout_of(maxima.type) != "row":
        return
    with op.location, ir.InsertionPoint(op):
        some = AnyOfWarpOp(rows_that(maxima, _is_finite_and_low), result=ir.IntegerType.get_signless(1)).result
        (shifted,) = either(some, [scores.type], lambda: [_less_low_maxima(scores, maxima)], lambda: [scores])
    op.operands[score.arg_number] = shifted
    difference = next(iter(score.uses)).owner
    with exponential.location, ir.InsertionPoint(difference):
        difference.operands[1] = arith.select(_is_low(of_row), build.constant(of_row.type, 0.0), of_row)


def _without_guard(maximum: ir.Value) -> ir.Value:
    """m, where 0 stands for −∞ in `maximum`."""
    found = guarded(maximum)
    return found[0] if found is not None and constant_value(found[1]) == 0 else maximum


def _is_low(maximum: ir.Value) -> ir.Value:
    return arith.cmpf(arith.CmpFPredicate.OLT, maximum, build.constant(maximum.type, LOW))


def _is_finite_and_low(maximum: ir.Value) -> ir.Value:
    least = build.constant(maximum.type, float("-inf"))
    return arith.andi(_is_low(maximum), arith.cmpf(arith.CmpFPredicate.OGT, maximum, least))


def _less_low_maxima(scores: ir.Value, maxima: ir.Value) -> ir.Value:
    """Scores minus the maxima of their rows, where these are low."""
    by_element, by_row = build.projection(2, [0, 1]), build.projection(2, [0])
    (found,) = build.generic(
        [maxima],
        [scores],
        [by_row, by_element],
        [build.PARALLEL] * 2,
        lambda m, s: arith.select(_is_finite_and_low(m), arith.subf(s, m), s),
    )
    return found
