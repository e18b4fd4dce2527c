"""The pass ``parallelize-linalg``."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from ....dialects import build
from ....dialects.mlir import ir, scf
from ....dialects.tiling.structured import indexing_maps
from ...extents import MIDDLING
from ...passes import Pass, option
from ...rewriting import ancestors, ops_in
from ..blocks import Block, extent_at, part_of, with_operands
from ..structured import Structured, structured_of

ROWS = 64  # the least rows of a contraction in a task: they share what is packed, and fill register tiles


@dataclass(frozen=True)
class ParallelizeLinalg(Pass):
    """Splits large linalg ops that stand outside of parallel loops over their outermost parallel loops::

        linalg.generic … ins(%a : memref<4096x64xf32>) outs(%b : memref<4096x64xf32>)
    becomes
        scf.parallel (%i) = (%c0) to (%c4096) step (%c64) {
          %n = affine.min affine_map<(i) -> (64, -i + 4096)>(%i)
          linalg.generic … ins(%subview of %a) outs(%subview of %b)
        }

    So a graph that is not fused runs on all cores too. In a sequential loop threads would meet in every iteration:
    there tasks are larger. A product of matrices is split along its columns first, then, until there are enough
    `tasks`, along its rows. Tiles of attention, which is no parallel loop if all heads are one block, stay whole.
    """

    grain: int = option("the least number of iterations, over all loops, that a task gets", 1 << 16)
    grain_in_loops: int = option("the same of what stands in a sequential loop", 1 << 21)

    tasks: int = option("how many tasks of a contraction are enough", 4)

    def run(self, op: ir.Operation) -> None:
        for generic in ops_in(op, "linalg.generic"):
            if any(a.name in ("scf.parallel", "scf.forall") for a in ancestors(generic)):
                continue
            if generic.results:
                continue
            structured = structured_of(generic)
            if structured is not None and not any(o.name == "linalg.index" for o in structured.body_ops):
                self._split(structured)

    def _split(self, op: Structured) -> None:
        steps = self._steps(op)
        if not steps:
            return
        with ir.InsertionPoint(op.op), op.op.location:
            bounds = {loop: op.size(loop) for loop in steps}
            zeros = [build.index(0) for _ in steps]
            nest = scf.ParallelOp([], zeros, list(bounds.values()), [build.index(s) for s in steps.values()], [])
            body = nest.regions[0].blocks.append(*[ir.IndexType.get()] * len(steps))
            with ir.InsertionPoint(body):
                blocks = {
                    loop: Block(offset, extent_at(op, loop, offset, bounds[loop], step))
                    for (loop, step), offset in zip(steps.items(), body.arguments, strict=True)
                }
                with_operands(op, [part_of(o, blocks) for o in op.operands], indexing_maps(op.op))
                scf.ReduceOp([], 0)
        op.op.erase()

    def _steps(self, op: Structured) -> dict[int, int]:
        """The loops to split, and how many iterations a task gets: single ones, until tasks get too small."""
        sizes = [MIDDLING if size is None else size for size in op.sizes]
        work = math.prod(sizes)
        steps: dict[int, int] = {}
        grain = self.grain_in_loops if any(a.name == "scf.for" for a in ancestors(op.op)) else self.grain
        if work < 2 * grain:
            return steps
        wide = [d for d in range(op.n_loops) if op.is_parallel(d) and op.sizes[d] != 1]
        shared = [d for d in wide if _reuses(op, d)]
        for loop in itertools.takewhile(lambda d: d not in shared, wide):
            work //= max(1, sizes[loop])
            step = max(1, -(-grain // max(1, work)))
            if op.sizes[loop] is None or step < sizes[loop]:
                steps[loop] = step
            if step > 1:
                return steps
        # Tasks along the lanes pack what they read along them once in all, tasks of rows once each.
        tasks = math.prod(-(-sizes[loop] // step) for loop, step in steps.items())
        lanes = op.outputs[0].dims[-1] if op.outputs[0].dims else None
        for loop in sorted(shared, key=lambda d: d != lanes):
            if tasks >= self.tasks:
                break
            each = max(1, work // max(1, sizes[loop]))
            step = -(-grain // each)
            if loop == lanes:
                step = -(-max(step, 1) // ROWS) * ROWS
            else:
                step = max(step, -(-ROWS // _rows_in(op, loop, sizes)), -(-sizes[loop] * tasks // self.tasks))
            if op.sizes[loop] is None or step < sizes[loop]:
                steps[loop] = step
                tasks *= -(-sizes[loop] // step)
                work = each * step
        return steps


def _rows_in(op: Structured, loop: int, sizes: Sequence[int]) -> int:
    """How many rows of a contraction an iteration of `loop` has: of the loops inside of it, those along which the same
    operands do not change."""
    kept = [o for o in op.operands if not o.is_scalar and not o.is_output and loop not in o.loops]
    inner = [d for d in range(loop + 1, op.n_loops) if op.is_parallel(d)]
    return max(1, math.prod(sizes[d] for d in inner if all(d not in o.loops for o in kept)))


def _reuses(op: Structured, loop: int) -> bool:
    """True if iterations of `loop` share elements of an operand of a contraction."""
    if not op.reductions:
        return False
    return any(loop not in o.loops for o in op.operands if not o.is_scalar and not o.is_output)
