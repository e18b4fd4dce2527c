"""The pass ``stream-rows``."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ....dialects import build
from ....dialects.mlir import ir
from ....dialects.tiling.structured import indexing_maps
from ...passes import Pass, option
from ...rewriting import ancestors
from ..blocks import loop_nest, part_of, with_operands
from ..memory import FRAMES, in_frame
from ..structured import NO_LOOP, Operand, Structured, Unsupported, reductions_in, structured_of
from ..target import Target, host_target
from .combiners import combiner
from .places import in_places
from .read_ahead import SHORT, block_of_rows, row_bytes, rows_ahead
from .scalar_body import register_type
from .schedule import PLACES, STEPS, Schedule, check_body, choose

BLOCK_BYTES = 8 << 10  # of rows that stay in the L1 cache, beside those that were asked for
MOST_PLACES = 4  # that rows are read at in turn: what fetches ahead by itself follows no more


@dataclass(frozen=True)
class StreamRows(Pass):
    """Contractions that read an operand once, and parts of its rows at a time, go over blocks of rows::

        linalg.generic {O[m, n] += P[m, k]·V[k, n]} ins(%p, %v : memref<4x256xf32>, memref<256x128xf32>) outs(%o)
    becomes
        linalg.fill(%sums, 0)
        scf.for %k = %c0 to %c256 step %c16 {
          linalg.generic {sums[m, n] += P[m, k]·V[k, n]} ins(%p[0, %k], %v[%k, 0] : memref<4x16xf32>, …) outs(%sums)
        }
        linalg.generic {O[m, n] += sums[m, n]}

    A register tile has 64 of the 128 columns: without blocks the first half of all rows would be read, then the second
    one. Memory is read fastest in the order of its addresses; the second half of a block comes from the L1 cache.
    So with the rows of several heads that stand side by side, K[n, head, k]: a block has all of its heads.

    Where a line of the cache is several vectors there are few vector registers, and a register tile has a line of a few
    rows. Of rows next to each other it would read lines that are a row apart, each once, which what fetches ahead by
    itself follows badly. So its rows come from distant places, and it goes along each; the loop over the places comes
    last, and is marked (`places.py`)::

        %pv = memref.expand_shape %v [[0, 1], [2]] : memref<256x128xf32> into memref<4x64x128xf32>
        linalg.fill(%sums, 0)
        scf.for %k = %c0 to %c64 step %c1 {
          linalg.generic {sums[m, n] += P[m, p, k]·V[p, k, n]} ins(%pp[0, 0, %k], %pv[0, %k, 0]) outs(%sums) {places}
        }
        linalg.generic {O[m, n] += sums[m, n]}
    """

    vector_bytes: int = option("bytes of a vector; 0 = what the host has", 0)

    def run(self, op: ir.Operation) -> None:
        target = host_target(self.vector_bytes)
        for structured in filter(_is_element_wise, reductions_in(op)):
            schedule = choose(structured, target)
            apart = _apart(structured, schedule, target)
            if apart is None:
                _in_blocks(structured, schedule)
                continue
            for part in map(structured_of, in_places(structured, *apart)):
                if part is not None and _is_element_wise(part):
                    _in_blocks(part, choose(part, target))


def _is_element_wise(op: Structured) -> bool:
    """Whether its body can be evaluated on vectors."""
    try:
        check_body(op)
    except Unsupported:
        return False
    return True


def _apart(op: Structured, schedule: Schedule, target: Target) -> tuple[int, int] | None:
    """The loop over the rows of a streamed operand that are read at distant places in turn, and how many of these."""
    if not target.is_narrow or schedule.vector_loop == NO_LOOP or any(o.name == "linalg.index" for o in op.body_ops):
        return None
    for operand in op.operands:
        ahead = rows_ahead(op, operand)
        if ahead is None or block_of_rows(op, operand) or schedule.vector_loop != operand.dims[-1]:
            continue
        rows = operand.dims[ahead.position]
        count = min(MOST_PLACES, schedule.unroll.get(rows, 1)) if op.is_parallel(rows) else MOST_PLACES
        if count > 1 and (op.sizes[rows] is None or op.sizes[rows] >= count * SHORT):
            return rows, count
    return None


def _in_blocks(structured: Structured, schedule: Schedule) -> None:
    generic, found = structured.op, _streamed(structured, schedule)
    if found is None:
        return
    with ir.InsertionPoint(generic), generic.location:
        sums = _sums(structured, found[0])
        with loop_nest(structured, [found]) as blocks:
            values = [sums.get(o.number, part_of(o, blocks)) for o in structured.operands]
            new = with_operands(structured, values, indexing_maps(structured.op))
            if PLACES in generic.attributes:
                new.attributes[PLACES] = generic.attributes[PLACES]
        for number, part in sums.items():
            _combine(structured, structured.operands[number], part)
    generic.erase()


def _sums(op: Structured, rows: int) -> dict[int, ir.Value]:
    """Scratch for what blocks of the loop `rows` add to, by the numbers of outputs: blocks are many, and what was there
    before would be one of as many terms. A sum of sums rounds less."""
    frame = next(a for a in ancestors(op.op) if a.name in FRAMES)
    found = {}
    for out in op.outputs:
        how, kind = combiner(op, out), out.value.type
        is_sum = how is not None and rows not in out.loops and register_type(out.element) == out.element
        if how is not None and is_sum and kind.has_static_shape:
            found[out.number] = in_frame(frame, kind.shape, out.element)
            neutral = build.constant(out.element, how.neutral)
            _elementwise([neutral], found[out.number], lambda x, _: x)
    return found


def _combine(op: Structured, out: Operand, part: ir.Value) -> None:
    how = combiner(op, out)
    assert how is not None, "of which there are sums"

    def combined(new: ir.Value, old: ir.Value) -> ir.Value:
        return ir.Operation.create(how.op, results=[old.type], operands=[old, new]).result

    _elementwise([part], out.value, combined)


def _elementwise(inputs: Sequence[ir.Value], out: ir.Value, body: Callable[..., ir.Value]) -> None:
    rank = out.type.rank
    maps = [build.projection(rank, range(rank) if isinstance(v.type, ir.MemRefType) else ()) for v in [*inputs, out]]
    build.generic(inputs, [out], maps, [build.PARALLEL] * rank, body)


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
        if schedule.places in operand.loops:
            count = 1  # so that it goes along the row
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
