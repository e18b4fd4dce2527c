"""The pass ``drop-units``."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import compress

from ..dialects import build
from ..dialects.build import PARALLEL
from ..dialects.mlir import ir
from ..dialects.tiling.structured import dim_position, indexing_maps, is_direct, iterator_types
from .copying import copy_elements, in_loops
from .extents import known_sizes
from .passes import Pass, option
from .reshapes import RESHAPES, drop_units, replace_if_undone, simplified, with_units
from .rewriting import defining_op, erase_dead, functions_of, ops_of


@dataclass(frozen=True)
class DropUnits(Pass):
    """Drops loops of one element of ops on results of the loops over tiles, and reshapes that are undone::

        %e = tensor.expand_shape %m [[0], [1, 2]] output_shape [8, 64, 1] : tensor<8x64xf32> into tensor<8x64x1xf32>
        %a = linalg.generic … ins(%e) outs(…) { math.absf } -> tensor<8x64x1xf32>
        %r = tensor.collapse_shape %a [[0], [1, 2]] : tensor<8x64x1xf32> into tensor<8x64xf32>
    becomes
        %r = linalg.generic … ins(%m) outs(…) { math.absf } -> tensor<8x64xf32>

    A log-sum-exp is often written with the keys kept as a dimension of one element; what reads a result of the loops at
    its own places can be computed on their tiles (``fuse-consumers``). Sums over one element, such as a mean over the
    only query, are no sums, of whatever op. With `last` it is the dimensions of one element
    that come last, of all ops, such as those that sums of rows keep: without them such sums lie side by side.
    """

    last: bool = option("dimensions that come last, but of whatever op", False)

    def run(self, op: ir.Operation) -> None:
        for function in functions_of(op):
            for block in function.regions[0].blocks:
                of_loops: set[ir.Operation] = set()  # the loops, and what is computed from their results
                for inner in ops_of(block):
                    if inner.name == "linalg.generic":
                        inner = _without_single_sums(inner)
                    follows = inner.name == "scf.forall" or any(defining_op(v) in of_loops for v in inner.operands)
                    if not self.last and not follows:
                        continue
                    of_loops.add(inner)
                    with ir.InsertionPoint(inner), inner.location:
                        if inner.name == "linalg.generic":
                            of_loops.update(self._drop(inner))
                        elif inner.name in RESHAPES:
                            replace_if_undone(inner)
                if self.last:
                    erase_dead(block)  # reshapes that are undone

    def _drop(self, op: ir.Operation) -> list[ir.Operation]:
        """Drops dimensions of one element, and loops along them; the ops that stand for `op` then."""
        maps, first = indexing_maps(op), len(op.operands) - len(op.results)
        kinds, arguments = iterator_types(op), list(op.regions[0].blocks[0].arguments)
        is_read = [bool(list(a.uses)) for a in arguments]
        if not self.last and ("reduction" in kinds or any(is_read[first:])):
            return []
        flags = [_units(value, m, self.last) for value, m in zip(op.operands, maps, strict=True)]
        dropped = {dim_position(e) for gone, m in zip(flags, maps, strict=True) for e in compress(m.results, gone)}
        left = [d for d in range(len(kinds)) if d not in dropped]
        if not left or not (dropped if self.last else dropped - {None}):
            return []
        zero = ir.AffineExpr.get_constant(0)
        loops = ir.AffineMap.get(
            len(left), 0, [ir.AffineExpr.get_dim(left.index(d)) if d in left else zero for d in range(len(kinds))]
        )
        operands, new_maps = [], []
        for number, (value, m, gone) in enumerate(zip(op.operands, maps, flags, strict=True)):
            stays = [not g for g in gone]
            if number >= first and not is_read[number]:
                value = build.empty(list(compress(known_sizes(value), stays)), value.type.element_type)
            elif any(gone):
                value = simplified(drop_units(value, gone))
            operands.append(value)
            new_maps.append(ir.AffineMap.get(len(left), 0, [e.compose(loops) for e in compress(m.results, stays)]))

        def body(*scalars: ir.Value) -> list[ir.Value]:
            return copy_elements(op, dict(zip(arguments, scalars, strict=True)), in_loops(loops))

        results = build.generic(operands[:first], operands[first:], new_maps, [kinds[d] for d in left], body)
        wide = [with_units(new, known_sizes(new), gone) for new, gone in zip(results, flags[first:], strict=True)]
        for old, new in zip(op.results, wide, strict=True):
            old.replace_all_uses_with(new)
        op.erase()
        return [v.owner.operation for v in (*results, *wide)]


def _without_single_sums(op: ir.Operation) -> ir.Operation:
    """An op all of whose sums are over one element, element by element: that, combined with the init."""
    maps, kinds, first = indexing_maps(op), iterator_types(op), len(op.operands) - len(op.results)
    pairs = zip(op.operands, maps, strict=True)
    sized = [(v.type.shape, m.results) for v, m in pairs if isinstance(v.type, ir.ShapedType)]
    one = {dim_position(e) for shape, found in sized for e, size in zip(found, shape, strict=True) if size == 1}
    left = [d for d, kind in enumerate(kinds) if kind == PARALLEL]
    if len(left) == len(kinds) or not left or any(d not in one for d in range(len(kinds)) if d not in left):
        return op
    zero = ir.AffineExpr.get_constant(0)
    places = [ir.AffineExpr.get_dim(left.index(d)) if d in left else zero for d in range(len(kinds))]
    loops = ir.AffineMap.get(len(left), 0, places)
    moved = [ir.AffineMap.get(len(left), 0, [e.compose(loops) for e in m.results]) for m in maps]
    arguments = list(op.regions[0].blocks[0].arguments)

    def body(*scalars: ir.Value) -> list[ir.Value]:
        return copy_elements(op, dict(zip(arguments, scalars, strict=False)), in_loops(loops))

    with ir.InsertionPoint(op), op.location:
        inits = [build.empty(known_sizes(v), v.type.element_type) for v in list(op.operands)[first:]]
        results = build.generic(list(op.operands), inits, [*moved, *moved[first:]], [PARALLEL] * len(left), body)
    for old, new in zip(op.results, results, strict=True):
        old.replace_all_uses_with(new)
    op.erase()
    return results[0].owner.operation


def _units(value: ir.Value, m: ir.AffineMap, last: bool) -> list[bool]:
    """Which dimensions of an operand have one element, that of their loop, or the first; with `last` those that no
    other one follows."""
    if not m.results or not isinstance(value.type, ir.RankedTensorType):
        return []
    found = [size == 1 and is_direct(e) for size, e in zip(value.type.shape, m.results, strict=True)]
    if last:
        found = [all(found[d:]) for d in range(len(found))]
    return [False] * len(found) if all(found) else found
