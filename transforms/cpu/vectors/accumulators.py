"""The accumulators of a register tile: what they start from, how partial results come together, how they are stored.

They are loaded before the loops of a reduction, carried through them, and stored after them. If the lanes run along a
reduction ("split"), they are vectors of partial results, combined after the loops.
"""

import dataclasses
import functools
import itertools
from collections.abc import Callable, Sequence

from ....dialects import build
from ....dialects.mlir import arith, ir, vector
from ..structured import NO_LOOP, Operand, Structured
from .combiners import Combiner, combiner
from .operand_access import OperandAccess, buffer
from .register_tile import Key, Offsets, RegisterTile
from .scalar_body import ORDERED, BodyEvaluator, register_type
from .schedule import Schedule
from .shuffles import sum_of_lanes


class Accumulators:
    """Those of one op. A key is an operand's number, and unroll offsets of its loops and of the chain."""

    def __init__(
        self,
        op: Structured,
        schedule: Schedule,
        tile: RegisterTile,
        access: OperandAccess,
        initial: dict[int, float | int | Structured],
    ):
        """`initial`: what accumulators start from, by operand number: constants, or updates of what is read."""
        self.op = op
        self.schedule = schedule
        self.tile = tile
        self.access = access
        self.v, self.lanes = schedule.vector_loop, schedule.lanes
        self.constants = {n: x for n, x in initial.items() if not isinstance(x, Structured)}
        self.updates = {n: x for n, x in initial.items() if isinstance(x, Structured)}
        found = {o.number: combiner(op, o) for o in op.outputs}
        self.combiners: dict[int, Combiner] = {n: c for n, c in found.items() if c is not None}
        self.outputs = [out for out in op.outputs if op.is_accumulator(out)]
        self.is_split = self.v != NO_LOOP and not op.is_parallel(self.v)

    def keys(self) -> list[Key]:
        return [(out.number, offsets) for out in self.outputs for offsets in self._offsets(out)]

    def key(self, out: Operand, point: Offsets) -> Key:
        """The accumulator that a point of the register tile adds to."""
        chain = sum([point[d] for d in self.op.reductions]) % self._chains(out)
        return out.number, (*[point[d] % self._count(d) for d in self._loops(out)], chain)

    def is_vector(self, out: Operand) -> bool:
        return self.v != NO_LOOP and (self.is_split or self.v in out.loops)

    def start(self) -> list[ir.Value]:
        """The values before the reduction loops, in the order of `keys`."""
        self.initial: dict[Key, ir.Value] = {}
        values = []
        for out in self.outputs:
            late = self._is_late(out)
            for offsets in self.tile.offsets(sorted(out.loops)) if not late else ():
                self.initial[out.number, offsets] = self._initial(out, self.tile.at(out.loops, offsets))
            for offsets in self._offsets(out):
                at = dict(zip(self._loops(out), offsets[:-1], strict=True))
                if self.is_split or late or offsets[-1]:
                    value = build.constant(register_type(out.element), self.combiners[out.number].neutral)
                    value = self._broadcast(value) if self.is_vector(out) else value
                else:
                    value = self.initial[out.number, tuple(at[d] for d in sorted(out.loops))]
                values.append(value)
        return values

    def finish(self, final: Sequence[ir.Value], follow: Callable[[dict[Key, ir.Value]], None] | None = None) -> None:
        """Combines and stores what the reduction loops left. Before it is stored `follow` is given it, but for lanes
        that come together, without the chain in the keys."""
        values = dict(zip(self.keys(), final, strict=True))
        for out in self.outputs:
            run = self._run(out) if self.is_split and out.number not in self.updates else None
            all_at = [self.tile.at(out.loops, offsets) for offsets in self.tile.offsets(sorted(out.loops))]
            if run is not None:
                self._store_runs(out, run, [at for at in all_at if at[run] == 0], values)
                continue
            results = {}
            for at in all_at:
                offsets = tuple(at[d] for d in sorted(out.loops))
                results[out.number, offsets] = self._total(out, offsets, self._parts(out, at, values))
            if follow is not None:
                follow(results)
            for at, total in zip(all_at, results.values(), strict=True):
                self.access.store(out, total, at)

    def _total(self, out: Operand, offsets: Offsets, parts: list[ir.Value]) -> ir.Value:
        if self.is_split:
            how = self.combiners[out.number]
            return _exact(how, self.initial[out.number, offsets], self._combine(how, parts))
        if self._is_late(out):
            parts = [self._initial(out, self.tile.at(out.loops, offsets)), *parts]
        total, *others = parts
        for other in others:
            total = _exact(self.combiners[out.number], total, other)
        return total

    # --- which there are

    def _chains(self, out: Operand) -> int:
        """How many partial results of an element are computed in turn; they are combined after the loops."""
        return self.schedule.chains if out.number in self.combiners and not self.is_split else 1

    def _offsets(self, out: Operand) -> list[Offsets]:
        """Unroll offsets along the loops of the accumulator, and the chain."""
        counts = [self._count(d) for d in self._loops(out)]
        return list(itertools.product(*(range(n) for n in [*counts, self._chains(out)])))

    def _count(self, d: int) -> int:
        if d != self.v or self.op.is_parallel(d):
            return self.tile.count(d)
        # Partial results along the lanes: as many as full tiles have, also in the loop over the rest.
        size, count = self.op.sizes[d], self.schedule.chains
        return max(1, min(count, size // self.lanes)) if size is not None else count

    def _loops(self, out: Operand) -> list[int]:
        """Its own loops, and the one of the lanes, whose unrolled vectors have partial results of their own."""
        return sorted(out.loops | ({self.v} if self.is_split else set()))

    def _parts(self, out: Operand, at: dict[int, int], values: dict[Key, ir.Value]) -> list[ir.Value]:
        """The partial results of an element: one for each chain, or unrolled vector along the lanes."""
        counts = [(at[d],) if d in out.loops else range(self._count(d)) for d in self._loops(out)]
        offsets = itertools.product(*counts, range(self._chains(out)))
        return [values[out.number, o] for o in offsets]

    # --- what they start from

    def _is_late(self, out: Operand) -> bool:
        """True if what was accumulated before is added after the sum: a sum of sums rounds less than one long chain."""
        return out.number not in self.constants and out.number in self.combiners and not self.is_split

    def _initial(self, out: Operand, at: dict[int, int]) -> ir.Value:
        if out.number in self.updates:
            return self._updated(self.updates[out.number], out, at)
        if out.number not in self.constants:
            return self.access.load(out, at)
        value = build.constant(register_type(out.element), self.constants[out.number])
        return self._broadcast(value) if self.v in out.loops else value

    def _updated(self, update: Structured, out: Operand, at: dict[int, int]) -> ir.Value:
        """What an element-wise op makes of the accumulator; its loops are those of the accumulator's dimensions."""
        loops = dict(zip(update.outputs[0].dims, out.dims, strict=True))
        values = {}
        for operand in update.operands:
            if operand.is_read:
                dims = tuple(loops.get(d, NO_LOOP) for d in operand.dims)
                moved = dataclasses.replace(operand, number=len(self.access.buffers), dims=dims)
                self.access.buffers[moved.number] = buffer(moved)
                values[operand.number] = self.access.load(moved, {d: at[d] for d in moved.loops})
                del self.access.buffers[moved.number]
        (value,) = BodyEvaluator(update, self.lanes).evaluate(values, (), lambda *_: build.index(0))
        return self._broadcast(value) if self.v in out.loops else value

    def _broadcast(self, value: ir.Value) -> ir.Value:
        return self.access.evaluator.broadcast(value)

    # --- how they come together

    def _run(self, out: Operand) -> int | None:
        """The loop along which the tile has a vector of elements of `out` that lie side by side, or one of each place;
        None without one."""
        loop = out.dims[-1] if out.dims else NO_LOOP
        if self.schedule.places in out.loops:
            loop = self.schedule.places
        elif loop == NO_LOOP or out.strides[-1] != 1:
            return None
        count = self.tile.count(loop)
        return loop if 2 <= count <= self.lanes and count & (count - 1) == 0 else None

    def _store_runs(self, out: Operand, run: int, firsts: list[dict[int, int]], values: dict[Key, ir.Value]) -> None:
        """Combines the lanes of many elements together: neighbours, or one of each place, of which `firsts` are the
        first ones, come out as one vector, as many runs of them at once as there are lanes for."""
        how = self.combiners[out.number]
        combine = functools.partial(_pairwise, how)
        count = self.tile.count(run)
        while firsts:
            runs = 1 << (min(len(firsts), self.lanes // count).bit_length() - 1)
            rows = [
                functools.reduce(combine, self._parts(out, first | {run: i}, values))
                for first in firsts[:runs]
                for i in range(count)
            ]
            totals = sum_of_lanes(rows, combine)
            for number, first in enumerate(firsts[:runs]):
                if run == self.schedule.places:
                    for i in range(count):
                        self._store_lane(out, totals, number * count + i, first | {run: i})
                    continue
                total = totals
                if runs > 1:
                    kind = ir.VectorType.get([count], totals.type.element_type)
                    total = vector.extract_strided_slice(kind, totals, [number * count], [count], [1])
                if self.constants.get(out.number) != how.neutral:
                    total = _exact(how, self._run_before(out, first, count), total)
                self.access.store_run(out, total, first)
            firsts = firsts[runs:]

    def _store_lane(self, out: Operand, totals: ir.Value, lane: int, at: dict[int, int]) -> None:
        """Stores one of the results that came together."""
        how = self.combiners[out.number]
        total = vector.extract(totals, [], [lane])
        if self.constants.get(out.number) != how.neutral:
            total = _exact(how, self._initial(out, at), total)
        self.access.store(out, total, at)

    def _run_before(self, out: Operand, first: dict[int, int], count: int) -> ir.Value:
        """What neighbouring elements start from."""
        if out.number not in self.constants:
            return self.access.load_run(out, first, count)
        element = register_type(out.element)
        constant = build.constant(element, self.constants[out.number])
        return vector.BroadcastOp(ir.VectorType.get([count], element), constant).result

    def _combine(self, how: Combiner, parts: list[ir.Value]) -> ir.Value:
        """The partial results in all lanes of all parts, as a scalar."""
        while len(parts) > 1:
            parts = [
                _pairwise(how, *parts[i : i + 2]) if i + 1 < len(parts) else parts[i] for i in range(0, len(parts), 2)
            ]
        (total,) = parts
        lanes = self.lanes
        while lanes > 1:  # halves, as a tree
            lanes //= 2
            kind = ir.VectorType.get([lanes], total.type.element_type)
            halves = (vector.extract_strided_slice(kind, total, [at], [lanes], [1]) for at in (0, lanes))
            total = _pairwise(how, *halves)
        return vector.extract(total, [], [0])


def _exact(how: Combiner, a: ir.Value, b: ir.Value) -> ir.Value:
    return ir.Operation.create(how.op, results=[a.type], operands=[a, b]).result


def _pairwise(how: Combiner, a: ir.Value, b: ir.Value) -> ir.Value:
    """Of partial results, which are numbers, or NaN for good."""
    if how.op in ORDERED:
        return arith.select(arith.cmpf(ORDERED[how.op], a, b), a, b)
    return _exact(how, a, b)
