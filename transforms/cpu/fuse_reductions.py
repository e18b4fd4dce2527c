"""The pass ``fuse-reductions``."""

from dataclasses import dataclass

from ...dialects.mlir import ir, linalg
from ...dialects.tiling.structured import indexing_maps
from ..passes import Pass
from ..rewriting import defining_op, ops_in, ops_of


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
    kinds = [[str(t) for t in op.attributes["iterator_types"]] for op in (producer, reduction)]
    n_inputs = len(reduction.operands) - len(reduction.results)
    if any("parallel" not in k for k in kinds[0]) or all("parallel" in k for k in kinds[1]) or n_inputs != 1:
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
    around = user
    while around is not None and around.block != op.block:
        around = around.parent.operation if around.parent is not None else None
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
            ir.ArrayAttr.get([ir.AffineMapAttr.get(m) for m in maps]),
            reduction.attributes["iterator_types"],
        )
        kinds = [v.type.element_type if isinstance(v.type, ir.ShapedType) else v.type for v in [*ins, *outs]]
        block = new.regions[0].blocks.append(*kinds)
        with ir.InsertionPoint(block):
            of_producer, of_reduction = (op.regions[0].blocks[0] for op in (producer, reduction))
            (x,) = clone_body(of_producer, dict(zip(of_producer.arguments, block.arguments, strict=False)))
            rest = dict(zip(list(of_reduction.arguments)[1:], list(block.arguments)[first + 1 :], strict=True))
            reduced = clone_body(of_reduction, {of_reduction.arguments[number]: x, **rest})
            linalg.YieldOp([x, *reduced])
    for old, value in zip([producer.results[0], *reduction.results], new.results, strict=True):
        old.replace_all_uses_with(value)
    reduction.erase()
    producer.erase()


def clone_body(block: ir.Block, values: dict[ir.Value, ir.Value]) -> list[ir.Value]:
    """Emits the ops of a body again on other values; returns what it yields."""
    *body, end = ops_of(block)
    for op in body:
        copy = op.clone()
        for i, operand in enumerate(op.operands):
            copy.operands[i] = values.get(operand, operand)
        values.update(zip(op.results, copy.results, strict=True))
    return [values.get(v, v) for v in end.operands]
