"""The pass ``drop-units``."""

from __future__ import annotations

from dataclasses import dataclass

from ...dialects import build
from ...dialects.mlir import ir
from ...dialects.tiling.structured import dim_position, indexing_maps, iterator_types
from ..copying import copy_elements, in_loops
from ..extents import known_sizes
from ..passes import Pass
from ..reshapes import RESHAPES, drop_units, replace_if_undone, reshape, simplified
from ..rewriting import defining_op, functions_of, ops_of
from .axes import is_first


@dataclass(frozen=True)
class DropUnits(Pass):
    """Drops loops of one element of ops on results of the loops over tiles, and reshapes that are undone::

        %e = tensor.expand_shape %m [[0], [1, 2]] output_shape [8, 64, 1] : tensor<8x64xf32> into tensor<8x64x1xf32>
        %a = linalg.generic … ins(%e) outs(…) { math.absf } -> tensor<8x64x1xf32>
        %r = tensor.collapse_shape %a [[0], [1, 2]] : tensor<8x64x1xf32> into tensor<8x64xf32>
    becomes
        %r = linalg.generic … ins(%m) outs(…) { math.absf } -> tensor<8x64xf32>

    A log-sum-exp is often written with the keys kept as a dimension of one element; what reads a result of the loops at
    its own places can be computed on their tiles (``fuse-consumers``).
    """

    def run(self, op: ir.Operation) -> None:
        for function in functions_of(op):
            for block in function.regions[0].blocks:
                of_loops: set[ir.Operation] = set()  # the loops, and what is computed from their results
                for inner in ops_of(block):
                    if inner.name != "scf.forall" and not any(defining_op(v) in of_loops for v in inner.operands):
                        continue
                    of_loops.add(inner)
                    with ir.InsertionPoint(inner), inner.location:
                        if inner.name == "linalg.generic":
                            of_loops.update(_drop(inner))
                        elif inner.name in RESHAPES:
                            replace_if_undone(inner)


def _drop(op: ir.Operation) -> list[ir.Operation]:
    """Drops the loops of one element; the ops that stand for `op` then."""
    maps, first = indexing_maps(op), len(op.operands) - len(op.results)
    arguments = list(op.regions[0].blocks[0].arguments)
    kinds = iterator_types(op)
    units = _unit_loops(op)
    if "reduction" in kinds or not units or any(list(a.uses) for a in arguments[first:]):
        return []
    left = [d for d in range(len(kinds)) if d not in units]
    if not left:
        return []
    loops = ir.AffineMap.get(
        len(left), 0, [ir.AffineExpr.get_dim(left.index(d)) if d in left else _zero() for d in range(len(kinds))]
    )
    operands, new_maps = [], []
    for number, (value, m) in enumerate(zip(op.operands, maps, strict=True)):
        gone = [_is_unit(value, d, e, units) for d, e in enumerate(m.results)]
        if number >= first:
            sizes = [s for s, is_gone in zip(known_sizes(value), gone, strict=True) if not is_gone]
            value = build.empty(sizes, value.type.element_type)
        elif any(gone):
            value = simplified(drop_units(value, gone))
        kept = [e for e, is_gone in zip(m.results, gone, strict=True) if not is_gone]
        operands.append(value)
        new_maps.append(ir.AffineMap.get(len(left), 0, [e.compose(loops) for e in kept]))

    def body(*scalars: ir.Value) -> list[ir.Value]:
        return copy_elements(op, dict(zip(arguments, scalars, strict=True)), in_loops(loops))

    results = build.generic(operands[:first], operands[first:], new_maps, [kinds[d] for d in left], body)
    wide = [_with_units(new, old) for old, new in zip(op.results, results, strict=True)]
    for old, new in zip(op.results, wide, strict=True):
        old.replace_all_uses_with(new)
    op.erase()
    return [v.owner.operation for v in (*results, *wide)]


def _zero() -> ir.AffineExpr:
    return ir.AffineExpr.get_constant(0)


def _unit_loops(op: ir.Operation) -> set[int]:
    return {
        loop
        for value, m in zip(op.operands, indexing_maps(op), strict=True)
        for d, e in enumerate(m.results)
        if (loop := dim_position(e)) is not None and value.type.shape[d] == 1
    }


def _is_unit(value: ir.Value, d: int, e: ir.AffineExpr, units: set[int]) -> bool:
    """Whether a dimension of an operand has one element, which every iteration reads."""
    loop = dim_position(e)
    return value.type.shape[d] == 1 and (loop in units or is_first(e))


def _with_units(value: ir.Value, like: ir.Value) -> ir.Value:
    """A tensor with the dimensions of one element that `like` has."""
    if value.type == like.type:
        return value
    sizes = iter(known_sizes(value))
    groups: list[list[int | ir.Value]] = []
    pending: list[int | ir.Value] = []
    for size in like.type.shape:
        if size == 1:
            (groups[-1] if groups else pending).append(1)
        else:
            groups.append([*pending, next(sizes)])
            pending = []
    return reshape(value, groups, expand=True)
