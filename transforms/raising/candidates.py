"""Which sums may be of probabilities, by what ops there are before them: found far faster than by what these compute,
which in a model's last layers is what all layers before have added up."""

from __future__ import annotations

from collections.abc import Iterable

from ...dialects.build import constant_value
from ...dialects.mlir import ir
from ...dialects.tiling.structured import reduces
from ..graph import operands_with_captures, users_of
from ..rewriting import ancestors, defining_op, functions_of, ops_in, ops_of
from .expressions import EXPONENTIALS

ADDITIVE = ("arith.addf", "arith.subf")
SOFTMAX = ("linalg_ext.softmax", "linalg.softmax")
POWER = "math.powf"
MATMULS = 2  # between an exponential and the end of an attention: its second one, and one that mixes heads


class Followers:
    """The ops of functions in `root` that follow from a softmax or an exponential through at most two matmuls, of whose
    results none is in a sum of several terms. Any other op ends no attention with a softmax, and nothing that looks
    like one."""

    def __init__(self, root: ir.Operation) -> None:
        starts = filter(_may_be_exponential, ops_in(root, *SOFTMAX, *EXPONENTIALS, POWER))
        pending = [(top, 0) for op in starts if (top := _top(op)) is not None]
        self._matmuls = dict(pending)  # how many there are at least on the way to an op, with itself
        self._known = {op for function in functions_of(root) for op in ops_of(function.regions[0].blocks[0])}
        while pending:
            op, matmuls = pending.pop(0)
            if matmuls > MATMULS or (matmuls and _adds(op)):
                continue
            for user in users_of(op):
                so_far = matmuls + _is_product(user)
                if so_far < self._matmuls.get(user, MATMULS + 2):
                    self._matmuls[user] = so_far
                    pending.append((user, so_far))

    def __contains__(self, op: ir.Operation) -> bool:
        return op in self._matmuls or _top(op) != op  # of what stands in a region nothing is known

    def may_be(self, value: ir.Value) -> bool:
        """Whether a value may be made of a softmax, so that a product with it ends an attention, or looks like one."""
        op = defining_op(value)
        return op is not None and (op in self or op not in self._known)  # what is new is not known

    def replace(self, op: ir.Operation, by: ir.Operation) -> None:
        """`by` is what is to be looked at in the place of `op`."""
        if op in self._matmuls:
            self._matmuls[by] = self._matmuls[op]


class Beside:
    """The ops that reduce what is computed of some tensors element by element, and those whose results go into that in
    this way: of statistics of rows the products of an attention that follows from them, but not those before them, or
    behind."""

    def __init__(self, tensors: Iterable[ir.Value]) -> None:
        made, pending = set[ir.Operation](), [*tensors]
        self._beside = set[ir.Operation]()
        while pending:
            for user in (use.owner.operation for use in pending.pop().uses):
                top = _top(user)
                if top is not None and top not in made and top not in self._beside:
                    if reduces(top):
                        self._beside.add(top)
                    else:
                        made.add(top)
                        pending += top.results
        before, values = set[ir.Operation](), [v for op in made for v in operands_with_captures(op)]
        while values:
            op = defining_op(values.pop())
            if op is not None and op not in made and op not in before:
                before.add(op)
                if reduces(op):
                    self._beside.add(op)
                else:
                    values += operands_with_captures(op)

    def __contains__(self, op: ir.Operation) -> bool:
        return op in self._beside or _top(op) != op

    def replace(self, op: ir.Operation, by: ir.Operation) -> None:
        """`by` stands in the place of `op`."""
        if op in self._beside:
            self._beside.add(by)


def _may_be_exponential(op: ir.Operation) -> bool:
    return op.name != POWER or constant_value(op.operands[1]) is None  # 2^x, not x^2


def _top(op: ir.Operation) -> ir.Operation | None:
    """The op in a function's body that is `op` or holds it."""
    return next((o for o in (op, *ancestors(op)) if o.parent is not None and o.parent.name == "func.func"), None)


def _adds(op: ir.Operation) -> bool:
    """Whether it computes each element from others by a sum, among others."""
    return len(op.regions) > 0 and not reduces(op) and bool(ops_in(op, *ADDITIVE))


def _is_product(op: ir.Operation) -> bool:
    """Whether it reduces what it makes of several tensors."""
    return reduces(op) and len(op.operands) - len(op.results) > 1
