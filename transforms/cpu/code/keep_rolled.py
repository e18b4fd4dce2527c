"""The pass ``keep-rolled``."""

from dataclasses import dataclass

from ....dialects import build
from ....dialects.mlir import ir
from ...passes import Pass
from ...rewriting import ancestors, ops_in

MANY = 8  # values that a loop carries: with as many it is a register tile, which fills the vector registers
FEW = 2  # iterations: what LLVM makes of so few is shorter than their loop


@dataclass(frozen=True)
class KeepRolled(Pass):
    """Tells LLVM not to unroll loops around other loops over vectors, nor register tiles::

        scf.for %k = %c0 to %n step %c64 { … scf.for … { … vector.fma … } }
    becomes
        scf.for %k = %c0 to %n step %c64 { … } {loop_annotation = #llvm.loop_annotation<unroll = <disable = true>>}

    They are unrolled as far as it pays when they are made. For some CPUs LLVM unrolls loops of hundreds of instructions
    again, which runs no faster and takes a fifth of its time. Loops of a few vectors, as of exponentials and maxima,
    and those of scalars are left to it; the annotation goes to the branch back, and from there to LLVM IR.
    """

    def run(self, op: ir.Operation) -> None:
        unrolled = ir.Attribute.parse("#llvm.loop_annotation<unroll = <disable = true>>")
        loops = [loop for loop in ops_in(op, "scf.for") if _has_vectors(loop)]
        outer = {around for loop in loops for around in ancestors(loop)}
        for loop in loops:
            if loop in outer or (len(loop.results) >= MANY and not _is_short(loop)):
                loop.attributes["loop_annotation"] = unrolled


def _has_vectors(loop: ir.Operation) -> bool:
    """Whether there are ops on vectors in it; it is gone through up to the first one."""
    found = False

    def visit(inner: ir.Operation) -> ir.WalkResult:
        nonlocal found
        found = inner.name.startswith("vector.")
        return ir.WalkResult.INTERRUPT if found else ir.WalkResult.ADVANCE

    loop.walk(visit)
    return found


def _is_short(loop: ir.Operation) -> bool:
    start, end, step = (build.constant_value(v) for v in list(loop.operands)[:3])
    return None not in (start, end, step) and end - start <= FEW * step
