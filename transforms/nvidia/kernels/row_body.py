"""What threads that share a row compute of it: sums, and elements made with them; used by ``outline-rows``."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from ....dialects import build
from ....dialects.mlir import arith, ir, scf
from ....dialects.tiling.structured import dim_position, indexing_maps, iterator_types
from ...rewriting import only_if
from ...splats import filled_with
from ..architecture import WARP
from ..launching import block_number, thread_number, thread_of_block
from ..reductions import NEUTRAL, put_together
from .lanes import Atom, Lanes, NotInLanes, spread
from .producer_body import Elements, KernelArguments, ProducerBody, place_of, thread_count
from .row_groups import COLUMN, RowGroup, summed
from .row_lanes import combiner_of

MOST_THREADS = 1024
MOST_ELEMENTS, MOST_PIECES = 32, 16  # of a row that a thread keeps in registers
RESIDENT = 2048  # threads that a multiprocessor holds

Pieces: TypeAlias = Sequence[int | ir.Value]  # a thread's, by their numbers


@dataclass(frozen=True)
class Sharing:
    """`threads` of a row, side by side in a warp, or all of a block: piece after piece of `lanes` elements is one's."""

    lanes: int
    threads: int

    @staticmethod
    def choose(extents: Sequence[int], rows: int | None, lanes: int, multiprocessors: int) -> Sharing:
        """For rows of so many elements, where there are `rows` of them, if that is known.

        Several pieces for each thread: its loads are under way together, and less is put together. Of few rows each
        thread has one, since what counts is how long that takes.
        """
        pieces = max(extents) // lanes
        few = rows is not None and rows * pieces <= multiprocessors * RESIDENT
        each = 1 if few or pieces <= WARP else 2 if pieces <= 4 * WARP else 4
        return Sharing(lanes, min(1 << (-(-pieces // each) - 1).bit_length(), MOST_THREADS))

    @property
    def held(self) -> int:
        """Pieces that a thread keeps at once; of a longer row it reads so many after the other, for each op again."""
        return min(MOST_PIECES, MOST_ELEMENTS // self.lanes)

    @property
    def block(self) -> int:
        """Threads of a block."""
        return self.threads if self.threads > WARP else 8 * WARP

    @property
    def rows(self) -> int:
        """Rows of a block."""
        return self.block // self.threads


class RowBody(ProducerBody):
    """Of a group of ops, one row for each `sharing.threads` threads."""

    def __init__(self, kernel: KernelArguments, group: RowGroup, sharing: Sharing):
        super().__init__(kernel, sharing.lanes)
        self.group, self.sharing = group, sharing
        self.sums: dict[ir.Value, ir.Value] = {}
        self.columns_of: dict[tuple[int, int], tuple[Lanes, ir.Value | None]] = {}

    def compute_rows(self, sizes: Sequence[ir.Value | int], targets: Mapping[ir.Value, ir.Value]) -> None:
        """`sizes`: of the rows' dimensions. `targets`: results, and the memory that they go to."""
        shared = self.sharing
        counts = [self.kernel.scalar(s) if isinstance(s, ir.Value) else s for s in sizes]
        if shared.rows == 1:
            row, self.lane, inside = block_number(), thread_of_block(), None
        else:
            number, threads = thread_number(shared.block), build.index(shared.threads)
            row, self.lane = arith.divui(number, threads), arith.remui(number, threads)
            inside, row = _inside(row, thread_count(counts, 1))
        self.row = place_of(row, counts)
        for op in self.group.sums:
            self._add_up(op)
        for value, memory in targets.items():
            self._result(value, memory, inside)

    def _column(self, number: int | ir.Value, extent: int) -> tuple[Lanes, ir.Value | None]:
        """The indices of the thread's piece of that number, in rows of so many elements, and whether the row has it;
        None: it has. Where it does not, the indices are those of the last piece. All have what a loop counts."""
        if isinstance(number, ir.Value):
            piece = arith.addi(self.lane, arith.muli(number, build.index(self.sharing.threads)))
            return self.columns(Lanes(((Atom(piece, extent // self.lanes), 1),))), None
        key = number, extent
        if key not in self.columns_of:
            pieces, threads = extent // self.lanes, self.sharing.threads
            piece = arith.addi(self.lane, build.index(number * threads)) if number else self.lane
            inside = None
            if (number + 1) * threads > pieces:
                inside, piece = _inside(piece, build.index(pieces))
            atom = Lanes(((Atom(piece, pieces), 1),)) if pieces > 1 else Lanes()
            self.columns_of[key] = self.columns(atom), inside
        return self.columns_of[key]

    def _in_pieces(
        self, extent: int, step: Callable[[Pieces, list[ir.Value]], list[ir.Value]], *first: ir.Value
    ) -> list[ir.Value]:
        """What `step` makes of the numbers of the thread's pieces: of all of them, or in a loop of as many as it keeps
        at once, and of what it made of those before, `first` at first."""
        held, threads = self.sharing.held, self.sharing.threads
        pieces = extent // self.lanes
        each, whole = -(-pieces // threads), pieces // (held * threads)
        if each <= held:
            return step(range(each), [])
        known = dict(self.known)
        loop = scf.ForOp(build.index(0), build.index(whole * held), build.index(held), list(first))
        with ir.InsertionPoint(loop.body):
            numbers = [arith.addi(loop.induction_variable, build.index(number)) for number in range(held)]
            scf.YieldOp(step(numbers, list(loop.inner_iter_args)))
        self.known = known
        rest = range(whole * held, each)
        return step(rest, list(loop.results)) if rest else list(loop.results)

    def _add_up(self, op: ir.Operation) -> None:
        """Sums of a row, of which each thread has a part first."""
        first, kinds = len(op.operands) - len(op.results), iterator_types(op)
        places = self._place(op.results[0])
        loops = {dim_position(e): i for e, i in zip(indexing_maps(op)[first].results, places, strict=True)}
        for number, result in enumerate(op.results):
            combiner = combiner_of(op, number)
            assert combiner is not None, "a member is a sum over rows"
            running = op.regions[0].blocks[0].arguments[first + number]
            (term,) = (v for v in combiner.operands if v != running)
            combined = functools.partial(_combined, combiner.name)
            neutral = build.constant(result.type.element_type, NEUTRAL[combiner.name])

            def part(piece: int | ir.Value, term=term, combined=combined, neutral=neutral) -> ir.Value:
                self.steps = 0
                column, inside = self._column(piece, summed(op))
                of_piece = self.in_body(op, {**loops, kinds.index("reduction"): column})(term)
                part = _halved(spread(of_piece, self.lanes), combined)
                return part if inside is None else arith.select(inside, part, neutral)

            def step(pieces: Pieces, before: list[ir.Value], part=part, combined=combined) -> list[ir.Value]:
                return [functools.reduce(combined, [*before, *map(part, pieces)])]

            (mine,) = self._in_pieces(summed(op), step, neutral)
            whole = put_together(mine, combiner.name, self.sharing.threads)
            start = filled_with(op.operands[first + number])
            self.sums[result] = combined(arith.ConstantOp(whole.type, start).result, whole)

    def _place(self, value: ir.Value) -> tuple[Lanes, ...]:
        """The indices of the row, and first column, in what a member computes."""
        return tuple(Lanes() if axis in (None, COLUMN) else self.row[axis] for axis in self.group.axes[value])

    def _element(self, value: ir.Value, at: tuple[Lanes, ...]) -> Elements:
        if value not in self.sums:
            return super()._element(value, at)
        if any(a.terms != own.terms or set(a.offsets) != {0} for a, own in zip(at, self._place(value), strict=True)):
            raise NotInLanes
        return [self.sums[value]]

    def _result(self, value: ir.Value, memory: ir.Value, inside: ir.Value | None) -> None:
        axes = self.group.axes[value]
        if COLUMN not in axes:
            (number,) = self.element(value, self._place(value))
            first = arith.cmpi(arith.CmpIPredicate.eq, self.lane, build.index(0))
            with only_if(_both(first, inside)):
                self.store([number], memory, self._place(value))
            return
        extent = value.type.shape[-1]

        def step(pieces: Pieces, _: list[ir.Value]) -> list[ir.Value]:
            made = []
            for piece in pieces:
                self.steps = 0
                column, there = self._column(piece, extent)
                at = tuple(column if axis == COLUMN else i for axis, i in zip(axes, self._place(value), strict=True))
                made.append((spread(self.element(value, at), self.lanes), at, _both(there, inside)))
            for found, at, condition in made:
                with only_if(condition):
                    self.store(found, memory, at)
            return []

        self._in_pieces(extent, step)


def _combined(name: str, a: ir.Value, b: ir.Value) -> ir.Value:
    return ir.Operation.create(name, [a.type], [a, b]).result


def _halved(values: Sequence[ir.Value], combined: Callable[[ir.Value, ir.Value], ir.Value]) -> ir.Value:
    """All of them, a power of two, put together in as few steps one after the other as can be."""
    while len(values) > 1:
        values = [combined(a, b) for a, b in zip(values[::2], values[1::2], strict=True)]
    return values[0]


def _inside(number: ir.Value, count: ir.Value) -> tuple[ir.Value, ir.Value]:
    """Whether a number is below `count`, and the number, or that of the last one."""
    inside = arith.cmpi(arith.CmpIPredicate.ult, number, count)
    return inside, arith.minui(number, arith.subi(count, build.index(1)))


def _both(a: ir.Value | None, b: ir.Value | None) -> ir.Value | None:
    return arith.andi(a, b) if a is not None and b is not None else a if b is None else b
