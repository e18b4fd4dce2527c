"""Rewriting the clone of a loop in which some conditions are known: constants in their place, and what follows."""

from __future__ import annotations

from collections.abc import Sequence

from ...dialects import build
from ...dialects.build import constant_value
from ...dialects.mlir import ir
from ...dialects.tiling.structured import indexing_maps, is_structured
from ..rewriting import ops_in
from .masks import Decided

_MARK = "decided_operands"  # on ops that a clone is to find again: 2·operand number + value, each


def mark(decided: Sequence[Decided]) -> None:
    """Marks the operands, so that clones of what holds them can be specialised."""
    for one in decided:
        old = list(one.user.attributes[_MARK]) if _MARK in one.user.attributes else []
        one.user.attributes[_MARK] = ir.DenseI64ArrayAttr.get([*old, 2 * one.number + one.value])


def unmark(op: ir.Operation) -> None:
    for inner in ops_in(op):
        if _MARK in inner.attributes:
            del inner.attributes[_MARK]


def specialise(loop: ir.Operation) -> None:
    """Puts constants for the marked operands in `loop`, and folds what depends on them alone, from op to op::

        %c = arith.select %visible, %x, %minus_inf      becomes %x
        %y = arith.addf %x, %zero                       becomes %x

    A structured op that then yields a constant, or an operand, is read no more: its users use that.
    """
    i1 = ir.IntegerType.get_signless(1, loop.context)
    for op in ops_in(loop):
        if _MARK in op.attributes:
            for code in list(op.attributes[_MARK]):
                with ir.InsertionPoint(op), op.location:
                    op.operands[code // 2] = build.constant(i1, code % 2)
    for op in ops_in(loop, "linalg."):
        if is_structured(op) and len(op.regions):
            body = op.regions[0].blocks[0]
            for inner in [o.operation for o in body.operations]:
                value = _folded(inner)
                if value is not None:
                    inner.results[0].replace_all_uses_with(value)
                    inner.erase()
            _forward(op, body)


def _folded(op: ir.Operation) -> ir.Value | None:
    """The operand, or the new constant, that the one result of `op` always is."""
    numbers = [constant_value(v) for v in op.operands]
    if op.name == "arith.select" and numbers[0] is not None:
        return op.operands[1 if numbers[0] else 2]
    if op.name in ("arith.andi", "arith.ori", "arith.xori") and op.results[0].type == ir.IntegerType.get_signless(
        1, op.context
    ):
        return _folded_logic(op, numbers)
    if op.name == "arith.addf":
        return next((op.operands[1 - i] for i in (0, 1) if numbers[i] == 0), None)
    if op.name in ("arith.extf", "arith.truncf") and numbers[0] == 0:
        with ir.InsertionPoint(op), op.location:
            return build.constant(op.results[0].type, 0.0)
    return None


def _folded_logic(op: ir.Operation, numbers: Sequence[int | float | None]) -> ir.Value | None:
    for i in (0, 1):
        if numbers[i] is None:
            continue
        neutral = {"arith.andi": True, "arith.ori": False, "arith.xori": False}[op.name]
        if bool(numbers[i]) == neutral:
            return op.operands[1 - i]
        if op.name != "arith.xori":
            return op.operands[i]
        if numbers[1 - i] is not None:
            with ir.InsertionPoint(op), op.location:
                return build.constant(op.results[0].type, not numbers[1 - i])
    return None


def _forward(op: ir.Operation, body: ir.Block) -> None:
    """Lets users of results that are constants, or operands, use these."""
    yielded = list(body.operations[len(body.operations) - 1].operation.operands)
    maps = indexing_maps(op)[-len(op.results) :]
    for result, value, output in zip(op.results, yielded, maps, strict=True):
        if constant_value(value) is not None:
            _forward_constant(result, value)
        elif isinstance(value.owner, ir.Block) and value.owner == body:
            operand = op.operands[value.arg_number]
            if operand.type == result.type and indexing_maps(op)[value.arg_number] == output:
                result.replace_all_uses_with(operand)
    if not any(True for r in op.results for _ in r.uses):
        op.erase()


def _forward_constant(result: ir.Value, value: ir.Value) -> None:
    for use in list(result.uses):
        user, number = use.owner.operation, use.operand_number
        reads = is_structured(user) and len(user.regions) and number < len(user.operands) - len(user.results)
        if reads:
            inner = user.regions[0].blocks[0]
            with ir.InsertionPoint.at_block_begin(inner):
                constant = value.owner.operation.clone()
            inner.arguments[number].replace_all_uses_with(constant.operation.results[0])
