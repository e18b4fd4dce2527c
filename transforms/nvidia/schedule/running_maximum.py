"""The running maximum of online softmax in a loop over keys: what brings it up to date, and what follows from that."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ....dialects import build
from ....dialects.build import constant_value
from ....dialects.mlir import ir
from ....dialects.tile import with_layout
from ...attention import is_matmul
from ...rewriting import defining_op, for_body, ops_of
from ..reductions import MAXIMA
from ..registers import adds
from .mask_padding import scaled

PASSING = ("arith.extf", "arith.truncf", "tile.convert_layout", "tile.wait_matmuls", "linalg.copy")
EXPONENTIALS = {"math.exp": math.log(2), "math.exp2": 1.0}  # with what a factor of 2 adds to the exponent


@dataclass
class Update:
    """The op that brings maximum and sum up to date: its results, and what they are where the maximum stays. `unit`: by
    how much the maximum is larger where exponentials are half as large."""

    op: ir.Operation
    maximum: int  # results
    sums: dict[int, ir.Value]  # result → the operand that it multiplies
    factors: list[int]
    unit: float

    @property
    def larger(self) -> ir.Operation:
        """The scalar op that makes the maximum."""
        return defining_op(ops_of(self.op.regions[0].blocks[0])[-1].operands[self.maximum])

    @staticmethod
    def of(op: ir.Operation, old: ir.Value) -> Update | None:
        if op.name != "linalg.generic" or old not in op.operands:
            return None
        block = op.regions[0].blocks[0]
        argument = block.arguments[list(op.operands).index(old)]
        yielded = list(ops_of(block)[-1].operands)
        tops = [i for i, v in enumerate(yielded) if _is_maximum(v, argument)]
        if len(tops) != 1:
            return None
        update = Update(op, tops[0], {}, [], 1.0)
        for i, value in enumerate(yielded):
            if i == tops[0]:
                continue
            made = defining_op(value)
            if made is None:
                return None
            if update._is_factor(value, argument, yielded[tops[0]]):
                update.factors.append(i)
            elif made.name == "arith.mulf":
                a, b = made.operands
                a, b = (b, a) if update._is_factor(a, argument, yielded[tops[0]]) else (a, b)
                if a not in block.arguments or not update._is_factor(b, argument, yielded[tops[0]]):
                    return None
                update.sums[i] = op.operands[a.arg_number]
            else:
                return None
        return update if update.sums and update.factors else None

    def _is_factor(self, value: ir.Value, old: ir.Value, new: ir.Value) -> bool:
        """exp(c·(old − new)), c a positive constant"""
        power = defining_op(value)
        if power is None or power.name not in EXPONENTIALS:
            return False
        difference, factor = scaled(power.operands[0])
        if difference is None or difference.name != "arith.subf" or difference.operands[0] != old:
            return False
        self.unit = EXPONENTIALS[power.name] / factor
        guarded = defining_op(difference.operands[1])
        return difference.operands[1] == new or (
            guarded is not None and guarded.name == "arith.select" and guarded.operands[2] == new
        )


def running_maxima(loop: ir.Operation) -> Iterator[tuple[Update, int]]:
    """What brings a maximum that a loop carries up to date, and which of the loop's results that is."""
    body = for_body(loop)
    yielded = list(ops_of(body)[-1].operands)
    for number, argument in enumerate(list(body.arguments)[1:]):
        for op in ops_of(body):
            update = Update.of(op, argument)
            if update is not None and yielded[number] == op.results[update.maximum]:
                yield update, number


def first_update(maximum: ir.Value) -> Update | None:
    """What gives the maximum of the first iteration, which starts with −inf."""
    op = defining_op(maximum)
    olds = [v for v in op.operands if is_lowest(v)] if op is not None else []
    return Update.of(op, olds[0]) if op is not None and olds else None


def is_lowest(value: ir.Value) -> bool:
    """Whether a tile is −inf everywhere, which is known."""
    op = defining_op(value)
    if op is None or op.name != "arith.constant" or not isinstance(value.type, ir.RankedTensorType):
        return False
    splat = ir.DenseElementsAttr(op.attributes["value"]).get_splat_value()
    return isinstance(splat, ir.FloatAttr) and ir.FloatAttr(splat).value == float("-inf")


