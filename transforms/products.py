"""Sizes as products of numbers, which are the same in whatever order they are multiplied."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Sequence
from typing import TypeAlias

from ..dialects import build
from ..dialects.mlir import arith, ir
from ..dialects.tiling.tensor_ops import reassociation
from .rewriting import defining_op
from .slices import Size, slice_sizes

Part: TypeAlias = Size | tuple[ir.Value, int]  # a number, a value, or a dimension of a tensor


def product(sizes: Sequence[Size]) -> Size:
    """Computed at the insertion point, as far as it is no number; of no tensor that is made for its sizes alone."""
    return functools.reduce(_times, [part for size in sizes for part in _parts(size)])


def _parts(size: Size) -> list[Size]:
    """What is multiplied for a size of a tensor whose sizes are values; the size itself where they are not."""
    found: list[Size] = []
    pending = [_read(size)]
    while pending:
        part = pending.pop()
        if not isinstance(part, tuple):
            found.append(part)
        elif (parts := _of_tensor(*part)) is not None:
            pending += parts
        else:
            return [size]
    return found


def _times(a: Size, b: Size) -> Size:
    if isinstance(a, int) and isinstance(b, int):
        return a * b
    return arith.muli(build.as_index(a), build.as_index(b))


def is_product(size: Size, of: Sequence[Size]) -> bool:
    """Whether a size is the product of these."""
    return factors([size]) == factors(of)


def factors(sizes: Sequence[Size]) -> tuple[int, Counter[Part]]:
    """A product as a number times what is not known, each size of a tensor by where it is read."""
    number, others = 1, Counter[Part]()
    pending: list[Part] = list(sizes)
    while pending:
        size = pending.pop()
        size = size if isinstance(size, tuple) else _read(size)
        if isinstance(size, int):
            number *= size
        elif (parts := _of_tensor(*size) if isinstance(size, tuple) else _multiplied(defining_op(size))) is not None:
            pending += parts
        else:
            others[size] += 1
    return number, others


def _read(size: Size) -> Part:
    """A size as a number, or as a dimension of a tensor, if it is one."""
    if isinstance(size, int):
        return size
    known, op = build.constant_value(size), defining_op(size)
    if isinstance(known, int):
        return known
    number = build.constant_value(op.operands[1]) if op is not None and op.name == "tensor.dim" else None
    return size if op is None or number is None else (op.operands[0], int(number))


def _of_tensor(tensor: ir.Value, dim: int) -> list[Part] | None:
    """What is multiplied for a size of a tensor; None if that is of its own."""
    if not tensor.type.is_dynamic_dim(dim):
        return [tensor.type.shape[dim]]
    op = defining_op(tensor)
    while op is not None and op.name == "linalg.generic":  # which gives what it starts from other elements
        tensor = op.operands[len(op.operands) - len(op.results) + ir.OpResult(tensor).result_number]
        op = defining_op(tensor)
    if op is not None and op.name == "bufferization.to_tensor":  # what a kernel has made
        op = defining_op(op.operands[0])
    if op is not None and op.name == "tensor.extract_slice" and op.operands[0].type.rank == tensor.type.rank:
        return [slice_sizes(op)[dim]]
    if op is not None and op.name in ("tensor.empty", "memref.alloc"):
        return [list(op.operands)[sum(map(tensor.type.is_dynamic_dim, range(dim)))]]
    is_collapse = op is not None and op.name == "tensor.collapse_shape"
    return [(op.operands[0], d) for d in reassociation(op)[dim]] if is_collapse else None


def _multiplied(op: ir.Operation | None) -> list[Part] | None:
    """What an op multiplies, or gives back of what was multiplied; None if it does something else."""
    if op is None:
        return None
    if op.name == "arith.muli":
        return list(op.operands)
    if op.name in ("arith.divsi", "arith.divui"):
        (number, others), (divisor, of) = factors([op.operands[0]]), factors([op.operands[1]])
        is_exact = divisor > 0 and number % divisor == 0 and of <= others
        return [number // divisor, *(others - of).elements()] if is_exact else None
    if op.name == "arith.index_cast":
        return list(op.operands)
    if op.name in ("arith.maxsi", "arith.maxui"):
        return [op.operands[0]] if is_product(op.operands[0], [op.operands[1]]) else None
    if op.name != "affine.apply":
        return None
    map_ = op.attributes["map"].value
    found: list[Part] = []
    pending = [map_.results[0]]
    while pending:
        e = pending.pop()
        if isinstance(e, ir.AffineMulExpr):
            pending += [e.lhs, e.rhs]
        elif isinstance(e, ir.AffineConstantExpr):
            found.append(e.value)
        elif isinstance(e, ir.AffineDimExpr):
            found.append(op.operands[e.position])
        elif isinstance(e, ir.AffineSymbolExpr):
            found.append(op.operands[map_.n_dims + e.position])
        else:
            return None
    return found
