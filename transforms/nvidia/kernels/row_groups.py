"""Which ops compute on the same rows, sums over them among these: threads that share a row can compute all of them.

    %s = linalg.generic { sum of x } ins(%x)             rows (i)           the first sum: it says what the rows are
    %m = linalg.generic { s / n } ins(%s)                (i)                a number for each row
    %d = linalg.generic { x − m } ins(%x, %m)            (i, column)        elements of rows
    %v = linalg.generic { sum of d² } ins(%d)            (i)                another sum over them

An op is a member if it reads one, runs along all rows, and beside them along columns alone, which stand side by side.
A softmax, a norm of any kind, and what is made of its result by element, are such groups. What is summed may be made by
element, too, and wanted by others, as the sum of a residual and what is added to it: that is a result as well. So is
another sum of what a member sums up, as of the least elements beside the largest ones: rows are read once for both.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ....dialects.mlir import ir
from ....dialects.tiling.structured import dim_position, indexing_maps, iterator_types
from ...graph import PLACE, ancestor_in, operands_with_captures
from ...reshapes import RESHAPES, VIEWS, readers, source_dims
from ...rewriting import defining_op, ops_in, ops_of, through
from ...slices import slice_offsets
from ...splats import filled_with
from ..axes import DYNAMIC, is_first
from .one_block import is_of_tiles
from .producer_body import is_elementwise
from .row_lanes import combiner_of

COLUMN = -1
LARGE, LONG = 2**20, 32  # elements of a sum and of its rows: threads that each read one read from as many places
LONGEST = 512  # that a thread adds up by itself, in some 30 ns each, sooner than many do after one more launch
Axis = int | None  # the number of a dimension of the rows, COLUMN, or None of one element
MOVES = ("tensor.concat", *VIEWS)  # of elements, which threads see through


class NotOfRows(Exception):
    """An op that is not computed row by row."""


@dataclass
class RowGroup:
    """`axes`: of each dimension of what members compute; `inputs`: and of what sums read along rows; `loops`: of those
    of a member. `reader`: the first op behind the members that reads what they compute. `results`: what others read,
    views of which are theirs to take."""

    first: ir.Operation
    axes: dict[ir.Value, tuple[Axis, ...]] = field(default_factory=dict)
    inputs: dict[ir.Value, tuple[Axis, ...]] = field(default_factory=dict)
    loops: dict[ir.Operation, Mapping[int | None, Axis]] = field(default_factory=dict)
    members: list[ir.Operation] = field(default_factory=list)
    reader: ir.Operation | None = None
    results: list[ir.Value] = field(default_factory=list)

    @property
    def sums(self) -> list[ir.Operation]:
        return [op for op in self.members if is_row_sum(op)]

    @property
    def row_dims(self) -> list[int]:
        """The dimensions of the first sum that rows have, in the order of their numbers."""
        return _row_dims(self.first)

    @property
    def rows(self) -> set[Axis]:
        """The axes that there are beside columns."""
        return set(self.axes[self.first.results[0]]) - {None}

    @property
    def extents(self) -> list[int]:
        """How many columns there are, in sums and in results."""
        return [*map(summed, self.sums), *(v.type.shape[-1] for v in self.results if COLUMN in self.axes[v])]

    def is_behind(self, user: ir.Operation) -> bool:
        """Whether an op is none of the members, and stands where results are there."""
        found = ancestor_in(user, self.first.block)
        assert found is not None and self.reader is not None, "what is read in a block has a reader there"
        return found not in self.members and (found == self.reader or self.reader.is_before_in_block(found))

    def readers(self, value: ir.Value) -> Iterator[ir.Operation]:
        """The ops that read it, or a view of it, and are none of the members."""
        return (user for user in readers(value, self.first.block) if user not in self.members)


def row_groups(block: ir.Block) -> Iterator[RowGroup]:
    """Groups of a block that are worth a kernel: not a small sum alone, nor what `outline-producers` takes along. Who
    asks for the next one may have replaced the one before."""
    ops, number = ops_of(block), 0
    while number < len(ops):
        if is_row_sum(ops[number]) and not is_of_tiles(ops[number].results[0], block):
            group = _grown(ops[number])
            if _is_worth_it(group):
                yield group
                left, ops = len(ops), ops_of(block)
                number += len(ops) == left  # it has been left as it was
                continue
        number += 1


def is_row_sum(op: ir.Operation) -> bool:
    """Whether an op adds up rows whose elements stand side by side, or finds their maxima."""
    if op.name != "linalg.generic" or not op.results:  # on buffers there are none
        return False
    kinds, maps = iterator_types(op), indexing_maps(op)
    first = len(op.operands) - len(op.results)
    if kinds.count("reduction") != 1 or any(combiner_of(op, number) is None for number in range(len(op.results))):
        return False
    if any(filled_with(v) is None for v in list(op.operands)[first:]):
        return False
    parallel = {d for d, kind in enumerate(kinds) if kind == "parallel"}
    written = ({dim_position(e) for e in m.results if not is_first(e)} for m in maps[first:])
    # Of a matmul no operand has all loops: rows are read again for other results.
    has_rows = any(len(maps[n].results) == len(kinds) for n in _along(op))
    return has_rows and all(dims == parallel for dims in written)


def summed(op: ir.Operation) -> int:
    """How many elements of a row are summed."""
    return op.operands[_along(op)[0]].type.shape[-1]


def _along(op: ir.Operation) -> list[int]:
    """The operands whose last dimension a sum runs along."""
    loop = iterator_types(op).index("reduction")
    maps = indexing_maps(op)[: len(op.operands) - len(op.results)]
    ends = [dim_position(m.results[-1]) if len(m.results) else None for m in maps]
    return [n for n, end in enumerate(ends) if end == loop and op.operands[n].type.shape[-1] not in (DYNAMIC, 0)]


def _written(op: ir.Operation, result: int = 0) -> ir.AffineMap:
    return indexing_maps(op)[len(op.operands) - len(op.results) + result]


def _row_dims(op: ir.Operation) -> list[int]:
    return [d for d, e in enumerate(_written(op).results) if not is_first(e)]


def _grown(first: ir.Operation) -> RowGroup:
    """The group of a sum: of each op behind it that reads a member it is seen whether it can be one, too."""
    group, sizes = RowGroup(first), _loop_sizes(first)
    loops: dict[int | None, Axis] = dict.fromkeys(sizes, COLUMN)
    for number, d in enumerate(_row_dims(first)):
        loop = dim_position(_written(first).results[d])
        loops[loop] = None if sizes[loop] == 1 else number
    _add_generic(group, first, loops)
    pending = _readers_behind(group, first)
    while pending:
        op = min(pending, key=PLACE)
        pending.remove(op)
        known = _known_axes(group, op)
        if not known:
            continue
        try:
            _join(group, op, known)
            pending |= _readers_behind(group, op)
        except NotOfRows:
            group.reader = group.reader or op
    group.results = _results(group)
    return group


def _readers_behind(group: RowGroup, member: ir.Operation) -> set[ir.Operation]:
    """The ops behind a member that read what it computes, or what it sums up."""
    uses = (use for value in (*member.results, *group.inputs) for use in value.uses)
    readers = (ancestor_in(use.owner.operation, member.block) for use in uses)
    return {op for op in readers if op is not None and member.is_before_in_block(op)}


def _known_axes(group: RowGroup, op: ir.Operation) -> Mapping[ir.Value, tuple[Axis, ...]]:
    """The axes by which an op is seen to be of the rows: those of what members compute, if it reads some of that; of
    what they sum up, if it is a sum of that alone."""
    if any(v in group.axes for v in operands_with_captures(op)):
        return group.axes
    return group.inputs if is_row_sum(op) and any(v in group.inputs for v in op.operands) else {}


def _add(group: RowGroup, op: ir.Operation, axes: Sequence[tuple[Axis, ...]]) -> None:
    if any(COLUMN in of_value and of_value[-1] != COLUMN for of_value in axes):
        raise NotOfRows
    group.members.append(op)
    group.axes.update(zip(op.results, axes, strict=True))


def _add_generic(group: RowGroup, op: ir.Operation, loops: Mapping[int | None, Axis]) -> None:
    _add(group, op, [_axes(_written(op, number), loops) for number in range(len(op.results))])
    group.loops[op] = loops
    if is_row_sum(op):
        group.inputs |= {op.operands[n]: _axes(indexing_maps(op)[n], loops) for n in _along(op)}


def _axes(m: ir.AffineMap, loops: Mapping[int | None, Axis]) -> tuple[Axis, ...]:
    return tuple(None if is_first(e) else loops.get(dim_position(e)) for e in m.results)


def _join(group: RowGroup, op: ir.Operation, known: Mapping[ir.Value, tuple[Axis, ...]]) -> None:
    """Adds an op to a group, if it can be a member; `known`: the axes of what it reads."""
    if not _is_known_before(op, group):
        raise NotOfRows
    if op.name in MOVES:
        _add(group, op, [_moved_axes(group, op)])
    elif op.name == "linalg.generic":
        loops = _generics_loops(group, op, known)
        found = [axis for axis in loops.values() if axis is not None]
        if len(found) != len(set(found)) or {*found} - {COLUMN} != group.rows:
            raise NotOfRows
        _add_generic(group, op, loops)
    else:
        raise NotOfRows


def _is_known_before(op: ir.Operation, group: RowGroup) -> bool:
    """Whether what else an op reads is there before the first reader of the group's results."""
    if group.reader is None:
        return True
    makers = [defining_op(v) for v in operands_with_captures(op) if v not in group.axes]
    here = [m for m in makers if m is not None and m.block == group.first.block]
    return all(m.is_before_in_block(group.reader) for m in here)


