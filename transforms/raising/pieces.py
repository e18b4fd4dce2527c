"""Elements of tensors that are parts of others, or put together of others: slices, concatenations, insertions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...dialects.mlir import arith, ir
from ..linear import DYNAMIC
from .expressions import Expr, Expressions
from .indices import Index, Opaque, Var
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


def chosen_element(tracer: Tracer, op: ir.Operation, indices: tuple[Index, ...]) -> Expr | None:
    """A choice by index between the operands of a concatenation, each of which is the same along all of the dimension,
    as parts of one tensor are: nothing is read where it has no elements::

        %c = tensor.concat dim(1) %x, %y                           // select(j < 4, x[i, j], y[i, j − 4])
    """
    dimension, end, parts = ir.IntegerAttr(op.attributes["dim"]).value, 0, []
    index = indices[dimension]
    for operand in op.operands:
        size = extents(operand)[dimension]
        if size is None:
            return None
        moved = (*indices[:dimension], index.plus(Index((), -end)), *indices[dimension + 1 :])
        end += size
        part = tracer.make.element(operand, moved)
        if not _is_within(tracer.expand(part)):
            return None
        parts.append((part, end))
    chosen = parts.pop()[0]
    for part, end in reversed(parts):
        inside = _compared(tracer.make, arith.CmpIPredicate.slt, tracer.make.index(index), end)
        chosen = tracer.make.op("arith.select", (inside, part, chosen), chosen.type)
    return chosen


def inserted_element(tracer: Tracer, op: ir.Operation, indices: tuple[Index, ...]) -> Expr | None:
    """A choice by index between the source and what it is inserted into, where the source is a slice of that, or
    the same along the dimensions of which it is a part: nothing is read where it has no elements::

        %s1 = tensor.insert_slice %x into %s[0, 3] [5, 4] [1, 1]   // select(j ≥ 3 and j < 7, x[i, j − 3], s[i, j])
        %s1 = tensor.insert_slice %x into %s[0, 0] [5, 4] [1, 2]   // select(j rem 2 = 0, x[i, j / 2], s[i, j])
    """
    source, target = op.operands[0], op.operands[1]
    sizes, offsets, steps = (list(op.attributes[f"static_{name}"]) for name in ("sizes", "offsets", "strides"))
    if len(extents(source)) != len(sizes) or DYNAMIC in (*offsets, *sizes, *steps) or any(s < 1 for s in steps):
        return None
    make = tracer.make
    conditions: list[Expr] = []
    moved: list[Index] = []
    in_steps: dict[Var, tuple[Index, int]] = {}  # what a variable stands for, times the step
    for index, offset, size, step, whole in zip(indices, offsets, sizes, steps, extents(target), strict=True):
        if offset > 0:
            conditions.append(_compared(make, arith.CmpIPredicate.sge, make.index(index), offset))
        if whole is None or offset + size * step < whole:
            conditions.append(_compared(make, arith.CmpIPredicate.slt, make.index(index), offset + size * step))
        place = index.plus(Index((), -offset))
        if step > 1:
            counted = make.index(place.plus(Index((), -(-offset // step) * step)))  # from 0 on, too
            kind = ir.IndexType.get()
            rest = make.op("arith.remui", (counted, make.const(step, kind)), kind)
            conditions.append(_compared(make, arith.CmpIPredicate.eq, rest, 0))
            number = Var(size)
            in_steps[number] = place, step
            place = Index.of(number)
        moved.append(place)
    try:
        inserted = _without_steps(tracer, make.element(source, tuple(moved)), in_steps)
    except Opaque:
        return None
    if not _is_within(tracer.expand(inserted)):
        return None
    if not conditions:
        return inserted
    return make.op("arith.select", (make.all_of(conditions), inserted, make.element(target, indices)), inserted.type)


def _compared(make: Expressions, predicate: arith.CmpIPredicate, index: Expr, bound: int) -> Expr:
    return make.compared(predicate, index, make.const(bound, ir.IndexType.get()))


def _without_steps(tracer: Tracer, expr: Expr, in_steps: dict[Var, tuple[Index, int]]) -> Expr:
    """The expression with place / step for each of the variables, its elements looked into until no quotient is left;
    Opaque where one stays."""

    def replaced(index: Index) -> Index:
        for var, coefficient in index.terms:
            if var in in_steps:
                place, step = in_steps[var]
                if coefficient % step:
                    raise Opaque("what is read is read at a quotient")
                index = index.plus(Index.of(var), -coefficient).plus(place, coefficient // step)
        return index

    def visit(node: Expr) -> Expr | None:
        if node.kind == "index":
            return tracer.make.index(replaced(node.payload))
        if node.kind != "element":
            return None
        tensor, indices = node.payload
        try:
            return tracer.make.element(tensor, tuple(map(replaced, indices)))
        except Opaque:
            inner = tracer.source(node) or tracer.step(node)
            if inner is None:
                raise
            return tracer.make.rewritten(inner, visit)

    return tracer.make.rewritten(expr, visit)


def _is_within(expr: Expr) -> bool:
    """Whether all that an expression reads, whatever the variables are, is of the tensors that it is read of."""
    return all(_is_inside(n) for n in expr.nodes() if n.kind == "element")


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
