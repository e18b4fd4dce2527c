"""The pass ``update-in-place``."""

from dataclasses import dataclass

from ...dialects.mlir import ir, linalg
from ...dialects.tiling.structured import indexing_maps
from ..passes import Pass
from ..rewriting import defining_op, ops_in


@dataclass(frozen=True)
class UpdateInPlace(Pass):
    """Lets an element-wise op that replaces what a loop carries write to where that stands::

        scf.for … iter_args(%o) { %r = linalg.generic … ins(%scale, %o) outs(%empty) { a · b } …
    becomes
        scf.for … iter_args(%o) { %r = linalg.generic … ins(%scale) outs(%o) { a · out } …

    So the loop carries one buffer, and not two that take turns: the output's accumulator and its rescaling.
    """

    def run(self, op: ir.Operation) -> None:
        for generic in ops_in(op, "linalg.generic"):
            if len(generic.results) == 1:
                number = _updated(generic)
                if number is not None:
                    _update(generic, number)


def _updated(generic: ir.Operation) -> int | None:
    """The input that the result can take the place of: carried by the loop around, and used by this op alone."""
    if any("parallel" not in str(t) for t in generic.attributes["iterator_types"]):
        return None
    made = defining_op(generic.operands[len(generic.operands) - 1])
    if made is None or made.name != "tensor.empty":
        return None
    maps = indexing_maps(generic)
    for number, value in enumerate(list(generic.operands)[:-1]):
        if maps[number] != maps[-1] or value.type != generic.results[0].type or not isinstance(value.owner, ir.Block):
            continue
        if value.owner == generic.block and value.owner.owner.operation.name == "scf.for":
            users = [use.owner.operation for use in value.uses]
            if all(user == generic or user.name == "tensor.dim" for user in users) and users.count(generic) == 1:
                return number
    return None


def _update(generic: ir.Operation, number: int) -> None:
    operands, maps = list(generic.operands), indexing_maps(generic)
    inputs = [v for i, v in enumerate(operands[:-1]) if i != number]
    del maps[number]
    block = generic.regions[0].blocks[0]
    with ir.InsertionPoint(generic), generic.location:
        new = linalg.GenericOp(
            [generic.results[0].type],
            inputs,
            [operands[number]],
            ir.ArrayAttr.get([ir.AffineMapAttr.get(m) for m in maps]),
            generic.attributes["iterator_types"],
        )
    block.append_to(new.regions[0])
    last = block.arguments[len(operands) - 1]
    block.arguments[number].replace_all_uses_with(last)
    block.erase_argument(number)
    generic.results[0].replace_all_uses_with(new.results[0])
    generic.erase()
