"""The pass ``own-inits``."""

from dataclasses import dataclass

from ...dialects.mlir import ir
from ..passes import Pass
from ..rewriting import defining_op, ops_in


@dataclass(frozen=True)
class OwnInits(Pass):
    """Gives each op that accumulates into a filled tensor a fill of its own, right before it::

        %0 = linalg.fill ins(%zero) outs(%e)
        scf.for … { %1 = linalg.matmul … outs(%0) … %2 = linalg.matmul … outs(%0) }
    becomes
        scf.for … {
          %a = linalg.fill ins(%zero) outs(%e)
          %1 = linalg.matmul … outs(%a)
          %b = linalg.fill ins(%zero) outs(%e)
          %2 = linalg.matmul … outs(%b)
        }

    A shared one would have to live on and be copied for each of them.
    """

    def run(self, op: ir.Operation) -> None:
        for fill in ops_in(op, "linalg.fill"):
            if not fill.results:
                continue
            uses = list(fill.results[0].uses)
            for use in uses:
                user = use.owner.operation
                if not user.name.startswith("linalg.") or user.name == "linalg.fill" or not _is_init(user, use):
                    continue
                if len(uses) == 1 and user.block == fill.block:
                    continue
                with ir.InsertionPoint(user):
                    own = fill.clone()
                user.operands[use.operand_number] = own.results[0]
            if not list(fill.results[0].uses):
                fill.erase()


def _is_init(user: ir.Operation, use: ir.OpOperand) -> bool:
    """True if the use is one of the op's destinations: they come last, one per result."""
    return defining_op(user.operands[use.operand_number]) is not None and use.operand_number >= len(
        user.operands
    ) - len(user.results)
