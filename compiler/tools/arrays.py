"""Arrays for ``attn-run``: made up, read from files, written to files."""

import math
import sys
from collections.abc import Sequence

import numpy as np

from ...dialects.diagnostic import DiagnosedError, Diagnostic
from ..diagnostics import file_error, user_error
from ..runtime.signature import Signature, Slot, is_numpys

# Sizes of dynamic dimensions: odd, so that tiles do not divide them, and different, so that mix-ups show.
SIZES = (67, 45, 83, 29, 51, 37, 75, 21)


def random(signature: Signature, sizes: dict[tuple[int, int] | None, int], seed: int) -> list[np.ndarray]:
    """An array for every argument, the same for the same `seed`.

    Floats are normally distributed. Those of matrices are divided by the fourth root of the last dimension, so that
    products of two rows have about unit variance: larger scores would make softmax a maximum, and badly conditioned.

    `sizes` says how large dynamic dimensions are: by (argument, dimension), or for None all others.
    """
    shapes = [list(kind.shape or ()) for kind in signature.arguments]
    for place in sizes:
        if place is not None and (place[0] >= len(shapes) or place[1] >= len(shapes[place[0]])):
            raise user_error(f"--dim {place[0]}.{place[1]}: '{signature.name}' has no such dimension")
    default = iter(SIZES * len(shapes))
    values: dict[int, int] = {}
    for group, static in zip(signature.dimensions.groups, signature.dimensions.sizes, strict=True):
        chosen = {sizes[place] for place in group if place in sizes} | ({static} if static is not None else set())
        if len(chosen) > 1:
            names = ", ".join(str(i) if d is None else f"{i}.{d}" for i, d in group)
            raise user_error(f"the dimensions {names} are equal in the graph, and cannot be {sorted(chosen)}")
        if static is None and not chosen:
            chosen = {sizes[None] if None in sizes else next(default)}
        for i, d in group:
            if d is None:
                values[i] = next(iter(chosen))
            else:
                shapes[i][d] = next(iter(chosen))
    generator = np.random.default_rng(seed)
    made = [_random(kind, shape, generator) for kind, shape in zip(signature.arguments, shapes, strict=True)]
    return [np.asarray(values.get(i, array), array.dtype) for i, array in enumerate(made)]


def _random(kind: Slot, shape: Sequence[int | None], generator: np.random.Generator) -> np.ndarray:
    concrete = [size or 0 for size in shape]
    # numpy's error is not about memory. It counts sizes of 0 as 1, and random numbers are of 64 bits at first.
    if math.prod(size or 1 for size in concrete) * 8 > sys.maxsize:
        raise MemoryError
    if kind.dtype == np.bool_:
        return generator.random(concrete) < 0.75
    if kind.dtype.kind in "iu":
        return generator.integers(0, 10, concrete).astype(kind.dtype)
    wide = np.float64 if kind.dtype == np.float64 else np.float32
    scale = max(1, concrete[-1]) ** -0.25 if len(concrete) >= 2 else 1.0
    made = np.multiply(generator.standard_normal(concrete, dtype=wide), scale, dtype=wide)
    return made.astype(kind.dtype, copy=False)


def describe(signature: Signature, arrays: Sequence[np.ndarray], seed: int | None) -> str:
    """One line on what is run on what."""
    shapes = ", ".join(
        f"{'x'.join(map(str, array.shape))}x{array.dtype}" if array.ndim else str(array.dtype) for array in arrays
    )
    return f"{signature.name}({shapes}), {'arrays from files' if seed is None else f'random inputs, seed {seed}'}"


def read(files: Sequence[str], signature: Signature) -> list[np.ndarray]:
    """The arrays of .npy files, one per argument; bf16 and floats of 8 bits from their bits in uint16 and uint8."""
    if len(files) != len(signature.arguments):
        raise user_error(
            f"'{signature.name}' takes {len(signature.arguments)} arguments, but --inputs has {len(files)}"
        )
    arrays = []
    for file, kind in zip(files, signature.arguments, strict=True):
        try:
            array = np.load(file, allow_pickle=False)
        except OSError as error:
            raise file_error(file, "read", error) from None
        except (ValueError, EOFError) as error:
            # What numpy writes of ml_dtypes' float8_e5m2 it cannot read.
            way_out = "; save the bits of floats of 8 bits, array.view('uint8')" if "'<f1'" in str(error) else ""
            problem = f"is no array in numpy's .npy format{way_out}"
            raise DiagnosedError([Diagnostic("error", file, 0, 0, problem)]) from None
        if not isinstance(array, np.ndarray):
            raise DiagnosedError([Diagnostic("error", file, 0, 0, "holds several arrays; expects a .npy file of one")])
        size = kind.dtype.itemsize
        if not is_numpys(kind.dtype) and array.dtype.str.lstrip("|<") in (f"u{size}", f"V{size}"):
            array = array.view(kind.dtype)
        arrays.append(array)
    return arrays


def check_outputs(files: Sequence[str], signature: Signature) -> None:
    """A user's error if there is not one file per result."""
    if len(files) != len(signature.results):
        raise user_error(f"'{signature.name}' has {len(signature.results)} results, but --outputs has {len(files)}")


def write(files: Sequence[str], arrays: Sequence[np.ndarray]) -> None:
    """Writes results to .npy files, in order; bf16 and floats of 8 bits as their bits in uint16 and uint8."""
    for file, array in zip(files, arrays, strict=True):
        try:
            with open(file, "wb") as stream:
                np.save(stream, array if is_numpys(array.dtype) else array.view(f"u{array.itemsize}"))
        except OSError as error:
            raise file_error(file, "written", error) from None
