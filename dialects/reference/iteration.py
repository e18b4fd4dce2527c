"""Indexing maps: an operand of a structured op seen over the op's iteration space.

The view has an axis for every loop, of size 1 for the loops that the operand does not depend on, so that bodies are
evaluated on whole arrays by broadcasting. For a matmul (m, n, k) with A at (d0, d2), the view of a 4×8 array has shape
4×1×8. Sums of loops with constant factors (the windows of a convolution) are strided views; maps that are not linear
(a floordiv) are gathered.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..mlir import ir

_BINARY: dict[Any, Callable[[Any, Any], Any]] = {
    ir.AffineAddExpr: lambda a, b: a + b,
    ir.AffineMulExpr: lambda a, b: a * b,
    ir.AffineModExpr: lambda a, b: a % b,
    ir.AffineFloorDivExpr: lambda a, b: a // b,
    ir.AffineCeilDivExpr: lambda a, b: -(-a // b),
}


def affine(expr: ir.AffineExpr) -> Callable[[Sequence[Any], Sequence[Any]], Any]:
    """An affine expression as a function of its dimensions and symbols."""
    if isinstance(expr, ir.AffineConstantExpr):
        value = expr.value
        return lambda dims, symbols: value
    if isinstance(expr, ir.AffineDimExpr | ir.AffineSymbolExpr):
        position = expr.position
        is_dim = isinstance(expr, ir.AffineDimExpr)
        return lambda dims, symbols: (dims if is_dim else symbols)[position]
    combine = _BINARY[type(expr)]
    left, right = affine(expr.lhs), affine(expr.rhs)
    return lambda dims, symbols: combine(left(dims, symbols), right(dims, symbols))


def linear(expr: ir.AffineExpr) -> tuple[dict[int, int], int] | None:
    """Coefficients by dimension and constant of an expression, None where it is not linear."""
    if isinstance(expr, ir.AffineConstantExpr):
        return {}, expr.value
    if isinstance(expr, ir.AffineDimExpr):
        return {expr.position: 1}, 0
    if isinstance(expr, ir.AffineAddExpr):
        left, right = linear(expr.lhs), linear(expr.rhs)
        if left is None or right is None:
            return None
        keys = left[0].keys() | right[0].keys()
        return {k: left[0].get(k, 0) + right[0].get(k, 0) for k in keys}, left[1] + right[1]
    if isinstance(expr, ir.AffineMulExpr):
        left, right = linear(expr.lhs), linear(expr.rhs)
        if left is None or right is None or (left[0] and right[0]):
            return None
        (terms, constant), factor = (right, left[1]) if right[0] else (left, right[1])
        return {k: v * factor for k, v in terms.items()}, constant * factor
    return None


class Access:
    """How one operand is indexed: `map` over `loops` loops."""

    def __init__(self, map: ir.AffineMap):
        self.loops = map.n_dims
        self.results = list(map.results)
        self.terms = [linear(expr) for expr in self.results]
        # plain[i] is the loop that axis i of the operand is indexed by, where it is indexed by a loop alone.
        self.plain = [expr.position if isinstance(expr, ir.AffineDimExpr) else None for expr in self.results]
        self.dims = {d for expr in self.results for d in range(self.loops) if expr_uses(expr, d)}
        self.is_projection = None not in self.plain and len(set(self.plain)) == len(self.plain)
        self.is_permutation = self.is_projection and len(self.plain) == self.loops
        if self.is_projection:
            present = [d for d in self.plain if d is not None]
            self.order = sorted(range(len(present)), key=present.__getitem__)
            self.expand = tuple(slice(None) if d in present else None for d in range(self.loops))
            self.trivial = self.order == list(range(len(self.order))) and len(self.order) == self.loops

    def view(self, array: Any, sizes: Sequence[int]) -> Any:
        """`array` over the iteration space of the given sizes; see the module."""
        if not self.is_projection:
            return self._strided(array, sizes) if None not in self.terms else self._gathered(array, sizes)
        if self.trivial or not isinstance(array, np.ndarray) or not self.results:
            return array
        return array.transpose(self.order)[self.expand]

    def restore(self, value: Any, sizes: Sequence[int]) -> np.ndarray:
        """The inverse of `view` for a projection: from the iteration space to the operand's own axes."""
        shape = [sizes[d] if d in self.dims else 1 for d in range(self.loops)]
        if np.shape(value) != tuple(shape):
            value = np.broadcast_to(value, shape)
        index = tuple(slice(None) if d in self.dims else 0 for d in range(self.loops))
        projected = value[index]
        kept = sorted(self.dims)
        return projected.transpose([kept.index(d) for d in self.plain if d is not None])

    def _strided(self, array: np.ndarray, sizes: Sequence[int]) -> np.ndarray:
        strides = [0] * self.loops
        start = []
        for axis, term in enumerate(self.terms):
            assert term is not None
            coefficients, constant = term
            ends = [c * (sizes[d] - 1) for d, c in coefficients.items()]
            low, high = constant + sum(min(e, 0) for e in ends), constant + sum(max(e, 0) for e in ends)
            if 0 not in sizes and (low < 0 or high >= array.shape[axis]):
                raise IndexError(f"indices {low} to {high} of axis {axis}, which has size {array.shape[axis]}")
            for d, c in coefficients.items():
                strides[d] += c * array.strides[axis]
            start.append(slice(constant, None))
        shape = [sizes[d] if d in self.dims else 1 for d in range(self.loops)]
        return np.lib.stride_tricks.as_strided(array[tuple(start)], shape, strides)

    def _gathered(self, array: np.ndarray, sizes: Sequence[int]) -> np.ndarray:
        indices = iotas(sizes)
        where = [np.asarray(affine(expr)(indices, ())) for expr in self.results]
        for axis, index in enumerate(where):
            if index.size and (index.min() < 0 or index.max() >= array.shape[axis]):
                raise IndexError(f"an index of axis {axis} is out of bounds for its size {array.shape[axis]}")
        return array[tuple(where)].reshape([sizes[d] if d in self.dims else 1 for d in range(self.loops)])


def expr_uses(expr: ir.AffineExpr, dim: int) -> bool:
    """Whether an affine expression depends on the dimension."""
    if isinstance(expr, ir.AffineDimExpr):
        return expr.position == dim
    if isinstance(expr, ir.AffineBinaryExpr):
        return expr_uses(expr.lhs, dim) or expr_uses(expr.rhs, dim)
    return False


def iota(sizes: Sequence[int], loop: int) -> np.ndarray:
    """The indices of a loop, as an array along its own axis of the iteration space."""
    return np.arange(sizes[loop]).reshape([size if d == loop else 1 for d, size in enumerate(sizes)])


def iotas(sizes: Sequence[int]) -> list[np.ndarray]:
    """Those of every loop."""
    return [iota(sizes, loop) for loop in range(len(sizes))]


def loop_sizes(accesses: Sequence[Access], shapes: Sequence[tuple[int, ...]]) -> list[int]:
    """The sizes of the loops, from the operands' shapes; ValueError where these contradict each other."""
    sizes: list[int | None] = [None] * accesses[0].loops
    for access, shape in zip(accesses, shapes, strict=True):
        for d, size in zip(access.plain, shape, strict=True):
            if d is None:
                continue
            if sizes[d] is None:
                sizes[d] = size
            elif sizes[d] != size:
                raise ValueError(f"operands disagree on the size of loop {d}: {sizes[d]} and {size}")
    missing = [d for d, size in enumerate(sizes) if size is None]
    if missing:
        raise ValueError(f"no operand says the size of loop {missing[0]}")
    return [size for size in sizes if size is not None]
