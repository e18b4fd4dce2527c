"""What an attention without a softmax may be computed from, though that is computed from its scores: the output of an
attention with one, and the statistics of its rows, as the derivative of a softmax is."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from ...dialects import build
from ...dialects.mlir import arith, ir
from ..graph import PLACE
from ..reshapes import drop_units, with_units
from ..rewriting import defining_op

SUMS = ("sum", "plain sum")


@dataclass(frozen=True)
class Given:
    """Tensors, and of which kind of statistic they are (see statistics.py), "" for others. Of an earlier call: "kept
    max", maxima that are numbers; "kept weight", see ``weight_of_masked``."""

    kinds: Mapping[ir.Value, str] = field(default_factory=dict)
    _made: dict[tuple, ir.Value] = field(default_factory=dict)

    def __contains__(self, tensor: ir.Value) -> bool:
        return tensor in self.kinds

    def is_maximum(self, tensor: ir.Value) -> bool:
        return self.kinds.get(tensor) == "max"

    def is_shift(self, tensor: ir.Value) -> bool:
        """Whether scores are relative to it in an exponential."""
        return self.kinds.get(tensor) in ("max", "kept max")

    def is_weight(self, tensor: ir.Value) -> bool:
        """Whether it is the probability of each key in rows that are masked as a whole, and 0 in others."""
        return self.kinds.get(tensor) == "kept weight"

    def is_sum(self, tensor: ir.Value) -> bool:
        return self.kinds.get(tensor) in SUMS

    # Of rows that are masked as a whole, exp(s − m)·(1 / l), exp(s − (m + log l)) and exp2(log₂e·s − shift), which are
    # probabilities, are to be 0. Each is one tensor for all that read it, emitted behind what it is made of.

    def statistic(self, tensor: ir.Value) -> ir.Value:
        """Maxima with 0 in place of −∞, sums with 1 in place of 0; anything else as it is."""
        if self.is_sum(tensor):
            return self._made_of("sum", [tensor], lambda l: _unless(l, 0.0, 1.0, l))
        if self.is_maximum(tensor):
            return self._made_of("max", [tensor], lambda m: _unless(m, -math.inf, 0.0, m))
        return tensor

    def inverse(self, sums: ir.Value) -> ir.Value:
        """1 / l of the sums l, 0 where they are 0."""
        return self._made_of("inverse", [sums], lambda l: _unless(l, 0.0, 0.0, arith.divf(_constant(l, 1.0), l)))

    def shift(self, maxima: ir.Value, sums: ir.Value | None = None, lowest: float | None = None) -> ir.Value | None:
        """log₂e·m, plus log₂ l where there are `sums`, of the shape of the maxima; None if they have another one.
        Rows whose maxima are below `lowest`, the number of a mask, do without it: there it is log₂ l."""

        def scaled(m: ir.Value) -> ir.Value:
            product = arith.mulf(m, _constant(m, math.log2(math.e)))
            if lowest is not None:
                return _if_below(m, lowest, _constant(m, 0.0), product)
            return _unless(m, -math.inf, 0.0, product)

        def both(m: ir.Value, l: ir.Value) -> ir.Value:
            return _unless(
                l, 0.0, math.inf, arith.addf(scaled(m), ir.Operation.create("math.log2", [l.type], [l]).result)
            )

        if sums is None:
            return self._made_of("shift", [maxima], scaled)
        if not _are_alike(sums, maxima):
            return None
        return self._made_of(f"shift {lowest}", [maxima, sums], both)

    def weight_of_masked(self, maxima: ir.Value, sums: ir.Value, lowest: float) -> ir.Value:
        """1 / l in rows with maxima below `lowest`, the same probability for each key; 0 in all others."""

        def weight(m: ir.Value, l: ir.Value) -> ir.Value:
            return _if_below(m, lowest, arith.divf(_constant(l, 1.0), l), _constant(l, 0.0))

        return self._made_of(f"weight {lowest}", [maxima, sums], weight)

    def product(self, tensor: ir.Value, sums: ir.Value) -> ir.Value | None:
        """A tensor that is computed for each row, times the sums; None if it has another shape."""
        maker = defining_op(tensor)
        if maker is None or maker.block != sums.owner.operation.block or not _are_alike(tensor, sums):
            return None
        return self._made_of("product", [tensor, sums], arith.mulf)

    def _made_of(self, name: str, given: Sequence[ir.Value], body: Callable[..., ir.Value]) -> ir.Value:
        """Of the shape of the first tensor; others may have dimensions of one element elsewhere."""
        key = (name, *given)
        if key not in self._made:
            first, *_ = given
            last = max((tensor.owner.operation for tensor in given), key=PLACE)
            rank = first.type.rank
            with ir.InsertionPoint.after(last), last.location:
                sizes = build.mixed_sizes(first)
                same = [first, *(_like(tensor, first) for tensor in given[1:])]
                everywhere = [build.projection(rank, range(rank))] * (len(given) + 1)
                empty = build.empty(sizes, first.type.element_type)
                iterators = [build.PARALLEL] * rank
                (self._made[key],) = build.generic(same, [empty], everywhere, iterators, lambda *x: body(*x[:-1]))
        return self._made[key]


def _are_alike(tensor: ir.Value, other: ir.Value) -> bool:
    """Whether their types are the same but for dimensions of one element."""
    a, b = ((t.type.element_type, [size for size in t.type.shape if size != 1]) for t in (tensor, other))
    return a == b


def _like(tensor: ir.Value, other: ir.Value) -> ir.Value:
    """The tensor with dimensions of one element where `other` has them."""
    if tensor.type.shape == other.type.shape:
        return tensor
    flat = drop_units(tensor, [size == 1 for size in tensor.type.shape])
    return with_units(flat, build.mixed_sizes(flat), [size == 1 for size in other.type.shape])


def _constant(like: ir.Value, number: float) -> ir.Value:
    return build.constant(like.type, number)


def _unless(x: ir.Value, number: float, instead: float, value: ir.Value) -> ir.Value:
    """`value`, and `instead` where `x` is the number."""
    equal = arith.cmpf(arith.CmpFPredicate.OEQ, x, _constant(x, number))
    return arith.select(equal, _constant(x, instead), value)


def _if_below(x: ir.Value, number: float, value: ir.Value, otherwise: ir.Value) -> ir.Value:
    below = arith.cmpf(arith.CmpFPredicate.OLT, x, _constant(x, number))
    return arith.select(below, value, otherwise)
