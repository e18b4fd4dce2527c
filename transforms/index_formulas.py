"""Index values of the IR as formulas (`formulas.py`)."""

from __future__ import annotations

from typing import Any

from ..dialects import build
from ..dialects.mlir import ir
from .formulas import UNKNOWN, Formula

_BINARY = (
    (ir.AffineAddExpr, "add"),
    (ir.AffineMulExpr, "mul"),
    (ir.AffineFloorDivExpr, "floordiv"),
    (ir.AffineCeilDivExpr, "ceildiv"),
    (ir.AffineModExpr, "mod"),
)
_ARITH = {
    "arith.addi": "add",
    "arith.subi": "sub",
    "arith.muli": "mul",
    "arith.select": "select",
    "arith.minsi": "min",
    "arith.minui": "min",
    "arith.maxsi": "max",
    "arith.maxui": "max",
}
# By the predicate of arith.cmpi: the name, and whether the sides change places.
_COMPARISONS = {
    0: ("eq", False),
    1: ("ne", False),
    2: ("lt", False),
    3: ("le", False),
    4: ("lt", True),
    5: ("le", True),
}


def formula(value: ir.Value | int, known: dict[ir.Value, Formula] | None = None) -> Formula:
    """The formula of an index value. `known`: those of values that were asked for before, which are not made anew:
    bounds of loops refer to each other, over and over."""
    if isinstance(value, int):
        return value
    known = {} if known is None else known
    if value not in known:
        known[value] = _formula(value, known)
    return known[value]


def _formula(value: ir.Value, known: dict[ir.Value, Formula]) -> Formula:
    constant = build.constant_value(value)
    if isinstance(constant, int):
        return constant
    if isinstance(value.owner, ir.Block):
        return _argument(ir.BlockArgument(value))
    op = value.owner.operation
    if op.name in ("affine.apply", "affine.min", "affine.max"):
        affine = op.attributes["map"].value
        operands = [formula(v, known) for v in op.operands]
        results = [_expression(e, operands, affine.n_dims) for e in affine.results]
        return results[0] if len(results) == 1 else [op.name.removeprefix("affine."), *results]
    if op.name in _ARITH:
        return [_ARITH[op.name], *(formula(v, known) for v in op.operands)]
    if op.name == "arith.cmpi" and op.attributes["predicate"].value in _COMPARISONS:
        name, swapped = _COMPARISONS[op.attributes["predicate"].value]
        sides = [formula(v, known) for v in op.operands]
        return [name, *(reversed(sides) if swapped else sides)]
    if op.name == "arith.index_cast":
        return formula(op.operands[0], known)
    if op.name == "tensor.extract" and len(op.operands) == 1 and isinstance(op.operands[0].owner, ir.Block):
        return _argument(ir.BlockArgument(op.operands[0]))
    if op.name == "tensor.dim":
        return _dimension(op.operands[0], build.constant_value(op.operands[1]))
    return UNKNOWN


def _argument(argument: ir.BlockArgument) -> Formula:
    loop = argument.owner.owner.operation
    if loop.name == "scf.for" and argument.arg_number == 0:
        step = build.constant_value(loop.operands[2])
        return ["loop", step] if isinstance(step, int) else UNKNOWN
    if loop.name == "scf.forall":
        steps = list(loop.attributes["staticStep"])
        if argument.arg_number < len(steps) and steps[argument.arg_number] > 0:
            return ["loop", steps[argument.arg_number]]
    if loop.name == "func.func":
        return ["argument", argument.arg_number]
    return UNKNOWN


def _dimension(source: ir.Value, dimension: Any) -> Formula:
    if not isinstance(dimension, int) or not 0 <= dimension < source.type.rank:
        return UNKNOWN
    return dimension_of(source, dimension)


def dimension_of(source: ir.Value, dimension: int) -> Formula:
    """The formula of a tensor's size."""
    if not source.type.is_dynamic_dim(dimension):
        return source.type.shape[dimension]
    while not isinstance(source.owner, ir.Block) and source.owner.name == "tensor.insert_slice":
        source = source.owner.operands[1]  # of whose size the result is
    if isinstance(source.owner, ir.Block):
        argument = ir.BlockArgument(source)
        if argument.owner.owner.operation.name == "func.func":
            return ["dim", argument.arg_number, dimension]
    return UNKNOWN


def _expression(e: ir.AffineExpr, operands: list[Formula], dims: int) -> Formula:
    if isinstance(e, ir.AffineConstantExpr):
        return e.value
    if isinstance(e, ir.AffineDimExpr):
        return operands[e.position]
    if isinstance(e, ir.AffineSymbolExpr):
        return operands[dims + e.position]
    for kind, name in _BINARY:
        if isinstance(e, kind):
            return [name, _expression(e.lhs, operands, dims), _expression(e.rhs, operands, dims)]
    return UNKNOWN
