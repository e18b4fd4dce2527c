"""The pass ``dynamic-schedule``."""

from dataclasses import dataclass

from ....dialects.mlir import ir
from ...passes import Pass
from ...rewriting import ops_in


@dataclass(frozen=True)
class DynamicSchedule(Pass):
    """Lets threads take the next iteration when they are done with one, in place of equal shares::

        omp.wsloop { … }
    becomes
        omp.wsloop schedule(dynamic) { … }

    Masks make iterations unequal, and so do other programs on the same cores. An iteration is a block of queries: what
    it costs to ask for the next one is little beside it.
    """

    def run(self, op: ir.Operation) -> None:
        for loop in ops_in(op, "omp.wsloop"):
            loop.attributes["schedule_kind"] = ir.Attribute.parse("#omp<schedulekind dynamic>", op.context)
