"""The pass ``sum-rows-first``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ....dialects import build
from ....dialects.mlir import arith, ir
from ....dialects.tiling.structured import (
    dim_position,
    indexing_maps,
    is_direct,
    iterator_types,
    sole_combiner,
)
from ...passes import Pass
from ...reshapes import drop_units
from ...rewriting import Values, copy_op, functions_of, ops_in, ops_of

WIDE = (ir.F32Type, ir.F64Type)  # whose sums of parts are rounded as little as the whole


@dataclass(frozen=True)
class SumRowsFirst(Pass):
    """Around the loops over tiles, a sum over dimensions of which some are rows of memory, and others stand outside of
    what is kept, becomes one of rows, and one of what these give::

        %s = linalg.generic { s + x } ins(%x : tensor<2x16x2048xf32>) outs(%zeros : tensor<16xf32>)
      becomes
        %p = linalg.generic { s + x } ins(%x : tensor<2x16x2048xf32>) outs(%none : tensor<2x16xf32>)
        %s = linalg.generic { s + p } ins(%p : tensor<2x16xf32>) outs(%zeros : tensor<16xf32>)

    The former is what ``outline-rows`` has many threads for; of the whole, one thread would add up all of a result.
    """

    def run(self, op: ir.Operation) -> None:
        for function in functions_of(op):
            for block in function.regions[0].blocks:
                for generic in [o for o in ops_of(block) if o.name == "linalg.generic" and len(o.results) == 1]:
                    order = _order(generic)
                    if order is not None:
                        _split(generic, *order)


def _order(generic: ir.Operation) -> tuple[int, list[int], list[int]] | None:
    """An operand that has all loops of a sum, the loops along what it is first summed to, and those along its rows;
    None if that is all that is summed over, or it is no such sum."""
    kinds, (*maps, out) = iterator_types(generic), indexing_maps(generic)
    combiner = sole_combiner(generic, 0) if "reduction" in kinds else None
    wide = isinstance(generic.results[0].type.element_type, WIDE)
    is_placed = bool(ops_in(generic, "linalg.index"))  # whose loops have numbers
    if (
        is_placed
        or combiner is None
        or combiner.name != "arith.addf"
        or not wide
        or not all(map(is_direct, out.results))
    ):
        return None
    for number, m in enumerate(maps):
        order = [dim_position(e) for e in m.results]
        if set(order) != {*range(len(kinds))} or len(order) != len(kinds):
            continue
        sizes = generic.operands[number].type.shape
        wider = [d for d, size in zip(order, sizes, strict=True) if d is not None and size != 1]
        rows: list[int] = []
        while wider and kinds[wider[-1]] == "reduction":
            rows.insert(0, wider.pop())
        kept = [d for d in wider if d not in rows]
        return (number, kept, rows) if rows and any(kinds[d] == "reduction" for d in wider) else None
    return None


def _split(generic: ir.Operation, number: int, kept: Sequence[int], rows: Sequence[int]) -> None:
    kinds, maps = iterator_types(generic), indexing_maps(generic)
    block, init = generic.regions[0].blocks[0], generic.operands[len(generic.operands) - 1]
    *body, end = ops_of(block)

    def added(*scalars: ir.Value) -> ir.Value:
        values: Values = dict(zip(block.arguments, scalars, strict=True))
        for op in body:
            copy_op(op, values)
        return values[end.operands[0]]

    left = sorted((*kept, *rows))  # loops of one element are none
    zero = ir.AffineExpr.get_constant(0)

    def without_units(m: ir.AffineMap, loops: Sequence[int]) -> list[ir.AffineExpr]:
        places = [ir.AffineExpr.get_dim(loops.index(d)) if d in loops else zero for d in range(m.n_dims)]
        return [e.compose(ir.AffineMap.get(len(loops), 0, places)) for e in m.results]

    with ir.InsertionPoint(generic), generic.location:
        element = init.type.element_type
        places = map(dim_position, maps[number].results)
        sizes = dict(zip(places, build.mixed_sizes(generic.operands[number]), strict=True))
        zeros = build.fill(build.constant(element, 0.0), build.empty([sizes[d] for d in kept], element))
        values, value_maps = [], []
        for value, m in zip(list(generic.operands)[:-1], maps[:-1], strict=True):
            units = [(d := dim_position(e)) is not None and d not in left for e in m.results]
            values.append(drop_units(value, units) if any(units) else value)
            found = [e for e, unit in zip(without_units(m, left), units, strict=True) if not unit]
            value_maps.append(ir.AffineMap.get(len(left), 0, found))
        value_maps.append(build.projection(len(left), [left.index(d) for d in kept]))
        of_rows = [build.REDUCTION if d in rows else build.PARALLEL for d in left]
        (parts,) = build.generic(values, [zeros], value_maps, of_rows, added)
        (total,) = build.generic(
            [parts],
            [init],
            [
                build.projection(len(kept), range(len(kept))),
                ir.AffineMap.get(len(kept), 0, without_units(maps[-1], kept)),
            ],
            [kinds[d] for d in kept],
            lambda part, before: arith.addf(before, part),
        )
    generic.results[0].replace_all_uses_with(total)
    generic.erase()
