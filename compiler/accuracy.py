"""How far results are from what they should be."""

from collections.abc import Iterable

import numpy as np

# The largest error of a right result, relative to its largest magnitude, by the narrowest float type of a graph.
TOLERANCES = {"f8E5M2": 2e-1, "f8E4M3FN": 1e-1, "bf16": 3e-2, "f16": 5e-3, "f32": 1e-5, "f64": 1e-12}
PIECE = 1 << 22  # elements at a time: results may be as large as memory allows


def tolerance(elements: Iterable[str]) -> float:
    """That of the narrowest float type among `elements`; 0 if there is none."""
    return max((TOLERANCES[name] for name in elements if name in TOLERANCES), default=0.0)


def errors(found: np.ndarray, expected: np.ndarray) -> tuple[float, float]:
    """The largest error, and that relative to the largest finite magnitude in `expected`.

    Of any types; integers and booleans are equal or not (1). Infinities and NaNs must be at the same places, and shapes
    the same: else both errors are infinite.
    """
    if found.shape != expected.shape:
        return np.inf, np.inf
    if found.size == 0:
        return 0.0, 0.0
    if expected.dtype.kind in "biu":
        differs = bool(np.any(found != expected))
        return float(differs), float(differs)
    worst, scale = 0.0, 0.0
    one, other = found.reshape(-1), expected.reshape(-1)
    for start in range(0, one.size, PIECE):
        a, b = (array[start : start + PIECE].astype(np.float64) for array in (one, other))
        finite = np.isfinite(b)
        if not np.array_equal(a[~finite], b[~finite], equal_nan=True) or not np.isfinite(a[finite]).all():
            return np.inf, np.inf
        if finite.any():
            worst = max(worst, float(np.abs(a[finite] - b[finite]).max()))
            scale = max(scale, float(np.abs(b[finite]).max()))
    return worst, worst / scale if scale > 0.0 else worst
