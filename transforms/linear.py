"""Index values as linear forms, and constant upper bounds on them. What cannot be seen through is an atom."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence

from ..dialects.build import constant_value
from ..dialects.mlir import ir
from ..dialects.tiling import Index
from .rewriting import defining_op

DYNAMIC = ir.ShapedType.get_dynamic_size()
CASTS = ("arith.index_cast", "arith.extsi")  # which leave a number what it is
Leaf = Callable[[ir.Value], Index | None]


def linear(value: ir.Value | int, leaf: Leaf = lambda value: None) -> Index:
    """The linear form of an integer value; looks through affine.apply, arith and index casts.

    `leaf` may give the form of a value that is not seen through; where it gives None, the value is an atom.
    """
    if isinstance(value, int):
        return Index(value)
    number = constant_value(value)
    if isinstance(number, int):
        return Index(number)
    op = defining_op(value)
    known = leaf(value)
    if known is not None:
        return known
    atom = Index.of(value)
    if op is None:
        return atom
    if op.name == "affine.apply":
        map_ = op.attributes["map"].value
        return _of_expr(map_.results[0], list(op.operands), map_.n_dims, leaf) or atom
    if op.name in ("arith.index_cast", "arith.extsi"):
        return linear(op.operands[0], leaf)
    if op.name in ("arith.addi", "arith.subi"):
        a, b = (linear(v, leaf) for v in op.operands)
        return a - b if op.name == "arith.subi" else a + b
    if op.name == "arith.muli":
        a, b = (linear(v, leaf) for v in op.operands)
        if b.static is not None:
            return a.scaled(b.const)
        if a.static is not None:
            return b.scaled(a.const)
    return atom


def _of_expr(expr: ir.AffineExpr, operands: Sequence[ir.Value], n_dims: int, leaf: Leaf) -> Index | None:
    if isinstance(expr, ir.AffineConstantExpr):
        return Index(expr.value)
    if isinstance(expr, ir.AffineDimExpr):
        return linear(operands[expr.position], leaf)
    if isinstance(expr, ir.AffineSymbolExpr):
        return linear(operands[n_dims + expr.position], leaf)
    if isinstance(expr, ir.AffineAddExpr | ir.AffineMulExpr):
        a, b = (_of_expr(e, operands, n_dims, leaf) for e in (expr.lhs, expr.rhs))
        if a is None or b is None:
            return None
        if isinstance(expr, ir.AffineAddExpr):
            return a + b
        return a.scaled(b.const) if b.static is not None else b.scaled(a.const) if a.static is not None else None
    return None


def minima(value: ir.Value | int, leaf: Leaf = lambda value: None) -> list[Index]:
    """Linear forms of which `value` is the minimum: the results of affine.min or arith.minsi, else one form."""
    op = None if isinstance(value, int) else defining_op(value)
    if op is not None and op.name == "affine.min":
        map_ = op.attributes["map"].value
        forms = [_of_expr(r, list(op.operands), map_.n_dims, leaf) for r in map_.results]
        return [f for f in forms if f is not None]
    if op is not None and op.name in ("arith.minsi", "arith.minui"):
        return [f for v in op.operands for f in minima(v, leaf)]
    return [linear(value, leaf)]


def upper_bound(value: ir.Value | int) -> int | None:
    """A constant that `value` never exceeds, if one can be seen."""
    bounds = []
    for form in minima(value):
        parts = [None if c < 0 or atom == value else upper_bound(atom) for atom, c in form.terms]
        known = [c * bound for (_, c), bound in zip(form.terms, parts, strict=True) if bound is not None]
        if len(known) == len(parts):
            bounds.append(form.const + sum(known))
    return min(bounds, default=None)


def divisor(value: ir.Value | int) -> int:
    """A number that divides `value`, as large as can be seen; 0 for 0. Counters of loops go by their steps.

    Loops over tiles end, and others begin, where a tile ends or all do: of a minimum or maximum the multiples count.
    """
    if isinstance(value, int):
        return abs(value)
    number, op = constant_value(value), defining_op(value)
    if isinstance(number, int):
        return abs(number)
    if op is None:
        return _divisor_of_counter(value)
    if op.name in ("affine.apply", "affine.min", "affine.max"):
        map_ = op.attributes["map"].value
        return _of_one(_divisor_of_expr(e, list(op.operands), map_.n_dims) for e in map_.results)
    if op.name in ("arith.index_cast", "arith.extsi"):
        return divisor(op.operands[0])
    if op.name in ("arith.addi", "arith.subi"):
        return math.gcd(*(divisor(v) for v in op.operands))
    if op.name in ("arith.minsi", "arith.maxsi", "arith.select"):
        return _of_one(divisor(v) for v in list(op.operands)[-2:])
    if op.name == "arith.muli":
        return math.prod(divisor(v) for v in op.operands)
    return 1


def least_divisor(value: ir.Value, counters: Mapping[ir.Value, int] | None = None) -> int:
    """A number that divides `value` for sure, also a minimum that is one of other numbers. `counters`: what divides
    arguments of blocks."""
    counters = counters or {}
    number, op = constant_value(value), defining_op(value)
    if isinstance(number, int):
        return abs(number)
    if op is None:
        return counters.get(value, 1)
    if op.name in ("arith.addi", "arith.subi", "arith.minsi", "arith.maxsi", "arith.select"):
        return math.gcd(*(least_divisor(v, counters) for v in list(op.operands)[-2:]))
    if op.name == "arith.muli":
        return math.prod(least_divisor(v, counters) for v in op.operands)
    return 1


def _of_one(divisors: Iterable[int]) -> int:
    """Of a value that is one of several."""
    return math.gcd(*found) if (found := [n for n in divisors if n != 1]) else 1


def _divisor_of_counter(value: ir.Value) -> int:
    """Of an argument of a block."""
    loop, number = value.owner.owner.operation, ir.BlockArgument(value).arg_number
    if loop.name == "scf.for" and not number:
        return math.gcd(*(divisor(v) for v in (loop.operands[0], loop.operands[2])))
    if loop.name == "scf.forall" and number < len(loop.opview.staticStep):
        bounds = loop.opview.staticLowerBound[number], loop.opview.staticStep[number]
        return 1 if DYNAMIC in bounds else math.gcd(*bounds)
    return 1


def _divisor_of_expr(expr: ir.AffineExpr, operands: Sequence[ir.Value], n_dims: int) -> int:
    if isinstance(expr, ir.AffineConstantExpr):
        return abs(expr.value)
    if isinstance(expr, ir.AffineDimExpr | ir.AffineSymbolExpr):
        return divisor(operands[expr.position + (n_dims if isinstance(expr, ir.AffineSymbolExpr) else 0)])
    if isinstance(expr, ir.AffineAddExpr | ir.AffineMulExpr | ir.AffineModExpr):
        a, b = (_divisor_of_expr(e, operands, n_dims) for e in (expr.lhs, expr.rhs))
        return a * b if isinstance(expr, ir.AffineMulExpr) else math.gcd(a, b)
    return 1
