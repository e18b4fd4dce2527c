"""Index values as plain data, for whoever explains or draws a schedule after the IR is gone.

A formula is a number, or a list that starts with what it is::

    ["dim", 0, 1]              dimension 1 of the function's argument 0
    ["loop", 64]               the induction variable of a loop around, by its step
    ["add", a, b], ["mul", …], ["floordiv", …], ["ceildiv", …], ["mod", …], ["min", …], ["max", …]
    ["lt", a, b], ["le", …], ["eq", …], ["ne", …]; ["select", condition, a, b]
    ["unknown"]                whatever else

`evaluated` gives its number back, where all that it is made of is known.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from ..dialects import build
from ..dialects.mlir import ir

Formula: TypeAlias = int | list
UNKNOWN: Formula = ["unknown"]

_BINARY = (
    (ir.AffineAddExpr, "add"),
    (ir.AffineMulExpr, "mul"),
    (ir.AffineFloorDivExpr, "floordiv"),
    (ir.AffineCeilDivExpr, "ceildiv"),
    (ir.AffineModExpr, "mod"),
)
_ARITH = {
    "arith.addi": "add",
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
_FOLDED: dict[str, Callable[..., int]] = {
    "add": lambda a, b: a + b,
    "mul": lambda a, b: a * b,
    "floordiv": lambda a, b: a // b,
    "ceildiv": lambda a, b: -(-a // b),
    "mod": lambda a, b: a % b,
    "min": min,
    "max": max,
    "lt": lambda a, b: int(a < b),
    "le": lambda a, b: int(a <= b),
    "eq": lambda a, b: int(a == b),
    "ne": lambda a, b: int(a != b),
    "select": lambda condition, a, b: a if condition else b,
}


def formula(value: ir.Value | int) -> Formula:
    """The formula of an index value."""
    if isinstance(value, int):
        return value
    known = build.constant_value(value)
    if isinstance(known, int):
        return known
    if isinstance(value.owner, ir.Block):
        return _argument(ir.BlockArgument(value))
    op = value.owner.operation
    if op.name in ("affine.apply", "affine.min", "affine.max"):
        affine = op.attributes["map"].value
        operands = list(op.operands)
        results = [_expression(e, operands, affine.n_dims) for e in affine.results]
        return results[0] if len(results) == 1 else [op.name.removeprefix("affine."), *results]
    if op.name in _ARITH:
        return [_ARITH[op.name], *(formula(v) for v in op.operands)]
    if op.name == "arith.cmpi" and op.attributes["predicate"].value in _COMPARISONS:
        name, swapped = _COMPARISONS[op.attributes["predicate"].value]
        sides = [formula(v) for v in op.operands]
        return [name, *(reversed(sides) if swapped else sides)]
    if op.name == "arith.index_cast":
        return formula(op.operands[0])
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
    return UNKNOWN


def _dimension(source: ir.Value, dimension: Any) -> Formula:
    if not isinstance(dimension, int):
        return UNKNOWN
    if not source.type.is_dynamic_dim(dimension):
        return source.type.shape[dimension]
    if isinstance(source.owner, ir.Block):
        argument = ir.BlockArgument(source)
        if argument.owner.owner.operation.name == "func.func":
            return ["dim", argument.arg_number, dimension]
    return UNKNOWN


def _expression(e: ir.AffineExpr, operands: list[ir.Value], dims: int) -> Formula:
    if isinstance(e, ir.AffineConstantExpr):
        return e.value
    if isinstance(e, ir.AffineDimExpr):
        return formula(operands[e.position])
    if isinstance(e, ir.AffineSymbolExpr):
        return formula(operands[dims + e.position])
    for kind, name in _BINARY:
        if isinstance(e, kind):
            return [name, _expression(e.lhs, operands, dims), _expression(e.rhs, operands, dims)]
    return UNKNOWN


def evaluated(found: Formula, leaf: Callable[[list], int | None]) -> int | None:
    """The number that a formula is; `leaf` says what a dimension or loop is, or None."""
    if isinstance(found, int):
        return found
    if found[0] not in _FOLDED:
        return leaf(found)
    parts = [evaluated(one, leaf) for one in found[1:]]
    known = [part for part in parts if part is not None]
    if len(known) != len(parts) or (found[0] in ("floordiv", "ceildiv", "mod") and known[1] <= 0):
        return None
    return _FOLDED[found[0]](*known)


def loops_in(found: Formula) -> list[int]:
    """The steps of the loops that a formula depends on."""
    if isinstance(found, int):
        return []
    if found[0] == "loop":
        return [found[1]]
    return [step for part in found[1:] for step in loops_in(part)]
