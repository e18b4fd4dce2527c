"""What masked elements of a tile are to the ops that read them: −∞ as a score, 0 as a probability, nothing to a sum.

A body is evaluated on what is known of its arguments where a score is masked::

    %s = arith.mulf %x, 0.18          −∞
    %e = arith.subf %s, %m            −∞, if m is guarded: select(m == −∞, 0, m)
    %p = math.exp2 %e                 0
    %t = arith.addf %sum, %p          the sum as it was
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeAlias

from ....dialects.build import constant_value
from ....dialects.mlir import ir
from ...guarded_maxima import guarded
from ...rewriting import ops_of

LOW, ZERO = "−∞", "0"
Known: TypeAlias = str | int | None  # LOW, ZERO, the number of an operand that is as it was, or nothing

_CONVERSIONS = ("arith.extf", "arith.truncf", "pair.widen")
_NEUTRAL = {"arith.maxnumf": LOW, "arith.maximumf": LOW, "arith.addf": ZERO}


def yielded(op: ir.Operation, known: dict[int, Known], assumed: dict[ir.Value, Known]) -> list[Known]:
    """What a structured op yields where scores are masked, by what its operands are there, and single values."""
    body = op.regions[0].blocks[0]
    values = {body.arguments[number]: what for number, what in known.items()} | assumed
    *ops, end = ops_of(body)
    for inner in ops:
        for result in inner.results:
            values.setdefault(result, _of(inner, values))
    return [values.get(v) for v in end.operands]


def _of(op: ir.Operation, values: dict[ir.Value, Known]) -> Known:
    operands = [_known(v, values) for v in op.operands]
    if op.name in _CONVERSIONS:
        return operands[0]
    if op.name in ("math.exp", "math.exp2"):
        return ZERO if operands[0] == LOW else None
    if op.name == "pair.exp2":
        return ZERO if all(what == LOW for what in operands) else None
    if op.name == "pair.pack":
        return ZERO if all(what == ZERO for what in operands) else None
    if op.name in ("arith.mulf", "pair.product"):
        return _product(op, operands)
    if op.name == "arith.subf":
        return LOW if operands[0] == LOW and _is_guarded(op.operands[1]) else None
    if op.name in _NEUTRAL:
        for one, other in (operands, reversed(operands)):
            if other == _NEUTRAL[op.name]:
                return one
    return None


def _known(value: ir.Value, values: dict[ir.Value, Known]) -> Known:
    number = constant_value(value)
    if number is None:
        return values.get(value)
    return LOW if number == -math.inf else ZERO if number == 0 else None


def _product(op: ir.Operation, operands: Sequence[Known]) -> Known:
    if ZERO in operands:
        return ZERO
    for what, other in zip(operands, reversed(list(op.operands)), strict=True):
        factor = constant_value(other)
        if what == LOW and factor is not None and 0 < factor < math.inf:
            return LOW
    return None


def _is_guarded(value: ir.Value) -> bool:
    """Whether a number is not −∞: select(x == −∞, c, x), or a constant."""
    number = constant_value(value)
    if number is not None:
        return number != -math.inf
    found = guarded(value)
    return found is not None and _is_guarded(found[1])
