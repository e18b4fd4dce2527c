"""Dimensions of what is computed element by element in loops over tiles, split where it is read, not where it is made.

    %b = tensor.extract_slice %u[%h·192] [192] [1] : tensor<384xf32> to tensor<192xf32>
    %y = linalg.generic {Y[i, j] = X[i, j] + B[j]} ins(%x, %b) -> tensor<1x192xf32>
    %e = tensor.expand_shape %y [[0], [1, 2]] output_shape [1, 3, 64]
becomes
    %b1 = tensor.expand_shape %b [[0, 1]] output_shape [3, 64]
    %x1 = tensor.expand_shape %x [[0], [1, 2]] output_shape [1, 3, 64]
    %e = linalg.generic {Y[i, h, j] = X[i, h, j] + B[h, j]} ins(%x1, %b1) -> tensor<1x3x64xf32>

so that it is memory whose dimensions are split (``lifted_views.py``): of a tile none can be. (Queries of several heads,
side by side, that get a bias.)
"""

from __future__ import annotations

from ....dialects import build
from ....dialects.build import PARALLEL
from ....dialects.mlir import ir
from ....dialects.tiling.structured import all_parallel, dim_position, indexing_maps, operand_loops
from ....dialects.tiling.tensor_ops import reassociation
from ...copying import with_operands
from ...linear import DYNAMIC
from ...reshapes import reshape
from ...rewriting import defining_op, ops_in
from ..axes import is_first


def split_elements(expand: ir.Operation) -> list[ir.Operation]:
    """Rewrites a tensor.expand_shape of what is computed by element, if only that reads it, and no size that is split
    is open; the views that come in its place."""
    maker = defining_op(expand.operands[0])
    if maker is None or not _can_be_split(maker):
        return []
    groups, shape = reassociation(expand), list(expand.results[0].type.shape)
    if any(DYNAMIC in (shape[d] for d in group) for group in groups if len(group) > 1):
        return []
    *operands, init = maker.operands
    *loops, of_result = operand_loops(maker)
    split_loops = dict(zip(of_result, groups, strict=True))
    made: list[ir.Operation] = []
    with ir.InsertionPoint(expand), expand.location:
        sizes = build.mixed_sizes(init)
        values = []
        for value, own in zip(operands, loops, strict=True):
            if isinstance(value.type, ir.RankedTensorType) and any(
                len(split_loops[d]) > 1 for d in own if d is not None
            ):
                known = build.mixed_sizes(value)
                parts = [
                    [size] if d is None or len(split_loops[d]) == 1 else [shape[e] for e in split_loops[d]]
                    for d, size in zip(own, known, strict=True)
                ]
                value = reshape(value, parts, expand=True)
                made.append(value.owner.operation)
            values.append(value)
        of_all = [
            size
            for group, size in zip(groups, sizes, strict=True)
            for size in ([shape[e] for e in group] if len(group) > 1 else [size])
        ]
        first = ir.AffineExpr.get_constant(0)
        places = {d: [ir.AffineExpr.get_dim(e) for e in group] for d, group in split_loops.items()}
        at = ([e for d in own for e in places.get(d, [first])] for own in (*loops, of_result))
        maps = [ir.AffineMap.get(len(shape), 0, found) for found in at]
        kinds = build.iterator_array([PARALLEL] * len(shape))
        new = with_operands(maker, values, [build.empty(of_all, init.type.element_type)], maps, kinds)
    expand.results[0].replace_all_uses_with(new.results[0])
    expand.erase()
    maker.erase()
    return made


def _can_be_split(op: ir.Operation) -> bool:
    """Whether an op computes one tensor by element, which it has for itself, of tensors that it reads along their
    dimensions, or at the only place of one that has one element; and of no places."""
    if op.name != "linalg.generic" or not all_parallel(op) or len(op.results) != 1 or ops_in(op, "linalg.index"):
        return False
    if len(list(op.results[0].uses)) != 1 or list(op.regions[0].blocks[0].arguments[len(op.operands) - 1].uses):
        return False
    *of_operands, of_result = indexing_maps(op)
    direct = all(dim_position(e) is not None or is_first(e) for m in of_operands for e in m.results)
    return direct and of_result.is_permutation
