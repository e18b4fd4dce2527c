"""The pass ``sink-transposes``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..dialects import build
from ..dialects.mlir import ir, linalg, tensor
from ..dialects.tiling.index import kept_dims
from . import slices
from .passes import Pass
from .rewriting import defining_op, erase_if_unused, ops_in
from .transposes import TRANSPOSES, permutation


@dataclass(frozen=True)
class SinkTransposes(Pass):
    """Writes to a tensor as it stands, in place of a transposed copy that is transposed back::

        %t = linalg.transpose ins(%cache : tensor<4x256x64xf32>) … permutation = [1, 0, 2]
        %r = scf.for … iter_args(%out = %t) -> (tensor<256x4x64xf32>) {
          yield tensor.insert_slice %u into %out[%i, 0, 0] [1, 4, 64] : tensor<4x64xf32> into tensor<256x4x64xf32>
        }
        %b = linalg.transpose ins(%r : tensor<256x4x64xf32>) … permutation = [1, 0, 2]
      becomes
        %b = scf.for … iter_args(%out = %cache) -> (tensor<4x256x64xf32>) {
          yield tensor.insert_slice %u into %out[0, %i, 0] [4, 1, 64] : tensor<4x64xf32> into tensor<4x256x64xf32>
        }

    Writes at indices go along the first dimensions in ONNX (ScatterND) and where torch's are lowered: a cache with
    heads before tokens was copied twice. Windows are read as they stand, too, where they are slices of a transposed
    tensor. Other readers of what is written get a transposed copy of it.
    """

    def run(self, op: ir.Operation) -> None:
        while any(_sunk(inner) for inner in ops_in(op, *TRANSPOSES)):
            pass  # what is transposed back is gone


def _sunk(op: ir.Operation) -> bool:
    order = permutation(op)
    return order is not None and _Written(op, order).sink()


class _Written:
    """The result of a transpose, and what it is after writes to it: `states`."""

    def __init__(self, transpose: ir.Operation, order: list[int]):
        self.transpose, self.order = transpose, order
        self.source = transpose.operands[0]
        self.states: dict[ir.Value, None] = {transpose.results[0]: None}
        self.changed: dict[ir.Operation, None] = {}  # what writes to a state, or reads a slice or a size of one
        self.exits: list[tuple[ir.Operation, int]] = []  # who else reads one, and as which operand

    def sink(self) -> bool:
        if not self._follow() or not any(self._undoes(user) for user, _ in self.exits):
            return False
        first = self.transpose.results[0]
        kind = self.source.type
        for state in self.states:
            if state != first and (op := defining_op(state)) is not None and op.name == "tensor.insert_slice":
                continue  # which is made anew
            if state != first:
                state.set_type(kind)
        for op in self.changed:
            with ir.InsertionPoint(op), op.location:
                self._change(op)
        for user, number in self.exits:  # after it, which makes some states anew
            self._read(user, number)
        for use in list(first.uses):
            owner = use.owner.operation
            if owner.name in ("scf.for", "scf.yield"):
                owner.operands[use.operand_number] = self.source
        erase_if_unused(self.transpose)
        return True

    def _follow(self) -> bool:
        """Finds them; False where a state may be another tensor, too."""
        pending = list(self.states)
        while pending:
            for use in list(pending.pop().uses):
                user, number = use.owner.operation, use.operand_number
                found: list[ir.Value] = []
                if user.name == "scf.for" and number >= 3:
                    found = [user.regions[0].blocks[0].arguments[number - 2], user.results[number - 3]]
                elif user.name == "scf.yield" and user.parent.operation.name in ("scf.for", "scf.if"):
                    found = [user.parent.operation.results[number]]
                elif user.name == "tensor.insert_slice" and number == 1:
                    found = [user.results[0]]
                    self.changed[user] = None
                elif user.name == "tensor.extract_slice" or _asks_size(user):
                    self.changed[user] = None
                elif user.block == self.transpose.block:
                    self.exits.append((user, number))
                else:
                    return False
                pending += [v for v in found if v not in self.states]
                self.states.update(dict.fromkeys(found))
        self.exits = [(user, number) for user, number in self.exits if user.operands[number] != self._first]
        return any(op.name == "tensor.insert_slice" for op in self.changed) and all(map(self._is_whole, self.states))

    @property
    def _first(self) -> ir.Value:
        return self.transpose.results[0]

    def _is_whole(self, state: ir.Value) -> bool:
        """Whether all that it may come from are states."""
        op = defining_op(state)
        if op is None or op.name not in ("scf.for", "scf.if"):
            return True
        number = ir.OpResult(state).result_number
        ends = [block.operations[len(block.operations) - 1].operands[number] for r in op.regions for block in r.blocks]
        return all(v in self.states for v in [*ends, *([op.operands[3 + number]] if op.name == "scf.for" else [])])

    def _undoes(self, user: ir.Operation) -> bool:
        back = permutation(user)
        return back is not None and [self.order[d] for d in back] == list(range(len(back)))

    def _read(self, user: ir.Operation, number: int) -> None:
        state = user.operands[number]
        if self._undoes(user):
            user.results[0].replace_all_uses_with(state)
            user.erase()
            return
        with ir.InsertionPoint(user), user.location:
            user.operands[number] = _transposed(state, self.order)

    def _change(self, op: ir.Operation) -> None:
        if op.name == "tensor.dim":
            d = self.order[build.constant_value(op.operands[1])]
            new = tensor.dim(self._state(op.operands[0]), build.index(d))
        elif op.name == "tensor.extract_slice":
            new = _slice_of(self._state(op.operands[0]), self.order, op)
        else:
            part = _as_it_stands(op.operands[0])
            there, _ = _orders(op, part.type, self.order)
            parts = [_in_order(of, self.order) for of in slices.slice_parts(op)]
            new = slices.insert(_transposed(part, there), self._state(op.operands[1]), *parts)
        op.results[0].replace_all_uses_with(new)
        op.erase()

    def _state(self, value: ir.Value) -> ir.Value:
        return self.source if value == self._first else value


def _as_it_stands(part: ir.Value) -> ir.Value:
    """A window; of a slice of a transposed tensor, such as of the tokens that are written, the slice of that tensor."""
    op = defining_op(part)
    maker = defining_op(op.operands[0]) if op is not None and op.name == "tensor.extract_slice" else None
    order = permutation(maker) if maker is not None else None
    return part if maker is None or order is None else _slice_of(maker.operands[0], order, op)


def _slice_of(source: ir.Value, order: list[int], op: ir.Operation) -> ir.Value:
    """What a tensor.extract_slice takes of the transposed `source`."""
    part = op.results[0].type
    there, back = _orders(op, part, order)
    kind = ir.RankedTensorType.get([part.shape[d] for d in there], part.element_type)
    return _transposed(slices.extract(kind, source, *(_in_order(of, order) for of in slices.slice_parts(op))), back)


def _orders(op: ir.Operation, part: ir.RankedTensorType, order: list[int]) -> tuple[list[int], list[int]]:
    """Those of a part's dimensions, there and back. Which of several dimensions of one element is dropped is all the
    same: where the others are in order, a part stays as it is."""
    sizes = list(op.opview.static_sizes)
    kept = [order[d] for d in sorted(kept_dims(sizes, part.shape))]
    long = [d for d, size in zip(kept, part.shape, strict=True) if size != 1]
    numbers = list(range(part.rank))
    if long == sorted(long) and len(kept_dims(_in_order(sizes, order), part.shape)) == part.rank:
        return numbers, numbers
    there = sorted(numbers, key=kept.__getitem__)
    return there, [there.index(d) for d in numbers]


def _in_order(of: Sequence[slices.Size], order: list[int]) -> list[slices.Size]:
    """Of the operand's dimensions, what is of those of the transposed tensor."""
    return [of[order.index(d)] for d in range(len(of))]


def _asks_size(op: ir.Operation) -> bool:
    """Of a dimension that is known."""
    return op.name == "tensor.dim" and build.constant_value(op.operands[1]) is not None


def _transposed(value: ir.Value, order: list[int]) -> ir.Value:
    if order == sorted(order):
        return value
    sizes = build.mixed_sizes(value)
    init = build.empty([sizes[d] for d in order], value.type.element_type)
    return linalg.transpose(value, outs=[init], permutation=order).operation.results[0]
