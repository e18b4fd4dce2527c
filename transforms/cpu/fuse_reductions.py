"""The pass ``fuse-reductions``."""

from dataclasses import dataclass

from ...dialects import build
from ...dialects.mlir import ir, linalg
from ...dialects.tiling.structured import indexing_maps, iterator_types
from ..copying import copy_body
from ..graph import ancestor_in
from ..passes import Pass
from ..rewriting import defining_op, ops_in


@dataclass(frozen=True)
class FuseReductions(Pass):
    """Reduces a tile in the pass that computes it element by element::

        %x = linalg.generic … ins(%s) outs(%e) { s · 0.125 }
        %m = linalg.generic … ins(%x) outs(%init) { max(x, m) }
        … uses of %x
    becomes
        %x, %m = linalg.generic … ins(%s) outs(%e, %init) { x = s · 0.125;  yield x, max(x, m) }

    One read of the tile less: of the scores' scale, mask or bias and their maximum.
    """

    def run(self, op: ir.Operation) -> None:
        for reduction in ops_in(op, "linalg.generic"):
            for number in range(len(reduction.operands) - len(reduction.results)):
                producer = defining_op(reduction.operands[number])
                if producer is not None and _can_fuse(producer, reduction, number):
                    _fuse(producer, reduction, number)
                    break


def _can_fuse(producer: ir.Operation, reduction: ir.Operation, number: int) -> bool:
    if producer.name != "linalg.generic" or producer.block != reduction.block or len(producer.results) != 1:
        return False
    n_inputs = len(reduction.operands) - len(reduction.results)
    if "reduction" in iterator_types(producer) or "reduction" not in iterator_types(reduction) or n_inputs != 1:
        return False
    x = producer.results[0]
    if len(producer.operands) < 2 or indexing_maps(producer)[-1] != indexing_maps(reduction)[number]:
        return False
    users = [use.owner.operation for use in x.uses]
    if sum(user == reduction for user in users) != 1:
        return False
    return all(user == reduction or _comes_after(user, reduction) for user in users)


def _comes_after(user: ir.Operation, op: ir.Operation) -> bool:
    """True if `user`, or what it stands in, follows `op` in its block."""
    around = ancestor_in(user, op.block)
    return around is not None and op.is_before_in_block(around)


def _fuse(producer: ir.Operation, reduction: ir.Operation, number: int) -> None:
    first = len(producer.operands) - 1
    ins, outs = list(producer.operands)[:first], [producer.operands[first], *list(reduction.operands)[1:]]
    maps = [*indexing_maps(producer), *indexing_maps(reduction)[1:]]
    with ir.InsertionPoint(reduction), reduction.location:
        new = linalg.GenericOp(
            [v.type for v in outs],
            ins,
            outs,
            build.map_array(maps),
            reduction.attributes["iterator_types"],
        )
        block = new.regions[0].blocks.append(*[build.element_of(v.type) for v in [*ins, *outs]])
        with ir.InsertionPoint(block):
            of_producer, of_reduction = (op.regions[0].blocks[0] for op in (producer, reduction))
            (x,) = copy_body(of_producer, dict(zip(of_producer.arguments, block.arguments, strict=False)))
            rest = dict(zip(list(of_reduction.arguments)[1:], list(block.arguments)[first + 1 :], strict=True))
            reduced = copy_body(of_reduction, {of_reduction.arguments[number]: x, **rest})
            linalg.YieldOp([x, *reduced])
    for old, value in zip([producer.results[0], *reduction.results], new.results, strict=True):
        old.replace_all_uses_with(value)
    reduction.erase()
    producer.erase()
