"""Emits a structured op as loops over register tiles in the vector dialect, following a schedule.

One mechanism serves contractions, element-wise ops and reductions:

- Every loop of the schedule becomes a main loop over full tiles and, where tiles do not divide the size, a second one
  over the rest: single iterations, or masked vectors along the loop of the lanes.
- Operands are loaded where the innermost of their loops is entered, so that what does not depend on an inner loop
  stays in registers.
- Accumulators are loaded before the reduction loops, carried through them, and stored after them. If the lanes run
  along a reduction, they are vectors of partial results, combined after the loops.
- The scalar body is evaluated per point of the register tile; a value is a scalar until it meets a vector.
- f16 and bf16 are f32 in registers; i1 is i8 in memory.
"""

import dataclasses
import functools
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ...dialects import build
from ...dialects.mlir import arith, ir, memref, scf, vector
from .body import ORDERED, BodyEvaluator, register_type
from .combiners import Combiner, combiner
from .prefetch import L2, Stream
from .read_ahead import rows_ahead
from .schedule import Schedule
from .shuffles import sum_of_lanes, transpose
from .structured import NO_LOOP, Operand, Structured

Offsets = tuple[int, ...]
Key = tuple[int, Offsets]  # an operand's number, and unroll offsets of its loops


@dataclass
class Tile:
    """The current tile along one loop: base index, unrolled iterations (or vectors), mask of the lanes."""

    base: ir.Value
    count: int
    mask: ir.Value | None = None


