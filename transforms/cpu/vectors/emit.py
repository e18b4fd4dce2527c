"""Emits a structured op as loops over register tiles in the vector dialect, following a schedule.

One mechanism serves contractions, element-wise ops and reductions:

- Every loop of the schedule becomes a main loop over full tiles and, where tiles do not divide the size, a second one
  over the rest: single iterations, or masked vectors along the loop of the lanes.
- Operands are loaded where the innermost of their loops is entered, so that what does not depend on an inner loop
  stays in registers (`operand_access`).
- Accumulators are loaded before the reduction loops, carried through them, and stored after them (`accumulators`).
- The scalar body is evaluated per point of the register tile; a value is a scalar until it meets a vector
  (`scalar_body`).
- Narrow floats are f32 in registers.
"""

import functools
import math
from collections.abc import Callable, Sequence

from ....dialects import build
from ....dialects.mlir import arith, ir, scf, vector
from ..structured import Operand, Structured
from .accumulators import Accumulators
from .buffer_parts import size_of
from .followers import Followed
from .lane_comparisons import compared
from .multiples import is_multiple
from .operand_access import OperandAccess
from .prefetch import APART, BURST, MOST_LINES, Stream
from .register_tile import Key, Offsets, RegisterTile
from .scalar_body import BodyEvaluator
from .schedule import Schedule


