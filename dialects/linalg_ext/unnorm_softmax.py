"""``linalg_ext.unnorm_softmax``: one step of online softmax without the division.

    m      = max(m0, rowmax(x))
    scale  = exp(m0 − m)
    a      = a0·scale + rowsum(exp(x − m))
    result = exp(x − m)

Its user divides by the last `a` once, after the loop over tiles: O = (diag(scale)·O + result·V), then O / a
(FlashAttention-2, Dao 2023, §3.1). A row that is masked so far (m = −inf) has result 0 and scale 0.
"""

from typing import Any

from ..mlir import ext, ir
from ..reference.arrays import take
from ..reference.softmax import softmax_step
from .dialect import LinalgExt, verifier
from .softmax import SOFTMAX_FORMAT, verify_softmax


class UnnormSoftmaxOp(LinalgExt.Operation, name="unnorm_softmax", traits=[ext.Pure]):
    """See the module. Operands, results and assembly are those of `softmax`."""

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
        return softmax_step(x, operands[2], operands[3], op.dimension.value, normalise=False)
