"""Rewriting the clone of a loop in which some conditions are known: constants in their place, and what follows."""

from __future__ import annotations

from collections.abc import Sequence

from ...dialects import build
from ...dialects.build import constant_value
from ...dialects.mlir import ir
from ...dialects.tiling.structured import FLOAT_CASTS, indexing_maps, is_structured
from ..copying import without_inputs
from ..rewriting import erase_dead, ops_in, ops_of, terminator
from .masks import Decided

# On ops that a clone is to find again: 2·operand number + value, each.
DECIDED, DECIDED_BY_TEST = "decided_operands", "operands_decided_by_test"


def mark(decided: Sequence[Decided], name: str) -> None:
    """Marks the operands, so that clones of what holds them find them again."""
    for one in decided:
        old = list(one.user.attributes[name]) if name in one.user.attributes else []
        one.user.attributes[name] = ir.DenseI64ArrayAttr.get([*old, 2 * one.number + one.value])


def unmark(op: ir.Operation) -> None:
    for inner in ops_in(op):
        for name in (DECIDED, DECIDED_BY_TEST):
            if name in inner.attributes:
                del inner.attributes[name]


def fold_conditions(loop: ir.Operation, mark: str) -> None:
    """Puts constants for the operands marked so in `loop`, and folds what depends on them alone, from op to op::

        %c = arith.select %visible, %x, %minus_inf      becomes %x
        %y = arith.addf %x, %zero                       becomes %x

    A structured op that then yields a constant, or an operand, is read no more: its users use that.
    """
    for op in ops_in(loop):
        if mark in op.attributes:
            for code in list(op.attributes[mark]):
                with ir.InsertionPoint(op), op.location:
                    op.operands[code // 2] = build.constant(op.operands[code // 2].type, code % 2)
    for op in ops_in(loop, "linalg."):
        if is_structured(op) and len(op.regions):
            body = op.regions[0].blocks[0]
            for inner in ops_of(body):
                value = _folded(inner)
                if value is not None:
                    inner.results[0].replace_all_uses_with(value)
                    inner.erase()
            erase_dead(body)
            if not _forward(op, body):
                _drop_unread(op)


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
    if op.name in FLOAT_CASTS and numbers[0] == 0:
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


def _forward(op: ir.Operation, body: ir.Block) -> bool:
    """Lets users of results that are constants, or operands, use these; True if no one is left and the op is gone."""
    yielded = list(terminator(body).operands)
    maps = indexing_maps(op)[-len(op.results) :]
    for result, value, output in zip(op.results, yielded, maps, strict=True):
        if constant_value(value) is not None:
            _forward_constant(result, value)
        elif isinstance(value.owner, ir.Block) and value.owner == body:
            operand = op.operands[value.arg_number]
            if operand.type == result.type and indexing_maps(op)[value.arg_number] == output:
                result.replace_all_uses_with(operand)
    if any(True for r in op.results for _ in r.uses):
        return False
    op.erase()
    return True


def _drop_unread(op: ir.Operation) -> None:
    """Takes inputs away from an element-wise op that its body no longer reads, such as a mask."""
    first = len(op.operands) - len(op.results)
    block = op.regions[0].blocks[0]
    unread = [i for i in range(first) if not any(True for _ in block.arguments[i].uses)]
    if op.name == "linalg.generic" and unread and indexing_maps(op)[-1].is_permutation:
        without_inputs(op, unread)


def _forward_constant(result: ir.Value, value: ir.Value) -> None:
    for use in list(result.uses):
        user, number = use.owner.operation, use.operand_number
        reads = is_structured(user) and len(user.regions) and number < len(user.operands) - len(user.results)
        if reads:
            inner = user.regions[0].blocks[0]
            with ir.InsertionPoint.at_block_begin(inner):
                constant = value.owner.operation.clone()
            inner.arguments[number].replace_all_uses_with(constant.operation.results[0])
