"""``linalg_ext.diag``: a diagonal matrix from a vector, batched: out[…, i, j] = x[…, i] if i = j else 0."""

from typing import Any

import numpy as np

from ..mlir import ext, ir
from .dialect import LinalgExt, expect, expect_results_like, expect_shape, expect_tensors, verifier


def verify_diag(op: ir.OpView) -> None:
    expect_tensors(op, {"input": op.input, "output": op.output})
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

    assembly_format = (
        "attr-dict `ins` `(` $input `:` type($input) `)` `outs` `(` $output `:` type(outs) `)` (`:` type(results)^)?"
    )
    verify_invariants = staticmethod(verifier(verify_diag))

    @staticmethod
    def reference(op: Any, operands: list[Any]) -> tuple[Any]:
        x = operands[0]
        out = np.zeros((*x.shape, x.shape[-1]))
        np.einsum("...ii->...i", out)[...] = x
        return (out,)
