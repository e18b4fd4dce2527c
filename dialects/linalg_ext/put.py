"""``linalg_ext.put``: writes elements at places, which count through all elements of a tensor, as ``numpy.put`` does.

  %r = linalg_ext.put ins(%values, %places : tensor<3x4xf32>, tensor<3x4xi64>) outs(%t : tensor<8x4xf32>)

has values[e] at place places[e] of %t, row by row, for each e; what has a negative place is left out. No two others are
at one place.
"""

from typing import Any

import numpy as np

from ..mlir import ext, ir
from ..verification import expect, verifier
from .dialect import LinalgExt, expect_results_like, expect_shape


def verify_put(op: ir.OpView) -> None:
    for name in ("values", "places", "target"):
        kind = getattr(op, name).type
        expect(isinstance(kind, ir.RankedTensorType), f"expects {name} to be a ranked tensor, but found {kind}")
    values, places, target = op.values.type, op.places.type, op.target.type
    expect_shape("places", places, values.shape, "the shape of values")
    expect(
        places.element_type == ir.IntegerType.get_signless(64),
        f"expects places to have element type i64, but found {places.element_type}",
    )
    expect(
        values.element_type == target.element_type,
        f"expects values to have the target's element type {target.element_type}, but found {values.element_type}",
    )
    expect_results_like(op, [op.target])


class PutOp(LinalgExt.Operation, name="put", traits=[ext.Pure]):
    """See the module."""

    values: ext.Operand[Any]
    places: ext.Operand[Any]
    target: ext.Operand[Any]
    result: ext.Result[Any]

    inits = ("target",)
    assembly_format = (
        "attr-dict `ins` `(` $values `,` $places `:` type($values, $places) `)` "
        "`outs` `(` $target `:` type($target) `)` (`:` type(results)^)?"
    )
    verify_invariants = staticmethod(verifier(verify_put))

    @staticmethod
    def reference(op: Any, operands: list[Any]) -> tuple[Any]:
        values, places, target = operands
        result, is_put = target.copy(), places >= 0
        result.reshape(-1)[places[is_put].astype(np.int64)] = values[is_put]
        return (result,)
