"""Whether two ops, or what two values are computed from, do the same."""

from __future__ import annotations

import operator
from collections.abc import Callable

from ..dialects.mlir import ir
from .rewriting import Values, defining_op, ops_of

Alike = Callable[[ir.Value, ir.Value], bool]


def is_same(a: ir.Operation, b: ir.Operation, known: Values, alike: Alike = operator.eq) -> bool:
    """Whether `a` and `b` do the same, regions and all, where values of `a` are those of `b` that `known` says.
    `alike`: whether two values are taken for the same one."""
    if a.name != b.name or [r.type for r in a.results] != [r.type for r in b.results]:
        return False
    if len(a.operands) != len(b.operands):
        return False
    if not all(alike(known.get(x, x), y) for x, y in zip(a.operands, b.operands, strict=True)):
        return False
    if not have_same_attributes(a, b):
        return False
    return have_same_regions(a, b, known, alike)


def have_same_regions(a: ir.Operation, b: ir.Operation, known: Values, alike: Alike) -> bool:
    """The same for what is inside of them alone."""
    if len(a.regions) != len(b.regions):
        return False
    for of_a, of_b in zip(a.regions, b.regions, strict=True):
        if len(of_a.blocks) != len(of_b.blocks):
            return False
        for block_a, block_b in zip(of_a.blocks, of_b.blocks, strict=True):
            if [v.type for v in block_a.arguments] != [v.type for v in block_b.arguments]:
                return False
            inner = known | dict(zip(block_a.arguments, block_b.arguments, strict=True))
            ops_a, ops_b = (ops_of(block) for block in (block_a, block_b))
            if len(ops_a) != len(ops_b):
                return False
            for op_a, op_b in zip(ops_a, ops_b, strict=True):
                if not is_same(op_a, op_b, inner, alike):
                    return False
                inner.update(zip(op_a.results, op_b.results, strict=True))
    return True


def have_same_attributes(a: ir.Operation, b: ir.Operation) -> bool:
    """Whether they have the same ones, by name."""
    return {n: a.attributes[n] for n in a.attributes} == {n: b.attributes[n] for n in b.attributes}


def is_same_value(a: ir.Value, b: ir.Value, known: Values) -> bool:
    """The same for what values are computed from, within their blocks."""
    if known.get(a, a) == b:
        return True
    op_a, op_b = defining_op(a), defining_op(b)
    if op_a is None or op_b is None or op_a.name != op_b.name or len(op_a.operands) != len(op_b.operands):
        return False
    if not have_same_attributes(op_a, op_b):
        return False
    if len(op_a.regions) or list(op_a.results).index(a) != list(op_b.results).index(b):
        return False
    return all(is_same_value(x, y, known) for x, y in zip(op_a.operands, op_b.operands, strict=True))
