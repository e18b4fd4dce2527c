"""Whether a tensor is another one with its dimensions in another order, as both are computed alike."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from ..dialects.mlir import ir
from ..dialects.tiling.structured import is_structured, iterator_types, operand_loops
from ..dialects.tiling.tensor_ops import reassociation
from .equivalence import have_same_attributes
from .reshapes import RESHAPES
from .rewriting import defining_op, terminator

COMMUTATIVE = ("arith.addf", "arith.mulf", "arith.addi", "arith.muli")
Order: TypeAlias = tuple[int, ...]  # for each dimension of one tensor, which dimension of another one it is


def is_transpose(a: ir.Value, b: ir.Value, order: Sequence[int]) -> bool:
    """Whether dimension d of `a` is dimension order[d] of `b`, and their elements are the same.

    That is seen where structured ops compute them of the same tensors, with loops, operands and factors in any order::

        %s = linalg.generic {S[b, i, j] += Q[b, i, d]·K[b, j, d]}
        %p = linalg.generic {P[b, i, j] = exp2(S[b, i, j] − N[b, i])}
        %t = linalg.generic {T[b, j, i] += K[b, j, d]·Q[b, i, d]}
        %u = linalg.generic {U[b, j, i] = exp2(T[b, j, i] − N[b, i])}

    Here %p is %u in the order 0, 2, 1.
    """
    return _Comparison().are_alike(a, b, tuple(order))


class _Comparison:
    """Of tensors and what they are computed of; what was compared once is not again."""

    def __init__(self) -> None:
        self.known: dict[tuple[ir.Value, ir.Value, Order], bool] = {}

    def are_alike(self, a: ir.Value, b: ir.Value, order: Order) -> bool:
        key = (a, b, order)
        if key not in self.known:
            self.known[key] = self._compare(a, b, order)
        return self.known[key]

    def _compare(self, a: ir.Value, b: ir.Value, order: Order) -> bool:
        if a == b:
            return order == tuple(range(len(order)))
        first, second = defining_op(a), defining_op(b)
        if first is None or second is None or a.type.element_type != b.type.element_type:
            return False
        if is_structured(first) and is_structured(second):
            numbers = ir.OpResult(a).result_number, ir.OpResult(b).result_number
            pairs = _paired_loops(first, second, numbers, order)
            return pairs is not None and _Bodies(self, first, second, pairs).give_the_same(*numbers)
        if first.name == second.name and first.name in RESHAPES:
            before = _order_before(first, second, order)
            return before is not None and self.are_alike(first.operands[0], second.operands[0], before)
        return False


def _paired_loops(
    first: ir.Operation, second: ir.Operation, numbers: tuple[int, int], order: Order
) -> dict[int, int] | None:
    """The loop of the second op that plays the part of each of the first one's: their results say it of parallel ones;
    those that are summed over are taken in their order."""
    kinds, others = iterator_types(first), iterator_types(second)
    out, other = (operand_loops(op)[n - len(op.results)] for op, n in zip((first, second), numbers, strict=True))
    pairs = {loop: other[order[d]] for d, loop in enumerate(out)}
    summed, others_summed = ([d for d, kind in enumerate(k) if kind == "reduction"] for k in (kinds, others))
    if None in out or None in other or len(summed) != len(others_summed):
        return None
    pairs.update(zip(summed, others_summed, strict=True))
    complete = len(pairs) == len(kinds) == len(others) == len(set(pairs.values()))
    return (
        {loop: found for loop, found in pairs.items() if loop is not None and found is not None} if complete else None
    )


class _Bodies:
    """What two structured ops compute, whose loops are `pairs`."""

    def __init__(self, tensors: _Comparison, first: ir.Operation, second: ir.Operation, pairs: dict[int, int]):
        self.tensors, self.first, self.second, self.pairs = tensors, first, second, pairs
        self.known: dict[tuple[ir.Value, ir.Value], bool] = {}

    def give_the_same(self, number: int, other: int) -> bool:
        if not len(self.first.regions) or not len(self.second.regions):
            return False
        ends = [terminator(op.regions[0].blocks[0]) for op in (self.first, self.second)]
        return self._are_same(ends[0].operands[number], ends[1].operands[other])

    def _are_same(self, x: ir.Value, y: ir.Value) -> bool:
        """Whether two elements are, that bodies read or compute."""
        if (x, y) not in self.known:
            self.known[x, y] = self._compare(x, y)
        return self.known[x, y]

    def _compare(self, x: ir.Value, y: ir.Value) -> bool:
        if x.type != y.type:
            return False
        if x.owner == self.first.regions[0].blocks[0]:
            is_operand = y.owner == self.second.regions[0].blocks[0]
            return is_operand and self._are_read_alike(x.arg_number, y.arg_number)
        if x == y:
            return True
        one, other = defining_op(x), defining_op(y)
        if one is None or other is None or one.name != other.name or len(one.regions) or len(other.regions):
            return False
        if one.name == "linalg.index":
            return self.pairs[one.opview.dim.value] == other.opview.dim.value
        if not have_same_attributes(one, other):
            return False
        left, right = list(one.operands), list(other.operands)
        if not left or len(left) != len(right):
            return one.name == "arith.constant"
        if all(self._are_same(*values) for values in zip(left, right, strict=True)):
            return True
        turned = zip(left, reversed(right), strict=True)
        return one.name in COMMUTATIVE and all(self._are_same(*values) for values in turned)

    def _are_read_alike(self, i: int, j: int) -> bool:
        """Whether operand i of the first op is operand j of the second one, as the loops go over them."""
        a, b = self.first.operands[i], self.second.operands[j]
        if not isinstance(a.type, ir.RankedTensorType) or not isinstance(b.type, ir.RankedTensorType):
            return self._are_same(a, b)
        loops, others = operand_loops(self.first)[i], operand_loops(self.second)[j]
        if None in loops or len(set(others)) != len(others):
            return False
        wanted = [self.pairs[loop] for loop in loops if loop is not None]
        if len(wanted) != len(others) or set(wanted) != set(others):
            return False
        return self.tensors.are_alike(a, b, tuple(others.index(loop) for loop in wanted))


def _order_before(first: ir.Operation, second: ir.Operation, order: Order) -> Order | None:
    """That of the operands of two reshapes whose results have `order`; None where they do not split or join alike."""
    groups, others = reassociation(first), reassociation(second)
    if first.name == "tensor.collapse_shape":
        pairs = [(groups[d], others[e]) for d, e in enumerate(order)]
        wide, other_wide = first.operands[0].type.shape, second.operands[0].type.shape
        if any([wide[d] for d in group] != [other_wide[e] for e in other] for group, other in pairs):
            return None
        found = dict(pair for group, other in pairs for pair in zip(group, other, strict=True))
        return tuple(found[d] for d in range(len(found)))
    moved = [[order[d] for d in group] for group in groups]
    return tuple(others.index(group) for group in moved) if all(group in others for group in moved) else None