def probability_types(body: ir.Block) -> set[str]:
    """The element types of the left operands of matmuls in a loop's body that add to what it carries."""
    return {str(op.operands[0].type.element_type) for op in ops_of(body) if is_matmul(op) and adds(op)}


def weight(loop: ir.Operation) -> float | None:
    """What exponentials are multiplied with, a constant, before matmuls in the loop's body read them; None where it may
    be anything: these products may be too large or too small for their type where the sum of the exponentials is not. A
    choice between them and 0, as of a dropout, has none."""
    lefts = [op.operands[0] for op in ops_of(for_body(loop)) if is_matmul(op)]
    found = set().union(*(_weights(left, loop, 1.0, set()) for left in lefts))
    only = next(iter(found), 1.0) if len(found) <= 1 else None
    return abs(only) if only else None


def _weights(value: ir.Value, loop: ir.Operation, factor: float | None, seen: set[ir.Value]) -> set[float | None]:
    """What the exponentials that `value` is computed from are multiplied with, `factor` included; None: by more than
    casts and constant factors."""
    if value in seen:
        return set()
    seen.add(value)
    op = defining_op(value)
    if op is None:
        outer = value.owner.owner.operation
        if outer == loop and value.arg_number > 0:  # of the iteration before
            return _weights(ops_of(for_body(loop))[-1].operands[value.arg_number - 1], loop, factor, seen)
        is_element = outer.name == "linalg.generic"
        return _weights(outer.operands[value.arg_number], loop, factor, seen) if is_element else set()
    if op.name in EXPONENTIALS:
        return {factor}
    if op.name == "linalg.generic":
        yielded = ops_of(op.regions[0].blocks[0])[-1].operands[list(op.results).index(value)]
        return set() if is_matmul(op) else _weights(yielded, loop, factor, seen)
    varying = [v for v in op.operands if constant_value(v) is None]
    if op.name == "arith.mulf" and len(varying) == 1:
        constant = next(constant_value(v) for v in op.operands if v != varying[0])
        factor = None if factor is None else factor * constant
    elif op.name not in PASSING and not _is_mask(op, loop):
        factor = None
    return set().union(*(_weights(v, loop, factor, seen) for v in varying))


def _is_mask(op: ir.Operation, loop: ir.Operation) -> bool:
    """Whether it chooses between something and 0, and not by an exponential."""
    if op.name != "arith.select" or 0.0 not in map(constant_value, list(op.operands)[1:]):
        return False
    return not _weights(op.operands[0], loop, None, set())


def rows_that(value: ir.Value, check: Callable[[ir.Value], ir.Value]) -> ir.Value:
    """For each row of a tile of rows what `check` says of its element, of type i1."""
    kind = with_layout(ir.RankedTensorType.get(value.type.shape, ir.IntegerType.get_signless(1)), "row")
    empty = ir.Operation.create("tensor.empty", [kind], []).result
    identity = build.projection(1, [0])
    (found,) = build.generic([value], [empty], [identity] * 2, [build.PARALLEL], lambda x, _: check(x))
    return found


def _is_maximum(value: ir.Value, old: ir.Value) -> bool:
    op = defining_op(value)
    return op is not None and op.name in MAXIMA and old in op.operands


def rescaling(update: Update) -> list[ir.Operation] | None:
    """The ops that do nothing but to multiply a tile by a factor; None if a factor is used otherwise."""
    found = []
    for i in update.factors:
        factor = update.op.results[i]
        for use in factor.uses:
            op = use.owner.operation
            if op.name != "linalg.generic" or len(op.results) != 1 or len(op.operands) != 3:
                return None
            block = op.regions[0].blocks[0]
            made = defining_op(ops_of(block)[-1].operands[0])
            if made is None or made.name != "arith.mulf" or set(made.operands) != set(list(block.arguments)[:2]):
                return None
            found.append(op)
    return found


def outermost(value: ir.Value) -> ir.Value:
    """What a value is called outside of the branches that yield it, if nothing else reads it."""
    uses = list(value.uses)
    while len(uses) == 1 and uses[0].owner.operation.name == "scf.yield":
        value = uses[0].owner.operation.parent.operation.results[uses[0].operand_number]
        uses = list(value.uses)
    return value
