"""The pass ``write-in-place``."""

from dataclasses import dataclass

from ....dialects.mlir import ir
from ....dialects.tiling.structured import indexing_maps
from ...copying import without_inputs
from ...passes import Pass
from ...rewriting import are_exclusive, defining_op, inside_branches, ops_in, single_use


@dataclass(frozen=True)
class WriteInPlace(Pass):
    """Lets an op that computes a tile element by element write over an input that no one else needs::

        %e = tensor.empty() : tensor<64x128xf32>
        %r = linalg.generic … ins(%scale, %o) outs(%e) { ^bb0(%a, %b, %_): yield %a · %b }
    becomes
        %r = linalg.generic … ins(%scale) outs(%o) { ^bb0(%a, %b): yield %a · %b }

    One tile less in the cache. An output that a loop carries is then rescaled and accumulated where it stands, instead
    of moving to new memory in each iteration.
    """

    def run(self, op: ir.Operation) -> None:
        for generic in ops_in(op, "linalg.generic"):
            pair = _reusable(generic)
            if pair is not None:
                _write_over(generic, *pair)


def _reusable(generic: ir.Operation) -> tuple[int, int] | None:
    """The numbers of an input and of an unread result, both touched once per element, that can share their memory."""
    maps = indexing_maps(generic)
    first = len(generic.operands) - len(generic.results)
    arguments = generic.regions[0].blocks[0].arguments
    for out in range(first, len(generic.operands)):
        made = defining_op(generic.operands[out])
        if made is None or made.name != "tensor.empty" or list(arguments[out].uses) or not maps[out].is_permutation:
            continue
        for number in range(first):
            value = generic.operands[number]
            if value.type == generic.operands[out].type and maps[number] == maps[out] and _is_last_use(value, generic):
                return number, out
    return None


def _is_last_use(value: ir.Value, user: ir.Operation) -> bool:
    """True if no one needs `value` after `user`, in this iteration or in another one; other branches do not count."""
    owner = value.owner
    if isinstance(owner, ir.Block):
        return (
            owner.owner.operation.name == "scf.for"
            and owner in inside_branches(user)
            and are_exclusive([use.owner.operation for use in value.uses])
        )
    return single_use(value) and owner.operation.block == user.block and owner.operation.name.startswith("linalg.")


def _write_over(generic: ir.Operation, number: int, out: int) -> None:
    block = generic.regions[0].blocks[0]
    generic.operands[out] = generic.operands[number]
    block.arguments[number].replace_all_uses_with(block.arguments[out])
    without_inputs(generic, [number])
