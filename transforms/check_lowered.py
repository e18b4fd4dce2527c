"""The pass ``check-lowered``."""

from dataclasses import dataclass

from ..dialects.mlir import ir
from .passes import Pass, PassError, option
from .rewriting import ops_in

LOWERED = {"cpu": ("llvm.", "omp.", "builtin.module"), "nvidia": ("llvm.", "nvvm.")}


@dataclass(frozen=True)
class CheckLowered(Pass):
    """Fails, naming the first of them, if ops are left that cannot be translated to LLVM IR. Changes nothing.

    For a GPU these are the ops of the kernels: the host's part is not translated.
    """

    target: str = option("what the code is for: cpu or nvidia", "cpu")

    def run(self, op: ir.Operation) -> None:
        parts = [op] if self.target == "cpu" else ops_in(op, "gpu.module")
        first: dict[str, ir.Operation] = {}  # of each name, of which there are few
        for inner in (o for part in parts for o in ops_in(part)):
            first.setdefault(inner.name, inner)
        for name, inner in first.items():
            if not name.startswith(LOWERED[self.target]):
                what = "the CPU" if self.target == "cpu" else "GPUs"
                if name.startswith("transform."):
                    raise PassError(f"'{name}' is left: transform-interpreter applies scripts and removes them", inner)
                raise PassError(f"'{name}' could not be lowered to the LLVM dialect for {what}", inner)
