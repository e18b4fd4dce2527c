"""The pass ``fuse-reductions``."""

from dataclasses import dataclass

from ....dialects import build
from ....dialects.mlir import ir, linalg
from ....dialects.tiling.structured import indexing_maps, reduces
from ...copying import copy_body
from ...graph import ancestor_in
from ...passes import Pass
from ...rewriting import defining_op, ops_in


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
            producer = defining_op(reduction.operands[0])
            if producer is not None and _can_fuse(producer, reduction):
                _fuse(producer, reduction)


def _can_fuse(producer: ir.Operation, reduction: ir.Operation) -> bool:
    """Whether the only input of a reduction, which may read it twice, is computed element by element."""
    if producer.name != "linalg.generic" or producer.block != reduction.block or len(producer.results) != 1:
        return False
    if reduces(producer) or not reduces(reduction):
        return False
    (x,), inputs = producer.results, range(len(reduction.operands) - len(reduction.results))
    written, read = indexing_maps(producer)[-1], indexing_maps(reduction)
    if len(producer.operands) < 2 or any(reduction.operands[i] != x or read[i] != written for i in inputs):
        return False
    users = [use.owner.operation for use in x.uses]
    if sum(user == reduction for user in users) != len(inputs):
        return False
    return all(user == reduction or _comes_after(user, reduction) for user in users)


def _comes_after(user: ir.Operation, op: ir.Operation) -> bool:
    """True if `user`, or what it stands in, follows `op` in its block."""
    around = ancestor_in(user, op.block)
    return around is not None and op.is_before_in_block(around)


def _fuse(producer: ir.Operation, reduction: ir.Operation) -> None:
    first, inputs = len(producer.operands) - 1, len(reduction.operands) - len(reduction.results)
    ins, outs = list(producer.operands)[:first], [producer.operands[first], *list(reduction.operands)[inputs:]]
    maps = [*indexing_maps(producer), *indexing_maps(reduction)[inputs:]]
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
            outer = [*[x] * inputs, *list(block.arguments)[first + 1 :]]
            reduced = copy_body(of_reduction, dict(zip(of_reduction.arguments, outer, strict=True)))
            linalg.YieldOp([x, *reduced])
    for old, value in zip([producer.results[0], *reduction.results], new.results, strict=True):
        old.replace_all_uses_with(value)
    reduction.erase()
    producer.erase()
