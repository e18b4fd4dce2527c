"""The pass ``check-lowered``."""

from dataclasses import dataclass

from ..dialects.mlir import ir, rewrite
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
        for part in parts:
            if _has_only(part, LOWERED[self.target]):
                continue
            inner = _first_other(part, LOWERED[self.target])
            if inner is not None:
                what = "the CPU" if self.target == "cpu" else "GPUs"
                if inner.name.startswith("transform."):
                    raise PassError(
                        f"'{inner.name}' is left: transform-interpreter applies scripts and removes them", inner
                    )
                raise PassError(f"'{inner.name}' could not be lowered to the LLVM dialect for {what}", inner)


def _has_only(op: ir.Operation, names: tuple[str, ...]) -> bool:
    """True if all ops inside `op` have one of the names, or are of a dialect, whose name ends in a dot. Upstream's
    conversion, for which nothing is left to do then, sees that in a tenth of the time that a walk in Python takes.
    """
    target = rewrite.ConversionTarget(op.context)
    for name in (op.name, *names):
        if name.endswith("."):
            target.add_legal_dialect(name.removesuffix("."))
        else:
            target.add_legal_op(name)
    unheard = op.context.attach_diagnostic_handler(lambda _: True)  # that it cannot be converted is told by name
    try:
        rewrite.apply_full_conversion(op, target, rewrite.RewritePatternSet(op.context).freeze())
    except ir.MLIRError:
        return False
    finally:
        unheard.detach()
    return True


def _first_other(op: ir.Operation, prefixes: tuple[str, ...]) -> ir.Operation | None:
    """The first op inside `op` whose name starts with none of the prefixes."""
    found: list[ir.Operation] = []

    def visit(inner: ir.Operation) -> ir.WalkResult:
        if inner.name.startswith(prefixes) or inner.operation == op.operation:
            return advance
        found.append(inner.operation)
        return ir.WalkResult.INTERRUPT

    advance = ir.WalkResult.ADVANCE
    op.operation.walk(visit, ir.WalkOrder.POST_ORDER)
    return found[0] if found else None
