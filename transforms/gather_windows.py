"""The pass ``gather-windows``."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ..dialects import build
from ..dialects.mlir import ir
from ..dialects.tiling import Untileable
from ..dialects.tiling.structured import (
    body_names,
    dim_position,
    indexing_maps,
    iterator_types,
    loops_in,
    on_loops,
    reduces,
    sum_of_loops,
)
from .copying import with_operands
from .extents import static_extents
from .passes import Pass, option, warn_slow
from .reshapes import drop_units, join_dims
from .rewriting import ops_in

LARGEST = 1 << 26  # elements of a copy: beyond it memory, and the way there, count for more
LARGEST_FOR_TILES = 1 << 30
FEWEST = 4  # products that an element takes part in, so that a copy of it pays
WIDE = 48  # windows side by side, of which each vector of lanes is full, or nearly so


@dataclass(frozen=True)
class GatherWindows(Pass):
    """Copies the windows of a convolution side by side ("im2col"), so that it becomes a product of matrices::

        linalg.generic {Y[n, f, x] += X[n, c, 2·x + i]·W[f, c, i]} ins(%x, %w)
    becomes
        %windows = linalg.generic {C[n, c, i, x] = X[n, c, 2·x + i]} ins(%x)
        %rows = tensor.collapse_shape %windows [[0], [1, 2], [3]]
        %matrix = tensor.collapse_shape %w [[0], [1, 2]]
        linalg.generic {Y[n, f, x] += R[n, k, x]·M[f, k]} ins(%rows, %matrix)

    Windows are read in place (`view-windows`) where that is as fast: where channels come last, or many windows follow
    one another by single steps; and of channels by themselves ("depthwise"), which take part in too few products. With
    `tiles` all others are copied, what is added up innermost (`tensor.collapse_shape %windows [[0], [1], [2, 3]]`), but
    those of one element, which are none.
    """

    tiles: bool = option("for kernels that read tiles of matrices, not windows in place", False)

    def run(self, op: ir.Operation) -> None:
        for generic in ops_in(op, "linalg.generic"):
            number = _windows_of(generic)
            if self.tiles and number is not None:
                generic = _without_units(generic, number)
                number = _windows_of(generic)
            if number is None or (not self.tiles and _is_read_well_in_place(generic, number)):
                continue
            loops = _order(generic, number, self.tiles)
            extents, largest = static_extents(generic), LARGEST_FOR_TILES if self.tiles else LARGEST
            if math.prod(extents[d] or 1 for d in loops) > largest:
                slower = "is done element by element, which is slow" if self.tiles else "takes up to twice as long"
                warn_slow(
                    generic,
                    f"the windows of this convolution are read in place, which {slower}: side by side they would be "
                    f"more than {largest} elements; split its input",
                )
                continue
            _gather(generic, number, loops)
            _join_sums(generic, number)


def _windows_of(op: ir.Operation) -> int | None:
    """The input of a sum of products that is read at sums of loops; None if there is none, or it is read seldom."""
    if len(op.results) != 1 or not is_sum_of_products(op):
        return None
    *inputs, out = indexing_maps(op)
    wide = [number for number, m in enumerate(inputs) if any(map(_is_sum, m.results))]
    if len(wide) != 1 or not reduces(op):
        return None
    if any(dim_position(e) is None for m in (inputs[1 - wide[0]], out) for e in m.results):
        return None
    (number,) = wide
    others = loops_in(inputs[1 - number]) - loops_in(inputs[number])
    extents = static_extents(op)
    is_read_often = math.prod(extents[d] or FEWEST for d in others) >= FEWEST
    return number if is_read_often else None


def is_sum_of_products(op: ir.Operation) -> bool:
    """Whether a generic adds up products of two inputs."""
    return len(op.operands) == 3 and body_names(op, "arith.extf") == ["arith.mulf", "arith.addf"]


def _without_units(op: ir.Operation, number: int) -> ir.Operation:
    """The op without the loops over windows of one element."""
    maps, kinds, extents = indexing_maps(op), iterator_types(op), static_extents(op)
    units = {d for d in loops_in(maps[number]) if extents[d] == 1 and kinds[d] == "reduction"}
    left = [d for d in range(len(kinds)) if d not in units]
    if len(left) == len(kinds):
        return op
    zero = ir.AffineExpr.get_constant(0)
    places = [ir.AffineExpr.get_dim(left.index(d)) if d in left else zero for d in range(len(kinds))]
    loops = ir.AffineMap.get(len(left), 0, places)
    with ir.InsertionPoint(op), op.location:
        operands, new_maps = list(op.operands), []
        for i, m in enumerate(maps):
            gone = [dim_position(e) in units for e in m.results]
            if any(gone):
                operands[i] = drop_units(operands[i], gone)
            kept = [e.compose(loops) for e, g in zip(m.results, gone, strict=True) if not g]
            new_maps.append(ir.AffineMap.get(len(left), 0, kept))
        new = with_operands(op, operands[:2], operands[2:], new_maps, build.iterator_array([kinds[d] for d in left]))
    op.results[0].replace_all_uses_with(new.results[0])
    op.erase()
    return new


def _is_read_well_in_place(op: ir.Operation, number: int) -> bool:
    """Whether vectors of channels, or of windows next to each other, are loaded as they are in memory."""
    windows = indexing_maps(op)[number]
    last = windows.results[len(windows.results) - 1]
    if not _is_sum(last):
        return True
    try:
        steps, _ = sum_of_loops(last)
    except Untileable:
        return False
    kinds, extents = iterator_types(op), static_extents(op)
    return any(step == 1 and kinds[d] == build.PARALLEL and (extents[d] or WIDE) >= WIDE for d, step in steps.items())


def _is_sum(e: ir.AffineExpr) -> bool:
    return isinstance(e, ir.AffineBinaryExpr)


def _order(op: ir.Operation, number: int, sums_last: bool) -> list[int]:
    """The loops that the input `number` is read along, in an order in which products read it well: as the result has
    them, and those of the sum, as the other input has them, in front of what the result has innermost, its lanes, or
    innermost where the lanes are the other input's; with `sums_last` always."""
    maps, kinds = indexing_maps(op), iterator_types(op)
    read = loops_in(maps[number])
    result = [dim_position(e) for e in maps[2].results]
    summed = [d for e in maps[1 - number].results if (d := dim_position(e)) is not None]
    summed = [d for d in summed if kinds[d] == "reduction" and d in read]
    summed += [d for d in sorted(read) if kinds[d] == "reduction" and d not in summed]
    own = [d for d in result if d in read]
    if sums_last:
        return [d for d in [*own, *summed] if d is not None]
    innermost = len(own)  # where the loops that the result has innermost begin
    for d in reversed(result):
        if d not in read:
            break
        innermost -= 1
    return [d for d in [*own[:innermost], *summed, *own[innermost:]] if d is not None]


