"""The pass ``return-arguments``."""

from dataclasses import dataclass

from ....dialects.mlir import ir
from ...donated import tell_of_vain_ones
from ...passes import Pass
from ...rewriting import defining_op, erase_if_unused, functions_of, terminator
from ..marks import DONATED


@dataclass(frozen=True)
class ReturnArguments(Pass):
    """Returns donated arguments as they are, where deallocation makes copies, since results are the caller's to free::

        func.func @step(%cache: memref<4096x64xf32> {linalg_ext.donated}, …) -> memref<4096x64xf32> {
          … // writes to %cache
          %0 = bufferization.clone %cache
          return %0
      becomes
          return %cache

    Who calls knows an argument's memory by its address (``runtime/cpu.py``). Donated arguments that are not returned
    are told of: a result that a loop over all elements makes, as of a choice, is a new array.
    """

    def run(self, op: ir.Operation) -> None:
        for function in functions_of(op):
            view = function.opview
            if "arg_attrs" not in function.attributes or not function.regions[0].blocks:
                continue
            donated = [a for a, named in zip(view.arguments, view.arg_attrs, strict=True) if DONATED in named]
            end = terminator(function.regions[0].blocks[0])
            for i, value in enumerate(end.operands):
                clone = defining_op(value)
                if clone is not None and clone.name == "bufferization.clone" and clone.operands[0] in donated:
                    end.operands[i] = clone.operands[0]
                    erase_if_unused(clone)
            tell_of_vain_ones(function, donated)
