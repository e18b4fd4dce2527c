"""How a structured op is vectorised: which loop runs over lanes, and which are unrolled into registers."""

import math
from dataclasses import dataclass

from ....dialects import build
from ....dialects.mlir import ir
from ...rewriting import ancestors, defining_op, is_inside
from ..initial_values import origin_of
from ..memory import element_bytes
from ..structured import NO_LOOP, Operand, Structured, Unsupported
from ..target import LINE, Target
from ..tile_sizes import ROWS_TO_PACK
from .broadcasts import BYTES, VECTOR_BYTES
from .combiners import combiner

LIKELY_SIZE = 64  # what a dynamic size is taken to be
USES_TO_PACK = 16  # of an element from which on it pays to copy it to where it is contiguous, in one loop
MANY_REGISTERS = 32
LOADS_OF_NARROW = 3  # loads in place of which narrow floats are loaded, and converted, or two rows of them joined
CHAINS = 4  # latency of an addition or a maximum
ROWS_AT_ONCE = 4  # of sums along the lanes, at most: as many loads as products, beside what is asked for ahead
STEPS = 2  # of a contraction's sum per iteration: more are no faster, and take longer to compile
MORE_STEPS = 4  # the same of tiles with fewer products, beside which the loop's own instructions count for more
PLACES = "places"  # on an op: the loop over places of memory of which a register tile has a row each (`stream-rows`)
PART = "part"  # on an op: it computes some rows of a tile, of which others read the same keys (`trim-masked-tiles`)


@dataclass(frozen=True)
class Schedule:
    """`order` lists the loops from outer to inner, parallel ones first; `unroll` counts vectors along `vector_loop`.

    `transposed` is a loop unrolled by `lanes`: operands that are contiguous along it, and not along `vector_loop`, are
    read as square blocks and transposed in registers. `chains` partial results of each accumulator are computed in turn
    where a reduction loop, that of the lanes too, is unrolled: an operation need not wait for the one before. `by_two`
    tells the operands of which neighbours are loaded together and broadcast, `anew` those of which an element is loaded
    again for each vector that it multiplies (`broadcasts.py`). `rows_in_turn`: the registers do not hold the
    accumulators of a tile and all that is multiplied. `places`: the loop over distant places that a streamed operand is
    read at in turn, all of which are in the tile.
    """

    vector_loop: int  # NO_LOOP: scalars only
    lanes: int
    order: tuple[int, ...]
    unroll: dict[int, int]
    transposed: int = NO_LOOP
    chains: int = 1
    by_two: frozenset[int] = frozenset()
    anew: frozenset[int] = frozenset()
    rows_in_turn: bool = False
    places: int = NO_LOOP