class Emitter:
    """Emits one op at the current insertion point."""

    def __init__(
        self,
        op: Structured,
        schedule: Schedule,
        initial: dict[int, float | int | Structured],
        streams: Sequence[Stream] = (),
    ):
        """`initial`: what accumulators start from, by operand number: constants, or updates of what is read.

        `streams`: what is prefetched, evenly over the register tiles.
        """
        self.op = op
        self.constants = {n: x for n, x in initial.items() if not isinstance(x, Structured)}
        self.updates = {n: x for n, x in initial.items() if isinstance(x, Structured)}
        self.schedule = schedule
        self.v = schedule.vector_loop
        self.lanes = schedule.lanes
        self.tiles: dict[int, Tile] = {}
        self.loaded: dict[Key, ir.Value] = {}
        self.indices: dict[tuple[int, int], ir.Value] = {}
        found = {o.number: combiner(op, o) for o in op.outputs}
        self.combiners: dict[int, Combiner] = {n: c for n, c in found.items() if c is not None}
        self.n_parallel = sum(op.is_parallel(d) for d in schedule.order)
        numbers = [n for n, value in self.constants.items() if value == value]  # no NaN
        ahead = {o.number: rows_ahead(op, o) for o in op.operands}
        self.ahead = {number: place for number, place in ahead.items() if place is not None}
        self.streams = [] if self.ahead else streams  # once is enough
        self.evaluator = BodyEvaluator(op, self.lanes, [op.body.arguments[n] for n in numbers])

    def emit(self) -> None:
        self.memory = {o.number: self._memory(o) for o in self.op.operands}
        self.bounds = {d: self.op.size(d) for d in range(self.op.n_loops)}
        self._enter(None)
        self._parallel(0)

    # --- loops

    def _parallel(self, level: int) -> list[ir.Value]:
        if level < self.n_parallel:
            return self._loops(level, [], lambda _: self._parallel(level + 1))
        self._prefetch()
        initial = self._load_accumulators()
        final = self._reduction(level, [v for _, v in initial])
        self._store_accumulators([k for k, _ in initial], final)
        return []

    def _reduction(self, level: int, accumulators: list[ir.Value]) -> list[ir.Value]:
        if level == len(self.schedule.order):
            return self._points(accumulators)
        return self._loops(level, accumulators, lambda inner: self._reduction(level + 1, inner))

    def _loops(self, level: int, carried: list[ir.Value], body: Callable) -> list[ir.Value]:
        """The loop over full tiles and the one over the rest; `body` gets and returns what is carried."""
        d = self.schedule.order[level]
        size, width = self.op.sizes[d], (self.lanes if d == self.v else 1)
        count = self.schedule.unroll.get(d, 1)
        if size is not None and count * width > size:
            count = max(1, size // width)
        step = count * width
        if size is not None:
            main_end: int | ir.Value = size // step * step
        elif step == 1:
            main_end = self.bounds[d]
        else:
            rest = arith.remui(self.bounds[d], build.index(step))
            main_end = arith.subi(self.bounds[d], rest)
        carried = self._loop(d, 0, main_end, step, count, False, carried, body)
        if step == 1 or (size is not None and size == main_end):
            return carried
        if d == self.v:  # whole vectors that fill no tile come in the masked loop too
            return self._loop(d, main_end, self._bound(d), width, 1, True, carried, body)
        return self._loop(d, main_end, self._bound(d), 1, 1, False, carried, body)

    def _prefetch(self) -> None:
        """The share of this register tile, by where it stands in the innermost of the parallel loops."""
        if self.streams and self.n_parallel:
            d = self.schedule.order[self.n_parallel - 1]
            step = self.tiles[d].count * (self.lanes if d == self.v else 1)
            for stream in self.streams:
                stream.emit(self.tiles[d].base, step, self.op.sizes[d] or stream.rows)

    def _bound(self, d: int) -> int | ir.Value:
        return self.bounds[d] if self.op.sizes[d] is None else self.op.sizes[d]

    def _loop(self, d, start, end, step, count, masked, carried, body) -> list[ir.Value]:
        if isinstance(start, int) and isinstance(end, int):
            if start >= end:
                return carried
            if end - start <= step:  # one iteration
                return self._iteration(d, build.index(start), count, masked, carried, body)
        start, end = (build.index(x) if isinstance(x, int) else x for x in (start, end))
        loop = scf.ForOp(start, end, build.index(step), carried)
        with ir.InsertionPoint(loop.body):
            results = self._iteration(d, loop.induction_variable, count, masked, list(loop.inner_iter_args), body)
            scf.YieldOp(results)
        return list(loop.operation.results)

    def _iteration(self, d, base, count, masked, carried, body) -> list[ir.Value]:
        saved = dict(self.tiles), dict(self.loaded), dict(self.indices), dict(self.evaluator.cache)
        mask = None
        if masked:
            rest = arith.subi(self.bounds[d], base)
            mask = vector.CreateMaskOp(ir.VectorType.get([self.lanes], ir.IntegerType.get_signless(1)), [rest]).result
        self.tiles[d] = Tile(base, count, mask)
        width = self.lanes if d == self.v else 1
        for offset in range(count):
            self.indices[d, offset] = arith.addi(base, build.index(offset * width)) if offset else base
        self._enter(d)
        results = body(carried)
        self.tiles, self.loaded, self.indices, self.evaluator.cache = saved
        return results

    def _enter(self, d: int | None) -> None:
        """Loads the operands whose innermost loop was just entered."""
        for operand in self.op.operands:
            if not operand.is_read or (operand.is_output and self.op.is_accumulator(operand)):
                continue
            loops = [loop for loop in self.schedule.order if loop in operand.loops]
            if (loops[-1] if loops else None) != d:
                continue
            if self._is_block(operand):
                self._load_block(operand)
            else:
                for offsets in self._offsets(sorted(operand.loops)):
                    self.loaded[operand.number, offsets] = self._load(operand, self._at(operand.loops, offsets))

    def _is_block(self, operand: Operand) -> bool:
        """True if the current tile of the operand is a full square, contiguous across the lanes."""
        across = self.schedule.transposed
        return (
            across in operand.loops
            and across == operand.dims[-1]
            and operand.stride_kind(self.v) == "strided"
            and self.tiles[across].count == self.lanes
            and self.tiles[self.v].mask is None
            and all(self.tiles[d].count == 1 for d in operand.loops if d != across)
        )

    def _load_block(self, operand: Operand) -> None:
        """Loads a square along the loop across, a vector per lane, and transposes it."""
        source = self.memory[operand.number]
        type_ = ir.VectorType.get([self.lanes], source.type.element_type)
        subscripts = self._subscripts(operand, dict.fromkeys(operand.loops, 0))
        position = operand.dims.index(self.v)
        base, rows = subscripts[position], []
        for lane in range(self.lanes):
            subscripts[position] = arith.addi(base, build.index(lane)) if lane else base
            rows.append(vector.LoadOp(type_, source, subscripts).result)
        loops = sorted(operand.loops)
        for offset, column in enumerate(transpose(rows)):
            offsets = tuple(offset if d == self.schedule.transposed else 0 for d in loops)
            self.loaded[operand.number, offsets] = self.evaluator.from_memory(column, operand.element)

    def _offsets(self, loops: Sequence[int]) -> list[Offsets]:
        return list(itertools.product(*(range(self.tiles[d].count) for d in loops)))

    def _at(self, loops: frozenset[int], offsets: Offsets) -> dict[int, int]:
        return dict(zip(sorted(loops), offsets, strict=True))

    # --- the body

    def _points(self, accumulators: list[ir.Value]) -> list[ir.Value]:
        """Evaluates the body at every point of the register tile; returns the new accumulators."""
        keys = self._accumulator_keys()
        current = dict(zip(keys, accumulators, strict=True))
        for point in self._in_order():
            values = {}
            for operand in self.op.operands:
                if not operand.is_read:
                    continue
                if operand.is_output and self.op.is_accumulator(operand):
                    values[operand.number] = current[self._accumulator_key(operand, point)]
                else:
                    values[operand.number] = self.loaded[operand.number, tuple(point[d] for d in sorted(operand.loops))]
            results = self.evaluator.evaluate(values, point, self._index)
            for out, value in zip(self.op.outputs, results, strict=True):
                if self.op.is_accumulator(out):
                    key = self._accumulator_key(out, point)
                    mask = self.tiles[self.v].mask if self.v != NO_LOOP and not self.op.is_parallel(self.v) else None
                    if self._is_vector_accumulator(out):
                        value = self.evaluator.broadcast(value)
                    if mask is not None:
                        value = arith.select(mask, value, current[key])
                    current[key] = value
                else:
                    self._store(out, value, {d: point[d] for d in out.loops})
        return [current[k] for k in keys]

    def _in_order(self) -> list[Offsets]:
        """The points of the register tile, so that those which add to one accumulator are far apart."""
        loops = range(self.op.n_loops)
        summed = [d for d in loops if not self.op.is_parallel(d)]
        return sorted(self._offsets(loops), key=lambda point: [point[d] for d in summed])

    def _index(self, d: int, point: Offsets) -> ir.Value:
        base = self.indices[d, point[d]]
        if d != self.v:
            return base
        return arith.addi(self.evaluator.broadcast(base), self._step(ir.IndexType.get()))

    def _step(self, kind: ir.Type) -> ir.Value:
        return vector.StepOp(ir.VectorType.get([self.lanes], kind)).result

    # --- accumulators

    def _accumulator_keys(self) -> list[Key]:
        keys = []
        for out in self.op.outputs:
            if self.op.is_accumulator(out):
                keys += [(out.number, offsets) for offsets in self._accumulator_offsets(out)]
        return keys

    def _chains(self, out: Operand) -> int:
        """How many partial results of an element are computed in turn; they are combined after the loops."""
        return self.schedule.chains if out.number in self.combiners and not self._is_split(out) else 1

    def _accumulator_offsets(self, out: Operand) -> list[Offsets]:
        """Unroll offsets along the loops of the accumulator, and the chain."""
        counts = [self._accumulator_count(d) for d in self._accumulator_loops(out)]
        return list(itertools.product(*(range(n) for n in [*counts, self._chains(out)])))

    def _accumulator_count(self, d: int) -> int:
        if d != self.v or self.op.is_parallel(d):
            return self.tiles[d].count
        # Partial results along the lanes: as many as full tiles have, also in the loop over the rest.
        size, count = self.op.sizes[d], self.schedule.unroll.get(d, 1)
        return max(1, min(count, size // self.lanes)) if size is not None else count

    def _accumulator_loops(self, out: Operand) -> list[int]:
        """Its own loops, and the one of the lanes, whose unrolled vectors have partial results of their own."""
        return sorted(out.loops | ({self.v} if self._is_split(out) else set()))

    def _is_split(self, out: Operand) -> bool:
        return self.v != NO_LOOP and not self.op.is_parallel(self.v)

    def _is_vector_accumulator(self, out: Operand) -> bool:
        return self.v != NO_LOOP and (self._is_split(out) or self.v in out.loops)

    def _accumulator_key(self, out: Operand, point: Offsets) -> Key:
        chain = sum(point[d] for d in range(self.op.n_loops) if not self.op.is_parallel(d)) % self._chains(out)
        return out.number, (*(point[d] for d in self._accumulator_loops(out)), chain)

    def _load_accumulators(self) -> list[tuple[Key, ir.Value]]:
        self.initial: dict[Key, ir.Value] = {}
        result = []
        for out in self.op.outputs:
            if not self.op.is_accumulator(out):
                continue
            late = self._is_late(out)
            for offsets in self._offsets(sorted(out.loops)) if not late else ():
                self.initial[out.number, offsets] = self._initial(out, self._at(out.loops, offsets))
            for offsets in self._accumulator_offsets(out):
                at = dict(zip(self._accumulator_loops(out), offsets[:-1], strict=True))
                if self._is_split(out) or late or offsets[-1]:
                    kind = register_type(out.element)
                    value = build.constant(kind, self.combiners[out.number].neutral)
                    value = self.evaluator.broadcast(value) if self._is_vector_accumulator(out) else value
                else:
                    value = self.initial[out.number, tuple(at[d] for d in sorted(out.loops))]
                result.append(((out.number, offsets), value))
        return result

    def _is_late(self, out: Operand) -> bool:
        """True if what was accumulated before is added after the sum: a sum of sums rounds less than one long chain."""
        return out.number in self.updates and out.number in self.combiners and not self._is_split(out)

    def _initial(self, out: Operand, at: dict[int, int]) -> ir.Value:
        if out.number in self.updates:
            return self._updated(self.updates[out.number], out, at)
        if out.number not in self.constants:
            return self._load(out, at)
        value = build.constant(register_type(out.element), self.constants[out.number])
        return self.evaluator.broadcast(value) if self.v in out.loops else value

    def _updated(self, update: Structured, out: Operand, at: dict[int, int]) -> ir.Value:
        """What an element-wise op makes of the accumulator; its loops are those of the accumulator's dimensions."""
        loops = dict(zip(update.outputs[0].dims, out.dims, strict=True))
        values = {}
        for operand in update.operands:
            if operand.is_read:
                dims = tuple(loops.get(d, NO_LOOP) for d in operand.dims)
                moved = dataclasses.replace(operand, number=len(self.memory), dims=dims)
                self.memory[moved.number] = self._memory(moved)
                values[operand.number] = self._load(moved, {d: at[d] for d in moved.loops})
                del self.memory[moved.number]
        (value,) = BodyEvaluator(update, self.lanes).evaluate(values, (), lambda *_: build.index(0))
        return self.evaluator.broadcast(value) if self.v in out.loops else value

    def _store_accumulators(self, keys: Sequence[Key], final: Sequence[ir.Value]) -> None:
        values = dict(zip(keys, final, strict=True))
        for out in self.op.outputs:
            if not self.op.is_accumulator(out):
                continue
            if not self._is_split(out):
                for offsets in self._offsets(sorted(out.loops)):
                    at = self._at(out.loops, offsets)
                    chains = self._parts(out, at, values)
                    if self._is_late(out):
                        chains = [self._initial(out, at), *chains]
                    total, *others = chains
                    for other in others:
                        total = self._exact(self.combiners[out.number], total, other)
                    self._store(out, total, at)
                continue
            run = None if out.number in self.updates else self._run(out)
            for offsets in self._offsets(sorted(out.loops)):
                at = self._at(out.loops, offsets)
                if run is None:
                    total = self._combine(self.combiners[out.number], self._parts(out, at, values))
                    initial = self.initial[out.number, offsets]
                    self._store(out, self._exact(self.combiners[out.number], initial, total), at)
                elif at[run] == 0:
                    self._store_run(out, run, at, values)

    def _parts(self, out: Operand, at: dict[int, int], values: dict[Key, ir.Value]) -> list[ir.Value]:
        """The partial results of an element: one for each unrolled vector along the lanes."""
        loops = self._accumulator_loops(out)
        offsets = [o for o in self._accumulator_offsets(out) if all(o[loops.index(d)] == at[d] for d in out.loops)]
        return [values[out.number, o] for o in offsets]

    def _run(self, out: Operand) -> int | None:
        """The loop along which the tile has a vector of elements of `out` that lie side by side; None without one."""
        loop = out.dims[-1] if out.dims else NO_LOOP
        if loop == NO_LOOP or out.strides[-1] != 1:
            return None
        count = self.tiles[loop].count
        return loop if 2 <= count <= self.lanes and count & (count - 1) == 0 else None

    def _store_run(self, out: Operand, run: int, first: dict[int, int], values: dict[Key, ir.Value]) -> None:
        """Combines the lanes of neighbouring elements together, so that they come out as one vector."""
        how, element = self.combiners[out.number], register_type(out.element)
        count = self.tiles[run].count
        rows = []
        for i in range(count):
            parts = self._parts(out, first | {run: i}, values)
            rows.append(functools.reduce(functools.partial(self._pairwise, how), parts))
        total = sum_of_lanes(rows, functools.partial(self._pairwise, how))
        kind = ir.VectorType.get([count], element)
        target, subscripts = self.memory[out.number], self._subscripts(out, first)
        if out.number in self.constants:
            initial = vector.BroadcastOp(kind, build.constant(element, self.constants[out.number])).result
        else:
            stored = ir.VectorType.get([count], target.type.element_type)
            initial = self.evaluator.from_memory(vector.LoadOp(stored, target, subscripts).result, out.element)
        result = self._exact(how, initial, total)
        vector.StoreOp(self.evaluator.to_memory(result, out.element), target, subscripts)

    @staticmethod
    def _exact(how: Combiner, a: ir.Value, b: ir.Value) -> ir.Value:
        return ir.Operation.create(how.op, results=[a.type], operands=[a, b]).result

    @staticmethod
    def _pairwise(how: Combiner, a: ir.Value, b: ir.Value) -> ir.Value:
        """Of partial results, which are numbers, or NaN for good."""
        if how.op in ORDERED:
            return arith.select(arith.cmpf(ORDERED[how.op], a, b), a, b)
        return Emitter._exact(how, a, b)

    def _combine(self, how: Combiner, parts: list[ir.Value]) -> ir.Value:
        while len(parts) > 1:
            parts = [
                self._pairwise(how, *parts[i : i + 2]) if i + 1 < len(parts) else parts[i]
                for i in range(0, len(parts), 2)
            ]
        (total,) = parts
        lanes = self.lanes
        while lanes > 1:  # halves, as a tree
            lanes //= 2
            kind = ir.VectorType.get([lanes], total.type.element_type)
            total = self._pairwise(
                how, *(vector.extract_strided_slice(kind, total, [at], [lanes], [1]) for at in (0, lanes))
            )
        return vector.extract(total, [], [0])

    # --- memory

    def _memory(self, operand: Operand) -> ir.Value:
        """The buffer to access; bytes in place of i1, whose vectors would be packed bits."""
        if operand.is_scalar or operand.element != ir.IntegerType.get_signless(1):
            return operand.value
        kind = operand.value.type
        as_bytes = ir.MemRefType.get(kind.shape, ir.IntegerType.get_signless(8), kind.layout, kind.memory_space)
        cast = ir.Operation.create("builtin.unrealized_conversion_cast", results=[as_bytes], operands=[operand.value])
        return cast.result

    def _subscripts(self, operand: Operand, at: dict[int, int]) -> list[ir.Value]:
        return [build.index(0) if d == NO_LOOP else self.indices[d, at[d]] for d in operand.dims]

    def _load(self, operand: Operand, at: dict[int, int]) -> ir.Value:
        """The operand's scalar or vector at these unroll offsets, in its register type."""
        if operand.is_scalar:
            return self.evaluator.to_register(operand.value)
        source = self.memory[operand.number]
        kind = "none" if self.v == NO_LOOP else operand.stride_kind(self.v)
        element = source.type.element_type
        if kind == "none":
            value = memref.LoadOp(source, self._subscripts(operand, at)).result
        else:
            mask = self.tiles[self.v].mask
            type_ = ir.VectorType.get([self.lanes], element)
            if kind == "unit" and mask is None:
                value = vector.LoadOp(type_, source, self._subscripts(operand, at)).result
                self._ask_ahead(operand, at)
            elif kind == "unit":
                zeros = self._zeros(element)
                value = vector.MaskedLoadOp(type_, source, self._subscripts(operand, at), mask, zeros).result
            else:
                flat, base, lane_offsets = self._strided(operand, at)
                value = vector.GatherOp(type_, flat, [base], lane_offsets, self._mask(), self._zeros(element)).result
        return self.evaluator.from_memory(value, operand.element)

    def _ask_ahead(self, operand: Operand, at: dict[int, int]) -> None:
        """Asks for what a streamed operand is read at later; where that is past its end it does no harm."""
        found = self.ahead.get(operand.number)
        if found is not None:
            position, rows = found
            subscripts = self._subscripts(operand, at)
            subscripts[position] = arith.addi(subscripts[position], build.index(rows))
            memref.PrefetchOp(self.memory[operand.number], subscripts, False, L2, True)

    def _store(self, operand: Operand, value: ir.Value, at: dict[int, int]) -> None:
        target = self.memory[operand.number]
        kind = "none" if self.v == NO_LOOP else operand.stride_kind(self.v)
        if kind == "none":
            memref.StoreOp(self.evaluator.to_memory(value, operand.element), target, self._subscripts(operand, at))
            return
        stored = self.evaluator.to_memory(self.evaluator.broadcast(value), operand.element)
        mask = self.tiles[self.v].mask
        if kind == "unit" and mask is None:
            vector.StoreOp(stored, target, self._subscripts(operand, at))
        elif kind == "unit":
            vector.MaskedStoreOp(target, self._subscripts(operand, at), mask, stored)
        else:
            flat, base, lane_offsets = self._strided(operand, at)
            vector.ScatterOp(None, flat, [base], lane_offsets, self._mask(), stored)

    def _mask(self) -> ir.Value:
        mask = self.tiles[self.v].mask
        return self.evaluator.broadcast(build.constant(ir.IntegerType.get_signless(1), 1)) if mask is None else mask

    def _zeros(self, element: ir.Type) -> ir.Value:
        return self.evaluator.broadcast(build.constant(element, 0))

    def _strided(self, operand: Operand, at: dict[int, int]) -> tuple[ir.Value, ir.Value, ir.Value]:
        """A buffer as one flat run of elements, the position in it, and the lanes' offsets from there."""
        source = self.memory[operand.number]
        rank = len(operand.dims)
        meta = memref.ExtractStridedMetadataOp(source)
        offset, strides = meta.results[1], list(meta.results)[2 + rank : 2 + 2 * rank]
        position = build.index(0)
        for subscript, stride in zip(self._subscripts(operand, at), strides, strict=True):
            position = arith.addi(position, arith.muli(subscript, stride))
        stride = strides[operand.dims.index(self.v)]
        dynamic = ir.ShapedType.get_dynamic_size()
        layout = ir.Attribute.parse("strided<[1], offset: ?>")
        flat_type = ir.MemRefType.get([dynamic], source.type.element_type, layout, source.type.memory_space)
        extent = build.index(1 << 40)  # the accesses stay inside, by the bounds of the loops
        flat = memref.ReinterpretCastOp(
            flat_type, meta.results[0], [offset], [extent], [], [DYNAMIC_OFFSET], [dynamic], [1]
        ).result
        lane = arith.muli(self._step(ir.IndexType.get()), self.evaluator.broadcast(stride))
        return flat, position, lane


DYNAMIC_OFFSET = ir.ShapedType.get_dynamic_size()
