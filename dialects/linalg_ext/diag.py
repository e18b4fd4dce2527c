"""``linalg_ext.diag``: a diagonal matrix from a vector, batched: out[…, i, j] = x[…, i] if i = j else 0."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from .. import build
from ..mlir import arith, ext, ir, linalg
from ..tiling.index import Tile, Untileable
from ..verification import expect, verifier
from .dialect import LinalgExt, expect_results_like, expect_shape, expect_tensors


def verify_diag(op: ir.OpView) -> None:
    expect_tensors({"input": op.input, "output": op.output})
    x, out = op.input.type, op.output.type
    expect(x.rank >= 1, f"expects an input of rank 1 or more, but found {x}")
    expect_shape("output", out, [*x.shape, x.shape[-1]], "the input's shape with its last dimension repeated")
    expect(
        x.element_type == out.element_type,
        f"expects output to have the input's element type {x.element_type}, but found {out.element_type}",
    )
    expect_results_like(op, [op.output])


class DiagOp(LinalgExt.Operation, name="diag", traits=[ext.Pure]):
    """See the module. `input` is [batch…, n], `output` [batch…, n, n]."""

    input: ext.Operand[Any]
    output: ext.Operand[Any]
    result: ext.Result[Any]

    def indexing_maps(self) -> list[ir.AffineMap]:
        """Loops: batch…, i, j."""
        *batch, i, j = range(self.output.type.rank)
        return [build.projection(j + 1, dims) for dims in ((*batch, i), (*batch, i, j))]

    def tiled(self, tile: Tile, operands: Sequence[ir.Value]) -> list[ir.Value]:
        """A tile is a diagonal matrix again only if it lies on the diagonal."""
        if tile[-2] != tile[-1]:
            raise Untileable("a tile of linalg_ext.diag off its diagonal is no diagonal matrix")
        return [DiagOp(*operands, result=operands[1].type).result]

    inits = ("output",)
    assembly_format = (
        "attr-dict `ins` `(` $input `:` type($input) `)` `outs` `(` $output `:` type($output) `)` (`:` type(results)^)?"
    )
    verify_invariants = staticmethod(verifier(verify_diag))

    @staticmethod
    def reference(op: Any, operands: list[Any]) -> tuple[Any]:
        x = operands[0]
        out = np.zeros((*x.shape, x.shape[-1]))
        np.einsum("...ii->...i", out)[...] = x
        return (out,)

    def decompose(self) -> list[ir.Value]:
        """Emits one linalg.generic: select(i = j, x[…, i], 0)."""
        n = self.output.type.rank
        zero = build.constant(self.input.type.element_type, 0.0)

        def on_element(x: ir.Value, _: ir.Value) -> ir.Value:
            on_diagonal = arith.cmpi(arith.CmpIPredicate.eq, linalg.IndexOp(n - 2).result, linalg.IndexOp(n - 1).result)
            return arith.select(on_diagonal, x, zero)

        maps = [build.projection(n, range(n - 1)), build.projection(n, range(n))]
        return build.generic([self.input], [self.output], maps, [build.PARALLEL] * n, on_element)
