"""The pass ``scatters-to-linalg``."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from ....dialects import build
from ....dialects.build import PARALLEL, REDUCTION
from ....dialects.mlir import arith, ir, linalg, tensor
from ....dialects.tiling.structured import all_parallel, dim_position, indexing_maps
from ...copying import copy_scalar_body
from ...extents import MIDDLING
from ...linear import DYNAMIC
from ...passes import Pass
from ...rewriting import (
    copy_op,
    defining_op,
    either,
    erase_dead,
    for_inits,
    functions_of,
    is_made_inside,
    make_while,
    ops_in,
    ops_of,
    terminator,
)
from ...slices import slice_parts
from ..axes import kept_dims
from .pieces_to_elements import within
from .split_writes import split_writes
from .write_loops import can_be_copied, write_loops

Size: TypeAlias = "ir.Value | int"
WORTH_A_LAUNCH = 1 << 23  # steps, of which 1.4 million take a microsecond

Emit: TypeAlias = "Callable[[], ir.Value]"  # at the insertion point


@dataclass(frozen=True)
class ScattersToLinalg(Pass):
    """Makes a linalg.generic of loops that write windows into a tensor, at places that only the GPU knows::

        %r = scf.for %n = 0 to 3 step 1 iter_args(%out = %a) -> (tensor<8x16xf32>) {
          %i = index_cast tensor.extract %places[%n]
          %fits = 0 ≤ %i and %i + 1 ≤ 8
          %w = scf.if %fits {
            %u = tensor.extract_slice %updates[%n, 0] [1, 16] [1, 1] : tensor<3x16xf32> to tensor<16xf32>
            yield tensor.insert_slice %u into %out[%i, 0] [1, 16] [1, 1]
          } else { yield %out }
          yield %w
        }
      becomes
        %r = linalg.generic {iterator_types = ["parallel", "parallel", "reduction"]} ins(%three) outs(%a) {
          ^bb0(%_, %out):                               // %three: a tensor of that size, for the loop's
            %i = index_cast tensor.extract %places[index 2]
            %w = scf.if %fits {
              yield scf.if index 0 = %i { yield tensor.extract %updates[index 2, index 1] } else { yield %out }
            } else { yield %out }
            yield %w
        }

    ``outline-elements`` makes a kernel of it, with a thread for each element of the result, which goes through all
    updates in their order: as in the loop the last one counts, and sums are added up alike each time. What is written
    may be computed by element from what is there. A scf.if that does one such write is a loop of one iteration.

    Of many updates that do not read what was there, the last one is found for each place, and then read::

        %last = linalg.generic {iterator_types = ["parallel", "reduction"]} ins(%three) outs(%none) {
          yield max(%found, scf.if %fits { yield scf.if index 0 = %i { yield index 1 } else { yield −1 } } else { … })
        } -> tensor<8xi64>
        %r = linalg.generic {iterator_types = ["parallel", "parallel"]} ins(%last, %a) {
          yield scf.if %n ≠ −1 { yield tensor.extract %updates[%n, index 1] } else { yield %old }
        }

    Of many that do, as gradients of an embedding, which has a row for each token, the first one is found for each
    place, and for each of them the next one at its place::

        %r = linalg.generic {iterator_types = ["parallel", "parallel"]} ins(%first, %a) {
          %w, %_ = scf.while (%sum = %old, %n = %first) %n ≠ none {
            yield %sum + tensor.extract %updates[%n, index 1], tensor.extract %next[%n]
          }
          yield %w
        }
    """

    def run(self, op: ir.Operation) -> None:
        for function in functions_of(op):
            block = function.regions[0].blocks[0]
            split_writes(block)
            writers = [o for o in ops_of(block) if o.name in ("scf.for", "scf.if")]
            for writer in writers:
                if len(writer.results) == 1 and isinstance(writer.results[0].type, ir.RankedTensorType):
                    _Writes(writer).replace()
            if writers:
                erase_dead(block)


@dataclass(frozen=True)
class _Place:
    """The index of a loop of the linalg.generic, less the offset of a window."""

    loop: int
    offset: Size = 0


@dataclass(frozen=True)
class _Write:
    """An insertion: its dimensions of which a window is a part, that part, and the plan of its elements."""

    dims: tuple[int, ...]
    offsets: tuple[Size, ...]
    sizes: tuple[Size, ...]
    new: Emit
    reads_old: bool


class _Wanted(NamedTuple):
    """A number of a write that is looked for: which one it is `of` two, and what there is in the place of none."""

    of: Callable[[ir.Value, ir.Value], ir.Value]
    sentinel: int

    @property
    def none(self) -> ir.Value:
        return build.constant(ir.IntegerType.get_signless(64), self.sentinel)

    def has_found(self, number: ir.Value) -> ir.Value:
        return arith.cmpi(arith.CmpIPredicate.ne, number, self.none)


LAST, FIRST = _Wanted(arith.maxsi, -1), _Wanted(arith.minsi, (1 << 63) - 1)


class _Writes:
    """Loops, one in the other, or a branch, whose result is to become a linalg.generic.

    The element of a value is planned before it is emitted: a plan is what emits it; None where there is none.
    """

    def __init__(self, writer: ir.Operation):
        self.writer = writer
        self.result = writer.results[0]
        self.rank = self.result.type.rank
        self.whole = tuple(map(_Place, range(self.rank)))
        self.counts: list[Size] = []  # of the iterations of each loop
        self.inductions: list[ir.Value] = []
        self.carried: list[ir.Value] = []  # what the loops have written, by loop
        self.writes: list[_Write] = []
        self.olds = 0  # plans of elements that were there
        # While a linalg.generic is emitted:
        self.out: ir.Value | None = None  # its element
        self.indices: list[ir.Value | None] = []  # of its loops
        self.known: dict[ir.Value, ir.Value] = {}  # scalars there
        self.is_search = False  # for the last write

    def replace(self) -> None:
        written, target = self._written(), self._target()
        plan = None if written is None or target is None else self._element(written, self.whole)
        if plan is None:
            return
        with ir.InsertionPoint(self.writer), self.writer.location:
            if self._many_are_lost():
                new = self._by_last_write(plan, target, self.writes[0])
            elif self._many_are_elsewhere():
                new = self._by_next_write(plan, target, self.writes[0])
            else:
                new = self._by_element(plan, target)
        self.result.replace_all_uses_with(new)
        self.writer.erase()

    def _by_element(self, plan: Emit, target: ir.Value) -> ir.Value:
        loops = self.rank + len(self.counts)
        of_writes = [_shape(self.counts)] if self.counts else []
        maps = [build.projection(loops, range(self.rank, loops))] * len(of_writes)
        empty = build.empty(build.mixed_sizes(target), self.result.type.element_type)

        def body(*scalars: ir.Value) -> ir.Value:
            return self._emitted(plan, scalars[-1], _indices(loops))

        (new,) = build.generic(
            of_writes,
            [target if self.counts else empty],
            [*maps, build.projection(loops, range(self.rank))],
            [PARALLEL] * self.rank + [REDUCTION] * len(self.counts),
            body,
        )
        return new

    def _many_are_lost(self) -> bool:
        """Whether looking for the last write of each place is much less work than doing all of them."""
        if len(self.writes) != 1 or self.writes[0].reads_old or not self.counts:
            return False
        elements, places, updates = self._numbers()
        return updates * elements > updates * places + WORTH_A_LAUNCH

    def _many_are_elsewhere(self) -> bool:
        """Whether looking for the first write of each place, and the next one after each, is much less work than going
        through all of them for each element. (Windows of more than an element might overlap by a part.)"""
        if len(self.writes) != 1 or not self.counts or any(size != 1 for size in self.writes[0].sizes):
            return False
        elements, places, updates = self._numbers()
        return updates * elements > updates * (places + updates) + 2 * WORTH_A_LAUNCH

    def _numbers(self) -> tuple[int, int, int]:
        """Of elements of the result, of places there that one write is at, and of writes."""
        sizes = [MIDDLING if s == DYNAMIC else s for s in self.result.type.shape]
        places = math.prod(sizes[d] for d in self.writes[0].dims)
        return math.prod(sizes), places, math.prod(c if isinstance(c, int) else MIDDLING for c in self.counts)

    def _by_last_write(self, plan: Emit, target: ir.Value, write: _Write) -> ir.Value:
        last = self._search(plan, target, write, LAST)

        def read(found: ir.Value, old: ir.Value) -> ir.Value:
            is_one, at = LAST.has_found(found), self._at(found)
            indices = [*_indices(self.rank), *at]
            return self._emitted(lambda: self._either(is_one, write.new, self._old), old, indices)

        return self._by_found(last, target, write, read)

    def _by_next_write(self, plan: Emit, target: ir.Value, write: _Write) -> ir.Value:
        first, following = self._search(plan, target, write, FIRST), self._following(plan, write)

        def add(found: ir.Value, old: ir.Value) -> ir.Value:
            indices = _indices(self.rank)
            loop, condition, block = make_while([old, found])
            with ir.InsertionPoint(condition):
                going = FIRST.has_found(condition.arguments[1])
                ir.Operation.create("scf.condition", [], [going, *condition.arguments])
            with ir.InsertionPoint(block):
                total, number = block.arguments
                at = self._at(number)
                new = self._emitted(write.new, total, [*indices, *at])
                ir.Operation.create("scf.yield", [], [new, tensor.extract(following, at)])
            return loop.results[0]

        return self._by_found(first, target, write, add)

    def _search(self, plan: Emit, target: ir.Value, write: _Write, wanted: _Wanted) -> ir.Value:
        """The number of the write that is wanted at each place."""
        sizes, count = build.mixed_sizes(target), len(write.dims)
        loops = count + len(self.counts)

        def search(_: ir.Value, found: ir.Value) -> ir.Value:
            inner = _indices(loops)
            return wanted.of(found, self._number_at(plan, wanted.none, write, inner[:count], inner[count:]))

        (chosen,) = build.generic(
            [_shape(self.counts)],
            [build.fill(wanted.none, build.empty([sizes[d] for d in write.dims], wanted.none.type))],
            [build.projection(loops, range(count, loops)), build.projection(loops, range(count))],
            [PARALLEL] * count + [REDUCTION] * len(self.counts),
            search,
        )
        return chosen

    def _following(self, plan: Emit, write: _Write) -> ir.Value:
        """For each write the number of the next one at its place."""
        count = len(self.counts)

        def search(_: ir.Value, __: ir.Value, found: ir.Value) -> ir.Value:
            inner = _indices(2 * count)
            number, later = (build.number_of(part, self.counts) for part in (inner[:count], inner[count:]))
            place, none = self._emitted_place(write, inner[:count]), FIRST.none
            is_later = arith.cmpi(arith.CmpIPredicate.sgt, later, number)
            at_place = self._number_at(plan, none, write, place, inner[count:])
            return FIRST.of(found, arith.select(is_later, at_place, none))

        of_writes = [build.projection(2 * count, range(first, first + count)) for first in (0, count)]
        (found,) = build.generic(
            [_shape(self.counts), _shape(self.counts)],
            [build.fill(FIRST.none, build.empty(self.counts, FIRST.none.type))],
            [*of_writes, of_writes[0]],
            [PARALLEL] * count + [REDUCTION] * count,
            search,
        )
        return found

    def _number_at(
        self, plan: Emit, none: ir.Value, write: _Write, place: Sequence[ir.Value], of_write: Sequence[ir.Value]
    ) -> ir.Value:
        """The number of a write if it is at that place, else that of none."""
        indices = [place[write.dims.index(d)] if d in write.dims else None for d in range(self.rank)]
        self.is_search = True
        number = self._emitted(plan, none, [*indices, *of_write])
        self.is_search = False
        return number

    def _emitted_place(self, write: _Write, of_write: Sequence[ir.Value]) -> list[ir.Value]:
        self.indices, self.known = [*[None] * self.rank, *of_write], {}
        return [build.as_index(self._size(offset)) for offset in write.offsets]

    def _by_found(
        self, found: ir.Value, target: ir.Value, write: _Write, read: Callable[[ir.Value, ir.Value], ir.Value]
    ) -> ir.Value:
        """The result, each element of which is read by the write that was found for its place, and what was there."""
        identity = build.projection(self.rank, range(self.rank))
        (new,) = build.generic(
            [found, target],
            [build.empty(build.mixed_sizes(target), target.type.element_type)],
            [build.projection(self.rank, write.dims), identity, identity],
            [PARALLEL] * self.rank,
            lambda number, old, _: read(number, old),
        )
        return new

    def _at(self, number: ir.Value) -> list[ir.Value]:
        """The indices of the loops of writes at one of them."""
        return build.digits(arith.index_cast(ir.IndexType.get(), number), self.counts)[1]

    def _emitted(self, plan: Emit, out: ir.Value, indices: Sequence[ir.Value | None]) -> ir.Value:
        """What a plan makes in the body of a linalg.generic, of this element, and these indices of loops: those of the
        result's dimensions, then of writes."""
        self.out, self.indices, self.known = out, list(indices), {}
        return plan()

    def _number(self) -> ir.Value:
        """Which write it is, of all."""
        number = build.number_of(self.indices[self.rank :], self.counts)
        return arith.index_cast(ir.IntegerType.get_signless(64), number)

    def _target(self) -> ir.Value | None:
        """What is written to: a tensor from outside, of the result's sizes."""
        if self.writer.name == "scf.for":
            return for_inits(self.writer)[0]
        ends = (terminator(region.blocks[0]).operands[0] for region in self.writer.regions)
        return next((v for v in ends if not self._is_inner(v)), None)

    def _written(self) -> ir.Value | None:
        """What the innermost iteration has written."""
        loops = write_loops(self.writer)
        if loops is None:
            return None
        self.counts, self.inductions, self.carried = loops.counts, loops.inductions, loops.carried
        return loops.value

    def _is_inner(self, value: ir.Value) -> bool:
        return is_made_inside(value, self.writer)

    # Elements of tensors.

    def _element(self, value: ir.Value, at: tuple[_Place, ...], window: Sequence[Size] = ()) -> Emit | None:
        """Of `value` there, in a window at these offsets."""
        if value in self.carried:
            self.olds += 1
            return self._old if at == self.whole else None
        op = defining_op(value)
        if not self._is_inner(value) and value != self.result:
            return lambda: tensor.extract(value, [self._index(place) for place in at])
        if op is None:
            return None
        if op.name == "tensor.empty":
            return lambda: build.constant(value.type.element_type, 0)
        if op.name == "linalg.fill":
            return self._scalar(op.operands[0])
        if op.name == "linalg.generic" and all_parallel(op):
            return self._computed(op, ir.OpResult(value).result_number, at, window)
        of_op = {"scf.if": self._branch, "tensor.insert_slice": self._inserted, "tensor.extract_slice": self._sliced}
        return of_op[op.name](op, at, window) if op.name in of_op and len(op.results) == 1 else None

    def _branch(self, op: ir.Operation, at: tuple[_Place, ...], window: Sequence[Size]) -> Emit | None:
        condition = self._scalar(op.operands[0])
        ends = [terminator(region.blocks[0]).operands[0] for region in op.regions]
        then, other = (self._element(v, at, window) for v in ends)
        if condition is None or then is None or other is None:
            return None
        return lambda: self._either(condition(), then, other)

    def _inserted(self, op: ir.Operation, at: tuple[_Place, ...], window: Sequence[Size]) -> Emit | None:
        source, target = op.operands[:2]
        offsets, sizes, steps = slice_parts(op)
        if at != self.whole or window or any(s != 1 for s in steps) or not self._are_known([*offsets, *sizes]):
            return None
        of_window = tuple(_Place(d, offsets[d]) for d in kept_dims(op, source.type))
        olds, new = self.olds, self._element(source, of_window, offsets)
        reads_old, old = self.olds > olds, self._element(target, at)
        if new is None or old is None:
            return None
        whole = zip(offsets, sizes, target.type.shape, strict=True)
        dims = tuple(d for d, (offset, size, extent) in enumerate(whole) if offset != 0 or size != extent)
        places, part = (tuple(of_whole[d] for d in dims) for of_whole in (offsets, sizes))
        self.writes.append(_Write(dims, places, part, new, reads_old))

        def emit() -> ir.Value:
            window_here = ([self._size(part[d]) for d in dims] for part in (offsets, sizes, steps))
            inside, _ = within([self.indices[d] for d in dims], *window_here)
            return self._either(inside, self._number if self.is_search else new, old)

        return emit

    def _sliced(self, op: ir.Operation, at: tuple[_Place, ...], window: Sequence[Size]) -> Emit | None:
        source = op.operands[0]
        offsets, sizes, steps = slice_parts(op)
        if any(s != 1 for s in steps) or not self._are_known([*offsets, *sizes]):
            return None
        kept = kept_dims(op, op.results[0].type)
        if source in self.carried:  # what is there, in the window that is written
            self.olds += 1
            same = list(offsets) == list(window) and at == tuple(_Place(d, window[d]) for d in kept)
            return self._old if same else None
        if self._is_inner(source):
            return None

        def emit() -> ir.Value:
            indices = [build.as_index(self._size(offset)) for offset in offsets]
            for d, place in zip(kept, at, strict=True):
                indices[d] = arith.addi(indices[d], self._index(place))
            return tensor.extract(source, indices)

        return emit

    def _computed(self, op: ir.Operation, number: int, at: tuple[_Place, ...], window: Sequence[Size]) -> Emit | None:
        body, maps = op.regions[0].blocks[0], indexing_maps(op)
        written = maps[len(op.operands) - len(op.results) + number].results
        loops = {dim_position(e): place for e, place in zip(written, at, strict=True)}
        arguments: dict[ir.Value, Emit] = {}
        for argument, operand, m in zip(body.arguments, op.operands, maps, strict=True):
            if not list(argument.uses):
                continue
            places = [loops.get(dim_position(e)) for e in m.results]
            if None in places:
                return None
            is_scalar = not isinstance(operand.type, ir.ShapedType)
            plan = self._scalar(operand) if is_scalar else self._element(operand, tuple(places), window)
            if plan is None:
                return None
            arguments[argument] = plan
        outer = {v: self._scalar(v) for o in ops_in(op) for v in o.operands if not is_made_inside(v, op)}
        if len(loops) != len(written) or maps[0].n_dims != len(loops) or None in outer.values():
            return None

        def emit() -> ir.Value:
            known = {argument: plan() for argument, plan in arguments.items()}
            values = copy_scalar_body(
                body,
                known,
                lambda v: outer[v](),
                lambda d: self._index(loops[d]),
                lambda o, here: tensor.extract(o.operands[0], [here(v) for v in list(o.operands)[1:]]),
            )
            return values[number]

        return emit

    def _old(self) -> ir.Value:
        assert self.out is not None, "plans are emitted in a linalg.generic"
        return self.out

    # Scalars.

    def _scalar(self, value: ir.Value) -> Emit | None:
        """What is computed of numbers, and of tensors from outside."""
        if not self._is_inner(value):
            return lambda: value
        if value in self.inductions:
            loop = self.rank + self.inductions.index(value)
            return lambda: self.indices[loop]
        op = defining_op(value)
        if op is None or not can_be_copied(op, self.writer, self.carried):
            return None
        operands = [
            functools.partial(lambda v: v, self._source(v)) if isinstance(v.type, ir.ShapedType) else self._scalar(v)
            for v in op.operands
        ]
        if None in operands:
            return None

        def emit() -> ir.Value:
            if value not in self.known:
                values = {v: plan() for v, plan in zip(op.operands, operands, strict=True)}
                self.known[value] = copy_op(op, values).results[0]
            return self.known[value]

        return emit

    def _source(self, value: ir.Value) -> ir.Value:
        """A tensor of the same sizes from outside: what the loops carry has those that it starts with."""
        return for_inits(self.writer)[0] if value in self.carried else value

    def _are_known(self, sizes: Sequence[Size]) -> bool:
        return all(isinstance(s, int) or self._scalar(s) is not None for s in sizes)

    def _size(self, size: Size) -> Size:
        return size if isinstance(size, int) else self._scalar(size)()

    def _index(self, place: _Place) -> ir.Value:
        index = self.indices[place.loop]
        return index if place.offset == 0 else arith.subi(index, build.as_index(self._size(place.offset)))

    def _either(self, condition: ir.Value, then: Emit, other: Emit) -> ir.Value:
        before = dict(self.known)

        def emit(plan: Emit) -> list[ir.Value]:
            self.known = dict(before)
            return [plan()]

        assert self.out is not None, "plans are emitted in a linalg.generic"
        (chosen,) = either(condition, [self.out.type], lambda: emit(then), lambda: emit(other))
        self.known = before
        return chosen


def _shape(sizes: Sequence[Size]) -> ir.Value:
    """A tensor of these sizes that no one reads: loops of a linalg.generic have the sizes of an operand."""
    flag = ir.IntegerType.get_signless(1)
    return build.fill(build.constant(flag, 0), build.empty(sizes, flag))


def _indices(loops: int) -> list[ir.Value]:
    """Of the loops of a linalg.generic; none may stand in a branch."""
    return [linalg.IndexOp(d).result for d in range(loops)]
