"""Reductions whose partial results can be computed apart and combined: the combiner and its neutral element."""

from collections.abc import Callable
from dataclasses import dataclass

from ....dialects.mlir import ir
from ...rewriting import defining_op
from ..structured import Operand, Structured

# op of the body: (kind of vector.reduction, neutral element of floats, of integers by width)
COMBINERS: dict[str, tuple[str, float | Callable[[int], int]]] = {
    "arith.addf": ("add", -0.0),
    "arith.mulf": ("mul", 1.0),
    "arith.maxnumf": ("maxnumf", float("-inf")),
    "arith.minnumf": ("minnumf", float("inf")),
    "arith.maximumf": ("maximumf", float("-inf")),
    "arith.minimumf": ("minimumf", float("inf")),
    "arith.addi": ("add", lambda w: 0),
    "arith.muli": ("mul", lambda w: 1),
    "arith.andi": ("and", lambda w: -1),
    "arith.ori": ("or", lambda w: 0),
    "arith.xori": ("xor", lambda w: 0),
    "arith.maxsi": ("maxsi", lambda w: -(1 << (w - 1))),
    "arith.minsi": ("minsi", lambda w: (1 << (w - 1)) - 1),
    "arith.maxui": ("maxui", lambda w: 0),
    "arith.minui": ("minui", lambda w: -1),
}


@dataclass(frozen=True)
class Combiner:
    """`op` combines two partial results; `kind` is vector.reduction's name for it."""

    op: str
    kind: str
    neutral: float | int


def combiner(op: Structured, out: Operand) -> Combiner | None:
    """How partial results of accumulator `out` combine; None if its body is no plain reduction.

    The yielded value must be COMBINER(accumulator, x) with the accumulator used nowhere else. Conversions between
    the accumulator and the combiner (narrow floats computed with in f32) are looked through.
    """
    value = op.end.operands[op.outputs.index(out)]
    producer = _skip(value, "arith.truncf")
    if producer is None or producer.name not in COMBINERS:
        return None
    accumulator = op.body.arguments[out.number]
    uses = list(accumulator.uses)
    if len(uses) != 1:
        return None
    user = uses[0].owner.operation
    if user.name == "arith.extf":
        uses = list(user.results[0].uses)
        if len(uses) != 1:
            return None
        user = uses[0].owner.operation
    if user != producer or len(list(producer.results[0].uses)) != 1:
        return None
    kind, neutral = COMBINERS[producer.name]
    if callable(neutral):
        element = producer.results[0].type
        neutral = neutral(64 if isinstance(element, ir.IndexType) else element.width)
    return Combiner(producer.name, kind, neutral)


def _skip(value: ir.Value, name: str) -> ir.Operation | None:
    op = defining_op(value)
    if op is not None and op.name == name:
        if len(list(value.uses)) != 1:
            return None
        op = defining_op(op.operands[0])
    return op