def _generics_loops(
    group: RowGroup, op: ir.Operation, known: Mapping[ir.Value, tuple[Axis, ...]]
) -> dict[int | None, Axis]:
    """What each loop of an op runs along."""
    if not (is_elementwise(op) or is_row_sum(op)):
        raise NotOfRows
    if any(e.operands[0] in group.axes for e in ops_in(op, "tensor.extract")):
        raise NotOfRows
    loops: dict[int | None, Axis] = {}
    for value, m in zip(op.operands, indexing_maps(op), strict=True):
        for e, axis in zip(m.results, known.get(value, ()), strict=False):
            d = None if is_first(e) else dim_position(e)
            if (d is None and axis is not None) or (d is not None and loops.setdefault(d, axis) != axis):
                raise NotOfRows
    kinds = iterator_types(op)
    for d, size in _loop_sizes(op).items():
        if d not in loops:
            loops[d] = None if size == 1 else COLUMN
            if size == DYNAMIC:
                raise NotOfRows
        if kinds[d] == "reduction" and loops[d] != COLUMN:
            raise NotOfRows
    return loops


def _loop_sizes(op: ir.Operation) -> dict[int, int]:
    found: dict[int, int] = {}
    for value, m in zip(op.operands, indexing_maps(op), strict=True):
        for d, e in enumerate(m.results):
            loop = dim_position(e)
            if loop is not None:
                found[loop] = value.type.shape[d]
    return found


