"""What an attention without a softmax may be computed from, though that is computed from its scores: the output of an
attention with one, and the statistics of its rows, as the derivative of a softmax is."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from ...dialects import build
from ...dialects.mlir import arith, ir

SUMS = ("sum", "plain sum")


@dataclass(frozen=True)
class Given:
    """Tensors, and of which kind of statistic they are (see statistics.py), "" for others."""

    kinds: Mapping[ir.Value, str] = field(default_factory=dict)
    _made: dict[tuple[str, ir.Value], ir.Value] = field(default_factory=dict)

    def __contains__(self, tensor: ir.Value) -> bool:
        return tensor in self.kinds

    def is_sum(self, tensor: ir.Value) -> bool:
        return self.kinds.get(tensor) in SUMS

    # Of rows that are masked as a whole, probabilities exp(s − m)·(1 / l) or exp(s − (m + log l)) are to be 0. Each is
    # one tensor for all that read it, emitted behind what it is made of.

    def statistic(self, tensor: ir.Value) -> ir.Value:
        """Maxima with 0 in place of −∞, sums with 1 in place of 0; anything else as it is."""
        if self.is_sum(tensor):
            return self._made_of("sum", tensor, lambda l: _unless(l, 0.0, 1.0, l))
        if self.kinds.get(tensor) == "max":
            return self._made_of("max", tensor, lambda m: _unless(m, -math.inf, 0.0, m))
        return tensor

    def inverse(self, sums: ir.Value) -> ir.Value:
        """1 / l of the sums l, 0 where they are 0."""
        one = lambda l: build.constant(l.type, 1.0)  # noqa: E731
        return self._made_of("inverse", sums, lambda l: _unless(l, 0.0, 0.0, arith.divf(one(l), l)))

    def _made_of(self, name: str, given: ir.Value, body: Callable[[ir.Value], ir.Value]) -> ir.Value:
        if (name, given) not in self._made:
            op, rank = given.owner.operation, given.type.rank
            everywhere = [build.projection(rank, range(rank))] * 2
            with ir.InsertionPoint.after(op), op.location:
                empty = build.empty(build.mixed_sizes(given), given.type.element_type)
                found = build.generic([given], [empty], everywhere, [build.PARALLEL] * rank, lambda x, _: body(x))
            (self._made[name, given],) = found
        return self._made[name, given]


def _unless(x: ir.Value, number: float, instead: float, value: ir.Value) -> ir.Value:
    """`value`, and `instead` where `x` is the number."""
    equal = arith.cmpf(arith.CmpFPredicate.OEQ, x, build.constant(x.type, number))
    return arith.select(equal, build.constant(x.type, instead), value)
