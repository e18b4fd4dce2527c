"""The pass ``collapse-loops``."""

import math
from dataclasses import dataclass
from typing import TypeAlias

from ....dialects import build
from ....dialects.mlir import arith, ir, linalg, memref
from ...linear import DYNAMIC
from ...passes import Pass
from ...rewriting import ops_in
from ..memory import has_identity_layout
from ..structured import NO_LOOP, Operand, Structured, structured_of

Collapsed: TypeAlias = dict[tuple[ir.Value, int], ir.Value]  # by the buffer, and which dimension joins the one before

LANES = 16  # a loop of so many iterations fills vectors by itself


@dataclass(frozen=True)
class CollapseLoops(Pass):
    """Makes one loop of two that go over neighbours in memory, if the inner one is too short to fill a vector::

        linalg.generic {S[n, h, m] += Q[d, h, m]·K[n, d]} ins(%q, %k : memref<64x4x4xf32>, …) outs(%s)
    becomes
        %qr = memref.collapse_shape %q [[0], [1, 2]] : memref<64x4x4xf32> into memref<64x16xf32>
        %sr = memref.collapse_shape %s [[0], [1, 2]] : memref<256x4x4xf32> into memref<256x16xf32>
        linalg.generic {S[n, r] += Q[d, r]·K[n, d]} ins(%qr, %k) outs(%sr)

    A few queries and the heads of a group are the lanes of one vector. The loops are parallel, and in all operands that
    have them next to each other, without a gap.
    """

    def run(self, op: ir.Operation) -> None:
        known: Collapsed = {}
        for generic in ops_in(op, "linalg.generic"):
            collapsed: ir.Operation | None = generic
            while collapsed is not None:
                collapsed = _collapse_once(collapsed, known)


def _collapse_once(generic: ir.Operation, known: Collapsed) -> ir.Operation | None:
    op = structured_of(generic)
    pair = None if op is None else _pair(op)
    return None if op is None or pair is None else _collapse(op, *pair, known)


def _pair(op: Structured) -> tuple[int, int] | None:
    """An outer and an inner loop to be made one."""
    for operand in op.operands:
        if len(operand.dims) < 2 or operand.strides[-1] != 1 or NO_LOOP in operand.dims[-2:]:
            continue
        outer, inner = operand.dims[-2:]
        size = op.sizes[inner] or 1
        if (
            not 1 < size < LANES
            or op.sizes[outer] in (None, 1)
            or not (op.is_parallel(outer) and op.is_parallel(inner))
        ):
            continue
        if all(_are_neighbours(o, outer, inner, size) for o in op.operands):
            return outer, inner
    return None


def _are_neighbours(operand: Operand, outer: int, inner: int, size: int) -> bool:
    """True if the operand has neither of the loops, or the outer one takes a step where the inner one, of `size`
    iterations, is through."""
    if not {outer, inner} & operand.loops:
        return True
    if not {outer, inner} <= operand.loops:
        return False
    first, second = operand.dims.index(outer), operand.dims.index(inner)
    return second == first + 1 and operand.strides[first] == size * operand.strides[second]


def _collapse(op: Structured, outer: int, inner: int, known: Collapsed) -> ir.Operation:
    """The op with one loop in the place of two, in the place of the old one."""
    loops = [d for d in range(op.n_loops) if d != inner]
    zero = ir.AffineExpr.get_constant(0)
    values, maps = [], []
    for o in op.operands:
        values.append(_collapsed(o.value, o.dims.index(inner), known) if inner in o.loops else o.value)
        results = [zero if d == NO_LOOP else ir.AffineExpr.get_dim(loops.index(d)) for d in o.dims if d != inner]
        maps.append(ir.AffineMapAttr.get(ir.AffineMap.get(len(loops), 0, results)))
    kinds = ir.ArrayAttr.get([op.op.attributes["iterator_types"][d] for d in loops])
    n_inputs = len(op.operands) - len(op.outputs)
    with ir.InsertionPoint(op.op), op.op.location:
        new = linalg.GenericOp([], values[:n_inputs], values[n_inputs:], ir.ArrayAttr.get(maps), kinds).operation
        op.body.append_to(new.regions[0])
    for index in ops_in(new, "linalg.index"):
        d = ir.IntegerAttr(index.attributes["dim"]).value
        with ir.InsertionPoint(index), index.location:
            number = linalg.IndexOp(loops.index(outer if d == inner else d)).result
            if d in (outer, inner):
                split = arith.divui if d == outer else arith.remui
                number = split(number, build.index(op.sizes[inner] or 1))
        index.results[0].replace_all_uses_with(number)
        index.erase()
    op.op.erase()
    return new


def _collapsed(value: ir.Value, position: int, known: Collapsed) -> ir.Value:
    """The buffer with the dimension at `position` and the one before it as one, made where the buffer is: one view for
    all ops, as others know it again by it."""
    if (value, position) not in known:
        kind = value.type
        groups = [[d, d + 1] if d == position - 1 else [d] for d in range(kind.rank) if d != position]
        sizes = [[kind.shape[d] for d in group] for group in groups]
        shape = [DYNAMIC if DYNAMIC in group else math.prod(group) for group in sizes]
        strides, offset = kind.get_strides_and_offset()
        layout = None
        if not has_identity_layout(kind):
            layout = ir.StridedLayoutAttr.get(offset, [strides[group[-1]] for group in groups])
        result = ir.MemRefType.get(shape, kind.element_type, layout, kind.memory_space)
        owner = value.owner
        is_block = isinstance(owner, ir.Block)
        with ir.InsertionPoint.at_block_begin(owner) if is_block else ir.InsertionPoint.after(owner), _location(value):
            known[value, position] = memref.CollapseShapeOp(result, value, groups).result
    return known[value, position]


def _location(value: ir.Value) -> ir.Location:
    return value.owner.owner.location if isinstance(value.owner, ir.Block) else value.owner.location