def _gather(op: ir.Operation, number: int, loops: list[int]) -> None:
    """Has `op` read a copy whose dimensions are these loops."""
    maps = indexing_maps(op)
    n = len(loops)
    with ir.InsertionPoint(op), op.location:
        source = op.operands[number]
        sizes = [loop_size(op, number, d) for d in loops]
        out = build.empty(sizes, source.type.element_type)
        identity = ir.AffineMap.get_identity(n)
        read = on_loops(maps[number], loops)
        (copy,) = build.generic([source], [out], [read, identity], [build.PARALLEL] * n, lambda x, _: x)
    op.operands[number] = copy
    maps[number] = build.projection(maps[0].n_dims, loops)
    op.attributes["indexing_maps"] = build.map_array(maps)


def loop_size(op: ir.Operation, number: int, loop: int) -> int | ir.Value:
    """How many iterations a loop has, by an operand other than `number`, or a dimension that it has to itself."""
    maps = indexing_maps(op)
    for i in [*(i for i in range(len(maps)) if i != number), number]:
        for d, e in enumerate(maps[i].results):
            if dim_position(e) == loop:
                return build.mixed_size(op.operands[i], d)
    raise AssertionError("each loop runs along a dimension of some operand")


def _join_sums(op: ir.Operation, number: int) -> None:
    """Makes one loop of those of the sum, where both inputs have them next to each other in the same order."""
    maps, kinds = indexing_maps(op), iterator_types(op)
    summed = [d for e in maps[number].results if kinds[d := _loop(e)] == "reduction"]
    first = [[_loop(e) for e in m.results].index(summed[0]) if summed[0] in loops_in(m) else None for m in maps[:2]]
    if len(summed) < 2 or None in first:
        return
    for m, at in zip(maps[:2], first, strict=True):
        if [_loop(e) for e in m.results][at : at + len(summed)] != summed:
            return
    loops = [d for d in range(maps[0].n_dims) if d not in summed[1:]]
    with ir.InsertionPoint(op), op.location:
        inputs = [join_dims(v, at, len(summed)) for v, at in zip(list(op.operands)[:2], first, strict=True)]
        places = [[_loop(e) for e in m.results if _loop(e) in loops] for m in maps]
        new_maps = [build.projection(len(loops), [loops.index(d) for d in found]) for found in places]
        new = with_operands(op, inputs, [op.operands[2]], new_maps, build.iterator_array([kinds[d] for d in loops]))
    op.results[0].replace_all_uses_with(new.results[0])
    op.erase()


def _loop(e: ir.AffineExpr) -> int:
    found = dim_position(e)
    assert found is not None, "all maps are projections by now"
    return found