class Emitter:
    """Emits one op at the current insertion point."""

    def __init__(
        self,
        op: Structured,
        schedule: Schedule,
        initial: dict[int, float | int | Structured],
        streams: Sequence[Stream] = (),
        asks_l2: bool = False,
        following: Structured | None = None,
    ):
        """`initial`: what accumulators start from, by operand number: constants, or updates of what is read.

        `streams`: what is prefetched, evenly over the register tiles. `asks_l2`: see `Target`. `following`: what is
        done with the results of a register tile, see `followers`.
        """
        self.op = op
        self.schedule = schedule
        self.v, self.lanes = schedule.vector_loop, schedule.lanes
        self.loaded: dict[Key, ir.Value] = {}
        self.n_parallel = sum(op.is_parallel(d) for d in schedule.order)
        numbers = [n for n, x in initial.items() if not isinstance(x, Structured) and x == x]  # no NaN
        self.evaluator = BodyEvaluator(op, self.lanes, [op.body.arguments[n] for n in numbers])
        self.tile = RegisterTile(schedule)
        self.access = OperandAccess(op, schedule, self.tile, self.evaluator, asks_l2)
        self.accumulators = Accumulators(op, schedule, self.tile, self.access, initial)
        self.followed = Followed(op, following, self.tile, self.access, self.lanes) if following is not None else None
        self.streams = [] if self.access.ahead or self.access.blocks else streams  # once is enough

    def emit(self) -> None:
        with build.sharing():
            self.bounds = {d: self.op.size(d) for d in range(self.op.n_loops)}
            self._enter(None)
            self._parallel(0)

    # --- loops

    def _parallel(self, level: int) -> list[ir.Value]:
        if level < self.n_parallel:
            return self._loops(level, [], lambda _: self._parallel(level + 1))
        bursts = self._bursts(level)
        if bursts == 1:
            self._prefetch(build.index(0), 1)
        sums = self._reduction if bursts == 1 else functools.partial(self._reduction_in, bursts)
        follow = None if self.followed is None else self.followed.emit
        self.accumulators.finish(sums(level, self.accumulators.start()), follow)
        return []

    def _reduction_in(self, bursts: int, level: int, accumulators: list[ir.Value]) -> list[ir.Value]:
        """The loop of a sum in as many parts, each after its burst of what is prefetched."""
        d = self.schedule.order[level]
        size = (self.op.sizes[d] or 0) // bursts
        loop = scf.ForOp(build.index(0), build.index(bursts), build.index(1), accumulators)
        with ir.InsertionPoint(loop.body):
            number = loop.induction_variable
            self._prefetch(number, bursts)
            first = arith.muli(number, build.index(size))
            end = arith.addi(first, build.index(size))
            count = self.schedule.unroll.get(d, 1)
            body = functools.partial(self._reduction, level + 1)
            sums = list(loop.inner_iter_args)
            scf.YieldOp(self._loop(d, first, end, count * self.tile.width(d), count, False, sums, body))
        return list(loop.operation.results)

    def _bursts(self, level: int) -> int:
        """In how many parts the sum at this level goes, so that few lines at a time are prefetched before them."""
        if not self.streams or not self.n_parallel or level != len(self.schedule.order) - 1:
            return 1
        d = self.schedule.order[level]
        steps, rest = divmod(self.op.sizes[d] or 1, self.schedule.unroll.get(d, 1) * self.tile.width(d))
        lines, bursts = sum(stream.share(*self._share_of(stream)) for stream in self.streams), 1
        while lines > BURST * bursts and not rest and steps % (2 * bursts) == 0 and steps >= 2 * bursts * APART:
            bursts *= 2
        return bursts

    def _reduction(self, level: int, accumulators: list[ir.Value]) -> list[ir.Value]:
        if level == len(self.schedule.order):
            return self._points(accumulators)
        return self._loops(level, accumulators, lambda inner: self._reduction(level + 1, inner))

    def _loops(self, level: int, carried: list[ir.Value], body: Callable) -> list[ir.Value]:
        """The loop over full tiles and the one over the rest; `body` gets and returns what is carried."""
        d = self.schedule.order[level]
        size, width = self.op.sizes[d], self.tile.width(d)
        count = self.schedule.unroll.get(d, 1)
        if size is not None and count * width > size:
            count = max(1, size // width)
        step = count * width
        if size is not None:
            main_end: int | ir.Value = size // step * step
        elif step == 1 or self._is_multiple(d, step):
            main_end = self.bounds[d]
        else:
            rest = arith.remui(self.bounds[d], build.index(step))
            main_end = arith.subi(self.bounds[d], rest)
        carried = self._loop(d, 0, main_end, step, count, False, carried, body)
        if main_end is self.bounds[d] or (size is not None and size == main_end):
            return carried
        if d == self.v:  # whole vectors that fill no tile come in the masked loop too
            return self._loop(d, main_end, self._bound(d), width, 1, True, carried, body)
        rest = size - size // step * step if size is not None and self.op.is_parallel(d) else 1
        return self._loop(d, main_end, self._bound(d), rest, rest, False, carried, body)

    def _is_multiple(self, d: int, step: int) -> bool:
        """True if a dynamic size is seen to be a multiple of `step`."""
        operand = next(o for o in self.op.operands if d in o.loops)
        size = size_of(operand.value, operand.dims.index(d))
        return size is not None and is_multiple(size, step)

    def _prefetch(self, number: ir.Value, bursts: int) -> None:
        """A burst of this register tile's share, by where it stands in the parallel loops."""
        if not self.streams or not self.n_parallel:
            return
        *outer, last = self._shared_loops()
        for stream in self.streams:
            step, total = self._share_of(stream)
            if stream.share(step, total * bursts) > MOST_LINES:
                continue
            size = self.op.sizes[last] or stream.rows
            done = self.tile.spans[last].base
            for d in reversed(outer):
                row = arith.divui(self.tile.spans[d].base, build.index(self._step(d)))
                done = arith.addi(done, arith.muli(row, build.index(size)))
                size *= self._steps(d)
            first = arith.addi(arith.muli(done, build.index(bursts)), arith.muli(number, build.index(step)))
            stream.emit(first, step, total * bursts)

    def _share_of(self, stream: Stream) -> tuple[int, int]:
        """How many iterations of the innermost of the parallel loops the register tile is, and of how many, over all
        of these loops."""
        *outer, last = self._shared_loops()
        total = (self.op.sizes[last] or stream.rows) * math.prod(self._steps(d) for d in outer)
        return self.tile.count(last) * self.tile.width(last), total

    def _shared_loops(self) -> list[int]:
        """The parallel loops whose iterations share what is prefetched: the innermost one, and outer ones that are
        known to take several steps."""
        *outer, last = self.schedule.order[: self.n_parallel]
        return [*(d for d in outer if self.op.sizes[d] is not None and self._steps(d) > 1), last]

    def _step(self, d: int) -> int:
        return self.schedule.unroll.get(d, 1) * self.tile.width(d)

    def _steps(self, d: int) -> int:
        return -(-(self.op.sizes[d] or 1) // self._step(d))

    def _bound(self, d: int) -> int | ir.Value:
        return self.bounds[d] if self.op.sizes[d] is None else self.op.sizes[d]

    def _loop(self, d, start, end, step, count, masked, carried, body) -> list[ir.Value]:
        if isinstance(start, int) and isinstance(end, int):
            if start >= end:
                return carried
            if end - start <= step:  # one iteration
                return self._iteration(d, build.index(start), count, masked, carried, body)
        start, end = map(build.as_index, (start, end))
        loop = scf.ForOp(start, end, build.index(step), carried)
        with ir.InsertionPoint(loop.body):
            results = self._iteration(d, loop.induction_variable, count, masked, list(loop.inner_iter_args), body)
            scf.YieldOp(results)
        return list(loop.operation.results)

    def _iteration(self, d, base, count, masked, carried, body) -> list[ir.Value]:
        saved = dict(self.loaded)
        with self.tile.along(d, base, count, self.bounds[d] if masked else None):
            self._enter(d)
            results = body(carried)
        self.loaded = saved
        return results

    def _enter(self, d: int | None) -> None:
        """Loads the operands whose innermost loop was just entered."""
        for operand in self.op.operands:
            if not operand.is_read or (operand.is_output and self.op.is_accumulator(operand)):
                continue
            loops = [loop for loop in self.schedule.order if loop in operand.loops]
            if (loops[-1] if loops else None) == d and not self._is_late(operand):
                self.loaded |= self.access.load_all(operand)

    def _is_late(self, operand: Operand) -> bool:
        """True for what is loaded right before its first use: vectors that are read ahead, as later ones are asked for
        there, and what registers would not hold all of: elements that come by two, and where they are few, all that is
        multiplied by such vectors, as no load passes a request."""
        is_ahead = operand.number in self.access.ahead or operand.number in self.schedule.by_two | self.schedule.anew
        is_ahead |= self.schedule.rows_in_turn and bool(self.access.ahead)
        return is_ahead and self.schedule.order[-1] in operand.loops

    # --- the body

    def _points(self, values: list[ir.Value]) -> list[ir.Value]:
        """Evaluates the body at every point of the register tile; takes and returns the accumulators' values."""
        keys = self.accumulators.keys()
        current = dict(zip(keys, values, strict=True))
        anew = self.schedule.anew
        operands = sorted(self.op.operands, key=lambda operand: operand.number in anew)  # before the fence of a vector
        loops = {operand.number: sorted(operand.loops) for operand in operands}
        columns, column = self._columns(), None
        for point in self._in_order():
            inputs = {}
            if anew and [point[d] for d in columns] != column:
                self.loaded = self.access.without(anew, self.loaded)
                column = [point[d] for d in columns]
            for operand in operands:
                if not operand.is_read:
                    continue
                if operand.is_output and self.op.is_accumulator(operand):
                    inputs[operand.number] = current[self.accumulators.key(operand, point)]
                else:
                    key = operand.number, tuple([point[d] for d in loops[operand.number]])
                    if key not in self.loaded:
                        self.loaded |= self.access.load_late(operand, self.tile.at(operand.loops, key[1]))
                    inputs[operand.number] = self.loaded[key]
            results = self.evaluator.evaluate(inputs, point, self._index, self._compared)
            for out, value in zip(self.op.outputs, results, strict=True):
                if self.op.is_accumulator(out):
                    key = self.accumulators.key(out, point)
                    if self.accumulators.is_vector(out):
                        value = self.evaluator.broadcast(value)
                    if self.accumulators.is_split and self.tile.mask is not None:
                        value = arith.select(self.tile.mask, value, current[key])
                    current[key] = value
                else:
                    self.access.store(out, value, {d: point[d] for d in out.loops})
        return [current[k] for k in keys]

    def _in_order(self) -> list[Offsets]:
        """The points of the register tile, so that those which add to one accumulator are far apart; where registers
        are few, all vectors of a row before the next row, whose element is then needed only for them."""
        loops = range(self.op.n_loops)
        outer = self._columns() if self.schedule.anew else [*self.op.reductions]
        if self.schedule.rows_in_turn:
            outer += [d for d in loops if d != self.v]
        return sorted(self.tile.offsets(loops), key=lambda point: [point[d] for d in outer])

    def _columns(self) -> list[int]:
        """The loops of which all points of a column of the register tile have the same iteration: a step of each sum,
        and a vector."""
        return [*self.op.reductions, self.v]

    def _compared(self, inner: ir.Operation, point: Offsets) -> ir.Value | None:
        return compared(self.op, inner, self.tile, point)

    def _index(self, d: int, point: Offsets) -> ir.Value:
        base = self.tile.indices[d, point[d]]
        if d != self.v:
            return base
        steps = vector.StepOp(ir.VectorType.get([self.lanes], ir.IndexType.get())).result
        return arith.addi(self.evaluator.broadcast(base), steps)
