"""The pass ``convert-linalg-softmax``."""

from dataclasses import dataclass

from ..dialects import build
from ..dialects.linalg_ext import SoftmaxOp
from ..dialects.mlir import ir
from .passes import Pass, PassError
from .rewriting import ops_in


@dataclass(frozen=True)
class ConvertLinalgSoftmax(Pass):
    """Upstream's softmax is ours without statistics: they start from −inf and 0, and nobody reads them::

        %p = linalg.softmax dimension(1) ins(%x : tensor<4x8xf32>) outs(%e : tensor<4x8xf32>) -> tensor<4x8xf32>
    becomes
        %max = linalg.fill ins(%minus_inf) …        %sum = linalg.fill ins(%zero) …
        %p:4 = linalg_ext.softmax dimension(1) ins(%x : tensor<4x8xf32>) outs(%e, %max, %sum, %scale : …)
    """

    def run(self, op: ir.Operation) -> None:
        for old in ops_in(op, "linalg.softmax"):
            if old.results:
                with ir.InsertionPoint(old), old.location:
                    _convert(old)


def _convert(old: ir.Operation) -> None:
    x, output = old.operands
    if not isinstance(x.type.element_type, ir.FloatType):
        raise PassError(f"softmax is of floats here, but found {x.type}: convert its operand (arith.sitofp)", old)
    dimension = ir.IntegerAttr(old.attributes["dimension"])
    element = build.compute_type(x.type.element_type)
    rows = [size for d, size in enumerate(build.mixed_sizes(x)) if d != dimension.value]
    empty = build.empty(rows, element)
    inits = [
        output,
        build.fill(build.constant(element, float("-inf")), empty),
        build.fill(build.constant(element, 0.0), empty),
        empty,
    ]
    kinds = {name: init.type for name, init in zip(("result", "new_max", "new_accum", "new_scale"), inits, strict=True)}
    old.results[0].replace_all_uses_with(SoftmaxOp(dimension, x, *inits, **kinds).result)
    old.erase()
