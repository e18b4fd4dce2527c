"""``linalg_ext.unnorm_softmax``: one step of online softmax without the division.

    m      = max(m0, rowmax(x))
    scale  = exp(m0 − m)
    a      = a0·scale + rowsum(exp(x − m))
    result = exp(x − m)

Its user divides by the last `a` once, after the loop over tiles: O = (diag(scale)·O + result·V), then O / a
(FlashAttention-2, Dao 2023, §3.1). A row that is masked so far (m = −inf) has result 0 and scale 0. The attribute
`exp2` is that of `softmax`.
"""

from typing import Any

from .. import build
from ..mlir import arith, ext, ir
from .softmax import OnlineSoftmax, decompose_statistics


class UnnormSoftmaxOp(OnlineSoftmax, name="unnorm_softmax", traits=[ext.Pure]):
    """See the module. Operands, results and assembly are those of `softmax`."""

    @staticmethod
    def reference(op: Any, operands: list[Any]) -> tuple[Any, ...]:
        return op.reference_step(operands, normalise=False)

    def decompose(self) -> list[ir.Value]:
        """Emits linalg ops that compute the four results; see `decompose_statistics`; to it comes a = b + l."""
        p, total, m, b, alpha = decompose_statistics(self)
        rows = build.projection(total.type.rank, range(total.type.rank))
        (a,) = build.generic([total], [b], [rows, rows], [build.PARALLEL] * total.type.rank, arith.addf)
        row_element = self.max.type.element_type
        result = build.convert_elements(p, self.output.type.element_type)
        return [result, *(build.convert_elements(v, row_element) for v in (m, a, alpha))]
