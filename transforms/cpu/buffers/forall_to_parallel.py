"""The pass ``forall-to-parallel``."""

from dataclasses import dataclass

from ....dialects import build
from ....dialects.mlir import ir, scf
from ...linear import DYNAMIC
from ...passes import Pass
from ...rewriting import ops_in, ops_of


@dataclass(frozen=True)
class ForallToParallel(Pass):
    """Turns each scf.forall on buffers into scf.parallel, as upstream's `scf-forall-to-parallel`, with its attributes::

        scf.forall (%i) = (0) to (%n) step (64) { … } {few_rows}
    becomes
        scf.parallel (%i) = (%c0) to (%n) step (%c64) { … scf.reduce } {few_rows}
    """

    def run(self, op: ir.Operation) -> None:
        for forall in ops_in(op, "scf.forall"):
            if not forall.results:
                _convert(forall)


def _convert(forall: ir.Operation) -> None:
    with ir.InsertionPoint(forall), forall.location:
        dynamic = iter(forall.operands)
        bounds = []
        for name in ("staticLowerBound", "staticUpperBound", "staticStep"):
            sizes = ir.DenseI64ArrayAttr(forall.attributes[name])
            bounds.append([next(dynamic) if size == DYNAMIC else build.index(size) for size in sizes])
        count = ir.DenseI32ArrayAttr.get([*(len(bound) for bound in bounds), 0])
        inherent = {"operandSegmentSizes", "staticLowerBound", "staticUpperBound", "staticStep"}
        attributes = {name: forall.attributes[name] for name in forall.attributes if name not in inherent}
        attributes["operandSegmentSizes"] = count
        operands = [value for bound in bounds for value in bound]
        parallel = ir.Operation.create("scf.parallel", [], operands, attributes, regions=1)
    old = forall.regions[0].blocks[0]
    new = parallel.regions[0].blocks.append(*[argument.type for argument in old.arguments])
    for argument, index in zip(old.arguments, new.arguments, strict=True):
        argument.replace_all_uses_with(index)
    with ir.InsertionPoint(new), forall.location:
        end = scf.ReduceOp([], 0)
    for inner in ops_of(old)[:-1]:
        inner.move_before(end.operation)
    forall.erase()
