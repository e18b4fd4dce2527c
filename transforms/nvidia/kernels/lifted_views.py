"""Views of memory that loops over tiles make, made before the loops: of a kernel's arguments they are the host's.

    scf.forall (%h) … {
      %s = tensor.extract_slice %q[0, %h·192] [1, 192] : tensor<1x384xbf16> to tensor<1x192xbf16>
      %e = tensor.expand_shape %s [[0], [1, 2, 3]] : tensor<1x192xbf16> into tensor<1x1x3x64xbf16>
becomes
    %v = tensor.expand_shape %q [[0], [1, 2]] : tensor<1x384xbf16> into tensor<1x6x64xbf16>
    scf.forall (%h) … {
      %s = tensor.extract_slice %v[0, %h·3, 0] [1, 3, 64] : tensor<1x6x64xbf16> to tensor<1x3x64xbf16>
      %e = tensor.expand_shape %s [[0], [1, 2], [3]] : tensor<1x3x64xbf16> into tensor<1x1x3x64xbf16>

(Queries of all heads side by side, of which those that share a head of keys are the rows of a tile.)
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ....dialects.mlir import ir
from ...extents import computed, known_sizes
from ...linear import DYNAMIC, linear
from ...reshapes import RESHAPES, only_units, reassociation, reshape
from ...rewriting import defining_op, erase_if_unused, is_made_inside, ops_in
from ...slices import Size, extract, slice_parts, split
from .split_elements import split_elements


def lift_views(forall: ir.Operation) -> None:
    """Moves those of a loop that are of memory. (Canonicalization took views that follow one another into it.)"""
    pending = ops_in(forall, *RESHAPES)
    while pending:
        op = pending.pop(0)
        if only_units(op):
            continue
        if not is_made_inside(op.operands[0], forall):
            op.move_before(forall)
        elif op.name == "tensor.expand_shape" and not _lift_split(op, forall):
            pending += split_elements(op)


@dataclass
class _Dim:
    """A dimension of memory, as several: their sizes, and where a slice of them begins and how large it is."""

    sizes: list[Size]
    offsets: list[Size]
    cut: list[Size]
    groups: list[list[Size]]  # of the result, for each of them


def _lift_split(op: ir.Operation, forall: ir.Operation) -> bool:
    """Splits the memory that `op` splits a slice of, if whole parts of it are cut out; whether it does."""
    cut = defining_op(op.operands[0])
    if cut is None or cut.name != "tensor.extract_slice" or is_made_inside(cut.operands[0], forall):
        return False
    memory = cut.operands[0]
    offsets, sizes, strides = slice_parts(cut)
    if len(sizes) != cut.results[0].type.rank or any(s != 1 for s in strides):
        return False
    with ir.InsertionPoint(forall), op.location:
        wholes = known_sizes(memory)
    with ir.InsertionPoint(op), op.location:
        dims = []
        for d, group in enumerate(reassociation(op)):
            dim = _split(wholes[d], offsets[d], sizes[d], [op.results[0].type.shape[e] for e in group])
            if dim is None:
                return False
            dims.append(dim)
    with ir.InsertionPoint(forall), op.location:
        view = reshape(memory, [dim.sizes for dim in dims], expand=True)
    with ir.InsertionPoint(op), op.location:
        sizes = [size for dim in dims for size in dim.cut]
        kind = ir.RankedTensorType.get(split(sizes)[1], memory.type.element_type)
        part = extract(kind, view, [o for dim in dims for o in dim.offsets], sizes, [1] * len(sizes))
        result = reshape(part, [group for dim in dims for group in dim.groups], expand=True)
    op.results[0].replace_all_uses_with(result)
    op.erase()
    erase_if_unused(cut)
    return True


def _split(whole: Size, offset: Size, size: Size, shape: list[int]) -> _Dim | None:
    """A dimension of memory whose slice is given a `shape`; None where that cannot be told, or parts are not whole."""
    wide = [d for d, n in enumerate(shape) if n != 1] or [len(shape) - 1]
    if len(wide) == 1:
        return _Dim([whole], [offset], [size], [[size if d == wide[0] else 1 for d in range(len(shape))]])
    inner = [shape[d] for d in wide[1:]]
    if DYNAMIC in inner or not isinstance(whole, int) or not isinstance(size, int):
        return None
    unit, place = math.prod(inner), linear(offset)
    if whole % unit or not place.divisible_by(unit):
        return None
    begin = place.divided(unit)
    first = computed(begin) if begin.static is None else begin.static
    if first is None:
        return None
    ends = [*wide[1:], len(shape)]
    starts = [0, *wide[1:]]
    groups: list[list[Size]] = [list(shape[a:b]) for a, b in zip(starts, ends, strict=True)]
    return _Dim([whole // unit, *inner], [first, *[0] * len(inner)], [size // unit, *inner], groups)