def _moved_axes(group: RowGroup, op: ir.Operation) -> tuple[Axis, ...]:
    """Of what an op moves elements of rows to."""
    source = op.operands[0]
    if op.name == "tensor.concat":
        known = {group.axes[v] for v in op.operands if v in group.axes}
        axes = known.pop()
        along = ir.IntegerAttr(op.attributes["dim"]).value
        if known or axes[along] != COLUMN or any(v.type.shape[along] == DYNAMIC for v in op.operands):
            raise NotOfRows
        return axes
    axes = group.axes[source]
    if op.name == "tensor.cast":
        return axes
    if op.name in RESHAPES:
        dims = source_dims(op)
        if dims is None:
            raise NotOfRows
        return tuple(None if d is None else axes[d] for d in dims)
    shape, sizes = source.type.shape, list(op.opview.static_sizes)
    moved = [d for d, offset in enumerate(slice_offsets(op)) if offset != 0 or sizes[d] != shape[d]]
    if len(shape) != op.results[0].type.rank or DYNAMIC in shape or any(axes[d] != COLUMN for d in moved):
        raise NotOfRows
    return axes


def _results(group: RowGroup) -> list[ir.Value]:
    found: dict[ir.Value, None] = {}
    for op in group.members:
        for value in op.results:
            users = (ancestor_in(use.owner.operation, group.first.block) for use in value.uses)
            if any(user not in group.members for user in users):
                found[_as_read(group, through(value, *VIEWS))] = None
    return [*found, *_made_before(group)] if found else []


