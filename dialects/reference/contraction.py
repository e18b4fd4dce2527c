"""Sums of products over an iteration space, at the speed of BLAS."""

import math
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager

import numpy as np


class FlopCount:
    """Counts the floating-point operations of contractions: 2 for every point of their iteration spaces."""

    def __init__(self) -> None:
        self.flops = 0


_counters: list[FlopCount] = []


@contextmanager
def counting() -> Iterator[FlopCount]:
    """Within the block, the contractions that are evaluated are counted."""
    counter = FlopCount()
    _counters.append(counter)
    try:
        yield counter
    finally:
        _counters.remove(counter)


_single_precision = 0


@contextmanager
def in_single_precision() -> Iterator[None]:
    """Within the block, contractions are summed in float32, as hardware sums f32 and narrower types."""
    global _single_precision
    _single_precision += 1
    try:
        yield
    finally:
        _single_precision -= 1


def contract(x: np.ndarray, y: np.ndarray, reduced: Collection[int], sizes: Sequence[int]) -> np.ndarray:
    """The sum of x·y over the axes `reduced` of an iteration space, as a matmul.

    `x` and `y` have an axis per loop, of size 1 where they do not depend on it; so has the result, with size 1 for the
    reduced axes and for those that neither depends on.
    """
    for counter in _counters:
        counter.flops += 2 * math.prod(sizes)
    x, y = _without_repetition(x), _without_repetition(y)
    loops = range(len(sizes))
    factor = 1
    both, left, right, inner = [], [], [], []
    for d in loops:
        in_x, in_y = x.shape[d] != 1, y.shape[d] != 1
        if d in reduced:
            if in_x and in_y:
                inner.append(d)
            elif in_x:
                x = x.sum(axis=d, keepdims=True)
            elif in_y:
                y = y.sum(axis=d, keepdims=True)
            else:
                factor *= sizes[d]
        elif in_x and in_y:
            both.append(d)
        elif in_x:
            left.append(d)
        elif in_y:
            right.append(d)
    if not inner:
        product = x * y
    else:
        size = lambda dims: math.prod(sizes[d] for d in dims)  # noqa: E731
        batch = [sizes[d] for d in both]
        rest = [d for d in loops if d not in {*both, *left, *right, *inner}]
        a = x.transpose([*both, *left, *inner, *right, *rest]).reshape(*batch, size(left), size(inner))
        b = y.transpose([*both, *inner, *right, *left, *rest]).reshape(*batch, size(inner), size(right))
        if _single_precision and a.dtype == b.dtype == np.float64:
            a, b = a.astype(np.float32), b.astype(np.float32)
        product = np.matmul(a, b).astype(x.dtype, copy=False).reshape([*batch, *(sizes[d] for d in [*left, *right])])
        kept = [*both, *left, *right]
        order = sorted(range(len(kept)), key=lambda i: kept[i])
        expand = tuple(slice(None) if d in kept else None for d in loops)
        product = product.transpose(order)[expand]
    return product if factor == 1 else product * factor


def _without_repetition(x: np.ndarray) -> np.ndarray:
    """`x` with size 1 along the axes of stride 0, where all its elements are the same."""
    if 0 not in x.strides:
        return x
    return x[tuple(slice(0, 1) if s == 0 and n > 1 else slice(None) for s, n in zip(x.strides, x.shape, strict=True))]
