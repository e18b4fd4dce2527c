"""Rows that are read at several distant places in turn: a loop over rows as two, over places and over rows of each."""

from ....dialects import build
from ....dialects.mlir import arith, ir, memref
from ....dialects.tiling.structured import indexing_maps
from ...slices import Size, split
from ..blocks import Block, part_of, with_operands
from ..structured import Operand, Structured
from .schedule import PLACES


def in_places(op: Structured, loop: int, count: int) -> list[ir.Operation]:
    """Replaces the op by one whose `loop` goes over a part of the rows, and whose new, last loop over `count` places
    where such parts start; and by another one for the rows that are left over. Returns both, at the place of the old::

        linalg.generic {S[m, n] += Q[m, d]·K[n, d]} ins(%q, %k : memref<4x128xf32>, memref<256x128xf32>) outs(%s : …)
    becomes
        %places = memref.expand_shape %k [[0, 1], [2]] : memref<256x128xf32> into memref<2x128x128xf32>
        linalg.generic {S[m, p, n] += Q[m, d]·K[p, n, d]} ins(%q, %places) outs(…)
    """
    old = op.op
    with ir.InsertionPoint(old), old.location:
        size = op.sizes[loop]
        each, whole, rest = _divided(size if size is not None else op.size(loop), count)
        made = []
        if not isinstance(rest, int) or rest:
            left = {loop: Block(build.as_index(whole), rest)}
            copy = Structured(old.clone())
            made = [with_operands(copy, [part_of(o, left) for o in copy.operands], indexing_maps(copy.op)).operation]
            copy.op.erase()
        first = {loop: Block(build.index(0), whole)}
        is_whole = isinstance(rest, int) and not rest
        values = [o.value if is_whole else part_of(o, first) for o in op.operands]
        operands = [_expanded(o, v, loop, count, each) for o, v in zip(op.operands, values, strict=True)]
        maps = [_with_places(map_, loop, op.n_loops) for map_ in indexing_maps(old)]
        iterators = [*old.attributes["iterator_types"], old.attributes["iterator_types"][loop]]
        main = with_operands(op, operands, maps).operation
        main.attributes["iterator_types"] = ir.ArrayAttr.get(iterators)
        main.attributes[PLACES] = build.i64_attribute(op.n_loops)
        for other in made:
            other.move_after(main)
    old.erase()
    return [main, *made]


def _divided(size: Size, count: int) -> tuple[Size, Size, Size]:
    """Rows of each place, of all, and those that are left over."""
    if isinstance(size, int):
        return size // count, size // count * count, size % count
    each = arith.divui(size, build.index(count))
    whole = arith.muli(each, build.index(count))
    return each, whole, arith.subi(size, whole)


def _expanded(operand: Operand, value: ir.Value, loop: int, count: int, each: Size) -> ir.Value:
    """The operand's dimension of the rows as two."""
    if loop not in operand.loops:
        return value
    position, kind = operand.dims.index(loop), value.type
    rank = kind.rank
    groups = [[d + (d > position)] if d != position else [d, d + 1] for d in range(rank)]
    sizes: list[Size] = build.mixed_sizes(value)
    sizes[position : position + 1] = [count, each]
    strides, offset = kind.get_strides_and_offset()
    dynamic = ir.ShapedType.get_dynamic_stride_or_offset()
    is_static = isinstance(each, int) and strides[position] != dynamic
    strides.insert(position, strides[position] * each if is_static else dynamic)
    dynamic_sizes, shape = split(sizes)
    is_identity = kind.layout == ir.AffineMapAttr.get(ir.AffineMap.get_identity(rank))
    layout = None if is_identity else ir.StridedLayoutAttr.get(offset, strides)
    result = ir.MemRefType.get(shape, kind.element_type, layout, kind.memory_space)
    integer = ir.IntegerType.get_signless(64)
    reassociation = ir.ArrayAttr.get([ir.ArrayAttr.get([ir.IntegerAttr.get(integer, d) for d in g]) for g in groups])
    return memref.ExpandShapeOp(result, value, reassociation, dynamic_sizes, shape).result


def _with_places(map_: ir.AffineMap, loop: int, places: int) -> ir.AffineMap:
    results = []
    for e in map_.results:
        if e == ir.AffineExpr.get_dim(loop):
            results.append(ir.AffineExpr.get_dim(places))
        results.append(e)
    return ir.AffineMap.get(places + 1, 0, results)
