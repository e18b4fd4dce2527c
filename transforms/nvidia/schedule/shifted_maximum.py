"""What follows from the maximum m and the sum l of online softmax, and whether it is the same for every m.

Softmax is: exp(x − m) / Σ exp(x − m). So is the log-sum-exp, m + log l, and what a sink adds, exp(s − m) / l. Where m
is larger by δ, each value behind the loop over keys is one of these; `unit` is the δ that halves exponentials:

| value                               | changes                             |
| ----------------------------------- | ----------------------------------- |
| m                                   | by 1·δ                              |
| l, the sums of products with values | times 2^(c·δ), c = −1/unit          |
| k·m, m + a, −m, log l, log2 l       | by c·δ                              |
| exp(a − m), l·a, l + exp(a − m), 1/l | times 2^(c·δ)                      |
| o / l, m + log l                    | not: these may go to memory         |

Rows without any key have m = −∞ and l = 0 whatever m is said to be. A test for that says the same of all m; which side
a select takes for those rows does not matter.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ....dialects.build import constant_value
from ....dialects.mlir import ir
from ....dialects.tiling.structured import reduces
from ...attention import is_matmul
from ...rewriting import ancestors, defining_op, is_constant, ops_in, ops_of
from ...splats import is_constant_tensor, splat_of
from .running_maximum import PASSING, Update

LOGARITHMS = {"math.log": math.log(2), "math.log2": 1.0}
EXPONENTIALS = {"math.exp": 1 / math.log(2), "math.exp2": 1.0}
NEGLIGIBLE = 1e-6  # of constants in f32, relative


@dataclass(frozen=True)
class Change:
    """How a value changes where m is larger by δ: by `by`·δ, or times 2^(`times`·δ)."""

    by: float = 0.0
    times: float = 0.0
    is_magnitude: bool = False  # |m|, of which it counts whether it is infinite


NONE = Change()


@dataclass(frozen=True)
class Test:
    """Whether a row has no key, or whether it has some."""

    of_none: bool


class Unknown(Exception):
    """A value of which it is not known how it changes."""


def same_for_every_maximum(loop: ir.Operation, update: Update, maximum: int, total: int) -> bool:
    """Whether all that goes to memory is the same for every maximum that `loop`, some results of which are the maximum
    and the sum, may have."""
    kernel = next(outer for outer in ancestors(loop) if outer.name == "gpu.func")
    try:
        changes = _Changes(loop, update, maximum, total)
        return all(changes.of(store.operands[0]) == NONE for store in ops_in(kernel, "tile.store"))
    except Unknown:
        return False


class _Changes:
    def __init__(self, loop: ir.Operation, update: Update, maximum: int, total: int):
        shrinks = Change(times=-1 / update.unit)
        self.known: dict[ir.Value, Change | Test] = {}
        for number, result in enumerate(loop.results):
            if number == maximum:
                self.known[result] = Change(by=1.0)
            elif number == total or (isinstance(result.type, ir.RankedTensorType) and result.type.rank > 1):
                self.known[result] = shrinks  # the sum; products with values, and probabilities to be multiplied
        self.touched = _dependants(loop)

    def of(self, value: ir.Value) -> Change | Test:
        if value not in self.touched:
            return NONE
        if value not in self.known:
            self.known[value] = self._found(value)
        return self.known[value]

    def _found(self, value: ir.Value) -> Change | Test:
        op = defining_op(value)
        if op is None:
            outer = value.owner.owner.operation
            if outer.name != "linalg.generic":
                raise Unknown
            return self.of(outer.operands[value.arg_number])
        if op.name == "linalg.generic":
            return self._of_generic(op, list(op.results).index(value))
        if op.name == "scf.if":
            number = list(op.results).index(value)
            sides = [ops_of(region.blocks[0])[-1].operands[number] for region in op.regions]
            # Where there is no key, a constant stands for what the loop would have made.
            return _same([self.of(v) for v in sides if v in self.touched or not is_constant(v)])
        if op.name in PASSING:
            return self.of(op.operands[0])
        return self._of_scalar(op)

    def _of_generic(self, op: ir.Operation, number: int) -> Change | Test:
        if is_matmul(op):
            left, right, init = (self._change(v) for v in op.operands)
            product = _product(left, right)
            return product if _is_zero(op.operands[2]) else _same([product, init])
        if reduces(op) and any(self.of(v) != NONE for v in op.operands):
            raise Unknown
        return self.of(ops_of(op.regions[0].blocks[0])[-1].operands[number])

    def _change(self, value: ir.Value) -> Change:
        found = self.of(value)
        if isinstance(found, Test):
            raise Unknown
        return found

    def _of_scalar(self, op: ir.Operation) -> Change | Test:
        """Of an op on elements."""
        if op.name == "arith.select":
            test = self.of(op.operands[0])
            if isinstance(test, Test):
                return self.of(op.operands[2 if test.of_none else 1])
            if test == NONE:
                return _same([self.of(v) for v in op.operands[1:]])
            raise Unknown
        if op.name == "arith.cmpf":
            return self._of_comparison(op)
        changes = [self._change(v) for v in op.operands]
        if all(c == NONE for c in changes):
            return NONE
        if any(c.is_magnitude for c in changes):
            raise Unknown
        a, b = (*changes, NONE)[:2]
        if op.name in ("arith.addf", "arith.subf", "arith.negf"):
            sign = -1.0 if op.name != "arith.addf" else 1.0
            if op.name == "arith.negf":
                return Change(-a.by, a.times)
            if a.times or b.times:
                return _same([a, b])  # l + exp(s − m)
            return _rounded(a.by, sign * b.by)
        if op.name == "arith.mulf" and (a.by or b.by):
            factors = [constant_value(v) for v in op.operands]
            (factor,) = [f for f in factors if f is not None] or [None]
            if factor is None:
                raise Unknown
            return Change(by=(a.by or b.by) * factor)
        if op.name == "arith.mulf":
            return _product(a, b)
        if op.name == "arith.divf" and not (a.by or b.by):
            return _product(a, Change(times=-b.times))
        if op.name in LOGARITHMS and a.times:
            return Change(by=a.times * LOGARITHMS[op.name])
        if op.name in EXPONENTIALS and a.by:
            return Change(times=a.by * EXPONENTIALS[op.name])
        if op.name == "math.absf":
            return Change(a.by, a.times, is_magnitude=bool(a.by))
        raise Unknown

    def _of_comparison(self, op: ir.Operation) -> Change | Test:
        """Of a maximum with an infinity, or of a sum with 0."""
        value, limit = op.operands
        if constant_value(value) is not None:
            value, limit = limit, value
        change, bound = self._change(value), constant_value(limit)
        if change == NONE and self._change(limit) == NONE:
            return NONE
        infinite = (
            change.by and bound is not None and (bound == -math.inf or (change.is_magnitude and bound == math.inf))
        )
        if infinite or (change.times and bound == 0.0):
            predicate = ir.IntegerAttr(op.attributes["predicate"]).value
            if predicate in (1, 8):  # oeq, ueq
                return Test(of_none=True)
            if predicate in (6, 13):  # one, une
                return Test(of_none=False)
        raise Unknown


def _dependants(loop: ir.Operation) -> set[ir.Value]:
    """All values that follow from results of a loop."""
    found: set[ir.Value] = set()
    pending = list(loop.results)
    while pending:
        value = pending.pop()
        if value in found:
            continue
        found.add(value)
        for use in value.uses:
            op = use.owner.operation
            if op.name == "linalg.generic":
                pending.append(op.regions[0].blocks[0].arguments[use.operand_number])
            elif op.name == "linalg.yield":
                pending.append(op.parent.operation.results[use.operand_number])
            elif op.name.endswith(".yield"):
                pending += op.parent.operation.results
            pending += op.results
    return found


def _product(a: Change, b: Change) -> Change:
    if a.by or b.by:
        raise Unknown
    return Change(times=_rounded(a.times, b.times).by)


def _rounded(a: float, b: float) -> Change:
    """A sum, 0 where it is nothing but rounding."""
    total = a + b
    return Change(by=total) if abs(total) > NEGLIGIBLE * max(abs(a), abs(b)) else NONE


def _same(changes: list[Change | Test]) -> Change | Test:
    first = changes[0]
    for other in changes[1:]:
        if other != first and not (
            isinstance(first, Change)
            and isinstance(other, Change)
            and math.isclose(first.by, other.by, rel_tol=NEGLIGIBLE)
            and math.isclose(first.times, other.times, rel_tol=NEGLIGIBLE)
        ):
            raise Unknown
    return first


def _is_zero(value: ir.Value) -> bool:
    splat = splat_of(value) if is_constant_tensor(value) else None
    return splat is not None and ir.FloatAttr(splat).value == 0.0
