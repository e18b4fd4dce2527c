"""What one thread computes of a tensor: some elements of a row, from the arguments of the graph to the result."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ....dialects import build
from ....dialects.mlir import arith, ir
from ....dialects.tiling import Untileable
from ....dialects.tiling.structured import dim_position, indexing_maps, iterator_types, reduces, sum_of_loops
from ....dialects.tiling.tensor_ops import reassociation
from ...extents import static_extents
from ...passes import PassError
from ...reshapes import RESHAPES, VIEWS
from ...rewriting import defining_op, either, is_constant, only_if, ops_in, terminator, through
from ...slices import mixed, slice_offsets
from ...splats import is_constant_tensor, repeated_number
from ..alignment import CHUNK
from ..axes import DYNAMIC, kept_dims
from ..constants import constant_memory
from ..elements import byte_width
from ..launching import STRIDED, new_kernel, read_buffer, thread_number
from .lanes import Atom, Lanes, NotInLanes, linearised, spread

STORED = ("scf.forall", "bufferization.to_tensor")  # what kernels write
MOST_STEPS = 512  # of the ops for an element, beyond which chains go through memory instead
MOST_SUMMED = 32  # elements of a sum that a thread adds up, as of the heads of a group

Elements = list[ir.Value]  # one, which is the same for all, or one for each


class KernelArguments:
    """A kernel that is launched before `reader`, and what it is given by the host."""

    def __init__(self, reader: ir.Operation, module: ir.Operation, name: str, threads: int, any_strides: bool):
        self.reader, self.module, self.name, self.threads = reader, module, name, threads
        self.last_stride = STRIDED if any_strides else 1
        self.block = new_kernel(module, name, [])
        self.arguments: list[ir.Value] = []  # on the host
        self.places: dict[ir.Value, ir.Value] = {}  # of the kernel, for the host's

    def place(self, value: ir.Value, kind: ir.Type | None = None) -> ir.Value:
        """The kernel's argument for a value of the host."""
        if value not in self.places:
            self.arguments.append(value)
            self.places[value] = self.block.add_argument(kind or value.type, ir.Location.current)
        return self.places[value]

    def memory(self, value: ir.Value) -> ir.Value:
        """The kernel's argument for a tensor that is read."""
        if value not in self.places:
            if is_constant_tensor(value):
                with ir.InsertionPoint.at_block_begin(self.block):
                    name = f"{self.name}_constant_{len(self.places)}"
                    try:
                        self.places[value] = constant_memory(value, self.module, name)
                    except PassError:
                        raise NotInLanes from None
                return self.places[value]
            with ir.InsertionPoint(self.reader):
                buffer = read_buffer(value, self.last_stride)
            self.arguments.append(buffer)
            self.places[value] = self.places[buffer] = self.block.add_argument(buffer.type, ir.Location.current)
        return self.places[value]

    def scalar(self, value: ir.Value) -> ir.Value:
        """A number that the host knows."""
        op = defining_op(value)
        if is_constant(value):
            return op.clone().operation.results[0]
        while op is not None:
            if op.name == "tensor.extract":
                raise NotInLanes
            op = next((defining_op(v) for v in op.operands if not isinstance(v.type, ir.ShapedType)), None)
        return self.place(value)


