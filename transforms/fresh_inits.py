"""The pass ``fresh-inits``."""

from dataclasses import dataclass

from ..dialects import build
from ..dialects.mlir import ir
from .passes import Pass
from .rewriting import defining_op, ops_in


@dataclass(frozen=True)
class FreshInits(Pass):
    """Replaces inits that are slices of other tensors, and are never read, by empty tensors::

        %s = tensor.extract_slice %carried[%i, 0] [2, 64] [1, 1] : tensor<4x64xf32> to tensor<2x64xf32>
        %t = linalg.transpose ins(%x : tensor<64x2xf32>) outs(%s : tensor<2x64xf32>) permutation = [1, 0]
    becomes
        %s = tensor.empty() : tensor<2x64xf32>
        %t = linalg.transpose ins(%x : tensor<64x2xf32>) outs(%s : tensor<2x64xf32>) permutation = [1, 0]

    Without that false dependence, a loop-carried tensor that no one reads is dead, and its loop may be parallel. Where
    the result is inserted into a tensor, bufferization computes into that place all the same.
    """

    def run(self, op: ir.Operation) -> None:
        for structured in ops_in(op, "linalg."):
            if not structured.results or not structured.regions or not structured.regions[0].blocks:
                continue
            body = structured.regions[0].blocks[0]
            first = len(structured.operands) - len(structured.results)
            if first < 0 or len(body.arguments) != len(structured.operands):
                continue
            for number in range(first, len(structured.operands)):
                init = structured.operands[number]
                producer = defining_op(init)
                if producer is None or producer.name != "tensor.extract_slice" or list(body.arguments[number].uses):
                    continue
                with ir.InsertionPoint(structured), structured.location:
                    structured.operands[number] = build.empty(build.mixed_sizes(init), init.type.element_type)
