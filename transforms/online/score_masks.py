"""The masks between softmax and scores: selects of −∞, or a number low enough to be one, in the place of a score."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ...dialects.build import constant_value
from ...dialects.mlir import ir
from ..attention import is_contraction
from ..rewriting import defining_op
from .masks import scaled_by
from .positions import Scalar, element, follow, operand_of, through_views
from .tile_conditions import TileConditions, Where

HIGHEST_MASK = -(2.0**15)  # that of f16 is −65504
LARGEST_TERM = 2.0**20  # a constant that scores are made with, and no mask
OF_SCORES = ("addf", "subf", "mulf", "divf", "negf", "extf", "truncf", "maximumf", "minimumf", "maxnumf", "minnumf")
OF_INTEGERS = ("arith.sitofp", "arith.uitofp")


@dataclass(frozen=True)
class Mask:
    """A select that puts `number` at one side in the place of a score, which it takes where `condition` is `wanted`."""

    select: ir.Operation
    side: int
    number: float  # of the score itself
    condition: Scalar
    wanted: bool


def masks_of(scalar: Scalar | None) -> Iterator[Mask | None]:
    """Those on the way back from what goes into softmax to what must be a score; None where that is not known."""
    scale = 1.0
    while scalar is not None:
        scalar = _followed(scalar)
        op = defining_op(scalar.value)
        if op is not None and op.name == "arith.select":
            sides = [(n, number) for n in (1, 2) if (number := _constant(scalar.operand(n))) is not None]
            if len(sides) == 1 and sides[0][1] * scale <= HIGHEST_MASK:
                ((side, number),) = sides
                yield Mask(op, side, number * scale, scalar.operand(0), side == 2)
                scalar = scalar.operand(3 - side)
                continue
        elif op is not None and op.name == "arith.extf":
            scalar = scalar.operand(0)
            continue
        elif op is not None and (scaled := scaled_by(op)) is not None:
            scalar, scale = scalar.operand(scaled[0]), scale * scaled[1]
            continue
        break
    if scalar is None or not _is_score(scalar):
        yield None


def where_live(scalar: Scalar | None, at: TileConditions) -> Where:
    """Where what goes into softmax is surely a score, and no mask's number."""
    found = at.all
    for mask in masks_of(scalar):
        if mask is None:
            return at.none
        truth = at.truth(mask.condition)
        found = at.intersection(found, truth.always if mask.wanted else truth.never)
    return found


def _is_score(scalar: Scalar) -> bool:
    """Whether a number is made of scores, and of small constants and indices: no mask, and nothing loaded, which may
    hold one."""
    followed = _followed(scalar)
    op = defining_op(followed.value)
    if op is None:
        place = through_views(followed)
        maker = defining_op(place[0]) if place is not None else None
        return maker is not None and is_contraction(maker)
    if op.name == "arith.constant":
        number = constant_value(followed.value)
        return number is not None and abs(number) <= LARGEST_TERM
    if op.name in OF_INTEGERS:
        return True
    known = op.name.removeprefix("arith.") in OF_SCORES or op.name.startswith("math.")
    floats = [n for n, v in enumerate(op.operands) if isinstance(v.type, ir.FloatType)]
    return known and bool(floats) and all(_is_score(followed.operand(n)) for n in floats)


def _constant(scalar: Scalar) -> float | None:
    followed = follow(scalar)
    number = None if followed is None else constant_value(followed.value)
    return number if isinstance(number, float) else None


def _followed(scalar: Scalar) -> Scalar:
    """As far back as it can be followed: where that is an element of a tensor that is not made by element, there."""
    while isinstance(scalar.value.owner, ir.Block):
        place = operand_of(scalar)
        found = element(*place) if place is not None else None
        if found is None:
            return scalar
        scalar = found
    return scalar
