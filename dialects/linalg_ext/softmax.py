"""``linalg_ext.softmax``: one step of online softmax, normalised in every step.

    m      = max(m0, rowmax(x))
    a      = a0·exp(m0 − m) + rowsum(exp(x − m))
    scale  = a0·exp(m0 − m) / a
    result = exp(x − m) / a

With the initial statistics m0 = −inf and a0 = 0 over the whole dimension, `result` is softmax(x). Over tiles, the
output of attention follows as O = diag(scale)·O + result·V, and needs no epilogue (Milakov and Gimelshein, "Online
normalizer calculation for softmax", 2018). A row that is masked so far (m = −inf) has result 0 and scale 0.
"""

from typing import Any

from ..mlir import ext, ir
from ..reference.arrays import take
from ..reference.softmax import softmax_step
from .dialect import LinalgExt, expect, expect_results_like, expect_shape, expect_tensors, verifier

SOFTMAX_FORMAT = (
    "attr-dict `dimension` `(` $dimension `)` `ins` `(` $input `:` type($input) `)` "
    "`outs` `(` $output `,` $max `,` $accum `,` $scale `:` type(outs) `)` (`:` type(results)^)?"
)


def verify_softmax(op: ir.OpView) -> None:
    """The invariants of `softmax` and `unnorm_softmax`: shapes, element types and the dimension."""
    operands = {"input": op.input, "output": op.output, "max": op.max, "accum": op.accum, "scale": op.scale}
    expect_tensors(op, operands)
    x = op.input.type
    d = op.dimension.value
    expect(0 <= d < x.rank, f"expects dimension in [0, {x.rank}), the rank of its input, but found {d}")
    expect_shape("output", op.output.type, x.shape, "the shape of the input")
    expect(
        op.output.type.element_type == x.element_type,
        f"expects output to have the input's element type {x.element_type}, but found {op.output.type.element_type}",
    )
    row_shape = [s for i, s in enumerate(x.shape) if i != d]
    row_type = op.max.type.element_type
    narrow = isinstance(x.element_type, ir.F16Type | ir.BF16Type)
    expect(
        row_type == x.element_type or (narrow and isinstance(row_type, ir.F32Type)),
        f"expects statistics of the input's element type {x.element_type}"
        f"{' or f32' if narrow else ''}, but found {row_type}",
    )
    for name in ("max", "accum", "scale"):
        kind = operands[name].type
        expect_shape(name, kind, row_shape, f"the input's shape without dimension {d}")
        expect(
            kind.element_type == row_type,
            f"expects max, accum and scale to share one element type, but found {row_type} and {kind.element_type}",
        )
    expect_results_like(op, [op.output, op.max, op.accum, op.scale])


class SoftmaxOp(LinalgExt.Operation, name="softmax", traits=[ext.Pure]):
    """See the module. `input` and `output` have one shape; the others have it without `dimension`."""

    dimension: ir.IntegerAttr
    input: ext.Operand[Any]
    output: ext.Operand[Any]
    max: ext.Operand[Any]
    accum: ext.Operand[Any]
    scale: ext.Operand[Any]
    result: ext.Result[Any]
    new_max: ext.Result[Any]
    new_accum: ext.Result[Any]
    new_scale: ext.Result[Any]

    assembly_format = SOFTMAX_FORMAT
    verify_invariants = staticmethod(verifier(verify_softmax))

    @staticmethod
    def reference(op: Any, operands: list[Any]) -> tuple[Any, ...]:
        """The values of the results; overwrites the input where nothing else needs it."""
        x = take(operands, 0)
        return softmax_step(x, operands[2], operands[3], op.dimension.value, normalise=True)