class ProducerBody:
    """Of one tensor, `lanes` elements of a row by each thread."""

    def __init__(self, kernel: KernelArguments, lanes: int):
        self.kernel, self.lanes, self.steps = kernel, lanes, 0
        self.known: dict[tuple[ir.Value, tuple[Lanes, ...]], Elements] = {}

    def compute(self, value: ir.Value, target: ir.Value, sizes: Sequence[ir.Value | int], first: ir.Value) -> None:
        kernel = self.kernel
        inside = [kernel.scalar(s) if isinstance(s, ir.Value) else s for s in sizes]
        number = thread_number(kernel.threads, first)
        below = arith.cmpi(arith.CmpIPredicate.ult, number, thread_count(inside, self.lanes))
        with only_if(below):
            counts = [*inside[:-1], inside[-1] // self.lanes]
            *row, piece = place_of(number, counts)
            at = (*row, self.columns(piece))
            self.store(spread(self.element(value, at), self.lanes), target, at)

    def columns(self, piece: Lanes) -> Lanes:
        """The indices of a piece's elements in its row."""
        return piece.scaled(self.lanes).plus(Lanes((), tuple(range(self.lanes))))

    def store(self, found: Sequence[ir.Value], target: ir.Value, at: Sequence[Lanes]) -> None:
        """Elements side by side, from the first index on."""
        memory, kind = self.kernel.place(target), found[0].type
        if len(found) == 1:
            ir.Operation.create("memref.store", [], [found[0], memory, *(i.at(0) for i in at)])
            return
        *row, column = at
        outer = [i.at(0) for i in row]
        width = min(len(found), CHUNK // byte_width(kind))
        for start in range(0, len(found), width):
            store_piece(found[start : start + width], memory, [*outer, column.at(start)])

    def element(self, value: ir.Value, at: tuple[Lanes, ...]) -> Elements:
        """The elements of a tensor at some indices."""
        key = (value, at)
        if key not in self.known:
            self.known[key] = self._element(value, at)
        return self.known[key]

    def _element(self, value: ir.Value, at: tuple[Lanes, ...]) -> Elements:
        op = defining_op(value)
        self.steps += 1
        if self.steps > MOST_STEPS:
            raise NotInLanes
        if op is None or op.block != self.kernel.reader.block:
            return self._loaded(value, at)
        splat = repeated_number(value)
        if splat is not None:
            return [arith.ConstantOp(value.type.element_type, splat).result]
        if op.name == "tensor.cast":
            return self.element(op.operands[0], at)
        if op.name in RESHAPES:
            if not _is_known_by_lanes(op) and self._is_stored(through(value, *RESHAPES)):
                return self._loaded(value, at)
            return self.element(op.operands[0], _before_reshape(op, at))
        if op.name == "tensor.extract_slice":
            return self._sliced(op, at)
        if op.name == "tensor.concat":
            return self._concatenated(op, at)
        if op.name == "tensor.empty":
            raise NotInLanes
        if is_elementwise(op):
            return self._computed(op, list(op.results).index(value), at)
        if sums_few(op) and [d for d, i in enumerate(at) if i.varies] in ([], [len(at) - 1]):
            return self._summed(op, at)
        if op.name in ("tensor.pad", "tensor.insert_slice"):
            raise NotInLanes  # ``pieces-to-elements`` can
        return self._loaded(value, at)

    def _is_stored(self, value: ir.Value) -> bool:
        """Whether a tensor is in memory, of which a reshape is a view then."""
        op = defining_op(value)
        return op is None or op.block != self.kernel.reader.block or op.name in STORED

    def _sliced(self, op: ir.Operation, at: tuple[Lanes, ...]) -> Elements:
        strides = mixed(op.opview.strides, op.opview.static_strides)
        kept = dict(zip(_kept(op), at, strict=True))
        places = []
        for d, (offset, stride) in enumerate(zip(slice_offsets(op), strides, strict=True)):
            if isinstance(stride, ir.Value):
                raise NotInLanes
            place = kept.get(d, Lanes()).scaled(stride)
            start = Lanes((), (offset,)) if isinstance(offset, int) else self._unknown(offset)
            places.append(place.plus(start))
        return self.element(op.operands[0], tuple(places))

    def _unknown(self, value: ir.Value) -> Lanes:
        return Lanes(((Atom(self.kernel.scalar(value), None), 1),))

    def _concatenated(self, op: ir.Operation, at: tuple[Lanes, ...], number: int = 0, start: int = 0) -> Elements:
        along = ir.IntegerAttr(op.attributes["dim"]).value
        sources = list(op.operands)
        size = sources[number].type.shape[along]
        here = (*at[:along], at[along].plus(Lanes((), (-start,))), *at[along + 1 :])
        if number == len(sources) - 1:
            return self.element(sources[number], here)
        if size == DYNAMIC:
            raise NotInLanes
        below = at[along].below(start + size)
        if isinstance(below, ir.Value):
            kind = op.results[0].type.element_type
            return self._either(
                below,
                kind,
                lambda: self.element(sources[number], here),
                lambda: self._concatenated(op, at, number + 1, start + size),
            )
        if all(below):
            return self.element(sources[number], here)
        if not any(below):
            return self._concatenated(op, at, number + 1, start + size)
        # Known for each element: those of another part are asked for at a place that it has.
        inside = _only(here, along, below)
        outside = _only(at, along, tuple(not b for b in below))
        first = spread(self.element(sources[number], inside), self.lanes)
        others = spread(self._concatenated(op, outside, number + 1, start + size), self.lanes)
        return [a if b else c for a, b, c in zip(first, below, others, strict=True)]

    def _either(self, condition: ir.Value, kind: ir.Type, then, other) -> Elements:
        before = dict(self.known)

        def emit(way: Callable[[], Elements]) -> Sequence[ir.Value]:
            self.known = dict(before)
            return spread(way(), self.lanes)

        found = either(condition, [kind] * self.lanes, lambda: emit(then), lambda: emit(other))
        self.known = before
        return found

    def _computed(self, op: ir.Operation, number: int, at: tuple[Lanes, ...]) -> Elements:
        written = indexing_maps(op)[len(op.operands) - len(op.results) + number]
        loops = {dim_position(e): i for e, i in zip(written.results, at, strict=True)}
        return self.in_body(op, loops)(terminator(op.regions[0].blocks[0]).operands[number])

    def _summed(self, op: ir.Operation, at: tuple[Lanes, ...]) -> Elements:
        """Of rows that lie side by side as the result's do, one after the other."""
        loops = {dim_position(e): i for e, i in zip(indexing_maps(op)[-1].results, at, strict=True)}
        along = iterator_types(op).index("reduction")
        count = static_extents(op)[along]
        assert count is not None, "sums_few knows how many"
        block = op.regions[0].blocks[0]
        total = self.element(op.operands[len(op.operands) - 1], at)
        for number in range(count):
            known = {block.arguments[len(block.arguments) - 1]: total}
            here = self.in_body(op, loops | {along: Lanes((), (number,))}, known)
            total = here(terminator(block).operands[0])
        return total

    def in_body(
        self, op: ir.Operation, loops: Mapping[int | None, Lanes], known: Mapping[ir.Value, Elements] | None = None
    ) -> Callable[[ir.Value], Elements]:
        """What values of an op's body are where its loops are there; those of its arguments that are `known` need not
        be read."""
        maps, block = indexing_maps(op), op.regions[0].blocks[0]
        values = dict(known or {})

        def here(value: ir.Value) -> Elements:
            if value in values:
                return values[value]
            if value in block.arguments:
                which = value.arg_number
                operand = op.operands[which]
                if isinstance(operand.type, ir.ShapedType):
                    places = tuple(_place(e, loops) for e in maps[which].results)
                    values[value] = self.element(operand, places)
                else:
                    values[value] = [self.kernel.scalar(operand)]
                return values[value]
            inner = defining_op(value)
            if inner is None or inner.block != block:
                values[value] = [self.kernel.scalar(value)]
                return values[value]
            found = self._scalar(inner, here, loops)
            values.update(zip(inner.results, found, strict=True))
            return values[value]

        return here

    def _scalar(self, op: ir.Operation, here, loops) -> list[Elements]:
        """The results of an op on elements."""
        if op.name == "linalg.index":
            index = loops[ir.IntegerAttr(op.attributes["dim"]).value]
            return [[index.at(o) for o in (index.offsets if index.varies else index.offsets[:1])]]
        if op.name == "tensor.extract":
            source = op.operands[0]
            places = [self._as_index(v, loops) for v in list(op.operands)[1:]]
            if None not in places:
                return [self.element(source, tuple(places))]
        operands = [here(v) for v in op.operands if not isinstance(v.type, ir.ShapedType)]
        count = max((len(v) for v in operands), default=1)
        each = list(zip(*(spread(v, count) for v in operands), strict=True)) if operands else [()]
        if op.name == "tensor.extract":
            source = op.operands[0]
            maker = defining_op(source)
            if maker is not None and (maker.name in (*VIEWS, "tensor.concat") or is_elementwise(maker)):
                raise NotInLanes
            memory = self.kernel.memory(source)
            kind = source.type.element_type
            return [[ir.Operation.create("memref.load", [kind], [memory, *places]).result for places in each]]
        if op.name in _OF_COMPLEX:
            return [[_OF_COMPLEX[op.name](*mine) for mine in each]]
        results: list[Elements] = [[] for _ in op.results]
        for mine in each:
            if any(isinstance(v, tuple) for v in mine):
                raise NotInLanes
            copy = op.clone().operation
            for i, v in enumerate(mine):
                copy.operands[i] = v
            for found, result in zip(results, copy.results, strict=True):
                found.append(result)
        return results

    @staticmethod
    def _as_index(value: ir.Value, loops) -> Lanes | None:
        """An index that an op's body computes, where that is a loop's, or a number."""
        number = build.constant_value(value)
        if number is not None:
            return Lanes((), (number,))
        op = defining_op(value)
        return (
            loops[ir.IntegerAttr(op.attributes["dim"]).value] if op is not None and op.name == "linalg.index" else None
        )

    def _loaded(self, value: ir.Value, at: tuple[Lanes, ...]) -> Elements:
        if isinstance(value.type.element_type, ir.ComplexType):
            raise NotInLanes
        memory, kind = self.kernel.memory(value), value.type.element_type

        def load(places: Sequence[ir.Value]) -> ir.Value:
            return ir.Operation.create("memref.load", [kind], [memory, *places]).result

        varying = [d for d, i in enumerate(at) if i.varies]
        if not varying:
            return [load([i.at(i.offsets[0]) for i in at])]
        last, row = at[-1], value.type.shape[-1]
        width = math.gcd(last.step, row if row != DYNAMIC else 1, CHUNK // byte_width(kind))
        if varying != [len(at) - 1] or width == 1 or self.kernel.last_stride != 1:
            each = zip(*(spread(i.offsets, self.lanes) for i in at), strict=True)
            known: dict[tuple[int, ...], ir.Value] = {}
            found = []
            for offsets in each:
                if offsets not in known:
                    known[offsets] = load([i.at(o) for i, o in zip(at, offsets, strict=True)])
                found.append(known[offsets])
            return found
        outer = [i.at(i.offsets[0]) for i in at[:-1]]
        vector = ir.VectorType.get([width], kind)
        chunks = {}
        for number in sorted({o // width for o in last.offsets}):
            place = [memory, *outer, last.at(number * width)]
            chunks[number] = ir.Operation.create("vector.load", [vector], place).result
        return [extracted(chunks[o // width], o % width) for o in last.offsets]


# Complex numbers are pairs.
_OF_COMPLEX: dict[str, Callable[..., Any]] = {
    "complex.create": lambda a, b: (a, b),
    "complex.re": lambda a: a[0],
    "complex.im": lambda a: a[1],
    "complex.add": lambda a, b: (arith.addf(a[0], b[0]), arith.addf(a[1], b[1])),
    "complex.sub": lambda a, b: (arith.subf(a[0], b[0]), arith.subf(a[1], b[1])),
    "complex.mul": lambda a, b: (
        arith.subf(arith.mulf(a[0], b[0]), arith.mulf(a[1], b[1])),
        arith.addf(arith.mulf(a[0], b[1]), arith.mulf(a[1], b[0])),
    ),
}


def store_piece(values: Sequence[ir.Value], memory: ir.Value, place: Sequence[ir.Value]) -> None:
    """Writes elements side by side, the first one to that place."""
    vector = ir.VectorType.get([len(values)], values[0].type)
    piece = ir.Operation.create("vector.from_elements", [vector], list(values)).result
    ir.Operation.create("vector.store", [], [piece, memory, *place])


def extracted(vector: ir.Value, number: int) -> ir.Value:
    """An element of a piece that was loaded."""
    attributes = {"static_position": ir.DenseI64ArrayAttr.get([number])}
    return ir.Operation.create("vector.extract", [vector.type.element_type], [vector], attributes).result


def place_of(number: ir.Value, counts: Sequence[ir.Value | int]) -> tuple[Lanes, ...]:
    """The indices of an element of an array of these sizes, of its number among all."""
    at: list[Lanes] = []
    for d in reversed(range(len(counts))):
        size = counts[d]
        extent = size if isinstance(size, int) else None
        atom = Atom(arith.remui(number, build.as_index(size)) if d else number, extent)
        at.insert(0, Lanes(((atom, 1),)) if extent != 1 else Lanes())
        number = arith.divui(number, build.as_index(size)) if d else number
    return tuple(at)


def thread_count(sizes: Sequence[ir.Value | int], lanes: int) -> ir.Value:
    """How many threads compute a tensor."""
    total = build.index(math.prod(s for s in sizes if isinstance(s, int)) // lanes)
    for size in sizes:
        if isinstance(size, ir.Value):
            total = arith.muli(total, size)
    return total


def _place(index: ir.AffineExpr, loops: Mapping[int | None, Lanes]) -> Lanes:
    """An index of an operand where its op's loops are there."""
    try:
        steps, start = sum_of_loops(index)
    except Untileable:
        raise NotInLanes from None
    place = Lanes((), (start,))
    for loop, step in steps.items():
        if loop not in loops:
            raise NotInLanes
        place = place.plus(loops[loop].scaled(step))
    return place


def _only(at: tuple[Lanes, ...], along: int, wanted: tuple[bool, ...]) -> tuple[Lanes, ...]:
    """The indices, where those elements that are not wanted are at the place of one that is."""
    first = wanted.index(True)
    found = []
    for index in at:
        offsets = spread(index.offsets, len(wanted))
        found.append(
            Lanes(index.terms, tuple(o if w else offsets[first] for o, w in zip(offsets, wanted, strict=True)))
        )
    return tuple(found)


def _kept(op: ir.Operation) -> list[int]:
    try:
        return kept_dims(op, op.results[0].type, steps=True)
    except PassError:
        raise NotInLanes from None


def _is_known_by_lanes(op: ir.Operation) -> bool:
    """Whether the indices of what is reshaped follow from those of the result by numbers alone."""
    wide = (op.results[0] if op.name == "tensor.expand_shape" else op.operands[0]).type.shape
    several = [group for group in reassociation(op) if len([d for d in group if wide[d] != 1]) > 1]
    return all(wide[d] != DYNAMIC for group in several for d in group[1:])


def _before_reshape(op: ir.Operation, at: tuple[Lanes, ...]) -> tuple[Lanes, ...]:
    """The indices of what is reshaped."""
    expands = op.name == "tensor.expand_shape"
    wide = (op.results[0] if expands else op.operands[0]).type.shape
    groups = reassociation(op)
    if not _is_known_by_lanes(op):
        raise NotInLanes
    if expands:
        return tuple(linearised([at[d] for d in group], [wide[d] for d in group]) for group in groups)
    if not groups:  # one element becomes a scalar
        return (Lanes(),) * len(wide)
    found: list[Lanes] = []
    for index, group in zip(at, groups, strict=True):
        large = [d for d in group if wide[d] != 1]
        rest, places = index, {}
        for d in reversed(large[1:]):
            rest, places[d] = rest.divided(wide[d])
        if large:
            places[large[0]] = rest
        found += [places.get(d, Lanes()) for d in group]
    return tuple(found)


def is_elementwise(op: ir.Operation) -> bool:
    """Whether each element of the results comes from elements at places that its own place tells."""
    if op.name != "linalg.generic" or reduces(op):
        return False
    loops = range(len(iterator_types(op)))
    first = len(op.operands) - len(op.results)
    own = [sorted(d for d in map(dim_position, m.results) if d is not None) for m in indexing_maps(op)[first:]]
    return all(dims == list(loops) for dims in own) and not any(len(o.regions) for o in ops_in(op))


def sums_few(op: ir.Operation) -> bool:
    """Whether each element of the only result is a sum of few, which start from a number and are as far apart as rows:
    what is read for elements side by side is side by side, too."""
    if (
        op.name != "linalg.generic"
        or len(op.results) != 1
        or not reduces(op)
        or any(len(o.regions) for o in ops_in(op))
    ):
        return False
    kinds = iterator_types(op)
    *inputs, written = indexing_maps(op)
    rows = [d for d in map(dim_position, written.results) if d is not None]
    if not rows or len(rows) + 1 != len(kinds) or kinds.count("reduction") != 1:
        return False
    count = static_extents(op)[kinds.index("reduction")]
    if count is None or count > MOST_SUMMED or repeated_number(op.operands[len(op.operands) - 1]) is None:
        return False
    last = [m.results[len(m.results) - 1] for m in inputs if len(m.results)]
    return all(dim_position(e) == rows[-1] for e in last)
