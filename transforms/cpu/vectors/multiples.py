"""Whether an index is a multiple of a number, as of a tile's size, whatever the bounds of loops are at run time.

Unlike `linear.divisor`, which is for what is faster, not for what is right, this is a proof: of a minimum all that
it may be are multiples.
"""

from __future__ import annotations

from dataclasses import dataclass

from ....dialects.build import constant_value
from ....dialects.mlir import ir
from ...linear import linear
from ...rewriting import defining_op
from .tile_panels import Extent


def is_multiple(value: Extent, number: int) -> bool:
    """True if `value` is known to be a multiple of `number`."""
    if isinstance(value, int):
        return value % number == 0
    if found := choices(value):
        return all(_is_choice_multiple(choice, number) for choice in found)
    op = defining_op(value)
    divisor = constant_value(op.operands[1]) if op is not None and op.name == "arith.divui" else None
    if op is not None and divisor:
        return is_multiple(op.operands[0], number * divisor)
    if op is not None and op.name == "arith.select":
        return all(is_multiple(x, number) for x in list(op.operands)[1:])
    form = linear(value)
    return form.const % number == 0 and all(c % number == 0 or _is_term(atom, number) for atom, c in form.terms)


def _is_term(atom: ir.Value, number: int) -> bool:
    op = defining_op(atom)
    is_known = op is not None and op.name in ("arith.select", "arith.divui", "affine.min", "affine.max")
    return _steps_by(atom, number) or (is_known and is_multiple(atom, number))


@dataclass(frozen=True)
class Choice:
    """One of the numbers of which affine.min or affine.max takes one: an affine expression of operands."""

    expression: ir.AffineExpr
    operands: tuple[ir.Value, ...]
    n_dims: int

    @property
    def value(self) -> ir.Value | None:
        """The operand that it is; None for what is computed from operands."""
        if isinstance(self.expression, ir.AffineDimExpr):
            return self.operands[self.expression.position]
        if isinstance(self.expression, ir.AffineSymbolExpr):
            return self.operands[self.n_dims + self.expression.position]
        return None

    def of(self, expression: ir.AffineExpr) -> Choice:
        return Choice(expression.maybe_downcast(), self.operands, self.n_dims)


def choices(value: ir.Value) -> list[Choice]:
    """The numbers of which `value` is the least or the greatest; none for other ops."""
    op = defining_op(value)
    if op is None or op.name not in ("affine.min", "affine.max", "affine.apply"):
        return []
    map_ = op.attributes["map"].value
    return [Choice(e.maybe_downcast(), tuple(op.operands), map_.n_dims) for e in map_.results]


def _is_choice_multiple(choice: Choice, number: int) -> bool:
    e = choice.expression
    if choice.value is not None:
        return is_multiple(choice.value, number) or _steps_by(choice.value, number)
    if isinstance(e, ir.AffineConstantExpr):
        return e.value % number == 0
    if isinstance(e, ir.AffineAddExpr):
        return all(_is_choice_multiple(choice.of(x), number) for x in (e.lhs, e.rhs))
    if isinstance(e, ir.AffineMulExpr):
        return any(_is_choice_multiple(choice.of(x), number) for x in (e.lhs, e.rhs))
    return False


def _steps_by(value: ir.Value, number: int) -> bool:
    """True for the variable of a loop that starts at a multiple of `number` and goes on by multiples of it."""
    if not isinstance(value.owner, ir.Block):
        return False
    loop = value.owner.owner.operation
    if loop.name == "scf.for" and value == loop.regions[0].blocks[0].arguments[0]:
        lower, upper, step = list(loop.operands)[:3]
        # From a limit that is no multiple on there are no iterations, if the end is not beyond that limit.
        starts = [c for c in choices(lower) if not (c.value is not None and _is_within(upper, lower, c.value))]
        known = all(_is_choice_multiple(c, number) for c in starts) if starts else is_multiple(lower, number)
        return known and is_multiple(step, number)
    if loop.name == "scf.parallel":
        arguments = list(loop.regions[0].blocks[0].arguments)
        i = arguments.index(value)
        return all(is_multiple(loop.operands[i + j * len(arguments)], number) for j in (0, 2))
    return False


def _is_within(upper: ir.Value, lower: ir.Value, limit: ir.Value) -> bool:
    """True if `upper` is at most `limit` where `lower` is."""
    if upper in (lower, limit):
        return True
    op, values = defining_op(upper), [c.value for c in choices(upper)]
    if op is None or not values:
        return False
    within = (v is not None and _is_within(v, lower, limit) for v in values)
    return any(within) if op.name == "affine.min" else all(within)
