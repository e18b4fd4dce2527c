"""The pass ``donated-writes``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from ....dialects import build
from ....dialects.build import PARALLEL, REDUCTION
from ....dialects.linalg_ext import PutOp
from ....dialects.mlir import arith, ir, linalg, tensor
from ...donated import donated_arguments
from ...graph import ancestor_in
from ...passes import Pass
from ...reshapes import RESHAPES
from ...rewriting import (
    copy_op,
    defining_op,
    erase_dead,
    for_inits,
    functions_of,
    is_constant,
    is_made_inside,
    ops_of,
    terminator,
)
from ...slices import Size, slice_parts
from ..axes import kept_dims
from .align_rows import is_known
from .split_writes import split_writes
from .write_loops import SIZE, can_be_copied, write_loops

PUT = "linalg_ext.put"


@dataclass(frozen=True)
class DonatedWrites(Pass):
    """Has windows that are written into an argument that is donated put there, element by element: the new tokens of a
    cache, at places that may come from a tensor::

        %r = scf.for %n = 0 to 3 step 1 iter_args(%out = %cache) -> (tensor<8x16xf32>) {
          %i = index_cast tensor.extract %at[%n]
          %w = scf.if 0 ≤ %i < 8 {
            %u = tensor.extract_slice %new[%n, 0] [1, 16] [1, 1] : tensor<3x16xf32> to tensor<16xf32>
            yield tensor.insert_slice %u into %out[%i, 0] [1, 16] [1, 1]
          } else { yield %out }
          yield %w
        }
      becomes
        %last = linalg.generic {iterator_types = ["parallel", "reduction"]} ins(%at, %at) outs(%true) {
          ^bb0(%i, %j, %so_far):                                    // no later one is put at the same place
            yield %so_far and not (index 1 > index 0 and %i = %j and 0 ≤ %j < 8)
        } -> tensor<3xi1>
        %values, %places = linalg.generic {iterator_types = ["parallel", "parallel"]} ins(%new, %at, %last) {
          ^bb0(%x, %i, %is_last):
            yield %x, select(0 ≤ %i < 8 and %is_last, 16·%i + index 1, −1)
        } -> (tensor<3x16xf32>, tensor<3x16xi64>)
        %r = linalg_ext.put ins(%values, %places) outs(%cache)

    ``outline-elements`` makes a kernel of the last two, which writes the memory of the argument. A single window, and
    those that a loop puts at as many places, need no search; neither does a ``tensor.insert_slice``. Windows may be
    larger than an element only where they are not placed by what the loops compute, or two might overlap by a part.
    Where anything else reads the argument it stays as it is, and the result is a new tensor.
    """

    def run(self, op: ir.Operation) -> None:
        for function in functions_of(op):
            block, donated = function.regions[0].blocks[0], donated_arguments(function)
            if donated:
                split_writes(block)
            for writer in ops_of(block) if donated else []:
                if (write := _Write.of(writer)) is None or not write.is_allowed(donated):
                    continue
                with ir.InsertionPoint(writer), writer.location:
                    result = write.put()
                if result is not None:
                    writer.results[0].replace_all_uses_with(result)
                    writer.erase()
            if donated:
                erase_dead(block)


@dataclass
class _Write:
    """An insertion into `target`, in `writer`: loops, one in the other, a branch, or neither."""

    writer: ir.Operation
    insertion: ir.Operation
    target: ir.Value
    states: list[ir.Value]  # what the target is there
    inductions: list[ir.Value]
    counts: list[Size]  # of the iterations of each loop
    conditions: list[ir.Value]  # that all hold where it is done
    offsets: list[Size] = field(init=False)
    sizes: list[Size] = field(init=False)
    argument: ir.Value = field(init=False)
    views: list[ir.Operation] = field(default_factory=list)  # reshapes of it, of the last of which the target is

    def __post_init__(self) -> None:
        self.offsets, self.sizes, _ = slice_parts(self.insertion)

    @classmethod
    def of(cls, writer: ir.Operation) -> _Write | None:
        if writer.name not in ("scf.for", "scf.if", "tensor.insert_slice") or len(writer.results) != 1:
            return None
        loops = write_loops(writer)
        if loops is None:
            return None
        value, states = loops.value, [*(for_inits(writer) if loops.carried else ()), *loops.carried]
        conditions: list[ir.Value] = []
        while (op := defining_op(value)) is not None and op.name == "scf.if" and len(op.results) == 1:
            then, other = (terminator(region.blocks[0]).operands[0] for region in op.regions)
            states = states or [other]
            if other != states[-1]:
                return None
            conditions.append(op.operands[0])
            value = then
        if op is None or op.name != "tensor.insert_slice" or not isinstance(value.type, ir.RankedTensorType):
            return None
        states = states or [op.operands[1]]
        if op.operands[1] != states[-1] or any(s != 1 for s in op.opview.static_strides):
            return None
        return cls(writer, op, states[0], states, loops.inductions, loops.counts, conditions)

    def is_allowed(self, donated: Sequence[ir.Value]) -> bool:
        """Whether the target is an argument that is donated, or what was put into one, maybe reshaped, and nothing else
        reads it."""
        value, reader = self.target, self.writer
        while True:
            readers = (use.owner.operation for use in value.uses if use.owner.operation.name != SIZE)
            if any(ancestor_in(other, self.writer.block) != reader for other in readers):
                return False
            op = defining_op(value)
            if op is None or op.name not in RESHAPES:
                self.argument = value
                return value in donated or (op is not None and op.name == PUT)
            self.views.insert(0, op)
            value, reader = op.operands[0], op

    def put(self) -> ir.Value | None:
        """What it makes, at the insertion point; None where it cannot be told which elements it writes."""
        free, windows = self._free(), self._windows()
        is_one = not free or all(self.counts[n] == 1 for n in free)
        scalars = [*self.conditions, *(o for o in self.offsets if not isinstance(o, int))]
        sizes = [*self.counts, *(self.sizes[d] for d in windows)]
        loops = len(sizes)
        here = _Body(self, dict(zip(self.inductions, range(len(self.counts)), strict=True)), sizes)
        element = here.plan_element(self.insertion.operands[0], windows)
        if element is None or not all(map(here.plan, scalars)) or not (is_one or self._are_apart()):
            return None
        last = None if is_one else self._last(free)
        extents, number_kind = build.mixed_sizes(self.target), ir.IntegerType.get_signless(64)
        kinds = self.target.type.element_type, number_kind
        inits = [build.empty(sizes, kind) for kind in kinds]

        def body(*arguments: ir.Value) -> list[ir.Value]:
            known = here.starting(arguments)
            inside = None if last is None else arguments[len(here.operands)]
            for condition in self.conditions:
                inside = _both(inside, here.scalar(condition, known))
            place = build.index(0)
            for d, (offset, extent) in enumerate(zip(self.offsets, extents, strict=True)):
                at = build.index(offset) if isinstance(offset, int) else here.scalar(offset, known)
                if d in windows:
                    at = arith.addi(at, linalg.IndexOp(windows[d]).result)
                extent = build.as_index(extent)
                if not isinstance(offset, int):
                    inside = _both(inside, arith.cmpi(arith.CmpIPredicate.ult, at, extent))
                place = arith.addi(arith.muli(place, extent), at)
            number = arith.index_cast(number_kind, place)
            if inside is not None:
                number = arith.select(inside, number, build.constant(number_kind, -1))
            return [element(known), number]

        of_counts = build.projection(loops, range(len(self.counts)))
        identity = build.projection(loops, range(loops))
        values, places = build.generic(
            [*here.operands, *([] if last is None else [last])],
            inits,
            [*here.maps(loops), *([] if last is None else [of_counts]), identity, identity],
            [PARALLEL] * loops,
            body,
        )
        result = PutOp(values, places, self.argument, result=self.argument.type).result
        for view in self.views:
            result = copy_op(view, {view.operands[0]: result}).results[0]
        return result

    def _windows(self) -> dict[int, int]:
        """The loop along each dimension of a window, after those over windows."""
        dims = [d for d in kept_dims(self.insertion, self.insertion.operands[0].type) if self.sizes[d] != 1]
        return {d: len(self.counts) + i for i, d in enumerate(dims)}

    def _free(self) -> list[int]:
        """The loops whose iterations may put windows at one place: of others the number is a place."""
        sized = zip(self.offsets, self.sizes, strict=True)
        fixed = [o for o, size in sized if size == 1 and isinstance(o, ir.Value) and o in self.inductions]
        return [n for n, induction in enumerate(self.inductions) if induction not in fixed]

    def _are_apart(self) -> bool:
        """Whether any two windows are at one place, or have nothing in common."""
        return all(isinstance(o, int) or size == 1 for o, size in zip(self.offsets, self.sizes, strict=True))

    def _last(self, free: list[int]) -> ir.Value:
        """Of each window, whether no later one is put at its place."""
        count = len(self.counts)
        sizes = [*self.counts, *(self.counts[n] for n in free)]
        loops = len(sizes)
        one = _Body(self, dict(zip(self.inductions, range(count), strict=True)), sizes)
        places = {v: count + free.index(n) if n in free else n for n, v in enumerate(self.inductions)}
        other = _Body(self, places, sizes)
        offsets = [o for o in self.offsets if isinstance(o, ir.Value)]
        for value in offsets:
            one.plan(value)
        for value in [*self.conditions, *offsets]:
            other.plan(value)
        flag = ir.IntegerType.get_signless(1)
        yes = build.constant(flag, 1)
        init = build.fill(yes, build.empty(self.counts, flag))
        others = build.fill(yes, build.empty(sizes[count:], flag))  # for its sizes

        def body(*arguments: ir.Value) -> ir.Value:
            known = one.starting(arguments)
            known_there = other.starting(arguments[len(one.operands) :])
            numbers = []
            for first in (lambda n: n, lambda n: count + free.index(n)):
                indices = (linalg.IndexOp(first(n)).result for n in free)
                numbers.append(build.number_of(indices, [self.counts[n] for n in free]))
            is_lost = arith.cmpi(arith.CmpIPredicate.ult, *numbers)
            for value in offsets:
                at, there = one.scalar(value, known), other.scalar(value, known_there)
                is_lost = arith.andi(is_lost, arith.cmpi(arith.CmpIPredicate.eq, at, there))
            for condition in self.conditions:
                is_lost = arith.andi(is_lost, other.scalar(condition, known_there))
            return arith.andi(arguments[-1], arith.xori(is_lost, build.constant(flag, 1)))

        (last,) = build.generic(
            [*one.operands, *other.operands, others],
            [init],
            [
                *one.maps(loops),
                *other.maps(loops),
                build.projection(loops, range(count, loops)),
                build.projection(loops, range(count)),
            ],
            [PARALLEL] * count + [REDUCTION] * len(free),
            body,
        )
        return last


class _Body:
    """What is computed of numbers, in the body of a linalg.generic, whose loops have these `sizes`; `loops` has them
    for those of the writer. Elements of tensors that they run along are read by operands."""

    def __init__(self, write: _Write, loops: Mapping[ir.Value, int], sizes: Sequence[Size]):
        self.write, self.loops, self.sizes = write, loops, sizes
        self.operands: list[ir.Value] = []
        self._dims: list[list[int | None]] = []  # the loop along each dimension of an operand; None: there is but 0
        self._read: dict[ir.Value, int] = {}  # by which operand an element is read

    def maps(self, loops: int) -> list[ir.AffineMap]:
        zero = ir.AffineConstantExpr.get(0)
        return [
            ir.AffineMap.get(loops, 0, [zero if d is None else ir.AffineDimExpr.get(d) for d in dims])
            for dims in self._dims
        ]

    def starting(self, arguments: Sequence[ir.Value]) -> dict[ir.Value, ir.Value]:
        """What is known in the body, of its arguments."""
        return {value: arguments[number] for value, number in self._read.items()}

    def plan(self, value: ir.Value) -> bool:
        """Whether `scalar` can compute it."""
        if value in self.loops or value in self._read or not self._is_inner(value):
            return True
        op = defining_op(value)
        if op is None:
            return False
        if op.name == "tensor.extract" and not is_made_inside(op.operands[0], self.write.writer):
            dims = [self.loops.get(v, -1) for v in list(op.operands)[1:]]
            zeros = [build.constant_value(v) == 0 for v in list(op.operands)[1:]]
            found = [None if is_zero else d for d, is_zero in zip(dims, zeros, strict=True)]
            if self._runs_along(op.operands[0], found):
                self._read[value] = self._operand(op.operands[0], found)
                return True
        is_scalar = can_be_copied(op, self.write.writer, self.write.states)
        return is_scalar and all(self.plan(v) for v in op.operands if not isinstance(v.type, ir.ShapedType))

    def plan_element(
        self, source: ir.Value, windows: Mapping[int, int]
    ) -> Callable[[Mapping[ir.Value, ir.Value]], ir.Value] | None:
        """What emits the element of a window; `windows`: the loop along each dimension of it in the target."""
        kept = kept_dims(self.write.insertion, source.type)
        offsets: list[Size] = [0] * len(kept)
        inside: list[int | None] = [windows.get(d) for d in kept]
        op = defining_op(source)
        if op is not None and op.name == "tensor.extract_slice" and all(s == 1 for s in op.opview.static_strides):
            along = dict(zip(kept_dims(op, source.type), inside, strict=True))
            offsets, _, _ = slice_parts(op)
            source = op.operands[0]
            inside = [along.get(d) for d in range(source.type.rank)]
        if is_made_inside(source, self.write.writer) or source in self.write.states:
            return None
        dims = [
            self.loops.get(o, -1) if isinstance(o, ir.Value) and loop is None else loop if o == 0 else -1
            for o, loop in zip(offsets, inside, strict=True)
        ]
        if self._runs_along(source, dims):
            number = self._operand(source, dims)
            key = source  # of which elements alone are known in the body
            self._read[key] = number
            return lambda known: known[key]
        if not all(isinstance(o, int) or self.plan(o) for o in offsets):
            return None

        def emit(known: Mapping[ir.Value, ir.Value]) -> ir.Value:
            places = []
            for offset, loop in zip(offsets, inside, strict=True):
                at = build.index(offset) if isinstance(offset, int) else self.scalar(offset, dict(known))
                places.append(at if loop is None else arith.addi(at, linalg.IndexOp(loop).result))
            return tensor.extract(source, places)

        return emit

    def scalar(self, value: ir.Value, known: dict[ir.Value, ir.Value]) -> ir.Value:
        if value in known:
            return known[value]
        if value in self.loops:
            return linalg.IndexOp(self.loops[value]).result
        if not self._is_inner(value):
            return value
        op = defining_op(value)
        operands = {
            v: self._source(v) if isinstance(v.type, ir.ShapedType) else self.scalar(v, known) for v in op.operands
        }
        known[value] = copy_op(op, operands).results[0]
        return known[value]

    def _is_inner(self, value: ir.Value) -> bool:
        """Whether it is computed in the body: in the writer, or of what only the GPU knows."""
        if is_made_inside(value, self.write.writer):
            return True
        return not is_constant(value) and not is_known(value)

    def _source(self, value: ir.Value) -> ir.Value:
        """A tensor of the same sizes from outside."""
        return self.write.target if value in self.write.states else value

    def _operand(self, value: ir.Value, dims: list[int | None]) -> int:
        for number, (other, others) in enumerate(zip(self.operands, self._dims, strict=True)):
            if other == value and others == dims:
                return number
        self.operands.append(value)
        self._dims.append(dims)
        return len(self.operands) - 1

    def _runs_along(self, value: ir.Value, dims: Sequence[int | None]) -> bool:
        """Whether these loops, -1 where there is none, each go through all of a dimension."""
        shape = zip(dims, value.type.shape, strict=True)
        return all(d != -1 and (1 if d is None else self.sizes[d]) == size for d, size in shape)


def _both(a: ir.Value | None, b: ir.Value) -> ir.Value:
    return b if a is None else arith.andi(a, b)
