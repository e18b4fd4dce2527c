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
from ..tiling.interface import OnlineReduction
from ..verification import expect, verifier
from .dialect import LinalgExt, expect_results_like, expect_shape, expect_tensors, projections

SOFTMAX_INITS = ("output", "max", "accum", "scale")
SOFTMAX_FORMAT = (
    "attr-dict `dimension` `(` $dimension `)` `ins` `(` $input `:` type($input) `)` "
    "`outs` `(` $output `,` $max `,` $accum `,` $scale `:` type($output, $max, $accum, $scale) `)` "
    "(`:` type(results)^)?"
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


class OnlineSoftmax(LinalgExt.Operation):
    """What `softmax` and `unnorm_softmax` share: all but the formulas.

    `input`, `output` and `result` have one shape; the statistics have it without `dimension`.
    """

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

    inits = SOFTMAX_INITS
    assembly_format = SOFTMAX_FORMAT
    verify_invariants = staticmethod(verifier(verify_softmax))

    def indexing_maps(self) -> list[ir.AffineMap]:
        """One loop per dimension of the input; the statistics lack the reduced one."""
        loops, d = range(self.input.type.rank), self.dimension.value
        row = [i for i in loops if i != d]
        return projections(len(loops), loops, loops, row, row, row)

    def online_reduction(self) -> OnlineReduction:
        """The running maximum and sum go from tile to tile; results are 0: result, 1: max, 2: accum, 3: scale."""
        return OnlineReduction(self.dimension.value, result=0, carried=((1, 2), (2, 3)), scale=3)


class SoftmaxOp(OnlineSoftmax, name="softmax", traits=[ext.Pure]):
    """See the module."""

    @staticmethod
    def reference(op: Any, operands: list[Any]) -> tuple[Any, ...]:
        """The values of the results; overwrites the input where nothing else needs it."""
        return softmax_step(take(operands, 0), operands[2], operands[3], op.dimension.value, normalise=True)
