"""The pass ``exp-to-exp2``."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass

from ...dialects import build
from ...dialects.build import constant_value
from ...dialects.linalg_ext.softmax import EXP2
from ...dialects.mlir import arith, ir
from ...dialects.tiling.structured import all_parallel
from ..attention import SOFTMAXES, is_contraction
from ..extents import known_sizes
from ..graph import backward_slice
from ..passes import Pass, remark
from ..reshapes import VIEWS
from ..rewriting import defining_op, ops_in, single_use, terminator
from .match_accumulation import MAX, carried_levels, filled_with, first_value, zero_like

LOG2_E = math.log2(math.e)
LARGEST = {32: (2 - 2**-23) * 2.0**127, 64: sys.float_info.max}
BOTH_OPERANDS = ("arith.addf", "arith.subf", "arith.maxnumf", "arith.maximumf", "arith.minnumf", "arith.minimumf")
SEEN_THROUGH = ("arith.extf", "arith.negf")
CHOSEN = ("arith.addf", "arith.subf", "arith.select")
EXPONENTIALS = ("math.exp", "math.exp2")
LARGEST_OF_NARROW = 2.0**12  # with twice its rounding in f32 an exponential is off by 2^-11, as f16 is
# A maximum that a log of a sum is added to is none of these any more.
PASSED_ON = ("tensor.insert_slice", "arith.subf", "arith.mulf", "arith.select", "arith.maxnumf", "arith.maximumf")


@dataclass(frozen=True)
class ExpToExp2(Pass):
    """Takes powers of 2 in place of e, with log2(e) folded into a scale that the scores have already::

        %x = linalg.generic … { select(visible, s · 0.125, −∞) }
        %p:4 = linalg_ext.unnorm_softmax dimension(1) ins(%x) …
    becomes
        %x = linalg.generic … { select(visible, s · 0.18033688, −∞) }
        %p:4 = linalg_ext.unnorm_softmax {exp2} dimension(1) ins(%x) …

    exp(x − m) = exp2(x·log2 e − m·log2 e) holds for whatever x is; what is needed is that all of x is multiplied, at no
    cost. The factor goes backwards through what is homogeneous: sums, differences, maxima, select, −∞ and 0, a product
    through one of its factors, matmuls into an operand, until it meets constants. A bias that is loaded, tanh, or
    whatever else stops it: then the softmax stays. Constants of f16 and bf16 would round the scale: they stop it too.

    A mask's number next to the end of the range becomes the least number: no score can have been below it that the
    product with log2(e) has not made −∞.

    The running maximum, which is carried in units of ln 2, starts from −∞; where its last value is used, that is
    multiplied by ln 2, so that it means what it meant. The sum of the exponentials is what it was. Where scores are
    made once more, for exponentials relative to that maximum, behind the loop or by who gets it as a result, as a
    derivative does, the softmax stays: those of the loop would be rounded as multiples of log2(e), and where m is 500
    the last place of x − m is 3e-5 of exp(x − m). That is less than what scores of f16 or bf16 make of their results:
    these are not held up by it, unless numbers stand among them that are large, and exact, such as a mask's.
    """

    def run(self, op: ir.Operation) -> None:
        for softmax in [o for o in ops_in(op, *SOFTMAXES) if EXP2 not in o.attributes]:
            levels = carried_levels(softmax.operands[1 + MAX], softmax.results[MAX])
            first = first_value(levels) if levels else softmax.operands[1 + MAX]
            final = levels[-1].result if levels else softmax.results[MAX]
            scaling = Scaling(LOG2_E)
            if not filled_with(first, -math.inf):
                remark(softmax, f"'{softmax.name}' stays with exp: its maximum does not start from −inf")
            elif (reason := _why_a_score(final)) and not _of_narrow(softmax):
                remark(softmax, f"'{softmax.name}' stays with exp: {reason}")
            elif not scaling.of_tensor(softmax.operands[0]):
                remark(softmax, f"'{softmax.name}' stays with exp: {scaling.obstacle}")
            else:
                scaling.apply()
                softmax.attributes[EXP2] = ir.UnitAttr.get(softmax.context)
                _scale_uses(final, math.log(2))
                remark(softmax, "computes exp2, with log2(e) in the constants before it")


class Scaling:
    """Multiplying a value by a positive factor by changing constants alone; `apply` does what was found to do it."""

    def __init__(self, factor: float):
        self.factor = factor
        self.obstacle = ""
        self._edits: list[Callable[[], None]] = []

    def apply(self) -> None:
        for edit in self._edits:
            edit()

    def _first_of(self, *ways: Callable[[], bool]) -> bool:
        for way in ways:
            before = len(self._edits)
            if way():
                return True
            del self._edits[before:]
        return False

    def _blocked(self, reason: str) -> bool:
        self.obstacle = reason
        return False

    def of_tensor(self, value: ir.Value) -> bool:
        """Whether the tensor, which must be used once, can be scaled."""
        op = defining_op(value)
        if op is None:
            return self._blocked("an argument would have to be multiplied by log2(e)")
        if op.name == "linalg.fill" and constant_value(op.operands[0]) in (0.0, -math.inf):
            return True
        if not single_use(value):
            return self._blocked(f"what '{op.name}' computes on the way to it is used elsewhere too")
        if op.name in VIEWS:
            return self.of_tensor(op.operands[0])
        if is_contraction(op) and zero_like(op.operands[2]):
            return self._first_of(lambda: self.of_tensor(op.operands[0]), lambda: self.of_tensor(op.operands[1]))
        if not all_parallel(op) or not len(op.regions) or len(op.results) != 1:
            return self._blocked(f"'{op.name}' would have to be multiplied by log2(e)")
        body = op.regions[0].blocks[0]
        return self.of_operand(op, terminator(body), 0)

    def of_operand(self, owner: ir.Operation, user: ir.Operation, number: int) -> bool:
        """Whether the scalar that is operand `number` of `user`, in the body of `owner`, can be scaled there."""
        value = user.operands[number]
        constant = constant_value(value)
        if constant is not None:
            return constant in (0.0, -math.inf, math.inf) or self._of_constant(user, number, self.factor)
        if not single_use(value):
            return self._blocked("a score is used more than once on the way to it")
        op = defining_op(value)
        if op is None:
            if value.owner != owner.regions[0].blocks[0]:
                return self._blocked("an argument would have to be multiplied by log2(e)")
            tensor = owner.operands[value.arg_number]
            if not isinstance(tensor.type, ir.RankedTensorType):
                return self._blocked("a scalar would have to be multiplied by log2(e)")
            return self.of_tensor(tensor)
        if op.name in SEEN_THROUGH:
            return self.of_operand(owner, op, 0)
        if op.name in BOTH_OPERANDS:
            return self.of_operand(owner, op, 0) and self.of_operand(owner, op, 1)
        if op.name == "arith.select":
            return self.of_operand(owner, op, 1) and self.of_operand(owner, op, 2)
        if op.name == "arith.mulf":
            order = (0, 1) if constant_value(op.operands[0]) is not None else (1, 0)
            return self._first_of(*(lambda i=i: self._factor(owner, op, i) for i in order))
        if op.name == "arith.divf":
            if constant_value(op.operands[1]) is not None:
                return self._of_constant(op, 1, 1 / self.factor)
            return self.of_operand(owner, op, 0)
        return self._blocked(f"the result of '{op.name}' would have to be multiplied by log2(e)")

    def _factor(self, owner: ir.Operation, op: ir.Operation, number: int) -> bool:
        """As `of_operand`; but that a factor is 0 or infinite says nothing about the product."""
        constant = constant_value(op.operands[number])
        return (
            self._of_constant(op, number, self.factor) if constant is not None else self.of_operand(owner, op, number)
        )

    def _of_constant(self, user: ir.Operation, number: int, factor: float) -> bool:
        kind, constant = user.operands[number].type, constant_value(user.operands[number])
        if build.is_narrow(kind):
            return self._blocked(f"a constant of {kind} would be rounded")
        largest = LARGEST[kind.width]
        if constant * factor > largest:
            return self._blocked(f"the constant {constant} times log2(e) is beyond the range of {kind}")

        def edit() -> None:
            with ir.InsertionPoint(user), user.location:
                user.operands[number] = build.constant(kind, max(constant * factor, -largest))

        self._edits.append(edit)
        return True


def _of_narrow(softmax: ir.Operation) -> bool:
    """Whether scores are products of f16, bf16 or less, and what is added to them, or chosen for them, is no number of
    which the last place in f32 is more than these round to."""
    scores = defining_op(softmax.operands[0])
    ops = [scores, *backward_slice(scores)] if scores is not None else []
    products = [op for op in ops if is_contraction(op)]
    if not products or not all(build.is_narrow(op.operands[0].type.element_type) for op in products):
        return False
    values = (v for op in ops if all_parallel(op) for inner in ops_in(op, *CHOSEN) for v in inner.operands)
    numbers = (number for v in values if isinstance(number := constant_value(v), float) and not math.isinf(number))
    return all(abs(number) <= LARGEST_OF_NARROW for number in numbers)


def _why_a_score(value: ir.Value) -> str:
    """Why the maximum that the tensor holds is to be one of the scores, to the last digit: who makes exponentials
    relative to it, or to a choice between it and something else; "" if no one does."""
    found, pending = {value}, [value]
    while pending:
        for use in pending.pop().uses:
            user, number = use.owner.operation, use.operand_number
            if user.name in EXPONENTIALS:
                return "scores are made once more, for their maximum"
            if user.name == "func.return":
                return "its maximum is a result, which others may make exponentials relative to"
            new: list[ir.Value] = []
            if user.name == "linalg.generic":
                new = [user.regions[0].blocks[0].arguments[number]]
            elif user.name == "linalg.yield":
                new = [user.parent.results[number]]
            elif user.name == "tensor.parallel_insert_slice":
                place = user.operands[1]  # an argument of the parallel loop, whose last ones are the results
                loop = place.owner.owner
                new = [loop.results[place.arg_number - len(place.owner.arguments) + len(loop.results)]]
            elif user.name in VIEWS or user.name in PASSED_ON:
                new = list(user.results)
            pending += [one for one in new if one not in found]
            found.update(new)
    return ""


def _scale_uses(value: ir.Value, factor: float) -> None:
    """Lets all users of the tensor `value` use it multiplied by `factor`."""
    users = list(value.uses)
    if not users:
        return
    kind = value.type
    compute = build.compute_type(kind.element_type)
    with ir.InsertionPoint.after(value.owner.operation), value.owner.operation.location:
        number = build.constant(compute, factor)
        identity = build.projection(kind.rank, range(kind.rank))
        (scaled,) = build.generic(
            [value],
            [build.empty(known_sizes(value), kind.element_type)],
            [identity, identity],
            [build.PARALLEL] * kind.rank,
            lambda m, _: build.convert(arith.mulf(build.convert(m, compute), number), kind.element_type),
        )
    for use in users:
        use.owner.operation.operands[use.operand_number] = scaled
