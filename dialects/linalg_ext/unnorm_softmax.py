"""``linalg_ext.unnorm_softmax``: one step of online softmax without the division.

    m      = max(m0, rowmax(x))
    scale  = exp(m0 − m)
    a      = a0·scale + rowsum(exp(x − m))
    result = exp(x − m)

Its user divides by the last `a` once, after the loop over tiles: O = (diag(scale)·O + result·V), then O / a
(FlashAttention-2, Dao 2023, §3.1). A row that is masked so far (m = −inf) has result 0 and scale 0.
"""

from ..mlir import ext
from .softmax import OnlineSoftmax


class UnnormSoftmaxOp(OnlineSoftmax, name="unnorm_softmax", traits=[ext.Pure]):
    """See the module. Operands, results and assembly are those of `softmax`."""
