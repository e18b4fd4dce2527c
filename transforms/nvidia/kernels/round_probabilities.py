"""The pass ``round-probabilities``."""

from __future__ import annotations

from dataclasses import dataclass

from ....dialects import build
from ....dialects.mlir import arith, ir
from ...attention import is_matmul
from ...passes import Pass, remark
from ...rewriting import defining_op, ops_in

SOFTMAXES = ("linalg_ext.softmax", "linalg_ext.unnorm_softmax")


@dataclass(frozen=True)
class RoundProbabilities(Pass):
    """Probabilities in f32 that are multiplied by values of 16 bits are rounded to their type, for tensor cores::

        %p:4 = linalg_ext.softmax …                                  : tensor<64x64xf32>, …
        %o = linalg.generic … ins(%p#0, %v : tensor<64x64xf32>, tensor<64x64xf16>)     { p · extf(v) + o }
      becomes
        %r = linalg.generic … ins(%p#0) { truncf(p) }                -> tensor<64x64xf16>
        %o = linalg.generic … ins(%r, %v : tensor<64x64xf16>, tensor<64x64xf16>)       { extf(r) · extf(v) + o }

    Tensor cores multiply operands of one type. Probabilities are at most 1: rounding changes each by 2^-12 (f16) or
    2^-9 (bf16) of it, no more than it changed the values. Most graphs say so themselves.
    """

    def run(self, op: ir.Operation) -> None:
        for matmul in filter(is_matmul, ops_in(op, "linalg.generic")):
            probabilities, values = list(matmul.operands)[:2]
            made, element = defining_op(probabilities), values.type.element_type
            if made is None or made.name not in SOFTMAXES or probabilities != made.results[0]:
                continue
            if not isinstance(probabilities.type.element_type, ir.F32Type) or not build.is_narrow(element):
                continue
            if build.is_float8(element):  # without a scale most of them would be subnormal
                continue
            with ir.InsertionPoint(matmul), matmul.location:
                matmul.operands[0] = build.convert_elements(probabilities, element)
            factor = matmul.regions[0].blocks[0].arguments[0]
            factor.set_type(element)
            with ir.InsertionPoint.at_block_begin(factor.owner), matmul.location:
                wide = arith.extf(ir.F32Type.get(), factor)
            factor.replace_all_uses_except(wide, [wide.owner.operation])
            remark(matmul, f"probabilities are rounded to {element}, the type of what they are multiplied by")
