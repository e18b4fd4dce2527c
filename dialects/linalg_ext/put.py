"""``linalg_ext.put``: writes elements at places, which count through all elements of a tensor, as ``numpy.put`` does.

  %r = linalg_ext.put ins(%values, %places : tensor<3x4xf32>, tensor<3x4xi64>) outs(%t : tensor<8x4xf32>)

has values[e] at place places[e] of %t, row by row, for each e; what has a place that %t lacks, such as a negative one,
is left out. No two others are at one place.
"""

import functools
from typing import Any

import numpy as np

from .. import build
from ..mlir import arith, ext, ir, scf, tensor
from ..verification import expect, verifier
from .dialect import LinalgExt, expect_results_like, expect_shape


def verify_put(op: ir.OpView) -> None:
    for name in ("values", "places", "target"):
        kind = getattr(op, name).type
        expect(isinstance(kind, ir.RankedTensorType), f"expects {name} to be a ranked tensor, but found {kind}")
    values, places, target = op.values.type, op.places.type, op.target.type
    expect_shape("places", places, values.shape, "the shape of values")
    expect(
        str(places.element_type) == "i64",
        f"expects places to have element type i64, but found {places.element_type}",
    )
    expect(
        values.element_type == target.element_type,
        f"expects values to have the target's element type {target.element_type}, but found {values.element_type}",
    )
    expect_results_like(op, [op.target])


def _element(value: ir.Value) -> tuple[list[int], list[int], list[int]]:
    """The static offsets, sizes and strides of a slice of one element, whose offsets are values."""
    rank = value.type.rank
    return [ir.ShapedType.get_dynamic_stride_or_offset()] * rank, [1] * rank, [1] * rank


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

    def decompose(self) -> list[ir.Value]:
        """Emits loops over the places, in which an element is inserted at its place, if that is one of the target."""
        sizes = build.mixed_sizes(self.target)

        def loop(d: int, at: list[ir.Value], target: ir.Value) -> ir.Value:
            if d == self.places.type.rank:
                return self._inserted(at, target, sizes)
            bounds = [build.index(0), build.as_index(build.mixed_size(self.places, d)), build.index(1)]
            loops = scf.ForOp(*bounds, [target])
            with ir.InsertionPoint(loops.body):
                scf.YieldOp([loop(d + 1, [*at, loops.induction_variable], loops.inner_iter_args[0])])
            return loops.results[0]

        return [loop(0, [], self.target)]

    def _inserted(self, at: list[ir.Value], target: ir.Value, sizes: list[int | ir.Value]) -> ir.Value:
        place = tensor.ExtractOp(self.places, at).result
        count = functools.reduce(arith.muli, map(build.as_index, sizes), build.index(1))
        is_put = arith.cmpi(arith.CmpIPredicate.ult, place, arith.index_cast(place.type, count))
        branch = scf.IfOp(is_put, [target.type], has_else=True)
        with ir.InsertionPoint(branch.then_block):
            _, where = build.digits(arith.index_cast(ir.IndexType.get(), place), sizes)
            of_values, of_target = _element(self.values), _element(target)
            scalar = ir.RankedTensorType.get([], target.type.element_type)
            value = tensor.ExtractSliceOp(scalar, self.values, at, [], [], *of_values).result
            scf.YieldOp([tensor.InsertSliceOp(value, target, where, [], [], *of_target).result])
        with ir.InsertionPoint(branch.else_block):
            scf.YieldOp([target])
        return branch.results[0]

    @staticmethod
    def reference(op: Any, operands: list[Any]) -> tuple[Any]:
        values, places, target = operands
        result, is_put = target.copy(), (places >= 0) & (places < target.size)
        result.reshape(-1)[places[is_put].astype(np.int64)] = values[is_put]
        return (result,)
