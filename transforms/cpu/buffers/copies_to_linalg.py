"""The pass ``copies-to-linalg``."""

from dataclasses import dataclass

from ....dialects import build
from ....dialects.mlir import ir
from ...passes import Pass
from ...rewriting import ops_in


@dataclass(frozen=True)
class CopiesToLinalg(Pass):
    """Turns memref.copy into a linalg.generic, which the vectorizer takes like any other::

        memref.copy %a, %b : memref<?x8xf32, strided<[16, 1], offset: ?>> to memref<?x8xf32>
    becomes
        linalg.generic … ins(%a) outs(%b) { ^bb0(%x, %_): linalg.yield %x }

    Lowered as it stands, a copy between strided buffers would call a runtime library.
    """

    def run(self, op: ir.Operation) -> None:
        for copy in ops_in(op, "memref.copy"):
            source, target = copy.operands
            if not all(isinstance(v.type, ir.MemRefType) for v in (source, target)):
                continue
            rank = target.type.rank
            with ir.InsertionPoint(copy), copy.location:
                maps = [build.projection(rank, range(rank))] * 2
                build.generic([source], [target], maps, [build.PARALLEL] * rank, lambda x, _: x)
            copy.erase()
