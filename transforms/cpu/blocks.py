"""Splits a structured op on buffers: loops over blocks of it, and the part of each operand that a block touches."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from ...dialects import build
from ...dialects.mlir import affine, ir, linalg, memref, scf
from ..slices import split
from .structured import Operand, Structured


@dataclass
class Block:
    """Where a block starts along one loop, and how far it reaches; an int where that is static."""

    offset: ir.Value
    extent: int | ir.Value


def extent_at(op: Structured, loop: int, offset: ir.Value, bound: ir.Value, step: int) -> int | ir.Value:
    """min(step, size − offset), folded where `step` divides the size."""
    size = op.sizes[loop]
    if step == 1 or (size is not None and size % step == 0):
        return step
    d0, s0 = ir.AffineExpr.get_dim(0), ir.AffineExpr.get_symbol(0)
    rest = ir.AffineMap.get(1, 1, [ir.AffineExpr.get_constant(step), s0 - d0])
    return affine.AffineMinOp(rest, [offset, bound]).result


@contextmanager
def loop_nest(op: Structured, steps: Sequence[tuple[int, int]]) -> Iterator[dict[int, Block]]:
    """Emits scf.for loops over blocks, (loop, step) from outer to inner; inside of it, ops go into the innermost."""
    blocks: dict[int, Block] = {}
    points = []
    for loop, step in steps:
        size = op.sizes[loop]
        if size is not None and size <= step:
            continue
        bound = op.size(loop)
        nest = scf.ForOp(build.index(0), bound, build.index(step), [])
        point = ir.InsertionPoint(nest.body)
        point.__enter__()
        points.append(point)
        blocks[loop] = Block(nest.induction_variable, extent_at(op, loop, nest.induction_variable, bound, step))
    try:
        yield blocks
    finally:
        for point in reversed(points):
            scf.YieldOp([])
            point.__exit__(None, None, None)


def part_of(operand: Operand, blocks: dict[int, Block]) -> ir.Value:
    """The subview of an operand that the iterations in `blocks` touch; all of it along other loops."""
    value = operand.value
    if not any(d in blocks for d in operand.dims):
        return value
    kind = value.type
    offsets, sizes = [], []
    for position, loop in enumerate(operand.dims):
        if loop in blocks:
            offsets.append(blocks[loop].offset)
            sizes.append(blocks[loop].extent)
        else:
            offsets.append(0)
            sizes.append(build.mixed_size(value, position))
    strides, _ = kind.get_strides_and_offset()
    layout = ir.StridedLayoutAttr.get(ir.ShapedType.get_dynamic_stride_or_offset(), list(strides))
    return subview(value, layout, offsets, sizes)


def subview(
    value: ir.Value, layout: ir.Attribute, offsets: Sequence, sizes: Sequence, steps: Sequence[int] | None = None
) -> ir.Value:
    """memref.subview, with unit steps if none are given; ints are static."""
    (o, so), (s, ss) = split(offsets), split(sizes)
    kind = ir.MemRefType.get(ss, value.type.element_type, layout, value.type.memory_space)
    return memref.SubViewOp(kind, value, o, s, [], so, ss, steps or [1] * len(sizes)).result


def with_operands(op: Structured, operands: Sequence[ir.Value], maps: Sequence[ir.AffineMap]) -> linalg.GenericOp:
    """The op again, on other operands; takes the body away from the old one."""
    n_inputs = len(op.operands) - len(op.outputs)
    new = linalg.GenericOp(
        [],
        operands[:n_inputs],
        operands[n_inputs:],
        build.map_array(maps),
        op.op.attributes["iterator_types"],
    )
    op.body.append_to(new.regions[0])
    return new
