"""The pass ``check-lowered``."""

from dataclasses import dataclass

from ...dialects.mlir import ir
from ..passes import Pass, PassError
from ..rewriting import ops_in

LOWERED = ("llvm.", "omp.", "builtin.module")


@dataclass(frozen=True)
class CheckLowered(Pass):
    """Fails, naming the first of them, if ops are left that cannot be translated to LLVM IR. Changes nothing."""

    def run(self, op: ir.Operation) -> None:
        for inner in ops_in(op):
            if not inner.name.startswith(LOWERED):
                raise PassError(f"'{inner.name}' could not be lowered to the LLVM dialect for the CPU", inner)
