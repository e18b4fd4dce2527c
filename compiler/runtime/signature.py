"""What a compiled function takes and returns, and how Python's arrays are bound to it."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...dialects.diagnostic import DiagnosedError
from ...dialects.mlir import ir
from ...dialects.reference.arrays import element_type, storage_dtype
from ..diagnostics import diagnostic, user_error
from ..shapes import DYNAMIC, Dimensions, argument_dimensions


@dataclasses.dataclass(frozen=True)
class ArrayType:
    """A tensor type: its dimensions (None where dynamic; a scalar has none), its numpy type, its text in MLIR."""

    shape: tuple[int | None, ...]
    dtype: np.dtype
    text: str
    is_scalar: bool = False

    def __str__(self) -> str:
        return self.text


def array_type(kind: ir.Type, function: ir.OpView) -> ArrayType:
    """The ArrayType of a ranked tensor or a scalar of a function's type; a user's error for anything else."""
    is_tensor = isinstance(kind, ir.RankedTensorType)
    if not is_tensor and isinstance(kind, ir.ShapedType):
        raise _error_at(function, f"arguments and results must be ranked tensors or scalars, but found {kind}")
    try:
        dtype = storage_dtype(element_type(kind))
    except TypeError as error:
        raise _error_at(function, f"arguments and results of type {kind}: {error}") from None
    shape = tuple(None if s == DYNAMIC else s for s in kind.shape) if is_tensor else ()
    return ArrayType(shape, dtype, str(kind), not is_tensor)


def _error_at(function: ir.OpView, message: str) -> DiagnosedError:
    return DiagnosedError([diagnostic("error", message, function.operation.location)])


@dataclasses.dataclass(frozen=True)
class Signature:
    """The types of a function's arguments and results, and which dimensions of the arguments are equal."""

    name: str
    inputs: list[ArrayType]
    results: list[ArrayType]
    dimensions: Dimensions

    @staticmethod
    def of(function: ir.OpView) -> "Signature":
        kind = function.type
        return Signature(
            function.name.value,
            [array_type(t, function) for t in kind.inputs],
            [array_type(t, function) for t in kind.results],
            argument_dimensions(function),
        )

    def bind(self, arguments: Sequence[Any]) -> list[np.ndarray]:
        """`arguments` as C-contiguous numpy arrays of the declared types, checked; shares memory where it can."""
        if len(arguments) != len(self.inputs):
            raise user_error(f"'{self.name}' takes {len(self.inputs)} arguments, but {len(arguments)} were given")
        arrays = [
            self._bound(i, argument, kind)
            for i, (argument, kind) in enumerate(zip(arguments, self.inputs, strict=True))
        ]
        for group, size in zip(self.dimensions.groups, self.dimensions.sizes, strict=True):
            (i, d), *others = group
            expected = arrays[i].shape[d] if size is None else size
            for j, e in group if size is not None else others:
                if arrays[j].shape[e] != expected:
                    why = f"as dimension {d} of argument {i}" if size is None else "as the graph has it elsewhere"
                    found = arrays[j].shape[e]
                    raise user_error(f"dimension {e} of argument {j} must be {expected}, {why}, but is {found}")
        return arrays

    def _bound(self, i: int, argument: Any, kind: ArrayType) -> np.ndarray:
        array = as_numpy(argument)
        if kind.is_scalar and isinstance(argument, bool | int | float):
            array = array.astype(kind.dtype)
        if array.dtype != kind.dtype:
            raise user_error(f"argument {i} must be {kind} (numpy's {kind.dtype}), but is an array of {array.dtype}")
        fits = array.ndim == len(kind.shape)
        if not fits or any(s not in (None, found) for s, found in zip(kind.shape, array.shape, strict=True)):
            raise user_error(f"argument {i} must be {kind}, but is an array of shape {array.shape}")
        return np.ascontiguousarray(array).reshape(array.shape)


def as_numpy(value: Any) -> np.ndarray:
    """A numpy array on the memory of `value`: an array, a tensor of any library with DLPack, a scalar."""
    if isinstance(value, np.ndarray):
        return value
    if type(value).__module__.partition(".")[0] == "torch" and str(value.dtype) == "torch.bfloat16":
        import ml_dtypes

        torch = __import__("torch")
        return value.detach().contiguous().view(torch.uint16).numpy().view(ml_dtypes.bfloat16)
    if hasattr(value, "__dlpack__"):
        try:
            return np.from_dlpack(value.detach() if hasattr(value, "detach") else value)
        except (BufferError, RuntimeError, TypeError) as error:
            raise user_error(f"an argument of type {type(value).__name__} is no readable array: {error}") from None
    array = np.asarray(value)
    if array.dtype == object:
        raise user_error(f"an argument of type {type(value).__name__} is no array")
    return array
