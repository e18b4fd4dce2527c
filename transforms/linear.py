"""Index values as linear forms Σ cᵢ·vᵢ + c, and constant upper bounds on them."""

from collections.abc import Sequence
from dataclasses import dataclass

from ..dialects.build import constant_value
from ..dialects.mlir import ir
from .rewriting import defining_op

DYNAMIC = ir.ShapedType.get_dynamic_size()


@dataclass(frozen=True)
class Linear:
    """Σ coefficient·value + constant; terms are unordered and have no zero coefficients."""

    terms: frozenset[tuple[ir.Value, int]]
    constant: int = 0

    def coefficient(self, value: ir.Value) -> int:
        return next((c for v, c in self.terms if v == value), 0)

    def without(self, value: ir.Value) -> "Linear":
        return Linear(frozenset((v, c) for v, c in self.terms if v != value), self.constant)

    @property
    def values(self) -> list[ir.Value]:
        return [v for v, _ in self.terms]


def of_constant(value: int) -> Linear:
    return Linear(frozenset(), value)


def add(a: Linear, b: Linear) -> Linear:
    sums = dict(a.terms)
    for value, c in b.terms:
        sums[value] = sums.get(value, 0) + c
    return Linear(frozenset((v, c) for v, c in sums.items() if c), a.constant + b.constant)


def scale(a: Linear, factor: int) -> Linear:
    return Linear(frozenset((v, c * factor) for v, c in a.terms if factor), a.constant * factor)


def linear(value: ir.Value | int) -> Linear:
    """The linear form of an index value; looks through affine.apply and arith."""
    if isinstance(value, int):
        return of_constant(value)
    number = constant_value(value)
    if isinstance(number, int):
        return of_constant(number)
    op = defining_op(value)
    atom = Linear(frozenset([(value, 1)]))
    if op is None:
        return atom
    if op.name == "affine.apply":
        map_ = op.attributes["map"].value
        return _of_expr(map_.results[0], list(op.operands), map_.n_dims) or atom
    if op.name in ("arith.addi", "arith.subi"):
        a, b = (linear(v) for v in op.operands)
        return add(a, scale(b, -1 if op.name == "arith.subi" else 1))
    if op.name == "arith.muli":
        a, b = (linear(v) for v in op.operands)
        if not b.terms:
            return scale(a, b.constant)
        if not a.terms:
            return scale(b, a.constant)
    return atom


def _of_expr(expr: ir.AffineExpr, operands: Sequence[ir.Value], n_dims: int) -> Linear | None:
    expr = expr.maybe_downcast() if hasattr(expr, "maybe_downcast") else expr
    if isinstance(expr, ir.AffineConstantExpr):
        return of_constant(expr.value)
    if isinstance(expr, ir.AffineDimExpr):
        return linear(operands[expr.position])
    if isinstance(expr, ir.AffineSymbolExpr):
        return linear(operands[n_dims + expr.position])
    if isinstance(expr, ir.AffineAddExpr | ir.AffineMulExpr):
        a, b = _of_expr(expr.lhs, operands, n_dims), _of_expr(expr.rhs, operands, n_dims)
        if a is None or b is None:
            return None
        if isinstance(expr, ir.AffineAddExpr):
            return add(a, b)
        return scale(a, b.constant) if not b.terms else scale(b, a.constant) if not a.terms else None
    return None


def minima(value: ir.Value | int) -> list[Linear]:
    """Linear forms of which `value` is the minimum: the results of affine.min or arith.minsi, else one form."""
    op = None if isinstance(value, int) else defining_op(value)
    if op is not None and op.name == "affine.min":
        map_ = op.attributes["map"].value
        forms = [_of_expr(r, list(op.operands), map_.n_dims) for r in map_.results]
        return [f for f in forms if f is not None]
    if op is not None and op.name in ("arith.minsi", "arith.minui"):
        return [f for v in op.operands for f in minima(v)]
    return [linear(value)]


def upper_bound(value: ir.Value | int) -> int | None:
    """A constant that `value` never exceeds, if one can be seen."""
    bounds = []
    for form in minima(value):
        total: int | None = form.constant
        for atom, c in form.terms:
            bound = None if c < 0 or atom == value else upper_bound(atom)
            if bound is None:
                total = None
                break
            total += c * bound
        if total is not None:
            bounds.append(total)
    return min(bounds, default=None)
