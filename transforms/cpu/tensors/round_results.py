"""The pass ``round-results``."""

from dataclasses import dataclass

from ....dialects import build
from ....dialects.mlir import ir, linalg
from ....dialects.tiling.structured import indexing_maps
from ...copying import copy_body
from ...passes import Pass
from ...rewriting import defining_op, ops_in, ops_of


@dataclass(frozen=True)
class RoundResults(Pass):
    """Rounds a result to a narrower type where it is computed, if nothing else is done with it::

        %p, %l = linalg.generic … ins(%m) outs(%s, %sum : tensor<64x128xf32>, …) { …  yield %e, %a }
        %r = linalg.generic … ins(%p) outs(%0 : tensor<64x128xbf16>) { truncf }
    becomes
        %r, %l = linalg.generic … ins(%m, %s) outs(%0, %sum : tensor<64x128xbf16>, …) { … yield truncf %e, %a }

    One write and one read of the tile less: of the probabilities, whose sum is still of what they were before. So with
    other arithmetic on single elements before the truncation, as by a scale.
    """

    def run(self, op: ir.Operation) -> None:
        for rounding in ops_in(op, "linalg.generic"):
            producer = _producer(rounding)
            if producer is not None:
                _fuse(producer, rounding)


def _producer(rounding: ir.Operation) -> ir.Operation | None:
    """The op whose result this one only rounds, perhaps with arithmetic before."""
    if len(rounding.operands) != 2 or len(rounding.results) != 1:
        return None
    block = rounding.regions[0].blocks[0]
    *body, _ = ops_of(block)
    wide, narrow = (a.type for a in block.arguments)
    if not isinstance(wide, ir.FloatType) or not build.is_narrow(narrow) or narrow.width >= wide.width:
        return None
    if not all(o.name.startswith("arith.") for o in body) or list(block.arguments[1].uses):
        return None
    if len(set(indexing_maps(rounding))) != 1 or not isinstance(rounding.operands[0].type, ir.ShapedType):
        return None
    made = defining_op(rounding.operands[0])
    if made is None or made.name != "linalg.generic" or made.block != rounding.block:
        return None
    place = len(made.operands) - len(made.results) + rounding.operands[0].result_number
    once = indexing_maps(made)[place].is_permutation  # each element is computed once: nothing is summed in it
    return made if once and len(list(rounding.operands[0].uses)) == 1 else None


def _fuse(producer: ir.Operation, rounding: ir.Operation) -> None:
    number = rounding.operands[0].result_number
    n_inputs = len(producer.operands) - len(producer.results)
    block = producer.regions[0].blocks[0]
    operands, maps = list(producer.operands), indexing_maps(producer)
    place = n_inputs + number
    element = rounding.results[0].type.element_type
    with ir.InsertionPoint(producer), rounding.location:
        target = build.empty(build.mixed_sizes(operands[place]), element)
        old = list(block.arguments)
        if list(old[place].uses):  # what the result started from becomes an input
            operands.insert(n_inputs, operands[place])
            maps.insert(n_inputs, maps[place])
            old.insert(n_inputs, old.pop(place))
            old.insert(place + 1, None)
            place += 1
            n_inputs += 1
        operands[place] = target
        new = linalg.GenericOp(
            [v.type for v in operands[n_inputs:]],
            operands[:n_inputs],
            operands[n_inputs:],
            build.map_array(maps),
            producer.attributes["iterator_types"],
        )
        body = new.regions[0].blocks.append(*[build.element_of(v.type) for v in operands])
        values = {a: b for a, b in zip(old, body.arguments, strict=True) if a is not None}
        with ir.InsertionPoint(body):
            results = copy_body(block, values)
            rounded = rounding.regions[0].blocks[0]
            (results[number],) = copy_body(rounded, {rounded.arguments[0]: results[number]})
            linalg.YieldOp(results)
    for i, result in enumerate(producer.results):
        if i != number:
            result.replace_all_uses_with(new.results[i])
    rounding.results[0].replace_all_uses_with(new.results[number])
    rounding.erase()
    producer.erase()
