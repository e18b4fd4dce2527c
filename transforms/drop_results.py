"""The pass ``drop-results``."""

from dataclasses import dataclass

from ..dialects.mlir import ir
from .copying import without_result
from .passes import Pass
from .rewriting import ops_in, terminator


@dataclass(frozen=True)
class DropResults(Pass):
    """Takes results away that no one reads::

        %m:2 = linalg.generic ins(%x) outs(%lowest, %zeros) { …  yield max(x, m), x > m ? i : at }   # %m#1: no use
    becomes
        %m = linalg.generic ins(%x) outs(%lowest) { …  yield max(x, m) }

    A maximum of torch comes with its place, which is an integer, and which a softmax does not ask for. A result stays
    whose running value another one depends on.
    """

    def run(self, op: ir.Operation) -> None:
        for generic in ops_in(op, "linalg.generic"):
            left = generic
            for number in reversed(range(len(generic.results))):
                if len(left.results) > 1 and not any(True for _ in left.results[number].uses):
                    left = without_result(left, number) if _is_alone(left, number) else left


def _is_alone(generic: ir.Operation, number: int) -> bool:
    """Whether what a generic computes from the running value of one result is for that result only."""
    block = generic.regions[0].blocks[0]
    end = terminator(block)
    pending = [block.arguments[len(block.arguments) - len(generic.results) + number]]
    while pending:
        for use in pending.pop().uses:
            user = use.owner.operation
            if user == end and use.operand_number != number:
                return False
            if user != end and not user.name.startswith(("arith.", "math.")):
                return False  # a branch, say
            pending += user.results
    return True
