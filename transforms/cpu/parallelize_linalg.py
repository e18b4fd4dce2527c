"""The pass ``parallelize-linalg``."""

from dataclasses import dataclass

from ...dialects import build
from ...dialects.mlir import ir, scf
from ..passes import Pass, option
from ..rewriting import ancestors, ops_in
from .blocks import Block, extent_at, indexing_maps, part_of, with_operands
from .structured import Structured, Unsupported

ROWS = 64  # the least rows of a contraction in a task


@dataclass(frozen=True)
class ParallelizeLinalg(Pass):
    """Splits large linalg ops that stand outside of parallel loops over their outermost parallel loop::

        linalg.generic … ins(%a : memref<4096x64xf32>) outs(%b : memref<4096x64xf32>)
    becomes
        scf.parallel (%i) = (%c0) to (%c4096) step (%c64) {
          %n = affine.min affine_map<(i) -> (64, -i + 4096)>(%i)
          linalg.generic … ins(%subview of %a) outs(%subview of %b)
        }

    So a graph that is not fused runs on all cores too.
    """

    grain: int = option("the least number of iterations, over all loops, that a task gets", 1 << 16)

    def run(self, op: ir.Operation) -> None:
        for generic in ops_in(op, "linalg.generic"):
            if any(a.name in ("scf.parallel", "scf.forall") for a in ancestors(generic)):
                continue
            if generic.results:
                continue
            try:
                structured = Structured(generic)
            except Unsupported:
                continue
            if not any(o.name == "linalg.index" for o in structured.body_ops):
                self._split(structured)

    def _split(self, op: Structured) -> None:
        total = 1
        for size in op.sizes:
            total *= 256 if size is None else size  # a dynamic size is taken to be middling
        parallel = [d for d in range(op.n_loops) if op.is_parallel(d) and (op.sizes[d] is None or op.sizes[d] > 1)]
        if total < 2 * self.grain or not parallel:
            return
        loop = parallel[0]
        size = op.sizes[loop]
        inner = max(1, total // (256 if size is None else size))
        step = max(1, -(-self.grain // inner))
        if not all(op.is_parallel(d) for d in range(op.n_loops)):
            step = max(step, min(ROWS, size or ROWS))  # rows that reuse what is packed, and whole register tiles
        if size is not None and step >= size:
            return
        with ir.InsertionPoint(op.op), op.op.location:
            bound = op.size(loop)
            parallel_op = scf.ParallelOp([], [build.index(0)], [bound], [build.index(step)], [])
            body = parallel_op.regions[0].blocks.append(ir.IndexType.get())
            with ir.InsertionPoint(body):
                offset = body.arguments[0]
                blocks = {loop: Block(offset, extent_at(op, loop, offset, bound, step))}
                with_operands(op, [part_of(o, blocks) for o in op.operands], indexing_maps(op))
                scf.ReduceOp([], 0)
        op.op.erase()
