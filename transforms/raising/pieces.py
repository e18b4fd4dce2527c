"""Elements of tensors that are parts of others, or put together of others: slices, concatenations, insertions."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from ...dialects import build
from ...dialects.mlir import arith, ir
from ..linear import DYNAMIC
from .expressions import Expr, Expressions
from .indices import Index
from .loops import extents

if TYPE_CHECKING:
    from .tracing import Tracer


def sliced_element(make: Expressions, op: ir.Operation, indices: tuple[Index, ...]) -> Expr | None:
    """The element of the source of a slice of known offsets and strides.

    A part of a dimension is read by loops of known extents alone: another is taken to be the whole dimension's.
    """
    sizes, offsets, steps = (list(op.attributes[f"static_{name}"]) for name in ("sizes", "offsets", "strides"))
    whole, kept = extents(op.operands[0]), iter(zip(indices, op.results[0].type.shape, strict=True))
    if DYNAMIC in (*offsets, *steps) or None in whole:
        return None
    following = next(kept, None)
    moved = []
    for size, extent, offset, step in zip(sizes, whole, offsets, steps, strict=True):
        index = Index()  # of a dimension of one element that is dropped
        if following is not None and following[1] == size:
            index, following = following[0], next(kept, None)
        elif size != 1:
            return None
        if size != extent and None in (v.extent for v in index.vars):
            return None
        moved.append(index.scaled(step).plus(Index((), offset)))
    return make.element(op.operands[0], tuple(moved)) if following is None else None


def concatenated_element(make: Expressions, op: ir.Operation, indices: tuple[Index, ...]) -> Expr | None:
    """The element of the one operand of a concatenation that the index is sure to be in."""
    dimension = ir.IntegerAttr(op.attributes["dim"]).value
    index, start = indices[dimension], 0
    lowest, highest = index.bounds()
    for operand in op.operands:
        size = extents(operand)[dimension]
        if size is None or highest is None:
            return None
        if start <= lowest and highest < start + size:
            moved = [i.plus(Index((), -start)) if d == dimension else i for d, i in enumerate(indices)]
            return make.element(operand, tuple(moved))
        start += size
    return None


def inserted_element(tracer: Tracer, op: ir.Operation, indices: tuple[Index, ...]) -> Expr | None:
    """A choice by index between the source and what it is inserted into, where the source is a slice of that, or
    the same along the dimensions of which it is a part: nothing is read where it has no elements::

        %s1 = tensor.insert_slice %x into %s[0, 3] [5, 4] [1, 1]  // select(j ≥ 3 and j < 7, x[i, j − 3], s[i, j])
    """
    source, target = op.operands[0], op.operands[1]
    sizes, offsets, steps = (list(op.attributes[f"static_{name}"]) for name in ("sizes", "offsets", "strides"))
    if len(extents(source)) != len(sizes) or DYNAMIC in (*offsets, *sizes) or any(s != 1 for s in steps):
        return None
    make, flag, kind = tracer.make, ir.IntegerType.get_signless(1), ir.IndexType.get()
    conditions: list[Expr] = []

    def require(predicate: arith.CmpIPredicate, index: Index, bound: int) -> None:
        compared = (make.index(index), make.const(bound, kind))
        number = build.i64_attribute(int(predicate))
        conditions.append(make.op("arith.cmpi", compared, flag, (("predicate", number),)))

    for index, offset, size, whole in zip(indices, offsets, sizes, extents(target), strict=True):
        if offset > 0:
            require(arith.CmpIPredicate.sge, index, offset)
        if offset + size != whole:
            require(arith.CmpIPredicate.slt, index, offset + size)
    moved = [index.plus(Index((), -offset)) for index, offset in zip(indices, offsets, strict=True)]
    inserted = make.element(source, tuple(moved))
    if not all(_is_inside(n) for n in tracer.expand(inserted).nodes() if n.kind == "element"):
        return None
    if not conditions:
        return inserted
    both = functools.reduce(lambda a, b: make.op("arith.andi", (a, b), flag), conditions)
    return make.op("arith.select", (both, inserted, make.element(target, indices)), inserted.type)


def _is_inside(element: Expr) -> bool:
    """Whether all of its indices, whatever the variables are, are of its tensor."""
    tensor, indices = element.payload
    for index, size in zip(indices, extents(tensor), strict=True):
        lowest, highest = index.bounds()
        if index.single is not None and not index.constant:
            if index.single.extent != size:
                return False
        elif lowest < 0 or highest is None or size is None or highest >= size:
            return False
    return True
