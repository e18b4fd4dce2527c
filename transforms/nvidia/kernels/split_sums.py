"""The sum of a matmul in parts, each a matmul of its own, for where the result's tiles are few and the sum is long."""

from __future__ import annotations

import functools
from collections.abc import Sequence

from ....dialects import build
from ....dialects.build import PARALLEL, element_of
from ....dialects.mlir import arith, ir
from ....dialects.tiling.structured import iterator_types, operand_loops
from ...copying import with_operands
from ...reshapes import drop_units, reshape, with_units
from ...slices import extract
from ...splats import filled_with


def split_sum(matmul: ir.Operation, loop: int, parts: int) -> ir.Operation:
    """The matmul of all parts of the sum, a batch of them, in the place of one that sums over `loop`::

        %c = linalg.generic {C[m, n] += A[m, k]·B[n, k]} ins(%a, %b : tensor<16x4096xf16>, tensor<1024x4096xf16>) …
      becomes
        %a1 = tensor.expand_shape %a [[0], [1, 2]] : tensor<16x4096xf16> into tensor<16x8x512xf16>
        %b1 = tensor.expand_shape %b [[0], [1, 2]] : tensor<1024x4096xf16> into tensor<1024x8x512xf16>
        %p = linalg.generic {P[s, m, n] += A[m, s, k]·B[n, s, k]} ins(%a1, %b1) outs(0) -> tensor<8x16x1024xf32>
        %p0 = tensor.extract_slice %p[0, 0, 0] …, …
        %c = linalg.generic {C[m, n] = P0[m, n] + … + P7[m, n] + C0[m, n]} ins(%p0, …, %p7, %c0)

    The rest of what computes %c stands behind it. C0, what there was before, is left out where it is 0.
    """
    places = [[d for d in dims if d is not None] for dims in operand_loops(matmul)]
    init = matmul.operands[2]
    shape, element = list(init.type.shape), element_of(init.type)
    with ir.InsertionPoint(matmul), matmul.location:
        inputs = [_in_parts(v, dims, loop, parts) for v, dims in zip(matmul.operands, places[:2], strict=False)]
        zero = build.fill(build.constant(element, 0), build.empty([parts, *shape], element))
        kinds = [PARALLEL, *iterator_types(matmul)]
        new_places = [[n for d in dims for n in ((0, d + 1) if d == loop else (d + 1,))] for dims in places[:2]]
        new_places.append([0, *(d + 1 for d in places[2])])
        maps = [build.projection(len(kinds), dims) for dims in new_places]
        batch = with_operands(matmul, inputs, [zero], maps, build.iterator_array(kinds))
        units = [size == 1 for size in shape]  # slices of one row are vectors, as other ops of one row are
        units[-1] = units[-1] and not all(units)
        small = [size for size, unit in zip(shape, units, strict=True) if not unit]
        kind, ones = ir.RankedTensorType.get(small, element), [1] * (1 + len(shape))
        found = [extract(kind, batch.result, [part] + [0] * len(shape), [1, *shape], ones) for part in range(parts)]
        first = filled_with(init)
        if not isinstance(first, ir.FloatAttr) or first.value != 0:
            found.append(drop_units(init, units) if any(units) else init)
        (total,) = build.generic(
            found,
            [build.empty(small, element)],
            [build.projection(len(small), range(len(small)))] * (len(found) + 1),
            [PARALLEL] * len(small),
            lambda *values: functools.reduce(arith.addf, values[:-1]),
        )
        total = with_units(total, small, units)
    matmul.results[0].replace_all_uses_with(total)
    matmul.erase()
    return batch


def _in_parts(value: ir.Value, dims: Sequence[int], loop: int, parts: int) -> ir.Value:
    """An operand whose dimension along the sum is two."""
    pairs = zip(dims, value.type.shape, strict=True)
    return reshape(value, [[parts, size // parts] if d == loop else [size] for d, size in pairs], expand=True)
