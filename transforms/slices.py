"""Slices of tensors, and bounds of loops over them: numbers where they are static, values where they are not."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

from ..dialects.build import as_index, constant_value
from ..dialects.mlir import arith, ir, tensor
from ..dialects.tiling.index import Index, Range, Tile
from .linear import DYNAMIC
from .rewriting import carried_number, defining_op, terminator

Size: TypeAlias = ir.Value | int


def mixed(dynamic: Iterable[ir.Value], static: Iterable[int]) -> list[Size]:
    """Numbers, and values in place of those that are not static."""
    values = iter(dynamic)
    return [next(values) if s == DYNAMIC else int(s) for s in static]


def split(parts: Sequence[Size]) -> tuple[list[ir.Value], list[int]]:
    """The other way round: the values, and all numbers with a marker in place of the values."""
    return [p for p in parts if not isinstance(p, int)], [p if isinstance(p, int) else DYNAMIC for p in parts]


def tile_of(op: ir.Operation) -> Tile:
    """The part of a tensor that a slice takes, or that one is put into."""
    places = zip(slice_offsets(op), slice_sizes(op), strict=True)
    return tuple(Range(Index.of(offset), Index.of(size)) for offset, size in places)


def plus(a: Size, b: Size) -> Size:
    if isinstance(a, int) and isinstance(b, int):
        return a + b
    if a == 0 or b == 0:
        return b if a == 0 else a
    return arith.addi(as_index(a), as_index(b))


def known_index(value: ir.Value) -> Size:
    """An index as a number, where it is one."""
    number = constant_value(value)
    return value if number is None else int(number)


def slice_offsets(op: ir.Operation) -> list[Size]:
    """Of a tensor.extract_slice, insert_slice or parallel_insert_slice."""
    return mixed(op.opview.offsets, op.opview.static_offsets)


def slice_sizes(op: ir.Operation) -> list[Size]:
    return mixed(op.opview.sizes, op.opview.static_sizes)


def slice_parts(op: ir.Operation) -> tuple[list[Size], list[Size], list[Size]]:
    """Offsets, sizes and strides. Those that are values are the last operands, in this order: read at once."""
    view, operands = op.opview, list(op.operands)
    static = [list(view.static_offsets), list(view.static_sizes), list(view.static_strides)]
    values = iter(operands[len(operands) - sum(part.count(DYNAMIC) for part in static) :])
    offsets, sizes, strides = (mixed(values, part) for part in static)
    return offsets, sizes, strides


def forall_bounds(forall: ir.Operation) -> tuple[list[Size], list[Size], list[Size]]:
    """The lower and upper bounds and the steps of a scf.forall."""
    view = forall.opview
    return (
        mixed(view.dynamicLowerBound, view.staticLowerBound),
        mixed(view.dynamicUpperBound, view.staticUpperBound),
        mixed(view.dynamicStep, view.staticStep),
    )


def is_iteration_number(value: Size, induction: ir.Value, step: Size) -> bool:
    """Whether an index is how many iterations a loop from 0 on has had: its induction variable floordiv its step."""
    op = None if isinstance(value, int) else defining_op(value)
    if op is None or op.name != "affine.apply" or list(op.operands) != [induction] or not isinstance(step, int):
        return False
    (result,) = op.attributes["map"].value.results
    return result == ir.AffineExpr.get_floor_div(ir.AffineExpr.get_dim(0), step)


def extract(
    kind: ir.Type, source: ir.Value, offsets: Sequence[Size], sizes: Sequence[Size], strides: Sequence[Size]
) -> ir.Value:
    (o, so), (s, ss), (t, st) = split(offsets), split(sizes), split(strides)
    if 0 in ss:  # upstream knows no place where a slice of an empty tensor could start
        return ir.Operation.create("tensor.empty", [kind], s).result
    return tensor.ExtractSliceOp(kind, source, o, s, t, so, ss, st).result


def insert(
    source: ir.Value, dest: ir.Value, offsets: Sequence[Size], sizes: Sequence[Size], strides: Sequence[Size]
) -> ir.Value:
    (o, so), (s, ss), (t, st) = split(offsets), split(sizes), split(strides)
    return tensor.InsertSliceOp(source, dest, o, s, t, so, ss, st).result


def sole_insertion(argument: ir.Value) -> ir.Operation | None:
    """The op that inserts a tile into what a loop carries, if nothing else is done with it, before and after that."""
    uses = list(argument.uses)
    insertion = uses[0].owner.operation if len(uses) == 1 and uses[0].operand_number == 1 else None
    if insertion is None or insertion.name == "tensor.parallel_insert_slice":
        return insertion
    ends = list(insertion.results[0].uses) if insertion.name == "tensor.insert_slice" else []
    if len(ends) != 1 or ends[0].owner.operation != terminator(argument.owner):
        return None
    return insertion if ends[0].operand_number == carried_number(argument) else None


def insert_parallel(source: ir.Value, dest: ir.Value, offsets: Sequence[Size], sizes: Sequence[Size]) -> None:
    """In the terminator of a scf.forall."""
    (o, so), (s, ss) = split(offsets), split(sizes)
    tensor.ParallelInsertSliceOp(source, dest, o, s, [], so, ss, [1] * len(offsets))
