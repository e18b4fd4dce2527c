"""The pass ``drop-asserts``."""

from dataclasses import dataclass

from ..dialects.mlir import ir
from .passes import Pass, warn
from .rewriting import ops_in


@dataclass(frozen=True)
class DropAsserts(Pass):
    """Drops each ``cf.assert`` that is left, whose condition canonicalization does not know to hold, with a warning::

        cf.assert %same, "sizes differ"     // warning: whether "sizes differ" holds is not checked: …

    Upstream lowers it to a call of abort: the process of whoever calls the kernel would end, and all that is in it.
    """

    def run(self, op: ir.Operation) -> None:
        for found in ops_in(op, "cf.assert"):
            text = ir.StringAttr(found.attributes["msg"]).value
            warn(found, f'whether "{text}" holds is not checked: it shows only where it runs; check it before the call')
            found.erase()
