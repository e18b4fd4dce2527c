"""The pass ``expand-before-slices``."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ..dialects.mlir import ir
from ..dialects.tiling.tensor_ops import reassociation
from .linear import DYNAMIC
from .passes import Pass
from .reshapes import reshape
from .rewriting import defining_op, erase_if_unused, ops_in
from .slices import extract, slice_parts


@dataclass(frozen=True)
class ExpandBeforeSlices(Pass):
    """Splits the dimensions of a tensor before a part is taken of it, not those of the part::

        %q = tensor.extract_slice %qkv[0, 1024] [4096, 1024] [1, 1] : tensor<4096x3072xf16> to tensor<4096x1024xf16>
        %h = tensor.expand_shape %q [[0], [1, 2]] output_shape [4096, 16, 64]
      becomes
        %e = tensor.expand_shape %qkv [[0], [1, 2]] output_shape [4096, 48, 64]
        %h = tensor.extract_slice %e[0, 16, 0] [4096, 16, 64] [1, 1, 1]

    Loops over tiles read a slice where it stands, so that queries, keys and values of one matmul are not copied apart.
    """

    def run(self, op: ir.Operation) -> None:
        for expand in ops_in(op, "tensor.expand_shape"):
            cut = defining_op(expand.operands[0])
            if cut is not None and cut.name == "tensor.extract_slice":
                _swap(expand, cut)


def _swap(expand: ir.Operation, cut: ir.Operation) -> None:
    source, shape = cut.operands[0], list(expand.results[0].type.shape)
    starts, counts, steps = slice_parts(cut)
    known = [*starts, *counts, *source.type.shape, *shape]
    is_plain = source.type.rank == cut.results[0].type.rank and all(step == 1 for step in steps)
    if not is_plain or not all(isinstance(n, int) and n != DYNAMIC for n in known):
        return
    sizes: list[list[int]] = []
    offsets: list[int] = []
    for d, group in enumerate(reassociation(expand)):
        start, extent, wide = starts[d], source.type.shape[d], [shape[g] for g in group]
        inner = math.prod(wide[1:])
        if inner == 0 or extent % inner or start % inner:
            return
        sizes.append([extent // inner, *wide[1:]])
        offsets += [start // inner, *[0] * (len(group) - 1)]
    with ir.InsertionPoint(expand), expand.location:
        whole = reshape(source, sizes, expand=True)
        part = extract(expand.results[0].type, whole, offsets, shape, [1] * len(shape))
    expand.results[0].replace_all_uses_with(part)
    expand.erase()
    erase_if_unused(cut)
