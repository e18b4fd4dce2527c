"""One step of softmax, over whole arrays and in place."""

import math
import os
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

# Rows are treated in blocks of about this many elements, which stay in the cache.
BLOCK = 1 << 17


def softmax_step(
    x: np.ndarray, m0: Any, a0: Any, axis: int, normalise: bool, exp: Any = np.exp
) -> tuple[np.ndarray, ...]:
    """result, max, accum and scale of ``linalg_ext.softmax`` (`normalise`) or ``unnorm_softmax``; overwrites `x`.

    A row whose maximum is −inf, which is masked so far, has result 0 and scale 0. `exp` may be np.exp2.
    """
    rows = np.moveaxis(x, axis, -1)
    shape = rows.shape[:-1]
    m0, a0 = np.broadcast_to(m0, shape), np.broadcast_to(a0, shape)
    m, a, scale = np.empty(shape), np.empty(shape), np.empty(shape)

    def block(index: tuple[Any, ...]) -> None:
        with np.errstate(all="ignore"):
            part, old_m, old_a = rows[index], m0[index], a0[index]
            new_m = np.maximum(old_m, part.max(axis=-1, initial=-math.inf))
            finite = np.where(new_m == -math.inf, 0.0, new_m)
            np.subtract(part, finite[..., None], out=part)
            exp(part, out=part)
            rescale = exp(old_m - finite)
            new_a = old_a * rescale + part.sum(axis=-1)
            divisor = np.where(new_a == 0.0, 1.0, new_a)
            if normalise:
                np.divide(part, divisor[..., None], out=part)
            m[index], a[index] = new_m, new_a
            scale[index] = old_a * rescale / divisor if normalise else rescale

    blocks = list(blocks_of(shape, max(1, BLOCK // max(1, rows.shape[-1]))))
    if len(blocks) < 4:
        for index in blocks:
            block(index)
    else:
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(os.cpu_count()) as pool:
            list(pool.map(block, blocks))
    return x, m, a, scale


def blocks_of(shape: Sequence[int], limit: int) -> Iterator[tuple[Any, ...]]:
    """Indices that cut `shape` into blocks of about `limit` elements: whole trailing axes, a slice of one, points."""
    inner, split = 1, len(shape)
    while split > 0 and inner * shape[split - 1] <= limit:
        split -= 1
        inner *= max(1, shape[split])
    if split == 0:
        yield (...,)
        return
    step = max(1, limit // inner)
    for point in np.ndindex(*shape[: split - 1]):
        for start in range(0, shape[split - 1], step):
            yield (*point, slice(start, start + step))
