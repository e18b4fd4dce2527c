"""The pass ``drop-units``."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import compress

from ..dialects import build
from ..dialects.build import PARALLEL
from ..dialects.mlir import arith, ir
from ..dialects.tiling.structured import dim_position, indexing_maps, is_direct, iterator_types
from .copying import copy_elements, in_loops
from .extents import known_sizes
from .online.before_loops import SMALL
from .passes import Pass, option
from .reshapes import RESHAPES, drop_units, replace_if_undone, simplified, with_units
from .rewriting import erase_dead, functions_of, ops_of
from .splats import filled_with


@dataclass(frozen=True)
class DropUnits(Pass):
    """Drops dimensions of one element, loops along them, and reshapes that are undone::

        %e = tensor.expand_shape %m [[0], [1, 2]] output_shape [8, 64, 1] : tensor<8x64xf32> into tensor<8x64x1xf32>
        %a = linalg.generic … ins(%e) outs(…) { math.absf } -> tensor<8x64x1xf32>
        %r = tensor.collapse_shape %a [[0], [1, 2]] : tensor<8x64x1xf32> into tensor<8x64xf32>
    becomes
        %r = linalg.generic … ins(%m) outs(…) { math.absf } -> tensor<8x64xf32>

    A log-sum-exp is often written with the keys kept as a dimension of one element: what reads a result of the loops
    over tiles at its own places can be computed on their tiles then (``fuse-consumers``). Of other ops, and of sums, it
    is those that come first, as of a batch of one, so that ops have one shape and can be one (``fuse-elements``); but
    for a single row, and what is returned. Sums over one element, such as a mean over the only query, are no sums. With
    `last` it is those that come last, of all ops, such as those that sums of rows keep: without them such sums lie side
    by side.
    """

    last: bool = option("dimensions that come last, but of whatever op", False)

    def run(self, op: ir.Operation) -> None:
        for function in functions_of(op):
            for block in function.regions[0].blocks:
                for inner in ops_of(block):
                    if inner.name == "linalg.generic":
                        _without_single_sums(inner)
                # What stands around the matmuls of a single tile has their dimensions.
                if self.last or any(o.name == "scf.forall" for o in ops_of(block)):
                    self._drop_all(block)

    def _drop_all(self, block: ir.Block) -> None:
        of_loops: set[ir.Value] = set()  # their results, and what is computed from these
        for op in ops_of(block):
            follows, made = op.name == "scf.forall" or any(v in of_loops for v in op.operands), list(op.results)
            if op.name == "linalg.generic":
                made = self._drop(op, follows)
            elif op.name in RESHAPES and replace_if_undone(op):
                made = []
            of_loops.update(made if follows else [])
        erase_dead(block)  # reshapes that are undone

    def _drop(self, op: ir.Operation, follows: bool) -> list[ir.Value]:
        """Drops dimensions of one element, and loops along them; what stands for the results then."""
        maps, first = indexing_maps(op), len(op.operands) - len(op.results)
        kinds, arguments = iterator_types(op), list(op.regions[0].blocks[0].arguments)
        is_read = [bool(list(a.uses)) for a in arguments]
        if self.last:
            which = _last
        elif follows and "reduction" not in kinds and not any(is_read[first:]):
            which = _any
        elif _stays(op):
            return list(op.results)
        else:
            which = _first
        units = [_units(value, m) for value, m in zip(op.operands, maps, strict=True)]
        of_loops = [[dim_position(e) for e in m.results] for m in maps]
        meant = [_but_one(which(one)) for one in units]
        dropped = {loop for gone, loops in zip(meant, of_loops, strict=True) for loop in compress(loops, gone)}
        left = [d for d in range(len(kinds)) if d not in dropped]
        if not left or not (dropped if self.last else dropped - {None}):
            return list(op.results)
        flags = [
            _but_one([g or (u and d is not None and d in dropped) for g, u, d in zip(*of_one, strict=True)])
            for of_one in zip(meant, units, of_loops, strict=True)
        ]
        loops = _loops_of(left, len(kinds))

        def body(*scalars: ir.Value) -> list[ir.Value]:
            return copy_elements(op, dict(zip(arguments, scalars, strict=True)), in_loops(loops))

        with ir.InsertionPoint(op), op.location:
            operands = [
                _without(value, gone, is_out=number >= first, is_read=is_read[number])
                for number, (value, gone) in enumerate(zip(op.operands, flags, strict=True))
            ]
            new_maps = [
                ir.AffineMap.get(
                    len(left), 0, [e.compose(loops) for e, g in zip(m.results, gone, strict=True) if not g]
                )
                for m, gone in zip(maps, flags, strict=True)
            ]
            results = build.generic(operands[:first], operands[first:], new_maps, [kinds[d] for d in left], body)
            made = results[0].owner.operation
            for name in op.attributes:  # marks
                if name not in made.attributes:
                    made.attributes[name] = op.attributes[name]
            wide = [with_units(new, known_sizes(new), gone) for new, gone in zip(results, flags[first:], strict=True)]
        for old, new in zip(op.results, wide, strict=True):
            old.replace_all_uses_with(new)
        op.erase()
        return [*results, *wide]


def _without_single_sums(op: ir.Operation) -> None:
    """An op all of whose sums are over one element becomes one by element: that, combined with the init."""
    maps, kinds, first = indexing_maps(op), iterator_types(op), len(op.operands) - len(op.results)
    pairs = zip(op.operands, maps, strict=True)
    sized = [(v.type.shape, m.results) for v, m in pairs if isinstance(v.type, ir.ShapedType)]
    one = {dim_position(e) for shape, found in sized for e, size in zip(found, shape, strict=True) if size == 1}
    left = [d for d, kind in enumerate(kinds) if kind == PARALLEL]
    if len(left) == len(kinds) or not left or any(d not in one for d in range(len(kinds)) if d not in left):
        return
    loops = _loops_of(left, len(kinds))
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


def _loops_of(left: list[int], count: int) -> ir.AffineMap:
    """Where so many loops are, of which these are left, and the others at their first element."""
    zero = ir.AffineExpr.get_constant(0)
    places = [ir.AffineExpr.get_dim(left.index(d)) if d in left else zero for d in range(count)]
    return ir.AffineMap.get(len(left), 0, places)


def _stays(op: ir.Operation) -> bool:
    """Whether an op is what kernels write as it is, since it is returned, known as a tensor that is filled, or of a
    table, whose ops have their rows in common."""
    inputs = list(op.operands)[: len(op.operands) - len(op.results)]
    is_returned = any(use.owner.name == "func.return" for result in op.results for use in result.uses)
    return is_returned or SMALL in op.attributes or not any(isinstance(v.type, ir.RankedTensorType) for v in inputs)


def _without(value: ir.Value, gone: list[bool], is_out: bool, is_read: bool) -> ir.Value:
    """An operand without dimensions; what results start as stays known as a number, or as nothing."""
    if not is_out or (is_read and filled_with(value) is None):
        return simplified(drop_units(value, gone)) if any(gone) else value
    sizes = [size for size, g in zip(known_sizes(value), gone, strict=True) if not g]
    empty = build.empty(sizes, value.type.element_type)
    return build.fill(arith.constant(value.type.element_type, filled_with(value)), empty) if is_read else empty


def _units(value: ir.Value, m: ir.AffineMap) -> list[bool]:
    """Which dimensions of an operand have one element, that of their loop, or the first."""
    if not isinstance(value.type, ir.RankedTensorType):
        return [False] * len(m.results)
    return [size == 1 and is_direct(e) for size, e in zip(value.type.shape, m.results, strict=True)]


def _but_one(gone: list[bool]) -> list[bool]:
    """None, if nothing would be left of a tensor."""
    return [False] * len(gone) if all(gone) else gone


def _any(units: list[bool]) -> list[bool]:
    return units


def _first(units: list[bool]) -> list[bool]:
    return [all(units[: d + 1]) and not all(units[:-1]) for d in range(len(units))]


def _last(units: list[bool]) -> list[bool]:
    return [all(units[d:]) for d in range(len(units))]
