"""``linalg_ext.batch_matmul``: C + A·B over any number of batch dimensions, in four layouts.

| layout | A            | B            | C            |
| ------ | ------------ | ------------ | ------------ |
| nn     | [batch…,m,k] | [batch…,k,n] | [batch…,m,n] |
| nt     | [batch…,m,k] | [batch…,n,k] | [batch…,m,n] |
| tn     | [batch…,k,m] | [batch…,k,n] | [batch…,m,n] |
| tt     | [batch…,k,m] | [batch…,n,k] | [batch…,m,n] |
"""

from typing import Any

import numpy as np

from .. import build
from ..mlir import arith, ext, ir
from ..reference.arrays import apply
from ..reference.contraction import contract
from ..verification import expect, verifier
from .dialect import LinalgExt, expect_results_like, expect_shape, expect_tensors

LAYOUTS = ("nn", "nt", "tn", "tt")


def verify_batch_matmul(op: ir.OpView) -> None:
    expect_tensors({"lhs": op.lhs, "rhs": op.rhs, "output": op.output})
    layout = op.layout.value
    expect(layout in LAYOUTS, f'expects layout to be one of {", ".join(LAYOUTS)}, but found "{layout}"')
    a, b, c = op.lhs.type, op.rhs.type, op.output.type
    expect(a.rank >= 2, f"expects lhs to have rank 2 or more, but found {a}")
    batch = list(a.shape[:-2])
    m, k = a.shape[-2:] if layout[0] == "n" else reversed(a.shape[-2:])
    expect(b.rank == a.rank, f"expects rhs to have the rank of lhs, {a.rank}, but found rank {b.rank}: {b}")
    n = b.shape[-1] if layout[1] == "n" else b.shape[-2]
    expect_shape("rhs", b, [*batch, *([k, n] if layout[1] == "n" else [n, k])], f'lhs is {a}, layout = "{layout}"')
    expect_shape("output", c, [*batch, m, n], f'lhs is {a} and rhs is {b}, layout = "{layout}"')
    expect(
        a.element_type == b.element_type,
        f"expects lhs and rhs to share one element type, but found {a.element_type} and {b.element_type}",
    )
    narrow = build.is_narrow(a.element_type)
    expect(
        c.element_type == a.element_type or (narrow and isinstance(c.element_type, ir.F32Type)),
        f"expects output to have element type {a.element_type}{' or f32' if narrow else ''}, "
        f"but found {c.element_type}",
    )
    expect_results_like(op, [op.output])


class BatchMatmulOp(LinalgExt.Operation, name="batch_matmul", traits=[ext.Pure]):
    """See the module."""

    layout: ir.StringAttr
    lhs: ext.Operand[Any]
    rhs: ext.Operand[Any]
    output: ext.Operand[Any]
    result: ext.Result[Any]

    def indexing_maps(self) -> list[ir.AffineMap]:
        """Loops: batch…, m, n, k."""
        rank = self.output.type.rank
        *batch, m, n, k = range(rank + 1)
        lhs = (m, k) if self.layout.value[0] == "n" else (k, m)
        rhs = (k, n) if self.layout.value[1] == "n" else (n, k)
        return [build.projection(rank + 1, (*batch, *dims)) for dims in (lhs, rhs, (m, n))]

    inits = ("output",)
    assembly_format = (
        "`ins` `(` $lhs `,` $rhs `:` type($lhs, $rhs) `)` `outs` `(` $output `:` type($output) `)` "
        "`layout` `=` $layout (` ` attr-dict^)? (`:` type(results))?"
    )
    verify_invariants = staticmethod(verifier(verify_batch_matmul))

    @staticmethod
    def reference(op: Any, operands: list[Any]) -> tuple[Any]:
        a, b, c = operands
        layout = op.layout.value
        a = a if layout[0] == "n" else np.swapaxes(a, -1, -2)
        b = b if layout[1] == "n" else np.swapaxes(b, -1, -2)
        # Over the loops [batch…, m, k, n].
        sizes = [*a.shape, b.shape[-1]]
        return (apply(np.add, [contract(a[..., None], b[..., None, :, :], {a.ndim - 1}, sizes).squeeze(-2), c]),)

    def decompose(self) -> list[ir.Value]:
        """Emits one linalg.generic, a contraction. It computes in f32 if the element types are f16 or bf16."""
        out = self.output.type.element_type
        compute = build.compute_type(out)

        def multiply_add(a: ir.Value, b: ir.Value, c: ir.Value) -> ir.Value:
            product = arith.mulf(build.convert(a, compute), build.convert(b, compute))
            return build.convert(arith.addf(build.convert(c, compute), product), out)

        iterators = [build.PARALLEL] * self.lhs.type.rank + [build.REDUCTION]
        return build.generic([self.lhs, self.rhs], [self.output], self.indexing_maps(), iterators, multiply_add)
