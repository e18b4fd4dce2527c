"""``linalg_ext.unnorm_softmax``: one step of online softmax without the division.

    m      = max(m0, rowmax(x))
    scale  = exp(m0 − m)
    a      = a0·scale + rowsum(exp(x − m))
    result = exp(x − m)

Its user divides by the last `a` once, after the loop over tiles: O = (diag(scale)·O + result·V), then O / a
(FlashAttention-2, Dao 2023, §3.1). A row that is masked so far (m = −inf) has result 0 and scale 0.
"""

from typing import Any

from .. import build
from ..mlir import arith, ext, ir
from .dialect import LinalgExt, verifier
from .softmax import SOFTMAX_FORMAT, decompose_statistics, to_element_type, verify_softmax


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

    def decompose(self) -> list[ir.Value]:
        """Emits linalg ops that compute the four results; see `decompose_statistics`; to it comes a = b + l."""
        p, l, m, b, alpha = decompose_statistics(self)
        rows = build.projection(l.type.rank, range(l.type.rank))
        (a,) = build.generic([l], [b], [rows, rows], [build.PARALLEL] * l.type.rank, arith.addf)
        row_element = self.max.type.element_type
        result = to_element_type(p, self.output.type.element_type)
        return [result, *(to_element_type(v, row_element) for v in (m, a, alpha))]
