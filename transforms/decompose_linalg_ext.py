"""The pass ``decompose-linalg-ext``."""

from dataclasses import dataclass

from ..dialects.mlir import ir, tensor
from .passes import Pass
from .rewriting import ops_in


@dataclass(frozen=True)
class DecomposeLinalgExt(Pass):
    """Replaces every op of linalg_ext by linalg ops on tensors; how is said by the op's method ``decompose``::

        %r:4 = linalg_ext.unnorm_softmax dimension(1) ins(%x : tensor<4x8xf32>) outs(%p, %m, %a, %s : …)
    becomes
        %t = linalg.generic … ins(%x) outs(%minus_inf)             { maxnumf }
        %m1, %b, %alpha = linalg.generic … ins(%t) outs(%m, %a, %e) { on rows: max, rescaled sum, exp(m0 − m) }
        %p1, %a1 = linalg.generic … ins(%x, %m1) outs(%f, %b)      { one pass over the tile: exp(x − m), its sum }
    """

    def run(self, op: ir.Operation) -> None:
        for old in ops_in(op, "linalg_ext."):
            with ir.InsertionPoint(old), old.location:
                new = old.opview.decompose()
                for result, value in zip(old.results, new, strict=True):
                    # Operands of one shape may say more or less of it in their types.
                    same = value if value.type == result.type else tensor.cast(result.type, value)
                    result.replace_all_uses_with(same)
            old.erase()
