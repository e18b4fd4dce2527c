"""Quotients that take work from the special unit.

%p = tile.divide(%a, %b) {share = 6 : i64} : (f32, f32) -> f32     # an element, in the body of a linalg.generic
"""

from typing import Any

from ..mlir import ext, ir
from ..verification import expect, verifier
from .dialect import Tile
from .tables import SHARES


def verify_divide(op: ir.OpView) -> None:
    kinds = [v.type for v in (*op.operands, *op.results)]
    expect(
        all(str(kind) == "f32" for kind in kinds), f"expects elements of f32, but found {', '.join(map(str, kinds))}"
    )
    share = op.share.value
    expect(1 <= share <= SHARES, f"expects a share from 1 to {SHARES}, but found {share}")


class DivideOp(Tile.Operation, name="divide", traits=[ext.Pure]):
    """A quotient by what is not negative and not subnormal: of `share` in eight elements of a thread by products, of
    the others by the special unit's reciprocal."""

    dividend: ext.Operand[Any]
    divisor: ext.Operand[Any]
    share: ir.IntegerAttr
    result: ext.Result[Any]

    assembly_format = "`(` $dividend `,` $divisor `)` attr-dict `:` functional-type"
    verify_invariants = staticmethod(verifier(verify_divide))
