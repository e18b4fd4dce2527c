"""Values as numpy arrays: element types, constants, and which arrays may be overwritten."""

import math
import re
import sys
from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np

from ..float8 import FORMATS
from ..mlir import ir

_FLOATS: dict[str, Any] = {
    "f64": np.float64,
    "f32": np.float32,
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    **{name: getattr(ml_dtypes, kind.numpy) for name, kind in FORMATS.items()},
}
_INTEGERS: dict[str, Any] = {
    "index": np.int64,
    "i1": np.bool_,
    **{f"{sign}{width}": f"int{width}" for sign in ("i", "si") for width in (8, 16, 32, 64)},
    **{f"ui{width}": f"uint{width}" for width in (8, 16, 32, 64)},
}
# An array of at least this many elements is worth the search for memory to reuse.
LARGE = 1 << 15


def element_type(kind: ir.Type) -> ir.Type:
    """The element type of a shaped type; a scalar type itself."""
    return kind.element_type if isinstance(kind, ir.ShapedType) else kind


def is_float(kind: ir.Type) -> bool:
    return str(element_type(kind)) in _FLOATS


def storage_dtype(kind: ir.Type) -> np.dtype:
    """The numpy type that holds `kind`'s elements exactly; TypeError where there is none."""
    name = str(element_type(kind))
    found = _FLOATS.get(name) or _INTEGERS.get(name)
    if found is None:
        raise TypeError(f"element type {name} is not supported")
    return np.dtype(found)


def value_dtype(kind: ir.Type) -> np.dtype:
    """The numpy type that `kind`'s elements are evaluated in: float64 for every float."""
    return np.dtype(np.float64) if is_float(kind) else storage_dtype(kind)


def constant(attribute: ir.Attribute) -> Any:
    """The value of an attribute of ``arith.constant``; a splat is a zero-stride view."""
    kind = attribute.type
    dtype = value_dtype(kind)
    if not isinstance(kind, ir.ShapedType):
        return dtype.type(attribute.value)
    if not isinstance(attribute, ir.DenseElementsAttr):
        raise TypeError(f"constants of the form {str(attribute)[:40]}… are not supported")
    if attribute.is_splat:
        return np.broadcast_to(dtype.type(attribute.get_splat_value().value), tuple(kind.shape))
    if str(kind.element_type) in _FLOATS and storage_dtype(kind).type.__module__ != "numpy":
        return _dense_from_text(str(attribute), storage_dtype(kind)).astype(dtype).reshape(kind.shape)
    return np.array(attribute).astype(dtype).reshape(kind.shape)


def _dense_from_text(text: str, dtype: np.dtype) -> np.ndarray:
    """The elements of ``dense<…>`` for the types (bf16, f8) that the bindings give no buffer of."""
    body = text[: text.rindex(">")].partition("<")[2].rpartition("> :")[0] or text.partition("<")[2]
    if body.startswith('"0x'):
        return np.frombuffer(bytes.fromhex(body.strip('"')[2:]), dtype)
    bits = np.dtype(f"uint{8 * dtype.itemsize}")
    tokens = re.findall(r"0x[0-9A-Fa-f]+|[-+]?[0-9][-+.0-9eE]*", body)
    return np.array([bits.type(int(t, 16)).view(dtype) if t.startswith("0x") else dtype.type(float(t)) for t in tokens])


def poison(shape: Sequence[int], kind: ir.Type) -> np.ndarray:
    """An uninitialised tensor: NaN or the type's smallest integer, so that reading it shows in the result."""
    dtype = value_dtype(kind)
    if dtype == np.float64:
        value: Any = np.float64(math.nan)
    else:
        value = dtype.type(False) if dtype == np.bool_ else np.iinfo(dtype).min
    return np.broadcast_to(value, tuple(shape))


def _detach(operands: list[Any], i: int) -> tuple[np.ndarray, tuple[int, int]]:
    """Operand `i`, removed from `operands`, and how often it and the owner of its memory are then referred to."""
    array, operands[i] = operands[i], None
    owner = array if array.base is None else array.base
    return array, (sys.getrefcount(array), sys.getrefcount(owner))


# What _detach counts for an array that nothing else refers to: measured, for it depends on the interpreter.
_SOLE_ARRAY = _detach([np.empty(1)], 0)[1]
_SOLE_VIEW = _detach([np.empty((1, 2)).T], 0)[1]


def take(operands: list[Any], i: int) -> np.ndarray:
    """Operand `i`, removed from `operands`, as an array to write to: a copy if anything else refers to it."""
    array = take_if_free(operands, i)
    if array is None:
        array, operands[i] = np.array(operands[i], order="C"), None
    return array


def take_if_free(operands: list[Any], i: int) -> np.ndarray | None:
    """Like `take`, but None (and `operands` unchanged) where it would copy."""
    if not _owns_memory(operands[i]):
        return None
    array, references = _detach(operands, i)
    if references == (_SOLE_ARRAY if array.base is None else _SOLE_VIEW):
        return array
    operands[i] = array
    return None


def is_rounded(kind: ir.Type) -> bool:
    """True if not each float64 is one of `kind`'s elements, which are floats."""
    return is_float(kind) and storage_dtype(kind) != np.float64


def round_in_place(values: list[Any], i: int, dtype: np.dtype) -> None:
    """Rounds the floats `values[i]` to `dtype`, in their own memory where that is free."""
    value = values[i]
    if isinstance(value, np.floating):  # a tenth of the time of an array with one element
        values[i] = np.float64(dtype.type(value))
        return
    del value  # else its memory is not free
    if getattr(values[i], "size", 1) < LARGE or 0 in values[i].strides:
        values[i] = np.asarray(values[i]).astype(dtype).astype(np.float64)[()]
        return
    array = take(values, i)
    for block in array if array.ndim > 1 else [array]:
        np.copyto(block, block.astype(dtype))
    values[i] = array


def _owns_memory(array: Any) -> bool:
    """Whether `array` or the one that it is a view of has memory of its own which may be written."""
    if not isinstance(array, np.ndarray) or not array.flags.writeable:
        return False
    owner = array if array.base is None else array.base
    return isinstance(owner, np.ndarray) and owner.flags.owndata


def apply(function: np.ufunc, operands: list[Any]) -> Any:
    """The elementwise `function` of `operands`, in the memory of one of them where that is free and fits."""
    large = [i for i in range(len(operands)) if getattr(operands[i], "size", 0) >= LARGE]
    if large:
        shape = np.broadcast_shapes(*(np.shape(x) for x in operands))
        dtype = operands[large[0]].dtype
        alike = all(getattr(x, "dtype", None) == dtype for x in operands)
        if alike and function.resolve_dtypes((*[dtype] * len(operands), None))[-1] == dtype:  # of isnan it is not
            for i in large:
                free = take_if_free(operands, i) if operands[i].shape == shape else None
                if free is not None:
                    operands[i] = free
                    return function(*operands, out=free)
    return function(*operands)