def _as_read(group: RowGroup, value: ir.Value) -> ir.Value:
    """The reshaped value, where only that is read: kernels tell rows from columns by the dimensions of memory."""
    while True:
        users = {use.owner.operation for use in value.uses}
        read = [u for u in users if u.name not in VIEWS or any(True for _ in group.readers(u.results[0]))]
        read = [u for u in read if u.name in VIEWS or u not in group.members]
        if len(read) != 1 or read[0].name not in RESHAPES or read[0].results[0] not in group.axes:
            return value
        value = read[0].results[0]


def _made_before(group: RowGroup) -> list[ir.Value]:
    """Elements of rows that members are made of, and that others read behind the group alone."""
    pending = [source for op, loops in group.loops.items() for source in _sources(group, op, loops)]
    axes: dict[ir.Value, tuple[Axis, ...]] = {}
    makers: set[ir.Operation] = set()
    while pending:
        value, places = pending.pop()
        op = defining_op(value)
        if op is None or op in group.members or op.block != group.first.block or value in axes:
            continue
        if op.name in RESHAPES and (dims := source_dims(op)) is not None:
            before: list[Axis] = [None] * op.operands[0].type.rank
            for d, axis in zip(dims, places, strict=True):
                if d is not None:
                    before[d] = axis
            pending.append((op.operands[0], tuple(before)))
        elif is_elementwise(op):
            written = _written(op, ir.OpResult(value).result_number)
            loops = {dim_position(e): axis for e, axis in zip(written.results, places, strict=True)}
            pending += _sources(group, op, loops)
            axes[value] = places
        else:
            continue
        makers.add(op)
    found = []
    for value, places in axes.items():
        users = [ancestor_in(use.owner.operation, group.first.block) for use in value.uses]
        others = [u for u in users if u is not None and u not in makers and u not in group.members]
        is_row = places[-1:] == (COLUMN,) and {*places} - {COLUMN, None} == group.rows
        if is_row and others and all(group.is_behind(u) for u in others):
            group.axes[value] = places
            found.append(value)
    return found


def _sources(
    group: RowGroup, op: ir.Operation, loops: Mapping[int | None, Axis]
) -> list[tuple[ir.Value, tuple[Axis, ...]]]:
    """What an op reads that no member computes, with the axes of its dimensions."""
    pairs = list(zip(op.operands, indexing_maps(op), strict=True))[: len(op.operands) - len(op.results)]
    tensors = [(v, m) for v, m in pairs if isinstance(v.type, ir.RankedTensorType) and v not in group.axes]
    return [(v, _axes(m, loops)) for v, m in tensors]


def _is_worth_it(group: RowGroup) -> bool:
    """Whether it computes more of rows than one sum, or that of many elements, for others than those who compute by
    element, too; or has several sums, for each of which the rows would be read again."""
    generics = [op for op in group.loops if op != group.first]
    of_elements = [op for op in generics if is_row_sum(op) or any(COLUMN in group.axes[v] for v in op.results)]
    readers = (op for value in group.results for op in group.readers(value))
    for_others = len(group.sums) > 1 or any(not is_elementwise(op) and op.name not in MOVES for op in readers)
    return for_others and (bool(of_elements) or _is_large(group.first))


def _is_large(sum_: ir.Operation) -> bool:
    """Whether it takes longer than a launch where each thread reads a row: sums that are not share one."""
    is_large = math.prod(sum_.operands[_along(sum_)[0]].type.shape) >= LARGE and summed(sum_) >= LONG
    return is_large or summed(sum_) > LONGEST
