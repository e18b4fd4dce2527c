"""The pass ``sums-apart``."""

from __future__ import annotations

from dataclasses import dataclass

from ....dialects import build
from ....dialects.mlir import ir
from ....dialects.tiling.structured import indexing_maps, iterator_types, sole_combiner
from ...passes import Pass
from ...rewriting import Values, copy_op, functions_of, ops_of


@dataclass(frozen=True)
class SumsApart(Pass):
    """Around the loops over tiles, an op that computes elements, and sums of these, becomes one for each::

        %p, %s = linalg.generic { p = exp(x − m); s + p } ins(%m) outs(%x, %zeros) -> tensor<64x128xf32>, tensor<64xf32>
      becomes
        %p = linalg.generic { exp(x − m) } ins(%m, %x) outs(%e) -> tensor<64x128xf32>
        %s = linalg.generic { s + p } ins(%p) outs(%zeros) -> tensor<64xf32>

    One op of both is right for a tile, which is there. Of what is in memory a thread would go along each row by itself;
    sums and elements alone are what ``outline-rows`` makes one kernel of. (The softmax of attention that is not fused.)
    """

    def run(self, op: ir.Operation) -> None:
        for function in functions_of(op):
            for block in function.regions[0].blocks:
                for generic in [o for o in ops_of(block) if o.name == "linalg.generic" and len(o.results) > 1]:
                    sums = _sums(generic)
                    if sums:
                        _take_apart(generic, sums)


def _sums(generic: ir.Operation) -> dict[int, tuple[ir.Operation, int]]:
    """By their numbers the results that add up others: what adds an element up, and which result the element is. None
    at all if there is a result that is neither elements nor such a sum."""
    kinds, maps = iterator_types(generic), indexing_maps(generic)
    yielded = list(ops_of(generic.regions[0].blocks[0])[-1].operands)
    maps = maps[len(generic.operands) - len(yielded) :]
    elements = {n for n, m in enumerate(maps) if m.is_permutation}
    found = {}
    for number in set(range(len(yielded))) - elements:
        combiner = sole_combiner(generic, number)
        of = [n for n in elements if combiner is not None and yielded[n] in list(combiner.operands)]
        if combiner is None or not of or "reduction" not in kinds:
            return {}
        found[number] = (combiner, of[0])
    return found


def _take_apart(generic: ir.Operation, sums: dict[int, tuple[ir.Operation, int]]) -> None:
    block, maps, count = generic.regions[0].blocks[0], indexing_maps(generic), len(generic.results)
    *body, end = ops_of(block)
    first = len(generic.operands) - count
    operands, arguments = list(generic.operands), list(block.arguments)
    elements = [n for n in range(count) if n not in sums]
    read = [n for n in range(len(operands)) if n - first not in sums and (n < first or len(list(arguments[n].uses)))]
    combiners = [combiner for combiner, _ in sums.values()]

    def of_elements(*new: ir.Value) -> list[ir.Value]:
        values: Values = {arguments[n]: v for n, v in zip(read, new, strict=False)}
        for op in body:
            if op not in combiners:
                copy_op(op, values)
        return [values.get(v, v) for v in (end.operands[n] for n in elements)]

    with ir.InsertionPoint(generic), generic.location:
        outs = [operands[first + n] for n in elements]
        inits = [build.empty(build.mixed_sizes(v), v.type.element_type) for v in outs]
        of_made = [maps[n] for n in read] + [maps[first + n] for n in elements]
        made = build.generic(
            [operands[n] for n in read], inits, of_made, [build.PARALLEL] * len(iterator_types(generic)), of_elements
        )
        results = dict(zip(elements, made, strict=True))
        for number, (combiner, of) in sums.items():

            def added(element: ir.Value, total: ir.Value, combiner: ir.Operation = combiner, of: int = of) -> ir.Value:
                own = end.operands[of]
                (before,) = (v for v in combiner.operands if v != own)
                return copy_op(combiner, {own: element, before: total}).result

            of_sum = [maps[first + of], maps[first + number]]
            (results[number],) = build.generic(
                [results[of]], [operands[first + number]], of_sum, iterator_types(generic), added
            )
    for number, value in results.items():
        generic.results[number].replace_all_uses_with(value)
    generic.erase()
