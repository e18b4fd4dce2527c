"""The pass ``check-asserts``."""

from dataclasses import dataclass

from ..dialects.mlir import ir
from .passes import Pass, PassError
from .rewriting import ops_in


@dataclass(frozen=True)
class CheckAsserts(Pass):
    """Fails where a ``cf.assert`` is left, whose condition canonicalization does not know to hold. Changes nothing::

        cf.assert %same, "sizes differ"     // error: whether "sizes differ" holds shows only where it runs, …

    Upstream lowers it to a call of abort: the process of whoever calls the kernel would end, and all that is in it.
    """

    def run(self, op: ir.Operation) -> None:
        for found in ops_in(op, "cf.assert"):
            text = ir.StringAttr(found.attributes["msg"]).value
            raise PassError(
                f'whether "{text}" holds shows only when it runs, and where it does not the process would end: '
                "check that before the call, and leave cf.assert out",
                found,
            )
