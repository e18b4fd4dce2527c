"""Parts of buffers that got dimensions of size 1 after they were cut out, as parts of buffers that have them.

    %t = memref.subview %m[%b, %i, %j] [1, 64, 64] [1, 1, 1] : memref<2x512x1536xbf16> to …
    %x = memref.expand_shape %t [[0], [1], [2, 3]] output_shape [1, 64, 1, 64] : …
is
    %e = memref.expand_shape %m [[0], [1], [2, 3]] output_shape [2, 512, 1, 1536] : …       # where %m is made
    %x = memref.subview %e[%b, %i, 0, %j] [1, 64, 1, 64] [1, 1, 1, 1]

so that it is seen what %x is a part of: Q, K and V in one packed array.
"""

from typing import TypeAlias

from ....dialects.mlir import ir, memref
from ....dialects.tiling.tensor_ops import reassociation
from ...rewriting import defining_op
from ...slices import slice_parts
from ..blocks import subview
from ..memory import has_identity_layout

Expanded: TypeAlias = dict[tuple[ir.Value, tuple[int, ...]], ir.Value]  # by the buffer and its new shape


def as_part(value: ir.Value, known: Expanded) -> ir.Value:
    """`value` as such a part, made where it is; itself if it is no part of that kind. `known`: buffers expanded."""
    expand = defining_op(value)
    cut = defining_op(expand.operands[0]) if expand is not None and expand.name == "memref.expand_shape" else None
    if cut is None or cut.name != "memref.subview":
        return value
    root = cut.operands[0]
    kind = root.type
    offsets, sizes, steps = slice_parts(cut)
    is_plain = has_identity_layout(kind) and kind.has_static_shape
    if not is_plain or len(sizes) != cut.results[0].type.rank or any(step != 1 for step in steps):
        return value
    groups = reassociation(expand)
    own = _own_dimensions(value.type, groups)
    if own is None:
        return value
    rank = value.type.rank
    shape = [kind.get_dim_size(own.index(d)) if d in own else 1 for d in range(rank)]
    key = (root, tuple(shape))
    expanded = known.get(key)
    if expanded is None:
        place = root.owner if isinstance(root.owner, ir.Block) else None
        point = ir.InsertionPoint.after(root.owner) if place is None else ir.InsertionPoint.at_block_begin(place)
        with point, expand.location:
            result = ir.MemRefType.get(shape, kind.element_type, None, kind.memory_space)
            expanded = memref.ExpandShapeOp(result, root, groups, [], shape).result
        known[key] = expanded
    with ir.InsertionPoint(expand), expand.location:
        strides, _ = expanded.type.get_strides_and_offset()
        starts = [offsets[own.index(d)] if d in own else 0 for d in range(rank)]
        is_known = all(isinstance(x, int) for x in starts)
        first = sum(x * s for x, s in zip(starts, strides, strict=True)) if is_known else None
        dynamic = ir.ShapedType.get_dynamic_stride_or_offset()
        layout = ir.StridedLayoutAttr.get(dynamic if first is None else first, list(strides))
        extents = [sizes[own.index(d)] if d in own else 1 for d in range(rank)]
        return subview(expanded, layout, starts, extents)


def _own_dimensions(kind: ir.MemRefType, groups: list[list[int]]) -> list[int] | None:
    """Of each group of dimensions the one that may be larger than 1; None if more than one may be."""
    own = []
    for group in groups:
        wide = [d for d in group if kind.is_dynamic_dim(d) or kind.get_dim_size(d) != 1]
        if len(wide) > 1:
            return None
        own.append(wide[0] if wide else group[-1])
    return own