def lane_bytes(op: Structured) -> int:
    """The size of the largest element that the body computes with; narrow floats are computed with in f32.

    Less than 4 bytes only where all are truth values: masks that are looked at.
    """
    if all(kind == ir.IntegerType.get_signless(1) for kind in op.element_types()):
        return 1
    widths = [4]
    for kind in op.element_types():
        if isinstance(kind, ir.FloatType):
            widths.append(kind.width // 8)
        elif isinstance(kind, ir.IntegerType):
            widths.append(min(kind.width // 8, 8))
    return max(widths)


def choose(op: Structured, target: Target) -> Schedule:
    """The schedule for `op`.

    The loop over lanes is the one along which most buffers are contiguous. Along a reduction it needs a combiner that
    can be split (max, sum, …). For a contraction, C[m, n] += A[m, k]·B[k, n], this gives lanes along n and a register
    tile of `unroll[m]` × `unroll[n]` vectors of C, which is what reuses a vector of B and a scalar of A.
    """
    reductions = op.reductions
    parallel = [d for d in range(op.n_loops) if op.is_parallel(d)]
    vector = _vector_loop(op)
    lanes = _lanes(op, vector, target) if vector != NO_LOOP else 1
    size = op.sizes[vector] if vector != NO_LOOP else None
    if size is not None:
        lanes = min(lanes, 1 << max(size - 1, 0).bit_length())
    if vector == NO_LOOP or lanes < 2:
        return Schedule(NO_LOOP, 1, tuple(parallel + reductions), {})
    vectors = math.ceil(size_of(op, vector) / lanes)
    unroll: dict[int, int] = {}
    chains, rows_in_turn, places = 1, False, places_of(op)
    by_two, anew = frozenset[int](), frozenset[int]()
    if vector in parallel and reductions:
        reuse = _reuse_loop(op, vector, parallel)
        budget = target.registers * 3 // 4
        across = _transposed_loop(op, vector, lanes)
        if across in reductions and not all(op.is_accumulator(out) for out in op.outputs):
            order = [d for d in parallel if d not in (vector, across)] + [vector]
            order += [d for d in reductions if d != across] + [across]
            return Schedule(vector, lanes, tuple(order), {across: lanes}, across, CHAINS)
        if reuse is None:
            unroll[vector] = min(target.registers // 4, vectors)
            if not any(inner.name.startswith("math.") for inner in op.body_ops):
                unroll[reductions[-1]], chains = 2, 2
        else:
            is_converted = any(build.is_narrow(o.element) for o in op.operands if not o.is_output and vector in o.loops)
            loads = LOADS_OF_NARROW if is_converted else 1
            most = target.registers if target.is_narrow and _is_streamed(op) else 0
            is_known = op.sizes[reuse] is not None  # of others a rest is computed row by row
            is_large = target.loads_count and is_known and not is_converted and not _is_streamed(op)
            unroll[vector], unroll[reuse] = _register_tile(vectors, size_of(op, reuse), budget, loads, most, is_large)
            held = unroll[vector] * unroll[reuse] + unroll[vector] + unroll[reuse]
            rows_in_turn = held > target.registers
            if target.permutes_apart and lanes * BYTES == VECTOR_BYTES:
                by_two = _by_two(op, vector, unroll, reductions[-1])
            if target.halves and _is_streamed(op) and _converts_f16(op, vector):
                anew = _anew(op, vector, reductions[-1])
        inner = [vector] + ([reuse] if reuse is not None else [])
        in_pairs = any(op.operands[number].dims[-1] == reductions[-1] for number in by_two)
        if reuse is not None:
            steps = MORE_STEPS if target.registers < MANY_REGISTERS else STEPS
            unroll[reductions[-1]] = _steps(op, reductions[-1], steps, in_pairs)
        if places in reductions:
            unroll[places] = size_of(op, places)
            rows_in_turn = True
        order = [d for d in parallel if d not in inner] + inner + reductions
    elif vector in reductions:
        unroll = _dot_tile(op, parallel, target.registers // 2, places)
        inner = list(unroll)
        chains = 1 if unroll else min(CHAINS, vectors)
        unroll[vector] = max(chains, _vectors_of_a_line(op, vector, lanes))
        held = sum(math.prod(unroll.get(d, 1) for d in o.loops) for o in op.operands if not o.is_output)
        rows_in_turn = held + math.prod(unroll[d] for d in inner) > target.registers
        order = [d for d in parallel if d not in inner] + inner + [d for d in reductions if d != vector] + [vector]
    else:
        across = _transposed_loop(op, vector, lanes)
        if across != NO_LOOP:
            order = [d for d in parallel if d not in (vector, across)] + [vector, across]
            return Schedule(vector, lanes, tuple(order), {across: lanes}, across)
        unroll[vector] = 2 if vectors >= 2 else 1
        order = [d for d in parallel if d != vector] + [vector]
    return Schedule(vector, lanes, tuple(order), unroll, NO_LOOP, chains, by_two, anew, rows_in_turn, places)


def _lanes(op: Structured, vector: int, target: Target) -> int:
    """How many of f32, or of what is larger, a vector has.

    Where vectors are computed with by halves, to convert one of f16 takes longer than to convert two halves, on the
    units that also shuffle the lanes of sums: those along the lanes then have vectors of half the size.
    """
    lanes = target.vector_bytes // lane_bytes(op)
    if not target.halves or op.is_parallel(vector) or not _is_streamed(op):
        return lanes
    return lanes // 2 if _converts_f16(op, vector) and _vectors_of_a_line(op, vector, lanes // 2) > 1 else lanes


def _converts_f16(op: Structured, vector: int) -> bool:
    """True if vectors of f16 are converted as they are read."""
    inputs = [o for o in op.operands if not o.is_output and vector in o.loops]
    return any(isinstance(o.element, ir.F16Type) for o in inputs)


def _anew(op: Structured, vector: int, summed: int) -> frozenset[int]:
    """The operands of f32 whose elements are broadcast, others in each step of the sum."""
    inputs = [o for o in op.operands if not o.is_output and not o.is_scalar and vector not in o.loops]
    return frozenset(o.number for o in inputs if summed in o.loops and element_bytes(o.element) == BYTES)


def _by_two(op: Structured, vector: int, unroll: dict[int, int], summed: int) -> frozenset[int]:
    """The operands of which elements that are broadcast are neighbours in a register tile, of one vector: where several
    vectors share them there are fewer loads than multiply-adds."""
    found = []
    for operand in op.operands if unroll[vector] == 1 else ():
        if operand.is_output or operand.is_scalar or not operand.dims or vector in operand.loops:
            continue
        loop = operand.dims[-1]
        count = op.sizes[loop] if loop == summed else unroll.get(loop, 1)
        if operand.strides[-1] == 1 and element_bytes(operand.element) == BYTES and count and count % 2 == 0:
            found.append(operand.number)
    return frozenset(found)


def _steps(op: Structured, summed: int, most: int, in_pairs: bool) -> int:
    """How many steps of a sum an iteration takes: one where it is short, leaves a rest, or waits for memory: more would
    only take longer to compile. Of an unknown number, as in a cut tile, more steps than usual are still worth that."""
    size = op.sizes[summed]
    is_streamed = _is_streamed(op)
    if size is None and most > STEPS and not is_streamed:
        return most
    for steps in (most, STEPS) if size is not None and not is_streamed else ():
        if size >= 4 * steps and size % steps == 0:
            return steps
    return STEPS if in_pairs else 1


def _is_streamed(op: Structured) -> bool:
    """True if an input comes from memory and goes."""
    if PART in op.op.attributes:
        return False
    inputs = [o for o in op.operands if not o.is_output and not o.is_scalar]
    return any(_is_read_anew(op, o) and not pays_to_copy(op, o) for o in inputs)


def places_of(op: Structured) -> int:
    """The loop over the places that a streamed operand is read at; NO_LOOP: it is read in order."""
    attributes = op.op.attributes
    return ir.IntegerAttr(attributes[PLACES]).value if PLACES in attributes else NO_LOOP


def size_of(op: Structured, loop: int) -> int:
    size = op.sizes[loop]
    return LIKELY_SIZE if size is None else size


def _vector_loop(op: Structured) -> int:
    """The loop with the fewest strided accesses, weighted: a scatter is worse than a gather."""
    best, best_cost = NO_LOOP, 0.0
    for loop in range(op.n_loops):
        size = size_of(op, loop)
        if size < 2 or not _can_be_lanes(op, loop):
            continue
        cost = 0.0
        for operand in op.operands:
            kind = operand.stride_kind(loop)
            if kind == "strided" and operand.is_output:
                cost += 20
            elif kind == "strided":
                cost += 0.5 if pays_to_copy(op, operand) else 4  # it will be packed
            elif kind == "none" and operand.is_output:  # a horizontal reduction, once per element
                cost += 1
        cost += 8 / size + (0 if size >= 4 else 2) - 0.001 * loop
        if best == NO_LOOP or cost < best_cost:
            best, best_cost = loop, cost
    return best


def pays_to_copy(op: Structured, operand: Operand) -> bool:
    """True if a contraction reads each element of this input often: in one loop, which may be that of the lanes, or in
    several, such as the heads of a group and a few queries of each."""
    if not op.reductions:
        return False
    uses = [size_of(op, d) for d in range(op.n_loops) if op.is_parallel(d) and d not in operand.loops]
    least = ROWS_TO_PACK if _is_read_anew(op, operand) else USES_TO_PACK
    return max(uses, default=1) >= least or math.prod(uses) >= ROWS_TO_PACK


def _is_read_anew(op: Structured, operand: Operand) -> bool:
    """True if each iteration of the loop around reads another part of memory, as of keys and values."""
    loop = next((a for a in ancestors(op.op) if a.name == "scf.for"), None)
    made = defining_op(operand.value)
    return loop is not None and made is not None and is_inside(made, loop) and not is_scratch(operand)


def is_scratch(operand: Operand) -> bool:
    """True for what the task itself has written."""
    made = defining_op(origin_of(operand.value))
    return made is not None and made.name == "memref.alloca"


def _can_be_lanes(op: Structured, loop: int) -> bool:
    if op.is_parallel(loop):
        return True
    return all(combiner(op, out) is not None for out in op.outputs if op.is_accumulator(out))


def _transposed_loop(op: Structured, vector: int, lanes: int) -> int:
    """The loop along which an input is contiguous that is strided along the lanes, if whole blocks of it fit."""
    for operand in op.operands:
        if operand.is_read and operand.stride_kind(vector) == "strided" and not operand.is_output:
            loop = operand.dims[-1]
            if loop not in (NO_LOOP, vector) and operand.strides[-1] == 1 and size_of(op, loop) >= lanes:
                return loop if size_of(op, vector) >= lanes else NO_LOOP
    return NO_LOOP


def _reuse_loop(op: Structured, vector: int, parallel: list[int]) -> int | None:
    """A parallel loop that an operand read along the lanes lacks: unrolling it reuses that operand's vectors."""
    inputs = [o for o in op.operands if not o.is_output and vector in o.loops]
    loops = [d for d in parallel if d != vector and any(d not in o.loops for o in inputs) and size_of(op, d) > 1]
    return max(loops, key=lambda d: (size_of(op, d), d), default=None)


def _dot_tile(op: Structured, parallel: list[int], accumulators: int, places: int) -> dict[int, int]:
    """How many sums along the lanes run side by side, by loop, the outer one first.

    A vector of an input is used for all of an unrolled loop that the input lacks: by up to 4 of one loop, of 7 by 4
    and then by 3. The rest of the accumulators go to the loop along which the results are neighbours, whose lanes are
    summed together; or to the places that are read in turn.
    """
    wide = [d for d in parallel if size_of(op, d) > 1]
    if not wide:
        return {}
    out = op.outputs[0]
    run = out.dims[-1] if out.dims and out.dims[-1] in wide else wide[-1]
    run = places if places in wide else run
    lacking = [o for o in op.operands if not o.is_output and not o.is_scalar and run in o.loops]
    others = [d for d in wide if d != run and any(d not in o.loops for o in lacking)]
    unroll: dict[int, int] = {}
    if others:
        reuse_loop = max(others, key=lambda d: (size_of(op, d), d))
        size = size_of(op, reuse_loop)
        unroll[reuse_loop] = -(-size // -(-size // ROWS_AT_ONCE))
    left = max(1, accumulators // max(1, math.prod(unroll.values())))
    count = min(left, size_of(op, run), 8 if not unroll else left)
    return {run: 1 << (count.bit_length() - 1), **unroll}


def _vectors_of_a_line(op: Structured, loop: int, lanes: int) -> int:
    """How many vectors of the narrowest input along `loop` fill a line of the cache; 1 if they do not fill the loop."""
    widths = [element_bytes(o.element) or LINE for o in op.operands if not o.is_output and loop in o.loops]
    count = max(1, LINE // (lanes * min(widths, default=LINE)))
    return count if (op.sizes[loop] or 1) % (lanes * count) == 0 else 1


def _register_tile(
    vectors: int, rows: int, budget: int, loads: int, most: int = 0, is_large: bool = False
) -> tuple[int, int]:
    """Vectors × rows of accumulators: as square as registers allow, and dividing the sizes if possible.

    `loads`: what it takes to have a vector of the input that rows share; their own elements are broadcast.
    `most`: registers for these, elements that are broadcast, and accumulators, if they must not exceed them.
    `is_large`: fewer loads are faster, however few there are: 6 × 4 of 32 registers, with one element at a time.
    """
    held, enough = (budget + 5, math.inf) if is_large else (budget + 4, 2.0)
    best, best_score = (1, 1), 0.0
    for nv in range(1, min(5, vectors) + 1):
        for mr in range(1, min(8 if nv > 1 else 16, rows) + 1):
            if nv * mr + nv + 1 > held or nv * mr > budget or nv * mr + nv + mr > (most or math.inf):
                continue
            # FMAs per load, and the share of the work that full tiles do.
            intensity = nv * mr / (loads * nv + mr)
            fill = (vectors // nv * nv) / vectors * (rows // mr * mr) / rows
            hidden = min(1.0, nv * mr / 10)  # latency × throughput of the FMA units
            score = min(intensity, enough) ** 0.5 * (0.3 + 0.7 * fill) * hidden
            if score > best_score + 1e-9:
                best, best_score = (nv, mr), score
    return best


def check_body(op: Structured) -> None:
    """Raises Unsupported unless every op of the body works on vectors element by element."""
    for inner in op.body_ops:
        dialect = inner.name.split(".")[0]
        if inner.name == "linalg.index":
            continue
        if dialect not in ("arith", "math", "pair") or len(inner.results) != 1 or inner.regions:
            raise Unsupported(f"'{inner.name}' in its body")
        kinds = [v.type for v in [*inner.operands, *inner.results]]
        if inner.name == "arith.bitcast" and any(build.is_narrow(k) for k in kinds):
            raise Unsupported(f"'{inner.name}' of narrow floats in its body")
        if any(isinstance(k, ir.ShapedType | ir.ComplexType) for k in kinds):
            raise Unsupported(f"'{inner.name}' on {kinds[-1]} in its body")
