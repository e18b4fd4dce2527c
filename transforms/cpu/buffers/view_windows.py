"""The pass ``view-windows``."""

from dataclasses import dataclass

from ....dialects import build
from ....dialects.mlir import arith, ir, memref
from ....dialects.tiling import Untileable
from ....dialects.tiling.structured import indexing_maps, is_direct, iterator_types, sum_of_loops
from ...copying import with_operands
from ...extents import static_extents
from ...gather_windows import is_sum_of_products, loop_size
from ...passes import Pass
from ...rewriting import ops_in
from ...slices import Size, plus, split
from ..structured import DYNAMIC_STRIDE


@dataclass(frozen=True)
class ViewWindows(Pass):
    """Reads overlapping windows through a view that has a dimension for each loop::

        linalg.generic {Y[c, x] += X[c, 2·x + i]·W[c, i]} ins(%x, %w : memref<8x33xf32>, memref<8x3xf32>) outs(%y)
    becomes
        %v = memref.reinterpret_cast %x to offset: [0], sizes: [8, 3, 16], strides: [33, 1, 2]
        linalg.generic {Y[c, x] += V[c, i, x]·W[c, i]} ins(%v, %w : memref<8x3x16xf32, strided<[33, 1, 2]>>, …) outs(%y)

    Nothing is copied, and passes after it find along which loops an operand lies: of convolutions, those of channels by
    themselves ("depthwise"), and others that `gather-windows` leaves. Of windows that are not multiplied, as those of
    pools, LLVM makes faster code, element by element.
    """

    def run(self, op: ir.Operation) -> None:
        for generic in ops_in(op, "linalg.generic"):
            if not generic.results and is_sum_of_products(generic):
                _view(generic)


def _view(op: ir.Operation) -> None:
    maps, first = indexing_maps(op), len(op.operands) - 1
    operands, new_maps = list(op.operands), list(maps)
    for number, m in enumerate(maps[:first]):
        terms = _terms(m)
        if terms is None:
            continue
        with ir.InsertionPoint(op), op.location:
            operands[number], loops = _split(op, number, terms)
        new_maps[number] = build.projection(m.n_dims, loops)
    if operands == list(op.operands):
        return
    with ir.InsertionPoint(op), op.location:
        with_operands(op, operands[:first], operands[first:], new_maps, op.attributes["iterator_types"])
    op.erase()


def _terms(m: ir.AffineMap) -> list[tuple[dict[int, int], int]] | None:
    """For each dimension the loops that it goes along, each with its step, and where it begins; None where nothing is
    to be done, or a loop goes along two of them."""
    if all(is_direct(e) for e in m.results):
        return None
    try:
        found = [sum_of_loops(e) for e in m.results]
    except Untileable:
        return None
    loops = [loop for steps, _ in found for loop in steps]
    return found if len(set(loops)) == len(loops) else None


def _split(op: ir.Operation, number: int, terms: list[tuple[dict[int, int], int]]) -> tuple[ir.Value, list[int]]:
    """The view of an operand, and the loops that its dimensions are along: of those of one dimension of the operand
    parallel ones come last, as lanes."""
    value, kinds, extents = op.operands[number], iterator_types(op), static_extents(op)
    start, apart = _layout(value)
    sizes: list[Size] = []
    strides: list[Size] = []
    loops = []
    for stride, (steps, first) in zip(apart, terms, strict=True):
        start = plus(start, _times(stride, first))
        for loop in sorted(steps, key=lambda loop: kinds[loop] == build.PARALLEL):
            extent = extents[loop]
            sizes.append(loop_size(op, number, loop) if extent is None else extent)
            strides.append(_times(stride, steps[loop]))
            loops.append(loop)
    dynamic, static = zip(*map(split, ([start], sizes, strides)), strict=True)
    layout = ir.StridedLayoutAttr.get(static[0][0], static[2])
    kind = ir.MemRefType.get(static[1], value.type.element_type, layout, value.type.memory_space)
    return memref.ReinterpretCastOp(kind, value, *dynamic, *static).result, loops


def _layout(value: ir.Value) -> tuple[Size, list[Size]]:
    """Where a buffer's elements begin, and how far they are apart along each dimension."""
    strides, start = value.type.get_strides_and_offset()
    if DYNAMIC_STRIDE not in (start, *strides):
        return start, list(strides)
    _, first, *others = memref.ExtractStridedMetadataOp(value).results
    found = others[len(strides) :]
    known = [f if s == DYNAMIC_STRIDE else s for s, f in zip(strides, found, strict=True)]
    return first if start == DYNAMIC_STRIDE else start, known


def _times(size: Size, factor: int) -> Size:
    if isinstance(size, int) or factor in (0, 1):
        return size * factor if isinstance(size, int) else size if factor else 0
    return arith.muli(size, build.index(factor))
