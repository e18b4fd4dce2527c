"""The pass ``stream-rows``."""

from dataclasses import dataclass

from ...dialects.mlir import ir
from ...dialects.tiling.structured import indexing_maps
from ..passes import Pass, option
from ..rewriting import ops_in
from .blocks import loop_nest, part_of, with_operands
from .read_ahead import SHORT, block_of_rows, row_bytes, rows_ahead
from .schedule import STEPS, Schedule, check_body, choose
from .structured import NO_LOOP, Operand, Structured, Unsupported
from .target import host_target

BLOCK_BYTES = 8 << 10  # of rows that stay in the L1 cache, beside those that were asked for


@dataclass(frozen=True)
class StreamRows(Pass):
    """Contractions that read an operand once, and parts of its rows at a time, go over blocks of rows::

        linalg.generic {O[m, n] += P[m, k]·V[k, n]} ins(%p, %v : memref<4x256xf32>, memref<256x128xf32>) outs(%o)
    becomes
        scf.for %k = %c0 to %c256 step %c16 {
          linalg.generic {O[m, n] += P[m, k]·V[k, n]} ins(%p[0, %k], %v[%k, 0] : memref<4x16xf32>, memref<16x128xf32>)
        }

    A register tile has 64 of the 128 columns: without blocks the first half of all rows would be read, then the second
    one. Memory is read fastest in the order of its addresses; the second half of a block comes from the L1 cache.
    So with the rows of several heads that stand side by side, K[n, head, k]: a block has all of its heads.
    """

    vector_bytes: int = option("bytes of a vector; 0 = what the host has", 0)

    def run(self, op: ir.Operation) -> None:
        target = host_target(self.vector_bytes)
        for generic in ops_in(op, "linalg.generic"):
            try:
                structured = Structured(generic)
                check_body(structured)
            except Unsupported:
                continue
            found = _streamed(structured, choose(structured, target))
            if found is None:
                continue
            with ir.InsertionPoint(generic), generic.location, loop_nest(structured, [found]) as blocks:
                values = [part_of(o, blocks) for o in structured.operands]
                with_operands(structured, values, indexing_maps(structured.op))
            generic.erase()


def _streamed(op: Structured, schedule: Schedule) -> tuple[int, int] | None:
    """The loop over the rows of a streamed operand of which each register tile has a part, and how many are a block."""
    if schedule.vector_loop == NO_LOOP:
        return None
    for operand in op.operands:
        block = block_of_rows(op, operand)
        if block is not None and rows_ahead(op, operand) is not None:
            return operand.dims[block[0]], block[1]
    if not op.is_parallel(schedule.vector_loop):
        return None
    for operand in op.operands:
        ahead = rows_ahead(op, operand)
        if ahead is None or schedule.vector_loop != operand.dims[-1]:
            continue
        rows = operand.dims[ahead.position]
        count = max(SHORT, BLOCK_BYTES // row_bytes(op, operand, ahead.position) // STEPS * STEPS)
        is_long = op.sizes[rows] is None or op.sizes[rows] > count
        if is_long and not op.is_parallel(rows) and _is_read_again(op, operand, schedule):
            return rows, count
    return None


def _is_read_again(op: Structured, operand: Operand, schedule: Schedule) -> bool:
    """True if a register tile needs more than one pass over the operand's rows."""
    for d in range(op.n_loops):
        width = schedule.unroll.get(d, 1) * (schedule.lanes if d == schedule.vector_loop else 1)
        is_part = d == schedule.vector_loop or d not in operand.loops
        if op.is_parallel(d) and is_part and (op.sizes[d] is None or op.sizes[d] > width):
            return True
    return False
