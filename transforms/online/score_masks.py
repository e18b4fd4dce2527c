"""The masks between softmax and scores: selects of −∞, or a number low enough to be one, in the place of a score."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ...dialects.build import constant_value
from ...dialects.mlir import ir
from ..rewriting import defining_op
from .masks import scaled_by
from .positions import Scalar, follow, follow_far
from .scores import HIGHEST_MASK, is_score
from .tile_conditions import TileConditions, Where

FAR = -(2.0**100)  # masks this low are far from all scores: x + FAR is FAR in f32 for any |x| < 2⁷⁵
ABSORBING = -(2.0**29)  # x + it is it in f32 for |x| < 16; x = 1000 is one of 16 steps beside it
NO_SCORE = -(2.0**17)  # a maximum below it is a mask's number, however that was scaled and rounded


def lowest_score(number: float) -> float:
    """Below which the maximum of a row is this number of a mask."""
    return max(number / 2, NO_SCORE)


@dataclass(frozen=True)
class Mask:
    """A select that puts `number` at one side in the place of a score, which it takes where `condition` is `wanted`; or
    that is added to one, and 0 there."""

    select: ir.Operation
    side: int
    number: float  # of the score itself
    condition: Scalar
    wanted: bool


def masks_of(scalar: Scalar | None, scale: float = 1.0) -> Iterator[Mask | None]:
    """Those on the way back from what goes into softmax to what must be a score; None where that is not known. `scale`:
    what the number is multiplied by on the way."""
    scalar = scalar and follow_far(scalar)
    op = defining_op(scalar.value) if scalar is not None else None
    mask = _mask(scalar, scale) if op is not None and op.name == "arith.select" else None
    if mask is not None:
        yield mask
        yield from masks_of(scalar.operand(3 - mask.side), scale)
    elif op is not None and op.name == "arith.extf":
        yield from masks_of(scalar.operand(0), scale)
    elif op is not None and (scaled := scaled_by(op)) is not None:
        yield from masks_of(scalar.operand(scaled[0]), scale * scaled[1])
    elif op is not None and op.name == "arith.addf":
        for n in (0, 1):
            yield from masks_of(scalar.operand(n), scale)
    elif scalar is None or not is_score(scalar):
        yield None


def _mask(select: Scalar, scale: float) -> Mask | None:
    sides = [(number * scale, n) for n in (1, 2) if (number := _constant(select.operand(n))) is not None]
    number, side = min(sides, default=(0.0, 0))
    if number > HIGHEST_MASK:
        return None
    return Mask(select.value.owner.operation, side, number, select.operand(0), wanted=side == 2)


def where_live(scalar: Scalar | None, at: TileConditions) -> Where:
    """Where what goes into softmax is surely a score, and no mask's number."""
    found = at.all
    for mask in masks_of(scalar):
        if mask is None:
            return at.none
        truth = at.truth(mask.condition)
        found = at.intersection(found, truth.always if mask.wanted else truth.never)
    return found


def _constant(scalar: Scalar) -> float | None:
    followed = follow(scalar)
    number = None if followed is None else constant_value(followed.value)
    return number if isinstance(number, float) else None
