"""Recognising, on the IR, how a matmul accumulates what an online softmax yields.

The pattern, whether it stands before loops were split or after, normalised or not::

    scf.for … iter_args(%o = 0, %m = …, %a = …) {
      %o0, %m0, %a0 = tensor.extract_slice %o, %m, %a                        // or %o, %m, %a themselves
      %p:4 = linalg_ext.softmax ins(%x) outs(…, %m0, %a0, …)
      %s   = rows of %o0 × %p#3                                             // linalg.generic, or diag and a matmul
      %u   = linalg.matmul ins(f(%p#0), %v) outs(%s)                        // f linear
      tensor.insert_slice %u into %o, %p#1 into %m, %p#2 into %a            // at the same place
    }

What is required is checked here, so that passes may rely on it: each row of the output belongs to one row of the
statistics, in every loop; what is carried is touched by nothing else; the accumulator starts from zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...dialects import build
from ...dialects.mlir import ir
from ...dialects.tiling import Index
from ...dialects.tiling.structured import (
    FLOAT_CASTS,
    all_parallel,
    body_names,
    dim_position,
    indexing_maps,
    is_structured,
)
from ..attention import is_contraction
from ..extents import extent, size_form
from ..linear import linear
from ..online_accumulation import is_linear
from ..reshapes import RESHAPES, VIEWS, source_dims
from ..rewriting import carried_init, carried_number, defining_op
from ..slices import slice_parts
from .fold_diag import diag_factor

RESULT, MAX, ACCUM, SCALE = range(4)


class Unsuited(Exception):
    """This softmax is used in another way; the message says how."""


@dataclass(frozen=True)
class Level:
    """One step outwards of what is carried: the loop (scf.for or scf.forall), the position among its results, and the
    slice that is read and written."""

    loop: ir.Operation
    position: int
    offsets: tuple[Index, ...] | None  # None: all of it
    sizes: tuple[Index, ...] | None

    @property
    def init(self) -> ir.Value:
        return self.loop.operands[len(self.loop.operands) - len(self.loop.results) + self.position]

    @property
    def result(self) -> ir.Value:
        return self.loop.results[self.position]


@dataclass(frozen=True)
class Accumulation:
    """A softmax and the matmul that consumes it.

    `rows[d]`: the dimension of the matmul's output that dimension d of the statistics is. `output` and `accum`: through
    which loops they are carried, inner to outer; empty if the softmax sees all of its dimension at once. `final` and
    `final_accum`: their values after the last tile.
    """

    softmax: ir.Operation
    matmul: ir.Operation
    rows: list[int]
    output: list[Level]
    accum: list[Level]

    @property
    def final(self) -> ir.Value:
        return _after(self.output) or self.matmul.results[0]

    @property
    def final_accum(self) -> ir.Value:
        return _after(self.accum) or self.softmax.results[ACCUM]

    @property
    def outermost(self) -> ir.Operation:
        """The op after which these values are there."""
        return self.output[-1].loop if self.output else self.matmul


def _after(levels: Sequence[Level]) -> ir.Value | None:
    return levels[-1].result if levels else None


def accumulation_of(softmax: ir.Operation) -> Accumulation:
    """The accumulation that consumes the result of `softmax`; Unsuited if there is none of that form."""
    matmul, rows = _consumer(softmax)
    init, result = matmul.operands[2], matmul.results[0]
    if zero_like(init):
        if any(softmax.results[SCALE].uses):
            raise Unsuited("its scale is used, though not to rescale the accumulator of the matmul")
        return Accumulation(softmax, matmul, rows, [], [])
    old = _rescaled(softmax, init, rows)
    output = carried_levels(old, result)
    accum = carried_levels(softmax.operands[1 + ACCUM], softmax.results[ACCUM])
    if not output:
        raise Unsuited("the accumulator of the matmul is not carried by a loop")
    if not zero_like(first_value(output)):
        raise Unsuited("the accumulator of the matmul does not start from zero")
    _check_same_rows(output, accum, rows, result.type.rank)
    return Accumulation(softmax, matmul, rows, output, accum)


def first_value(levels: Sequence[Level]) -> ir.Value:
    """What the outermost loop starts from."""
    return levels[-1].init


# The path from softmax to the matmul.


def _consumer(softmax: ir.Operation) -> tuple[ir.Operation, list[int]]:
    """The contraction that the result of `softmax` goes to, linearly and alone, and `rows`; see Accumulation."""
    value = softmax.results[RESULT]
    dims: list[int | None] = list(range(value.type.rank))
    while True:
        uses = list(value.uses)
        if len(uses) != 1:
            raise Unsuited("its result is not used by one matmul alone")
        op, number = uses[0].owner.operation, uses[0].operand_number
        if is_contraction(op):
            return op, _rows_of(softmax, op, number, dims)
        if not is_linear(op, number):
            raise Unsuited(f"'{op.name}' uses its result and is not linear in it")
        dims = _through(op, number, dims)
        value = op.results[0]


def _rows_of(softmax: ir.Operation, op: ir.Operation, number: int, dims: Sequence[int | None]) -> list[int]:
    if number == 2:
        raise Unsuited("its result is accumulated into")
    maps = indexing_maps(op)
    loops = [dim_position(e) for e in maps[number].results]
    output = [dim_position(e) for e in maps[2].results]
    reduced = softmax.opview.dimension.value
    rows = []
    for d in range(softmax.operands[0].type.rank):
        loop = loops[dims.index(d)] if d in dims else None
        if d == reduced:
            if loop is None or loop in output:
                raise Unsuited("the matmul does not sum over its dimension")
        elif loop is None or loop not in output:
            raise Unsuited(f"its dimension {d} is no dimension of the matmul's output")
        else:
            rows.append(output.index(loop))
    return rows


def _through(op: ir.Operation, number: int, dims: Sequence[int | None]) -> list[int | None]:
    """Which dimension of softmax each dimension of the result of `op` is, given those of operand `number`."""
    if op.name == "tensor.cast":
        return list(dims)
    if op.name in RESHAPES:
        sources = source_dims(op)
        if sources is None:
            raise Unsuited(f"'{op.name}' joins or splits rows of its result")
        return [None if d is None else dims[d] for d in sources]
    if not is_structured(op) or len(op.results) != 1:
        raise Unsuited(f"the rows of its result cannot be followed through '{op.name}'")
    maps = indexing_maps(op)
    source, target = ([dim_position(e) for e in maps[n].results] for n in (number, -1))
    if None in source or None in target or len(set(target)) < len(target):
        raise Unsuited(f"the rows of its result cannot be followed through '{op.name}'")
    of_loop = dict(zip(source, dims, strict=True))
    return [of_loop.get(loop) for loop in target]


# The accumulator.


def _rescaled(softmax: ir.Operation, init: ir.Value, rows: Sequence[int]) -> ir.Value:
    """The old accumulator, of which `init` is the rows multiplied by the scale of `softmax`."""
    message = "the accumulator of the matmul is not rescaled by its scale, row by row"
    op, uses = defining_op(init), list(softmax.results[SCALE].uses)
    scale = softmax.results[SCALE]
    if len(uses) == 1 and is_conversion(uses[0].owner.operation):
        scale = uses[0].owner.operation.results[0]
        uses = list(scale.uses)
    if op is None or len(uses) != 1 or len(list(init.uses)) != 1:
        raise Unsuited(message)
    user = uses[0].owner.operation
    if user.name == "linalg_ext.diag":
        used_once = len(list(user.results[0].uses)) == 1
        straight = list(rows) == list(range(len(rows))) and init.type.rank == len(rows) + 1
        untransposed = "layout" not in op.attributes or op.attributes["layout"].value[1] == "n"
        is_its = diag_factor(op) is not None and defining_op(op.operands[0]) == user
        if is_its and used_once and straight and untransposed and zero_like(op.operands[2]):
            return op.operands[1]
        raise Unsuited(message)
    if user != op or not is_structured(op) or len(op.results) != 1:
        raise Unsuited(message)
    number = uses[0].operand_number
    others = [i for i in range(len(op.operands)) if i != number and _is_read(op, i)]
    if len(others) != 1 or not _is_product(op):
        raise Unsuited(message)
    maps = indexing_maps(op)
    identity = build.projection(init.type.rank, range(init.type.rank))
    if maps[number] != build.projection(init.type.rank, rows) or maps[-1] != identity or maps[others[0]] != identity:
        raise Unsuited(message)
    return op.operands[others[0]]


def is_conversion(op: ir.Operation) -> bool:
    """Whether `op` converts the elements of a tensor and nothing else."""
    if not all_parallel(op) or len(op.operands) != 2 or not len(op.regions):
        return False
    maps = indexing_maps(op)
    return not body_names(op, *FLOAT_CASTS) and maps[0] == maps[1] and _is_read(op, 0)


def _is_product(op: ir.Operation) -> bool:
    """Whether the body multiplies two elements and nothing else."""
    return all_parallel(op) and body_names(op, *FLOAT_CASTS) == ["arith.mulf"]


def _is_read(op: ir.Operation, number: int) -> bool:
    return bool(len(op.regions)) and any(True for _ in op.regions[0].blocks[0].arguments[number].uses)


# What the loops carry.


def carried_levels(old: ir.Value, new: ir.Value) -> list[Level]:
    """Through which loops `old` becomes `new`, inner to outer; what they carry is used for nothing else.

    The outermost is one that goes from tile to tile, an scf.for: what its results are is final.
    """
    levels: list[Level] = []
    while (level := _level(old, new)) is not None:
        levels.append(level)
        old, new = level.init, level.result
    while levels and levels[-1].loop.name == "scf.forall":
        levels.pop()
    return levels


def _level(old: ir.Value, new: ir.Value) -> Level | None:
    """The loop that carries `old`, or what it is a slice of, and puts `new` there."""
    place, argument = None, old
    read = defining_op(old)
    if read is not None and read.name == "tensor.extract_slice":
        place, argument = _place(read), read.operands[0]
        if place is None:
            return None
    if not isinstance(argument.owner, ir.Block):
        return None
    loop = argument.owner.owner.operation
    position = carried_number(argument)
    if position is None:
        return None
    users = _users(argument)
    readers = set(users)
    user = _only_user(new)
    if loop.name == "scf.forall":
        readers.discard(user)
        if place is None or user is None or user.name != "tensor.parallel_insert_slice" or len(readers) != 1:
            return None
        same = user.operands[0] == new and user.operands[1] == argument and _place(user) == place
        return Level(loop, position, *place) if same and len(users) == 2 else None
    if place is not None and user is not None and user.name == "tensor.insert_slice":
        readers.discard(user)
        if user.operands[0] != new or user.operands[1] != argument or _place(user) != place:
            return None
        new = user.results[0]
        user = _only_user(new)
    elif place is not None:  # slices of the whole, which is then replaced as a whole
        if place != ((Index(0),) * len(place[0]), tuple(extent(argument, d) for d in range(len(place[0])))):
            return None
        place = None
    if user is None or user.name != "scf.yield" or user.parent.operation != loop or user.operands[position] != new:
        return None
    if len(readers) != 1 or len(users) > 2:
        return None
    offsets, sizes = place or (None, None)
    return Level(loop, position, offsets, sizes)


def _users(value: ir.Value) -> list[ir.Operation]:
    """An op per use, but for tensor.dim, which reads no element."""
    return [op for use in value.uses if (op := use.owner.operation).name != "tensor.dim"]


def _only_user(value: ir.Value) -> ir.Operation | None:
    users = _users(value)
    return users[0] if len(users) == 1 else None


def _place(op: ir.Operation) -> tuple[tuple[Index, ...], tuple[Index, ...]] | None:
    """Offsets and sizes of a slice without strides."""
    offsets, sizes, strides = slice_parts(op)
    if any(s != 1 for s in strides):
        return None
    tensor = op.operands[0 if op.name == "tensor.extract_slice" else 1]
    part = op.results[0] if op.name == "tensor.extract_slice" else op.operands[0]
    if tensor.type.rank != part.type.rank:
        return None
    return tuple(linear(o) for o in offsets), tuple(size_form(s) for s in sizes)


def _check_same_rows(output: Sequence[Level], accum: Sequence[Level], rows: Sequence[int], rank: int) -> None:
    """In each loop, output and statistics are sliced to the same rows, and the output to nothing but rows."""
    if [level.loop for level in output] != [level.loop for level in accum]:
        raise Unsuited("its statistics and the accumulator of the matmul are not carried by the same loops")
    for of_output, of_accum in zip(output, accum, strict=True):
        matrix, vector = of_output.init, of_accum.init
        for d in range(rank):
            found = _part(of_output, matrix, d)
            wanted = _part(of_accum, vector, rows.index(d)) if d in rows else (Index(0), extent(matrix, d))
            if found != wanted:
                raise Unsuited("its statistics and the accumulator of the matmul are not sliced to the same rows")


def _part(level: Level, tensor: ir.Value, d: int) -> tuple[Index, Index | None]:
    if level.offsets is None or level.sizes is None:
        return Index(0), extent(tensor, d)
    return level.offsets[d], level.sizes[d]


def zero_like(value: ir.Value) -> bool:
    """Whether `value` is zero in every element."""
    return filled_with(value, 0.0)


def filled_with(value: ir.Value, number: float) -> bool:
    """Whether every element is `number`: a fill, a slice or copies of it, or what scf.forall carries of it."""
    if isinstance(value.owner, ir.Block):
        init = carried_init(value) if value.owner.owner.name == "scf.forall" else None
        return init is not None and filled_with(init, number)
    op = value.owner.operation
    if op.name in (*VIEWS, "linalg.broadcast"):
        return filled_with(op.operands[0], number)
    if op.name == "arith.constant":
        attribute = op.attributes["value"]
        return isinstance(attribute, ir.DenseFPElementsAttr) and attribute.is_splat and set(attribute) == {number}
    return op.name == "linalg.fill" and build.constant_value(op.operands[0]) == number
